"""Which pairs a report shows, and the histogram of all scores: chosen by score and cut alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORST, BORDERLINE, SAMPLE = 200, 60, 100
BINS = 40


@dataclass(frozen=True)
class ChosenRows:
    """The rows of the pairs that a report shows; a row may be in several sections."""

    worst: list[int]
    borderline: list[int]
    sample: list[int]


def choose_rows(scores: ArrayLike, cut: float, generator: np.random.Generator) -> ChosenRows:
    """Choose the rows of the sections by score.

    Args:
        scores: (pairs,) in [0, 1], low = bad; NaN where a pair has none, which is then in no section.
        cut: pairs with a lower score are suspects.
        generator: draws the sample.

    Returns:
        worst: the 200 lowest scores, the lowest first, equal ones by row. borderline: the 30 next below the cut and the
        30 next above it, the lowest first. sample: 100 scored pairs without repetition, in random order.
    """
    values = np.asarray(scores, dtype=np.float64)
    scored = np.flatnonzero(~np.isnan(values))
    order = scored[np.argsort(values[scored], kind="stable")]
    place = int(np.searchsorted(values[order], cut))
    band = order[max(0, place - BORDERLINE // 2) : place + BORDERLINE // 2]
    drawn = generator.permutation(scored)[:SAMPLE]
    return ChosenRows(order[:WORST].tolist(), band.tolist(), drawn.tolist())


def score_histogram(scores: ArrayLike) -> tuple[int, ...]:
    """Count the scores, (pairs,) in [0, 1], in 40 equally wide bins; the last holds 1 too, NaN is in none."""
    values = np.asarray(scores, dtype=np.float64)
    counts: NDArray[np.int64] = np.histogram(values[~np.isnan(values)], bins=BINS, range=(0.0, 1.0))[0]
    return tuple(counts.tolist())
