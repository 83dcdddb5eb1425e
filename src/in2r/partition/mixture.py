"""What every mixture of two components says of the pairs, whatever its densities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Losses that differ by less than this share of their size differ by float32 rounding only.
EQUAL_LOSSES = 1e-6


@dataclass(frozen=True, eq=False)
class Mixture:
    """Two fitted components; component 0 is the clean one, parameters refer to the losses scaled to [0, 1].

    Attributes:
        clean_probability: (N,) posterior p_i of the clean component, never rising with the loss; float32 where a
            histogram was fitted.
        means: (2,); the clean component's is the lower one, but see `fit_two_betas`.
        variances: (2,).
        weights: (2,) shares of the components, sum 1.
        scale: smallest and largest raw loss.
        separation: Ashman's D = |mean_0 - mean_1| / sqrt((variance_0 + variance_1) / 2).
        split: False when there was nothing to fit (fewer than two losses, or all equal): every p_i is 1.
        monotone: False when the raw posterior rose with the loss somewhere and was levelled there.
        single_mode: True when the two components are not told apart (`separation` below the bound).
    """

    clean_probability: NDArray[np.floating]
    means: Floats
    variances: Floats
    weights: Floats
    scale: tuple[float, float]
    separation: float
    split: bool
    monotone: bool
    single_mode: bool
