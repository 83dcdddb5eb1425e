"""Measure training by two processes against one, on two processor cores.

    python benchmarks/processes.py

Four ways to make an iteration of both networks of IN²R's warm-up on made features, GPO on regions and words:

- one process with one thread, and one process with two;
- two processes with one thread each that share out every batch (docs/processes.md);
- two processes with one thread each, of which each trains one network on whole batches and sends nothing: what a
  network per device could at best be.

Every round measures all of them, one after the other. Figures go to benchmarks/results/processes.json.
"""

import multiprocessing
import os
import platform
import socket
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from in2r.files import write_json
from in2r.runs.settings import load_config
from in2r.training.train import Silent, start_run

RESULTS = Path(__file__).parent / "results" / "processes.json"
IMAGES, REGIONS, FEATURES, DIM, WORDS = 600, 10, 352, 256, 3000
STEPS, SKIPPED = 10, 3
"""timed steps of a network, and those before"""
ROUNDS = 4
WAYS = {"one thread": (1, 1, False), "two threads": (1, 2, False), "shared out": (2, 1, True), "apart": (2, 1, False)}
"""name → processes, threads of each, and whether they train together"""


class EnoughError(Exception):
    """Ends a run that has been timed."""


class Clock(Silent):
    """Notes when each step was done."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def step(self) -> None:
        """Note the time."""
        self.times.append(time.monotonic())
        if len(self.times) == SKIPPED + STEPS + 1:
            raise EnoughError


def make_data(folder: Path) -> Path:
    """Write made features and captions of drawn words."""
    draws = np.random.default_rng(0)
    folder.mkdir()
    for split, count in (("train", IMAGES), ("dev", 50), ("test", 50)):
        np.save(folder / f"{split}_ims.npy", draws.standard_normal((count, REGIONS, FEATURES)).astype(np.float32))
        lines = [" ".join(f"w{word}" for word in draws.integers(0, WORDS, 12)) for _ in range(5 * count)]
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def train(number: int, port: int, folder: Path, way: str, took: Any) -> None:
    """Train until enough steps are timed; put the median seconds of a step."""
    count, threads, together = WAYS[way]
    if together:
        names = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in names.items()} | {"MASTER_ADDR": "127.0.0.1"})
    clock = Clock()
    settings = [f"data.path={folder / 'data'}", f"model.dim={DIM}", f"train.threads={threads}", "train.device=cpu"]
    display = clock if number == 0 or not together else Silent()
    with suppress(EnoughError, SystemExit):
        start_run(folder / f"{way}-{number}-{port}", load_config("in2r", settings), display)
    if clock.times:
        steps = np.diff(clock.times)[SKIPPED:]
        took.put(float(np.median(steps)))


def measure(context: Any, folder: Path, way: str) -> float:
    """Return the seconds of an iteration of both networks."""
    count, _, together = WAYS[way]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    took = context.Queue()
    started = [context.Process(target=train, args=(number, port, folder, way, took)) for number in range(count)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    step = max(took.get() for _ in range(1 if together else count))
    return step if way == "apart" else 2 * step


def main() -> None:
    """Measure all ways in turn, and write the figures."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder / "data")
        rounds = [{way: measure(context, folder, way) for way in WAYS} for _ in range(ROUNDS)]
    ratios = {way: sorted(one[way] / one["two threads"] for one in rounds) for way in WAYS}
    for way, values in ratios.items():
        print(f"{way:12} {statistics.median(values):.2f} of two threads ({values[0]:.2f} to {values[-1]:.2f})")
    about = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__, "rounds": ROUNDS}
    write_json(RESULTS, {**about, "seconds": rounds, "ratios": ratios})


if __name__ == "__main__":
    main()
