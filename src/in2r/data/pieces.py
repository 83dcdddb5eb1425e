"""A folder of npy files, the pieces, that are read as one array: its rows are counted through all of them."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.errors import InputError


class Pieces:
    """Arrays (rows, regions, dim) of one dtype and C order, one behind the other; see `joined`.

    It has what `Features` asks of an array: `shape`, `dtype`, `itemsize`, `len`. Its values are read piece by piece.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = arrays
        self._ends = np.cumsum([len(array) for array in arrays])
        self.shape = (len(self), *arrays[0].shape[1:])
        self.dtype, self.itemsize = arrays[0].dtype, arrays[0].itemsize

    def __len__(self) -> int:
        return int(self._ends[-1])

    def holding(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[Any], NDArray[np.intp], NDArray[np.int64]]]:
        """Yield each piece that holds some of the rows (n,), with their places in `rows` and their rows in the piece.

        Raises:
            IndexError: a row is below 0, or beyond the last one.
        """
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()}; there are 0 to {len(self) - 1}")
        piece = np.searchsorted(self._ends, rows, side="right")
        order = np.argsort(piece, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(piece[order])) + 1):
            if len(places):
                array = self._arrays[number := int(piece[places[0]])]
                yield array, places, rows[places] - (self._ends[number] - len(array))


def has_pieces(folder: Path) -> bool:
    """Say whether a path is a folder that holds npy files."""
    return folder.is_dir() and any(_npy_files(folder))


def piece_files(folder: Path) -> list[Path]:
    """Return the npy files of a folder by the numbers at the end of their names, which count from 0 without a gap.

    Raises:
        InputError: a name without a number, of another series or with a number that another one has; a gap.
    """
    files: dict[int, Path] = {}
    for file in _npy_files(folder):
        digits = re.search(r"\d+$", file.stem)
        if digits is None:
            raise InputError(f"{file}: no number at the end of its name; pieces are named images-00000.npy and so on")
        own = int(digits[0])
        if own in files:
            raise InputError(f"{file}: has the number of {files[own].name}; each piece has its own")
        files[own] = file
        first = next(iter(files.values()))
        if _series(file) != _series(first):
            raise InputError(f"{file}: named otherwise than {first.name}; the names of pieces differ in the number")
    if not files:
        raise InputError(f"{folder}: holds no npy files; expected pieces, named images-00000.npy and so on")
    for number in range(len(files)):
        if number not in files:
            raise InputError(
                f"{folder}: piece {number} of {max(files) + 1} is missing: the numbers in the names count from 0"
            )
    return [files[number] for number in range(len(files))]


def joined(arrays: Mapping[Path, NDArray[Any]]) -> Pieces:
    """Return arrays (rows, regions, dim) of files as one.

    Raises:
        InputError: a file that differs from the first one in dtype, regions or dim, or is stored in Fortran order.
    """
    first, expected = next(iter(arrays.items()))
    for file, array in arrays.items():
        found, wanted = (f"{one.shape[1]} × {one.shape[2]} {one.dtype}" for one in (array, expected))
        if found != wanted:
            raise InputError(f"{file}: rows of {found}, but {first.name} has {wanted}; all pieces must agree")
        if not array.flags.c_contiguous:
            raise InputError(
                f"{file}: stored in Fortran order, but pieces are in C order; "
                "numpy.save(file, numpy.ascontiguousarray(array))"
            )
    return Pieces(list(arrays.values()))


def _npy_files(folder: Path) -> list[Path]:
    """Return the npy files by name; hidden ones, such as what a killed process left half written, do not count."""
    entries = (Path(entry) for entry in os.scandir(folder) if not entry.name.startswith("."))
    return sorted(entry for entry in entries if entry.suffix == ".npy")


def _series(file: Path) -> str:
    return file.stem.rstrip("0123456789")
