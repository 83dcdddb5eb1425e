"""Measure what an epoch of each method's main phase costs, in time and memory, beside training on all pairs.

    python benchmarks/weblike.py flickr8k_precomp flickr8k_2000_images --images 2000 --ratio 0
    python benchmarks/peers_cost.py flickr8k_2000_images

The settings are those of benchmarks/flickr8k.yaml at 60 %, with one epoch of warm-up and a main phase of four, which
passes through all stages of a method. Every run has a process and one thread of its own; every round measures all
methods, one after the other. Time is CPU time, because other work may run on the machine. Figures go to
benchmarks/results/peers_cost.json.
"""

import argparse
import multiprocessing
import platform
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from in2r.cli.main import main as in2r
from in2r.files import write_json
from in2r.runs.settings import load_config
from in2r.training.train import Silent, start_run

RESULTS = Path(__file__).parent / "results" / "peers_cost.json"
UNIT = "triplet"
"""whose epoch is 1"""
WARMED = [UNIT, "in2r/discard", "in2r", "ncr", "decl", "bicro", "l2rm", "cream", "esc", "pc2", "sps", "pcsr"]
METHODS = [*WARMED, "gsc", "gscplus"]
MAIN = 4
"""epochs of the main phase: PC²'s and PCSR's last stages begin at half and at 80 % of it"""
ROUNDS = 2


class Clock(Silent):
    """Notes the CPU time at the end of each epoch."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def record(self, record: dict[str, Any]) -> None:
        """Note the time."""
        self.times.append(time.process_time())


def train(preset: str, data: Path, noise: Path, folder: Path, took: Any) -> None:
    """Train by a preset; put the CPU seconds of an epoch of the main phase, and the most memory in MB."""
    settings = [
        f"data.path={data}", "data.caption_vectors=caps_minilm", f"noise.index={noise}", "model.dim=512",
        f"train.epochs={1 + MAIN}", "train.threads=1", "train.device=cpu",
    ]  # fmt: skip
    settings += ["method.warmup_epochs=1"] if preset in WARMED else []
    settings += ["method.warmup=sce"] if preset == UNIT else []
    clock = Clock()
    start_run(folder, load_config(preset, settings), clock)
    seconds = (clock.times[-1] - clock.times[-1 - MAIN]) / MAIN
    took.put({"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def main() -> None:
    """Measure all methods in turn, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a data folder with the sentence vectors caps_minilm")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        data, noise = given.data.absolute(), Path(name) / "noise.npy"
        in2r(["noise", "make", str(data), "--ratio", "0.6", "--seed", "0", "--out", str(noise)])
        for number in range(given.rounds):
            rounds.append({})
            for preset in METHODS:
                took = context.Queue()
                folder = Path(name) / f"{number}-{preset.replace('/', '-')}"
                process = context.Process(target=train, args=(preset, data, noise, folder, took))
                process.start()
                rounds[-1][preset] = took.get()
                process.join()
                print(number, preset, rounds[-1][preset], flush=True)
    for preset in METHODS:
        ratios = sorted(one[preset]["seconds"] / one[UNIT]["seconds"] for one in rounds)
        print(f"{preset:14} {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    about = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__, "main_epochs": MAIN}
    write_json(RESULTS, {**about, "unit": UNIT, "rounds": rounds})


if __name__ == "__main__":
    main()
