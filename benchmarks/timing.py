"""Clocks: two versions in turns, single products, a profile of the operators."""

import argparse
import statistics
import time
from collections.abc import Callable
from os import cpu_count
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from in2r.device import device_name, resolve_device
from in2r.errors import InputError
from in2r.runs.folder import versions

Call = Callable[[], Any]
TOP = 10
"""operators of a profile"""


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


def in_turns(ours: Call, other: Call, repeat: int, device: torch.device) -> dict[str, Any]:
    """Time both calls in turns."""
    rounds = [(seconds(ours, device), seconds(other, device)) for _ in range(repeat)]
    result: dict[str, Any] = {}
    for clock, name in enumerate(("seconds", "cpu_seconds")):
        mine, theirs = ([side[clock] for side in sides] for sides in zip(*rounds, strict=True))
        result[name] = compare(mine, theirs)
    return result


def compare(ours: list[float], other: list[float]) -> dict[str, Any]:
    """Medians and ratios of times taken in turns."""
    paired = [b / max(a, 1e-9) for a, b in zip(ours, other, strict=True)]
    mine, theirs = statistics.median(ours), statistics.median(other)
    return {
        "ours": ours,
        "plain": other,
        "ours_median": mine,
        "plain_median": theirs,
        "ratio": theirs / max(mine, 1e-9),
        "ratio_min": min(paired),
        "ratio_max": max(paired),
    }


def fastest(call: Call, device: torch.device, *, tries: int = 3, enough: float = 0.1, most: int = 50) -> float:
    """Seconds of the fastest of several calls, after one that does not count; on CUDA of ten in a row."""
    in_a_row = 10 if device.type == "cuda" else 1

    def row() -> None:
        for _ in range(in_a_row):
            call()

    call()
    times: list[float] = []
    while len(times) < tries or (sum(times) < enough and len(times) < most):
        times.append(seconds(row, device)[0] / in_a_row)
    return min(times)


def operators(call: Call, device: torch.device) -> dict[str, Any]:
    """Shares of one call's time that its largest operators take, each without those it calls.

    On CUDA the time of an operator is that of its kernels, and what is left is time in which the device waits; on the
    CPU what is left is Python.
    """
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as run:
        wall = seconds(call, device)[0]
    field = "self_device_time_total" if cuda else "self_cpu_time_total"
    found = [event for event in run.key_averages() if event.device_type == DeviceType.CPU]
    found.sort(key=lambda event: -getattr(event, field))
    shares = [
        {"operator": event.key, "calls": event.count, "share": getattr(event, field) / 1e6 / wall} for event in found
    ]
    return {
        "seconds": wall,
        "operators": shares[:TOP],
        "others": sum(entry["share"] for entry in shares[TOP:]),
        "outside": 1 - sum(entry["share"] for entry in shares),
    }


def device_mb(call: Call, device: torch.device) -> float | None:
    """Largest memory that one call takes on the device beside what lies there, in MB; None on the CPU."""
    if device.type != "cuda":
        call()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    held = torch.cuda.memory_allocated(device)
    call()
    return round((torch.cuda.max_memory_allocated(device) - held) / 1e6, 1)


def device(name: str) -> torch.device:
    """Read a device from the command line."""
    try:
        return resolve_device(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """Read a number of at least one from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of at least 1")
    return int(text)


def new_file(text: str) -> Path:
    """Read the name of a file to write from the command line."""
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: is a folder; give a file name")
    return Path(text)


def machine(device: torch.device) -> dict[str, Any]:
    """The processor's model name and its cores, and the card."""
    return {"cpu": versions()["cpu"], "cores": cpu_count(), "card": device_name(device)}
