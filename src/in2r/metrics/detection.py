"""Measures of a score, or of a decision, that should single out pairs."""

import numpy as np
from numpy.typing import ArrayLike


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, a tie counting one half.

    Args:
        scores: (N,) finite.
        positive: (N,) bool.

    Returns:
        A value in [0, 1]; NaN when one of the classes is empty.
    """
    truth = np.asarray(positive, dtype=bool)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if positives == 0 or negatives == 0:
        return float("nan")
    _, place, counts = np.unique(np.asarray(scores), return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2  # 1-based, averaged over ties
    rank_sum = float(mean_rank[place][truth].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def precision_recall(predicted: ArrayLike, truth: ArrayLike) -> tuple[float, float]:
    """Precision and recall of a boolean prediction; NaN where nothing is predicted, or nothing is true."""
    found, real = np.asarray(predicted, dtype=bool), np.asarray(truth, dtype=bool)
    hits = int((found & real).sum())
    precision = hits / int(found.sum()) if found.any() else float("nan")
    recall = hits / int(real.sum()) if real.any() else float("nan")
    return precision, recall


def calibration_error(prob: ArrayLike, truth: ArrayLike, bins: int = 10) -> float:
    """Return the expected calibration error: how far probabilities are from the shares that they foretell.

    Sum over equal bins of [0, 1] of |share of true ones - mean probability|, weighted by the bin's share of all.

    Args:
        prob: (N,) in [0, 1].
        truth: (N,) bool.
        bins: at least 1.

    Returns:
        A value in [0, 1]; NaN when there is nothing.
    """
    p, real = np.asarray(prob, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if len(p) == 0:
        return float("nan")
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, weights=real - p, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))
