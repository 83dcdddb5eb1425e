"""The nearest vectors by inner product, exactly: candidates by blocks, then scores that no block decides."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import require_whole

Rows = NDArray[np.int64]

BLOCK_BYTES = 2**25
"""How much of the vectors is read at a time."""
SCORES = 2**25
"""How many scores are held at a time: 128 MiB."""
UNIT_ROUNDOFF = 2.0**-24
"""of float32"""
SLACK = 1.05
"""A unit vector that was rounded to float16 may be this much longer, with plenty to spare."""


def rounding_margin(dim: int) -> float:
    """Return 2 e, of unit vectors of a length: see `nearest_candidates`."""
    return 2 * SLACK * dim * UNIT_ROUNDOFF


def nearest_candidates(
    vectors: NDArray[Any], queries: NDArray[np.float32], k: int, rows: Rows | None = None
) -> Iterator[Rows]:
    """Yield for each query a few rows among which the k nearest certainly are.

    A product s' of two unit vectors of length D in float32 differs from the exact s by at most e = D u (u = 2^-24).
    With t the k-th largest s', every row of the k largest s has s' >= t - 2 e: those rows are the candidates.

    Args:
        vectors: (N, D) float16 or float32, of unit norm; may be memory-mapped.
        queries: (n, D) of unit norm.
        k: from 1.
        rows: (m,) the rows that are searched; None = all.

    Yields:
        (at least min(k, m),) row numbers of `vectors`, ascending; n times.
    """
    count = len(vectors) if rows is None else len(rows)
    together = max(1, SCORES // max(1, count))
    margin = rounding_margin(vectors.shape[1])
    for start in range(0, len(queries), together):
        for scores in _scores(vectors, queries[start : start + together], rows):
            least = -np.inf if k >= count else np.partition(scores, count - k)[count - k] - margin
            found = np.flatnonzero(scores >= least)
            yield found if rows is None else rows[found]


def _scores(vectors: NDArray[Any], queries: NDArray[np.float32], rows: Rows | None) -> NDArray[np.float32]:
    """Return (n, m) float32: inner products of the queries with the rows, read block by block."""
    count = len(vectors) if rows is None else len(rows)
    scores = np.empty((len(queries), count), np.float32)
    step = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    for start in range(0, count, step):
        require_whole(vectors)
        some = slice(start, start + step)
        block = vectors[some] if rows is None else vectors[rows[some]]
        scores[:, some] = (block.astype(np.float32, copy=False) @ queries.T).T
    return scores


def exact_scores(vectors: NDArray[Any], query: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
    """Return (m,) inner products of some rows with a query (D,), in float64.

    Each is a sum over one row, so it is the same whichever other rows stand beside it; those of a matrix product are
    not. Equal vectors have equal scores.
    """
    require_whole(vectors)
    step = max(1, BLOCK_BYTES // (8 * vectors.shape[1]))
    wide = query.astype(np.float64)
    parts = [
        (vectors[rows[start : start + step]].astype(np.float64) * wide).sum(axis=1)
        for start in range(0, len(rows), step)
    ]
    return np.concatenate(parts or [np.empty(0)])


def best_first(rows: Rows, scores: NDArray[Any], ids: Sequence[str], k: int) -> list[tuple[int, float, str]]:
    """Return the k best as (row, score, id): the largest score first, of equal ones the id that comes first as text."""
    order = sorted(range(len(rows)), key=lambda place: (-float(scores[place]), ids[place]))
    return [(int(rows[place]), float(scores[place]), ids[place]) for place in order[:k]]
