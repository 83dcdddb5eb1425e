"""Measure CPU time and memory of training, part by part, on 10^4 to 10^7 made pairs of global vectors.

    python benchmarks/scale.py 10000 100000 1000000 10000000 --folder /tmp/scale

Each size is made as a pair table (one caption an image, float16, 64 numbers each, every fifth caption exchanged) and
removed afterwards. A method is measured in a process of its own with one thread: everything that a run does in an epoch
of its warm-up and in one of its main phase, as the run itself does it. Of the training steps, which all take the same
time, the first are made; every pass over the pairs is made whole. Memory is anonymous memory (RssAnon): pages of the
feature files are the system's to take back. Figures go to benchmarks/results/scale.json; `python benchmarks/report.py`
writes them into docs/scaling.md.
"""

import argparse
import ctypes
import json
import math
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from in2r.device import hold_freed_memory, use_threads
from in2r.files import read_json, write_json
from in2r.methods import Division, Now
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.training.division import observe_pairs
from in2r.training.evaluation import evaluate_split
from in2r.training.loop import Trainer
from in2r.training.networks import peer_of
from in2r.training.order import EpochOrder
from in2r.training.setup import open_setup
from in2r.training.train import Silent, _first_start

RESULTS = Path(__file__).parent / "results" / "scale.json"
METHODS = ("in2r", "sce")
DIM, SHARED, DEV, NOISE = 64, 16, 1000, 0.2
"""numbers of a vector; of what both sides share; pairs of dev; share of captions that are exchanged"""
ROWS = 100_000
"""made at a time"""
STEPS, SKIPPED = 60, 5
"""steps of each network that are timed, and those before"""
LOOK_EVERY = 0.02
"""seconds between two looks at the memory"""
SETTINGS = ("model.dim=64", "train.threads=1", "train.device=cpu", "train.epochs=2", "method.warmup_epochs=1")


def make(folder: Path, pairs: int, dim: int = DIM, seed: int = 0) -> None:
    """Write a pair table without captions as text, and both sides' vectors."""
    folder.mkdir(parents=True)
    draws, total = np.random.default_rng(seed), pairs + DEV
    ways = [draws.standard_normal((SHARED, dim), dtype=np.float32) for _ in range(2)]
    files = [
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float16, (total, dim))
        for name in ("images", "captions")
    ]
    with (folder / "pairs.csv").open("w") as table:
        table.write("image,split\n")
        for start in range(0, total, ROWS):
            rows = range(start, min(start + ROWS, total))
            shared = draws.standard_normal((len(rows), SHARED), dtype=np.float32)
            told = shared.copy()
            told[: int(NOISE * len(rows))] = np.roll(told[: int(NOISE * len(rows))], 1, axis=0)
            for file, own, way in zip(files, (shared, told), ways, strict=True):
                file[rows.start : rows.stop] = own @ way + draws.standard_normal((len(rows), dim), dtype=np.float32)
            table.writelines(f"{row},{'train' if row < pairs else 'dev'}\n" for row in rows)


def anonymous() -> int:
    """Return the bytes of this process's anonymous memory."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


class Meter:
    """CPU seconds of each part, its largest memory, and what is held when it ends."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, float]] = {}
        self._largest, self._ended = 0, threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the memory all the time."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            self._largest = max(self._largest, anonymous())

    @contextmanager
    def part(self, name: str, per: int = 1) -> Iterator[None]:
        """Measure a part that is `per` times what is asked for."""
        ctypes.CDLL(None).malloc_trim(0)
        self._largest, started = anonymous(), time.process_time()
        yield
        seconds = time.process_time() - started
        peak = max(self._largest, anonymous())
        ctypes.CDLL(None).malloc_trim(0)
        self.parts[name] = {"seconds": seconds / per, "peak": peak, "held": anonymous()}
        print(name, json.dumps(self.parts[name]), file=sys.stderr, flush=True)


