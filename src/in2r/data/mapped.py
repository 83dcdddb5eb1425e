"""Arrays that are memory-mapped: the map below an array, and its rows read from the disk all at once."""

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray


def map_below(array: NDArray[Any]) -> "np.memmap[Any, Any] | None":
    """Return the memory-mapped array that an array is, or is a view of; None if there is none."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base.base, mmap.mmap):
        base = base.base
    return base if isinstance(base, np.memmap) else None


def call_rows(array: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Let the system fetch rows (n,) of a memory-mapped array from the disk at once, before they are read.

    Else whoever reads them waits for the disk at each page, one after the other, and the system reads megabytes around
    some of them. What is in memory stays as it is, at two microseconds a row. No value changes. Nothing happens where
    the array (rows, ...) is not mapped or not in C order, where the system (Windows) has no such call, and where the
    rows follow each other: these the system reads ahead by itself.
    """
    mapped = map_below(array)
    if mapped is None or not array.flags.c_contiguous or not hasattr(mmap, "MADV_WILLNEED"):
        return
    if bool((np.diff(rows) == 1).all()):  # also one row, and none
        return
    start = _address(array) - _address(mapped) + mapped.offset % mmap.ALLOCATIONGRANULARITY
    first, end = page_runs(start, array.strides[0], rows)
    call = mapped.base.madvise  # type: ignore[union-attr]
    with suppress(OSError):  # it is advice: whoever reads then waits
        for offset, length in zip(first.tolist(), (end - first).tolist(), strict=True):
            call(mmap.MADV_WILLNEED, offset, length)


def page_runs(start: int, size: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the runs of pages that hold rows (n,), n > 0, as bytes from the start of a map; no two of them touch.

    Args:
        start: where row 0 begins, in bytes.
        size: of a row, in bytes.
        rows: in any order, with repetitions.

    Returns:
        Where each run begins and where it ends, multiples of the page size.
    """
    begin = start + np.sort(rows) * size
    first, end = begin // mmap.PAGESIZE, (begin + size - 1) // mmap.PAGESIZE + 1
    apart = first[1:] > end[:-1]
    return first[np.append(True, apart)] * mmap.PAGESIZE, end[np.append(apart, True)] * mmap.PAGESIZE


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
