"""From clean probabilities to sets: the clean pairs, and of these the elite ones that enter a memory."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

# Probabilities come as float32: those that differ by its last digit are equal.
EQUAL_PROBABILITIES = float(np.finfo(np.float32).eps)
# A mean in float64 may miss the value of a pair that lies on it by its last digits.
ROUNDING = 1e-15


def split_pairs(clean_probability: Floats, threshold: float = 0.5, minimum_noisy_share: float = 0.0) -> Bools:
    """Return which pairs count as clean: p_i > threshold.

    Args:
        clean_probability: (N,) posteriors in [0, 1].
        threshold: pairs at or below it are noisy.
        minimum_noisy_share: in [0, 1); if every p_i is above the threshold, this share of the pairs (at least
            one) with the lowest p_i is noisy all the same; 0.01 in the released code. Pairs that tie with the
            first one kept stay clean, so equal posteriors are never divided.

    Returns:
        (N,) bool, True = clean.
    """
    clean: Bools = clean_probability > threshold
    if minimum_noisy_share > 0 and len(clean) and clean.all():
        noisy = max(1, int(minimum_noisy_share * len(clean)))
        kept = np.sort(clean_probability)[min(noisy, len(clean) - 1)]
        clean = clean_probability >= kept
    return clean


def elite_threshold(clean_probability_of_clean_set: Floats) -> float:
    """Return tau_dyn, the mean p_i over the current clean set; 1.0 when the set is empty."""
    if len(clean_probability_of_clean_set) == 0:
        return 1.0
    return float(np.mean(clean_probability_of_clean_set))


def elite(clean_probability: Floats, tau: float) -> Bools:
    """Return which pairs of the clean set enter the memory: p_i > tau_dyn, or all if the posteriors are all equal.

    They are where the fit is saturated, at 1 up to a digit; which of them their mean lies above means nothing then.

    Args:
        clean_probability: (N,) posteriors of the clean set.
        tau: its `elite_threshold`.

    Returns:
        (N,) bool; of a set that is not empty never all False.
    """
    if np.all(np.abs(clean_probability - tau) <= EQUAL_PROBABILITIES):
        return np.ones(len(clean_probability), dtype=np.bool_)
    above: Bools = clean_probability > tau + ROUNDING
    return above
