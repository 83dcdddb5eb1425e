"""Time the toolkit against a plain version of the same, in turns: `make bench`.

Prints a Markdown table. A row is measured in pairs of turns, toolkit and plain version, the order changing from pair to
pair; of the pairs' ratios it has the median and the quartiles.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import plain
import toolkit
import torch
from workload import CAPTIONS, SIZES, Size, embeddings, make_data

from in2r.device import device_name, hold_freed_memory, resolve_device
from in2r.errors import InputError
from in2r.runs.identity import versions

FOUND, QUERIES = 10, 128
"""items that a retrieval returns; captions that are searched for at once"""
STEPS = 5
"""pairs of timed steps for each pair of the longer rows"""
SGR_IMAGES = 16
GROUPS = ("step", "epoch", "validation", "ranks", "sgr", "retrieval")
HEAD = "| size | what | toolkit, s | plain, s | plain / toolkit | by CPU time |\n| --- | --- | --- | --- | --- | --- |"
Call = Callable[[], Any]


def seconds(call: Call, device: torch.device) -> tuple[float, float]:
    """Wall clock and CPU seconds of one call, the device's work included."""
    synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    synchronize(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_turns(ours: Call, other: Call, turns: int, device: torch.device) -> dict[str, Any]:
    """Time both calls in turns, once before without a clock.

    Returns:
        seconds and cpu_seconds, each with the medians `toolkit` and `plain`, and `ratios`, plain over toolkit, of each
        pair of turns, sorted.
    """
    calls = {"toolkit": ours, "plain": other}
    for call in calls.values():
        call()
    pairs: list[dict[str, tuple[float, float]]] = []
    for turn in range(turns):
        order = sorted(calls, reverse=bool(turn % 2))
        taken = {side: seconds(calls[side], device) for side in order}
        pairs.append(taken)
    found = {}
    for number, clock in enumerate(("seconds", "cpu_seconds")):
        times = {side: [pair[side][number] for pair in pairs] for side in calls}
        ratios = sorted(b / max(a, 1e-9) for a, b in zip(times["toolkit"], times["plain"], strict=True))
        found[clock] = {**{side: statistics.median(values) for side, values in times.items()}, "ratios": ratios}
    return found


def rows(
    folder: Path, size: Size, device: torch.device, groups: tuple[str, ...], turns: int, *settings: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure the rows of the groups."""
    ours = toolkit.Toolkit(folder, size, device, *settings)
    other = plain.Plain(ours)
    compare = partial(in_turns, device=device)
    if "step" in groups:
        # the first step of an epoch also measures each loss's gradient
        numbers = {side: cycle(range(1, len(ours.orders["A"]))) for side in (ours, other)}
        calls = [lambda side=side: side.step(next(numbers[side])) for side in numbers]
        yield "training step", compare(*calls, turns=STEPS * turns)
    if "epoch" in groups:
        steps = 2 * len(ours.orders["A"])
        yield f"epoch, {ours.pairs:,} pairs, {steps} steps", compare(ours.epoch, other.epoch, turns=turns)
    if "validation" in groups:
        yield f"validation, {size.dev:,} images", compare(ours.validate, other.validate, turns=turns)
    if "ranks" in groups:
        given = [side.to(device) for side in embeddings(size.ranked, size.dim)]
        calls = [partial(side.ranks, *given) for side in (ours, other)]
        yield f"ranks, {size.ranked:,} × {size.ranked * CAPTIONS:,}", compare(*calls, turns=turns)
    if "sgr" in groups and not size.vector_dim:
        images = min(SGR_IMAGES, size.dev)
        given = ours.sgr(images)
        calls = [partial(module.scores, *given) for module in (toolkit, plain)]
        yield f"SGR's similarities, {images} × {images * CAPTIONS}", compare(*calls, turns=turns)
    if "retrieval" in groups:
        items = embeddings(size.searched // CAPTIONS, size.dim)[1].to(device)
        for count in (1, min(QUERIES, size.dev * CAPTIONS)):
            calls = [partial(side.search, torch.arange(count), items, FOUND) for side in (ours, other)]
            yield f"{count} of {size.searched:,} texts found", compare(*calls, turns=turns)


def line(name: str, what: str, row: dict[str, Any]) -> str:
    """One line of the table."""
    clocks = []
    for clock in ("seconds", "cpu_seconds"):
        ratios = row[clock]["ratios"]
        low, high = (ratios[round(part * (len(ratios) - 1))] for part in (0.25, 0.75))
        clocks.append(f"{statistics.median(ratios):.2f} ({low:.2f}-{high:.2f})")
    times = (f"{row['seconds'][side]:.3g}" for side in ("toolkit", "plain"))
    return "| " + " | ".join([name, what, *times, *clocks]) + " |"


def machine(device: torch.device) -> str:
    """Where and when."""
    found = versions()
    where = device_name(device) or f"{found['cpu']}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s)"
    busy = f"load {os.getloadavg()[0]:.1f}"
    return f"{datetime.now(UTC).date()}: {where}; {busy}; torch {found['torch']}, Python {found['python']}"


def device(name: str) -> torch.device:
    """Read a device from the command line."""
    try:
        return resolve_device(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--only", choices=GROUPS, nargs="+", default=GROUPS, help="measure only these")
    parser.add_argument("--turns", type=int, default=5, help=f"pairs of turns (of a step {STEPS} times as many)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--device", type=device, default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    if min(args.turns, args.threads) < 1:
        parser.error("--turns and --threads: expected numbers of at least 1")
    torch.set_num_threads(args.threads)
    hold_freed_memory()  # as training does; it cannot be taken back for the plain version's turns
    print(f"{machine(args.device)}\n\n{HEAD}")
    with tempfile.TemporaryDirectory() as folder:
        data, size = make_data(Path(folder) / "data", SIZES[args.size]), SIZES[args.size]
        for what, row in rows(data, size, args.device, tuple(args.only), args.turns):
            print(line(args.size, what, row), flush=True)


if __name__ == "__main__":
    main()
