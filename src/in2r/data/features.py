"""Features of images or captions: an array on disk that is read row by row, or a copy of its items that is resident."""

import errno
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor

from in2r.data.mapped import call_rows, map_below
from in2r.data.pieces import Pieces, joined, piece_files
from in2r.errors import InputError
from in2r.files import naming
from in2r.layers.pooling import masked_mean
from in2r.transfer import buffer, send

log = logging.getLogger(__name__)

LARGEST = 1e12
"""No feature is as large; what a file holds that was never filled is, and squares of it overflow in the encoders."""
UNUSABLE = "NaN, infinity or a value beyond 1e12"
BLOCK_BYTES = 2**25
"""How much of an array a scan holds at a time."""


@dataclass(frozen=True, eq=False)
class Features:
    """Items × regions × dim; memory-mapped or in-memory arrays, copied only by `resident`.

    Attributes:
        array: (rows, regions, dim), of any floating-point type and order in memory; or pieces that are read as one.
        rows: (items,) int64, the row of each item (where a file repeats images, every fifth row).
        lengths: (items,) int64 in 1..regions, or None when every item has all regions.
        source: what messages call the array, usually the file's name.
        held: (items, regions, dim), a copy of the items in memory or on a device, from which they are then gathered; or
            None.
    """

    array: NDArray[Any] | Pieces
    rows: NDArray[np.int64]
    lengths: NDArray[np.int64] | None = None
    source: str = "features"
    held: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def regions(self) -> int:
        """Number of region slots of an item."""
        return int(self.array.shape[1])

    @property
    def dim(self) -> int:
        """Length of a region's vector."""
        return int(self.array.shape[2])

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The precision in which values are read: float16 where the array has it, else float32."""
        return np.dtype(np.float16 if self.array.itemsize == 2 else np.float32)

    @property
    def nbytes(self) -> int:
        """Size of all items as they are read, and of a resident copy of them."""
        return len(self) * self.regions * self.dim * self.dtype.itemsize

    def gather(self, items: Tensor, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor | None]:
        """Return values (B, regions, dim) float32 and mask (B, regions) bool, True = a real region.

        Only the rows of `items` (B,) int64, on the CPU, are read; they travel in `dtype`. The values are on the device,
        and 0 beyond an item's length, whatever the array holds there.
        The mask is on the CPU, where sizes of sets are known without waiting for a device, and None when every item has
        all regions.

        Raises:
            OSError: the file was cut short since it was opened; see `require_whole`.
        """
        return self._read(items, device).float(), self.mask(items)

    def mask(self, items: Tensor) -> Tensor | None:
        """Return the mask (B, regions) of items (B,), as `gather` does; nothing is read."""
        if self.lengths is None:
            return None
        return torch.from_numpy(np.arange(self.regions) < self.lengths[items.numpy(), None])

    def _read(self, items: Tensor, device: torch.device | str) -> Tensor:
        """Return the items (B, regions, dim) on the device, in `dtype`."""
        if self.held is None:
            chosen = items.numpy()
            lengths = None if self.lengths is None else self.lengths[chosen]
            return send(torch.from_numpy(_cleared(self._copy(self.rows[chosen]), lengths)), device)
        if self.held.device.type == "cpu":
            room = buffer((len(items), self.regions, self.dim), self.held.dtype, device)
            return send(torch.index_select(self.held, 0, items, out=room), device)
        return self.held.index_select(0, send(items, self.held.device)).to(device)

    def _copy(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return rows (n, regions, dim) as a fresh, writable array in `dtype` and C order."""
        if not isinstance(self.array, Pieces):
            return self._taken(self.array, rows)
        values = np.empty((len(rows), self.regions, self.dim), self.dtype)
        for array, places, its in self.array.holding(rows):
            values[places] = self._taken(array, its)
        return values

    def _taken(self, array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return what `_copy` does, of one array."""
        require_whole(array)
        call_rows(array, rows)
        if array.dtype == self.dtype and array.flags.c_contiguous:
            # a copy-on-write map, which would be writable too, fails on files larger than the memory
            return np.take(array, rows, axis=0)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which a scan finds
            return np.ascontiguousarray(array[rows], dtype=self.dtype)  # `take` would copy the whole array first

    def select(self, items: NDArray[np.int64] | slice) -> "Features":
        """Return the chosen items over the same array (nothing is copied, and nothing is resident)."""
        lengths = None if self.lengths is None else self.lengths[items]
        return Features(self.array, self.rows[items], lengths, self.source)

    def resident(self, device: torch.device | str = "cpu") -> "Features":
        """Return the same items, gathered from a copy of them (and only them) on the device, in `dtype`.

        The copy is filled block by block: the array is never in memory a second time.
        """
        dtype = torch.float16 if self.dtype == np.float16 else torch.float32
        held = torch.empty((len(self), self.regions, self.dim), dtype=dtype, device=device)
        done = 0
        for rows, values in self.blocks():
            held[done : done + len(rows)] = torch.from_numpy(values)
            done += len(rows)
        return replace(self, held=held)

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield the items in order: rows (n,) and values (n, regions, dim), 0 beyond a length, about `BLOCK_BYTES`."""
        row_bytes = max(1, self.regions * self.dim * self.array.itemsize)
        size = max(1, BLOCK_BYTES // row_bytes)
        for start in range(0, len(self), size):
            rows = self.rows[start : start + size]
            yield rows, _cleared(self._copy(rows), None if self.lengths is None else self.lengths[start : start + size])


def _cleared(values: NDArray[Any], lengths: NDArray[np.int64] | None) -> NDArray[Any]:
    """Set what lies beyond each item's length to 0: padding may hold NaN, and zero times NaN is not zero."""
    if lengths is not None:
        values[np.arange(values.shape[1]) >= lengths[:, None]] = 0
    return values


def mean_regions(features: Features) -> Tensor:
    """Return the mean of each item's regions, (items, dim) float32 on the CPU, read block by block."""
    found = torch.empty((len(features), features.dim))
    size = max(1, BLOCK_BYTES // max(1, 4 * features.regions * features.dim))
    for some in torch.split(torch.arange(len(features)), size):
        found[some] = masked_mean(*features.gather(some)).to(found.device)
    return found


def open_npy(path: Path) -> NDArray[Any]:
    """Memory-map an npy file of any shape; `InputError` says why it cannot be read."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, OSError, EOFError, SyntaxError, TokenError) as error:  # the last two: of a broken header
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            raise InputError(
                f"{path}: this process may not hold more files open; cut features into fewer pieces, or raise the "
                "limit (ulimit -n)"
            ) from None
        reason = " ".join(str(error).split()) or "cut off"
        if "Python objects" in reason:
            raise InputError(
                f"{path}: holds Python objects, as numpy.save writes arrays that differ in shape; pad them with zeros "
                "to one shape, and write how many regions of each image are real to image_lengths.npy of a pair table"
            ) from None
        if "pickle" in reason:  # NumPy's own words would advise to load it unsafely
            reason = "no npy header"
        raise InputError(f"{path}: not a readable npy array ({reason}); write it with numpy.save") from None
    if not isinstance(mapped, np.ndarray):
        raise InputError(f"{path}: not an npy array; write it with numpy.save")
    return np.asarray(mapped)  # a view of the map: plain indexing, without the cost of the subclass


def open_array(path: Path) -> NDArray[Any]:
    """Memory-map a feature file as (rows, regions, dim); 2-D is one region.

    Floating-point values of any precision and order are taken; that `Features` will convert them is logged.

    Raises:
        InputError: the file is missing, cut off, not npy, or of another kind.
    """
    array = _open_shaped(path)
    if not array.flags.c_contiguous:
        log.warning(
            "%s: stored in Fortran order, in which an image lies all over the file, so reading is slow; "
            "numpy.save(path, numpy.ascontiguousarray(array)) stores it in C order", path,
        )  # fmt: skip
    _say_converted(path, array.dtype)
    return array


def open_file_or_pieces(path: Path) -> NDArray[Any] | Pieces:
    """Memory-map a feature file as `open_array` does, or a folder of them as one array.

    Raises:
        InputError: as `open_array`; the files of a folder are no pieces of one array.
    """
    if not path.is_dir():
        return open_array(path)
    pieces = joined({file: _open_shaped(file) for file in piece_files(path)})
    _say_converted(path, pieces.dtype)
    return pieces


def _open_shaped(path: Path) -> NDArray[Any]:
    array = open_npy(path)
    if array.dtype.kind != "f":
        raise InputError(f"{path}: dtype {array.dtype}; features are float16 or float32 (array.astype('float32'))")
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise InputError(f"{path}: shape {array.shape}; expected (rows, regions, dim) or (rows, dim), none of them 0")
    return array if array.ndim == 3 else array[:, None, :]


def _say_converted(path: Path, dtype: "np.dtype[Any]") -> None:
    if dtype not in (np.float16, np.float32):
        log.info("%s: dtype %s, converted block by block while it is read", path, dtype)


def create_npy(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Memory-map a new npy file to be filled, with its whole space on the disk.

    Without the space, a disk that another process fills meanwhile would end this one without a message (SIGBUS).

    Raises:
        OSError: the disk is too full; with the file's name.
    """
    array = open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with naming(path), path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def require_whole(array: NDArray[Any]) -> None:
    """Raise `OSError` where the file of a memory-mapped array is shorter than when it was opened; ask before each read.

    To read what is gone would end the process without a message (SIGBUS). That remains for a file which is cut in the
    moment between this look and the end of the read, and for a disk that fails.
    """
    below = map_below(array)
    if below is None:
        return
    mapped: Any = below.base
    opened, found = len(mapped), mapped.size()
    if found < opened:
        said = f"was cut short while it was in use, from {opened:,} to {found:,} bytes; put the whole file back"
        raise OSError(errno.EIO, said, str(below.filename))


def unusable(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return (n,) bool: which rows of (n, regions, dim) hold what `UNUSABLE` says."""
    flat = values.reshape(len(values), -1)
    if flat.dtype == np.float16:  # all exponent bits set: several times faster than isfinite on halves
        bad: NDArray[np.bool_] = np.any((flat.view(np.uint16) & 0x7C00) == 0x7C00, axis=1)
    else:
        bad = ~((flat.max(axis=1) <= LARGEST) & (flat.min(axis=1) >= -LARGEST))  # NaN is both, and in no range
    return bad


def require_finite(features: Features) -> None:
    """Scan the items block by block; `InputError` names the file and the first row with one that is unusable."""
    bad = np.concatenate([rows[unusable(values)] for rows, values in features.blocks()] or [features.rows])
    if len(bad):
        raise InputError(
            f"{features.source}: row {bad[0]} (counted from 0) holds {UNUSABLE}, "
            f"{len(bad)} of {len(features)} items do; fix or remove them"
        )
