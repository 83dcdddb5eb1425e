"""Measure how long batches wait for rows of feature files: files that are not in memory, and files that are.

    python benchmarks/cold.py --folder /tmp/cold

Two made arrays of 3 GB in three pieces: vectors of 512 float16 numbers, and 36 regions of 2,048. Each way of reading
is measured on 60 random batches of 128 items, with a pause of 10 ms after each for the step that would be made, and on
batches in order. `called` is what IN²R does: the rows of a batch are called from the disk before they are read
(in2r.data.mapped). `plain` reads them without that, `next` calls those of the next batch too. Before a measurement of
cold files the system drops them (posix_fadvise), and no map is open. Ways take turns. Times are medians of five, in ms
a batch without the pause. A ratio is the median of five turns' ratios, with the least and the largest. Figures go to
benchmarks/results/cold.json; `python benchmarks/report.py` writes them into docs/scaling.md.
"""

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from in2r.data import features
from in2r.data.features import Features, create_npy, open_file_or_pieces
from in2r.data.mapped import call_rows
from in2r.files import write_json

RESULTS = Path(__file__).parent / "results" / "cold.json"
KINDS = {"vectors": (3_000_000, 1, 512, 1024), "regions": (20_000, 36, 2048, 16)}
"""items, regions, dim; batches of a pass in order"""
WAYS = ("plain", "called", "next")
BATCH, BATCHES, PAUSE, TURNS, PIECES = 128, 60, 0.01, 5, 3


def make(folder: Path, items: int, regions: int, dim: int) -> None:
    """Write pieces of random bits that are numbers below 2."""
    folder.mkdir(parents=True)
    draws, block = np.random.default_rng(0), max(1, 2**25 // (2 * regions * dim))
    for piece in range(PIECES):
        array = create_npy(folder / f"images-{piece}.npy", np.float16, (items // PIECES, regions, dim))
        for start in range(0, len(array), block):
            part = array[start : start + block]
            part.view(np.uint16)[:] = draws.integers(0, 2**14, part.shape, dtype=np.uint16)
        array.flush()


def settle(folder: Path, cold: bool) -> None:
    """Take the files out of memory, or into it."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            if cold:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while file.read(2**25):
                    pass


def batches(items: int, in_order: int | None) -> Iterator[torch.Tensor]:
    """Return the items of each batch."""
    if in_order is None:
        return iter(torch.from_numpy(np.random.default_rng().integers(0, items, (BATCHES, BATCH))))
    return iter(torch.arange(in_order * BATCH).view(in_order, BATCH))


def measure(folder: Path, way: str, cold: bool, in_order: int | None) -> float:
    """Return the milliseconds of a batch."""
    settle(folder, cold)
    array = open_file_or_pieces(folder)
    data = Features(array, np.arange(len(array)))
    given = list(batches(len(array), in_order))
    pause = PAUSE if in_order is None else 0.0
    off = patch.object(features, "call_rows", lambda *_: None)
    if way == "plain":
        off.start()
    started = time.perf_counter()
    for index, items in enumerate(given):
        data._copy(items.numpy())
        if way == "next":
            for one, _, its in array.holding(given[(index + 1) % len(given)].numpy()):
                call_rows(one, its)
        time.sleep(pause)
    took = time.perf_counter() - started
    if way == "plain":
        off.stop()
    return 1000 * (took / len(given) - pause)


def compare(folder: Path, cold: bool, in_order: int | None) -> dict[str, Any]:
    """Let all ways take turns; return medians and ratios to `plain`."""
    ways = WAYS if in_order is None else WAYS[:2]
    turns = [{way: measure(folder, way, cold, in_order) for way in ways} for _ in range(TURNS)]
    found: dict[str, Any] = {way: statistics.median(turn[way] for turn in turns) for way in ways}
    for way in ways[1:]:
        ratios = sorted(turn["plain"] / turn[way] for turn in turns)
        found[f"{way}_ratio"] = [statistics.median(ratios), ratios[0], ratios[-1]]
    return found


def main() -> None:
    """Measure both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="on the disk that is measured: 3 GB are free there")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for kind, (items, regions, dim, in_order) in KINDS.items():
        folder = asked.folder / kind
        try:
            make(folder, items, regions, dim)
            for where, cold in (("cold", True), ("in memory", False)):
                for how, passed in (("random", None), ("in order", in_order)):
                    found[f"{kind}, {how}, {where}"] = compare(folder, cold, passed)
                    print(kind, how, where, found[f"{kind}, {how}, {where}"], flush=True)
        finally:
            shutil.rmtree(folder)
    write_json(asked.out, found)


if __name__ == "__main__":
    main()
