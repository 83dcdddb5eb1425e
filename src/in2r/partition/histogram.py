"""Losses as a mixture sees them: walked over in blocks, and fitted each for itself or, if very many, as a histogram."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from in2r.partition.mixture import EQUAL_LOSSES, Floats

HISTOGRAM_FROM = 10_000_000
"""A fit to every loss holds a dozen float64 numbers a loss, 1 GB of so many; of these a histogram says the same."""
BINS = 2**16
"""What a bin's mean leaves out of a variance is at most (1 / BINS)² / 4 = 6e-11; `reg_covar` adds 5e-4 to it."""
BLOCK = 2**20
"""losses at a time: what is computed of them takes tens of megabytes, however many there are"""


def checked_losses(losses: NDArray[np.floating] | torch.Tensor) -> NDArray[np.floating]:
    """Return losses (N,) as they are if float32, else as float64; raise `ValueError` for one that is not finite."""
    if isinstance(losses, torch.Tensor):
        losses = losses.detach()
        losses = (losses if losses.dtype == torch.float32 else losses.double()).cpu().numpy()
    values = np.asarray(losses)
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if values.ndim != 1:
        raise ValueError(f"losses must be one-dimensional, got shape {values.shape}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(f"loss {bad[0]} is {values[bad[0]]} ({len(bad)} of {len(values)} are not finite)")
    return values


@dataclass(frozen=True, eq=False)
class Losses:
    """N losses, scaled to [0, 1] and kept inside [edge, 1 - edge].

    Attributes:
        raw: (N,) float32 or float64, finite.
        histogram_from: the mixture is fitted to a histogram of so many losses or more.
        edge: in [0, 1/2].
    """

    raw: NDArray[np.floating]
    histogram_from: int
    edge: float = 0.0

    @property
    def scale(self) -> tuple[float, float]:
        """Return the smallest and the largest loss; 0 and 0 where there is none."""
        return (float(self.raw.min()), float(self.raw.max())) if len(self.raw) else (0.0, 0.0)

    @property
    def differ(self) -> bool:
        """Say whether there are two that differ by more than float32 rounding."""
        low, high = self.scale
        return high - low > EQUAL_LOSSES * max(abs(low), abs(high))

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield where a block stands, and its scaled losses; they must `differ`."""
        low, high = self.scale
        for start in range(0, len(self.raw), BLOCK):
            rows = slice(start, start + BLOCK)
            scaled = (self.raw[rows].astype(np.float64) - low) / (high - low)
            yield rows, np.clip(scaled, self.edge, 1 - self.edge)

    def points(self) -> tuple[Floats, Floats]:
        """Return what a mixture is fitted to: values (n,) in order of size, and how many losses each stands for.

        They are all losses, or the means of those of `BINS` equal bins that hold any. In order of size, because sums
        then do not depend on the order of the pairs, which decides a loss between two centres.
        """
        if len(self.raw) < self.histogram_from:
            values = np.sort(np.concatenate([scaled for _, scaled in self.blocks()]))
            return values, np.ones_like(values)
        counts, sums = np.zeros(BINS), np.zeros(BINS)
        for _, scaled in self.blocks():
            places = np.minimum((scaled * BINS).astype(np.int64), BINS - 1)
            counts += np.bincount(places, minlength=BINS)
            sums += np.bincount(places, weights=scaled, minlength=BINS)
        held = counts > 0
        return sums[held] / counts[held], counts[held]

    def posteriors(
        self, level: Callable[[Floats], Floats], posterior: Callable[[Floats], Floats]
    ) -> tuple[NDArray[np.floating], bool]:
        """Return each loss's clean probability (N,), and whether no loss had to be levelled.

        Args:
            level: moves scaled losses (n,) to where the posterior does not rise.
            posterior: of levelled losses (n,), the clean component's.

        Returns:
            Probabilities in float64, or in float32, as a division keeps them, where a histogram was fitted.
        """
        kind = np.float64 if len(self.raw) < self.histogram_from else np.float32
        found: NDArray[np.floating] = np.empty(len(self.raw), kind)
        monotone = True
        for rows, scaled in self.blocks():
            levelled = level(scaled)
            found[rows] = posterior(levelled)
            monotone = monotone and np.array_equal(levelled, scaled)
        return found, monotone
