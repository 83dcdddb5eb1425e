"""Retrieval figures where a query has several right items: R@K, R-precision, mAP@R.

The tie rule is that of `metrics.ranks`: a wrong item that ties with a right one counts as before it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from in2r.metrics.relevance import Ints

Floats = NDArray[np.floating]


def right_positions(similarity: Floats, right: Ints, tolerance: float = 0.0) -> Ints:
    """Return where the right items of one query stand, from 1, the best first.

    The j-th best right item stands at j + the number of wrong items whose similarity is at least its own - tolerance.

    Args:
        similarity: (N,) of the query and all items, without NaN.
        right: (R,) the right items, each once, at least one; -1 = one that is not among the N. It stands behind all.
        tolerance: a wrong item that is less similar by no more than this counts as tied.

    Returns:
        (R,) int64, ascending.
    """
    present = right[right >= 0]
    own = np.sort(similarity[present])[::-1]
    bound = own - similarity.dtype.type(tolerance)
    wrong = _at_least(similarity, bound) - _at_least(own, bound)
    absent = np.full(len(right) - len(present), len(similarity))
    return np.concatenate([wrong, absent]) + np.arange(1, len(right) + 1)


def _at_least(values: Floats, bounds: Floats) -> Ints:
    """Return how many of the values are at least as large as each bound."""
    return len(values) - np.searchsorted(np.sort(values), bounds, "left")


def match_figures(positions: Sequence[Ints]) -> dict[str, float]:
    """Return the figures of many queries in percent, each the mean over them.

    Args:
        positions: of each query, at least one, what `right_positions` gives.

    Returns:
        `r1`, `r5`, `r10`: a right item stands within the first K. `r_precision`: the share of right items among the
        first R. `map_at_r`: 1/R Σ_{r ≤ R} P(r) [item r is right], where P(r) is the share of right items among the
        first r (Musgrave et al., ECCV 2020).
    """
    best = np.array([found[0] for found in positions])
    figures = {f"r{at}": float(np.mean(best <= at)) for at in (1, 5, 10)}
    figures["r_precision"] = float(np.mean([np.mean(found <= len(found)) for found in positions]))
    figures["map_at_r"] = float(np.mean([_average_precision(found) for found in positions]))
    return {name: 100 * value for name, value in figures.items()}


def _average_precision(found: Ints) -> float:
    precision = np.arange(1, len(found) + 1) / found
    return float(np.sum(precision[found <= len(found)]) / len(found))
