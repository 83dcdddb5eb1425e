"""Where and how a run computes, and how much memory is free there: the one place that names a device."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from in2r.errors import InputError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""names of glibc's malloc.h"""

OWN_GROUPS, ALL_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""which control groups this process is in, and what each of them allows (Linux)"""


def resolve_device(setting: str, local: int = 0) -> torch.device:
    """Turn `auto`, `cpu`, `cuda`, `cuda:1` or `mps` into a device that exists.

    Args:
        setting: `train.device`.
        local: the number of this process among those on this machine that train together: each has a CUDA device of
            its own.

    Raises:
        InputError: the name is unknown or no such device is here.
    """
    if local and torch.cuda.is_available():
        if setting.startswith("cuda:"):
            raise InputError(f"device {setting}: several processes on this machine, and each needs its own; give cuda")
        if setting in ("auto", "cuda"):
            return resolve_device(f"cuda:{local}")
    if setting == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(setting)
    except RuntimeError:
        raise InputError(f"device {setting}: expected auto, cpu, cuda, cuda:<number> or mps") from None
    here = {
        "cpu": device.index in (None, 0),
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not here.get(device.type, False):
        raise InputError(f"device {setting}: no such device on this machine")
    return device


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a CUDA device is the one that libraries take where none is named."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def resolve_precision(setting: str, device: torch.device) -> torch.dtype | None:
    """Turn `auto`, `float32` or `bf16` into the precision of the encoders' products; None = float32.

    auto: bf16 on a CUDA device that computes in it; elsewhere it would be slower, not faster.

    Raises:
        InputError: bf16 on a device without autocast for it.
    """
    if setting == "auto":
        able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if able else None
    if setting == "bf16" and device.type == "mps":
        raise InputError("configuration: `train.precision` (bf16) is for cuda and cpu; on mps use float32")
    return torch.bfloat16 if setting == "bf16" else None


def device_name(device: torch.device) -> str | None:
    """Return the name of a CUDA card: another one rounds another way. The processor's is among the versions."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def computed_on(device: torch.device, precision: torch.dtype | None) -> dict[str, Any]:
    """Return what decides how a run rounds, beside the versions: runs that agree in both are bit-identical.

    Args:
        device: where it computes.
        precision: of the encoders' products; None = float32.
    """
    return {
        "device": device.type,
        "device_name": device_name(device),
        "precision": str(precision or torch.float32).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Compute with so many CPU threads, None = as many as now; afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def hold_freed_memory() -> None:
    """Let this process keep large blocks that it frees for the next ones, where the C library is glibc.

    By default it gives blocks above 32 MB back at once and each step takes them again, page by page: a tenth of a
    training step at the paper's size. Peak memory stays about what it was; other processes do not get what is freed.
    """
    if sys.platform == "linux":
        allocator = ctypes.CDLL(None)
        if hasattr(allocator, "gnu_get_libc_version"):
            allocator.mallopt(M_MMAP_MAX, 0)
            allocator.mallopt(M_TRIM_THRESHOLD, -1)


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a CUDA device; for any other, in main memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([_free_on_machine(), *_left_by_groups()])


def _free_on_machine() -> int:
    """Return what the system could give, the pages of cached files among it."""
    file = Path("/proc/meminfo")
    if file.is_file():
        return 1024 * _numbers(file)["MemAvailable:"]
    # Other systems do not say; half of all is a cautious answer.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _left_by_groups() -> list[int]:
    """Return what each control group around this process leaves: containers and schedulers set such limits."""
    lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines() if OWN_GROUPS.is_file() else []
    names = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    left = []
    for folder in (folder for name in names for folder in (ALL_GROUPS / name, *(ALL_GROUPS / name).parents)):
        limit = folder / "memory.max"
        if limit.is_file() and (most := limit.read_text(encoding="utf-8").strip()).isdigit():
            used = int((folder / "memory.current").read_text(encoding="utf-8"))
            stat = _numbers(folder / "memory.stat")  # cached files are given up when memory is short
            left.append(int(most) - used + stat["inactive_file"] + stat["active_file"])
    return left


def _numbers(file: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1}