def measure(folder: Path, method: str) -> dict[str, Any]:
    """Do what a run does in two epochs, part by part."""
    meter = Meter()
    config = load_config(method, [f"data.path={folder}", *SETTINGS])
    start, run_folder = anonymous(), RunFolder(folder / method)
    with use_threads(1), run_folder.locked(), meter.watching():
        with meter.part("open"):
            setup = open_setup(config, torch.device("cpu"))
        with meter.part("build"):
            trainer = _first_start(run_folder, setup, Silent(), None)
        run = Run(trainer, meter)
        run.epoch("warm-up", {})
        if trainer.method.divides():
            run.epoch("main", run.divide())
        with meter.part("checkpoint"):
            trainer.save()
        [checkpoint] = (folder / method).rglob("step-*.safetensors")
        divisions = sum(file.stat().st_size for file in (folder / method).rglob("divisions-*.safetensors"))
        nets = {name: net.backbone for name, net in trainer.state.nets.items()}
        with meter.part("validation"):
            evaluate_split(nets, trainer.dev, trainer.dev_texts, trainer.device)
    return {
        "parts": meter.parts,
        "start": start,
        "checkpoint_bytes": checkpoint.stat().st_size,
        "divisions_bytes": divisions,
        "memory_entries": getattr(getattr(trainer.state.nets["A"].own, "memory", None), "capacity", 0),
    }


class Run:
    """The epochs of a run, in parts."""

    def __init__(self, trainer: Trainer, meter: Meter) -> None:
        self.trainer, self.meter = trainer, meter
        self.state, self.data = trainer.state, trainer.data

    def divide(self) -> dict[str, Division]:
        """Observe all pairs by each network, and divide them."""
        method, seen = self.trainer.method, {}
        for name, net in self.state.nets.items():
            with self.meter.part(f"observe {name}"):
                seen[name] = observe_pairs(method.observe, net, self.data, self.trainer.config, name, 1)
        with self.meter.part("divide"):
            self.state.divisions = dict(method.divide(seen, self.state.nets, self.data, Now(0, 1, 0)))
        del seen
        self.state.divided_at = self.state.step
        with self.meter.part("divisions"):
            self.trainer._keep_divisions()
        return self.state.divisions

    def epoch(self, phase: str, divisions: dict[str, Division]) -> None:
        """Order the pairs for each network, and make the first steps."""
        trainer, epoch = self.trainer, int(bool(divisions))
        self.state.epoch = epoch
        with self.meter.part(f"{phase}: order"):
            orders: dict[str, EpochOrder] = {name: trainer._order(name) for name in trainer.names}
            assert len(list(trainer._sequence({name: len(order) for name, order in orders.items()})))
        for index in range(min(SKIPPED, len(orders["A"]))):
            self._step(index, orders, divisions, epoch)
        last = min(SKIPPED + STEPS, len(orders["A"]))
        with self.meter.part(f"{phase}: step", per=(last - SKIPPED) * len(orders)):
            for index in range(SKIPPED, last):
                self._step(index, orders, divisions, epoch)

    def _step(self, index: int, orders: dict[str, EpochOrder], divisions: dict[str, Division], epoch: int) -> None:
        trainer = self.trainer
        for name, order in orders.items():
            nets = self.state.nets[name], self.state.nets[peer_of(name, trainer.names)]
            now, where = Now(0, 1, 0, name, index), (name, epoch, index)
            optimizers, division = self.state.optimizers[name], divisions.get(name)
            loss = trainer.learner.iterate(nets, optimizers, order, division, now, where, self.state.means)
            assert math.isfinite(loss)


def main() -> None:
    """Measure each size and method in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", type=int)
    parser.add_argument("--folder", type=Path, required=True, help="where data may lie: 0.3 KB a pair")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", choices=METHODS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        hold_freed_memory()
        print(json.dumps(measure(asked.folder, asked.measure)))
        return
    for pairs in asked.pairs:
        data = asked.folder / str(pairs)
        make(data, pairs)
        try:
            found = {}
            for method in METHODS:
                command = [sys.executable, __file__, "--measure", method, "--folder", str(data)]
                found[method] = json.loads(
                    subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                )
                print(pairs, method, json.dumps(found[method]), flush=True)
        finally:
            shutil.rmtree(data)
        write_json(asked.out, {**(read_json(asked.out) if asked.out.is_file() else {}), str(pairs): found})


if __name__ == "__main__":
    main()
