"""What all evidence needs of a training set's vectors: rows in blocks, cosines about the mean, checks."""

from collections.abc import Iterator

import torch
from torch import Tensor

from in2r.transfer import at_least_float32

BLOCK_BYTES = 2**26
"""Memory for one block's intermediate values, by default."""

TINY = 1e-12
"""Least length that a vector is divided by."""


def blocks(rows: int, row_bytes: int, block_bytes: int, most: int | None = None) -> Iterator[slice]:
    """Yield slices that cover all rows, each of at most `block_bytes` and `most` rows but of at least one row."""
    size = max(1, min(block_bytes // max(1, row_bytes), most or rows))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def centred(vectors: Tensor) -> Tensor:
    """Return (N, d) less their mean, each of unit norm, in at least float32; one that is the mean stays zero.

    Raises:
        ValueError: names the first vector that is not finite.
    """
    values = at_least_float32(vectors.detach())
    if not len(values):
        return values
    mean = values.mean(dim=0)
    if not bool(mean.isfinite().all()):
        check_finite("vectors", values)
        raise ValueError("vectors are too large")
    values = values - mean
    return values.div_(torch.linalg.vector_norm(values, dim=1, keepdim=True).clamp(min=TINY))


def mean_row(values: Tensor) -> Tensor:
    """Return the mean (d,) of vectors (N, d) in at least float32; half precision is raised block by block."""
    if values.dtype == torch.promote_types(values.dtype, torch.float32):
        return values.mean(dim=0)
    total = values.new_zeros(values.shape[1], dtype=torch.float64)
    for rows in blocks(len(values), 4 * values.shape[1], BLOCK_BYTES):
        total += values[rows].float().sum(dim=0, dtype=torch.float64)
    return (total / len(values)).float()


class Centred:
    """Vectors less their mean and of unit norm, made anew for the rows that are asked: a copy of all may be too large.

    Attributes:
        values: (N, d), as given.
        mean: (d,), of these or of other vectors.
    """

    def __init__(self, values: Tensor, about: Tensor | None = None) -> None:
        self.values = values
        self.mean = mean_row(values if about is None else about)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Return some rows, (rows, d) float32; one that is the mean stays zero."""
        chosen = self.values[rows] - self.mean
        return chosen.div_(torch.linalg.vector_norm(chosen, dim=1, keepdim=True).clamp(min=TINY))


def check_index(name: str, index: Tensor, rows: int, below: int | None = None) -> None:
    """Raise `ValueError` unless the index is int64 of shape (rows,), and in [0, below) if that is given."""
    if index.shape != (rows,) or index.dtype != torch.int64:
        raise ValueError(f"{name} must be torch.int64 of shape ({rows},), got {index.dtype} of {tuple(index.shape)}")
    if below is not None and rows and not 0 <= index.min() <= index.max() < below:
        raise ValueError(f"{name} must be in [0, {below}), got {int(index.min())} to {int(index.max())}")


def check_weights(name: str, values: Tensor, rows: int) -> None:
    """Raise `ValueError` unless there is one finite value per row, none below 0."""
    if values.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), got {tuple(values.shape)}")
    if not bool((values.isfinite() & (values >= 0)).all()):
        raise ValueError(f"{name} must be finite and at least 0")


def check_matrix(name: str, values: Tensor, width: int | None = None) -> None:
    """Raise `ValueError` unless the values are a matrix, of this width if one is given."""
    if values.ndim != 2 or width not in (None, values.shape[1]):
        expected = "(rows, width)" if width is None else f"(rows, {width})"
        raise ValueError(f"{name} must be a matrix {expected}, got shape {tuple(values.shape)}")


def check_finite(name: str, values: Tensor) -> None:
    """Raise `ValueError` for the first row (of numbers whose sum is within range) that is not finite."""
    for rows in blocks(len(values), 4 * values.shape[1], BLOCK_BYTES):  # sums of half precision leave its range
        bad = (~at_least_float32(values[rows]).sum(dim=1).isfinite()).nonzero()
        if len(bad):
            raise ValueError(f"{name} must be finite, row {rows.start + int(bad[0])} is not")


def check_positive(**values: float) -> None:
    """Raise `ValueError` for the first value that is not positive."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def check_whole(**values: int) -> None:
    """Raise `ValueError` for the first value that is not a whole number of at least 1."""
    for name, value in values.items():
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
