"""Clean or noisy: two Gaussians on the per-sample losses.

The fit is the field's: losses scaled to [0, 1], scikit-learn's GaussianMixture with two components, ten
iterations, tolerance 1e-2, covariance floor 5e-4; the component with the lower mean is the clean one.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from in2r.partition.mixture import EQUAL_LOSSES, Floats, Mixture


@dataclass(frozen=True, eq=False)
class TwoGaussians(Mixture):
    """Two fitted Gaussians."""

    @property
    def noise_rate(self) -> float | None:
        """Share of noisy pairs, mean(1 - p_i), or None when `single_mode`; an estimate only where `is_believable`."""
        return None if self.single_mode else float(np.mean(1 - self.clean_probability))


def fit_two_gaussians(
    losses: NDArray[np.floating] | torch.Tensor,
    max_iter: int = 10,
    tol: float = 1e-2,
    reg_covar: float = 5e-4,
    minimum_separation: float = 2.0,
) -> TwoGaussians:
    """Fit two Gaussians to per-sample losses and return each pair's probability of being clean.

    The fit starts from k-means with centres at the smallest and the largest loss, so it depends neither
    on a seed nor on the order of the losses. With unequal variances the wider component wins in both
    tails, and the posterior turns back beyond the vertex of its log-odds; there it keeps the value it has
    at the vertex.

    One group or two: two Gaussians always fit a skewed loss better than one, so a likelihood criterion
    (BIC) asks for two on clean data as well. The separation of the fitted components tells. Simulated, N
    >= 1000: one mode ends at D of 1.3 to 2.0 (normal, log-normal; exponential and gamma up to 2.2); two
    Gaussians three standard deviations apart, 20 % to 80 % noisy, at D of 2.2 or more, 2.5 apart at 1.8
    or more. Below the bound the fitted share says little (about 0.4 for 10 % noisy and two deviations),
    so `single_mode` means: clean data, or a loss that does not tell the pairs apart (yet). Exceptions:
    losses that pile up at their lower end (half-normal, the hinge of a normal) have D of 1.9 to 2.3, so
    that the bound of 2 takes most of them for two groups; a flat (uniform) loss has D of about 3; far
    outliers make a component of their own, with a share near 0; a few hundred losses scatter up to 3.

    Args:
        losses: (N,) raw per-sample losses, finite.
        max_iter: iterations of the fit; it is meant to stop early, without a warning.
        tol: bound on the gain in mean log-likelihood at which the fit stops.
        reg_covar: added to the variances, in units of the scaled losses.
        minimum_separation: Ashman's D below which `single_mode` is set.

    Returns:
        The mixture with the posteriors.

    Raises:
        ValueError: if `losses` is not one-dimensional, or names the first loss that is not finite.
    """
    values = checked_losses(losses)
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if len(values) < 2 or high - low <= EQUAL_LOSSES * max(abs(low), abs(high)):
        return _without_split(len(values), (low, high))
    scaled = (values - low) / (high - low)
    # In order of size: sums then do not depend on the order of the pairs, which decides a loss between two centres.
    mixture = _fit(np.sort(scaled), max_iter, tol, reg_covar)
    order = np.argsort(mixture.means_[:, 0], kind="stable")
    means, variances = mixture.means_[order, 0], mixture.covariances_[order, 0, 0]
    levelled = _level_beyond_vertex(scaled, means, variances)
    separation = float((means[1] - means[0]) / np.sqrt(variances.mean()))
    return TwoGaussians(
        clean_probability=mixture.predict_proba(levelled[:, None])[:, order[0]],
        means=means,
        variances=variances,
        weights=mixture.weights_[order],
        scale=(low, high),
        separation=separation,
        split=True,
        monotone=bool(np.array_equal(levelled, scaled)),
        single_mode=separation < minimum_separation,
    )


def checked_losses(losses: NDArray[np.floating] | torch.Tensor) -> Floats:
    """Return losses (N,) as float64, or raise `ValueError` for the first one that is not finite."""
    if isinstance(losses, torch.Tensor):
        losses = losses.detach().double().cpu().numpy()
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"losses must be one-dimensional, got shape {values.shape}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(f"loss {bad[0]} is {values[bad[0]]} ({len(bad)} of {len(values)} are not finite)")
    return values


def _without_split(count: int, scale: tuple[float, float]) -> TwoGaussians:
    return TwoGaussians(
        clean_probability=np.ones(count),
        means=np.zeros(2),
        variances=np.zeros(2),
        weights=np.array([1.0, 0.0]),
        scale=scale,
        separation=0.0,
        split=False,
        monotone=True,
        single_mode=True,
    )


def _fit(scaled: Floats, max_iter: int, tol: float, reg_covar: float) -> GaussianMixture:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ends = np.array([[0.0], [1.0]])
        labels = KMeans(n_clusters=2, init=ends, n_init=1).fit_predict(scaled[:, None])
        groups = [scaled[labels == label] for label in (0, 1)]
        mixture = GaussianMixture(
            n_components=2,
            max_iter=max_iter,
            tol=tol,
            reg_covar=reg_covar,
            init_params="random",  # not used, as the whole start is given; the cheapest one
            random_state=0,
            weights_init=np.array([len(group) for group in groups]) / len(scaled),
            means_init=np.array([[group.mean()] for group in groups]),
            precisions_init=np.array([[[1 / (group.var() + reg_covar)]] for group in groups]),
        )
        return mixture.fit(scaled[:, None])


def _level_beyond_vertex(scaled: Floats, means: Floats, variances: Floats) -> Floats:
    """Move losses beyond the vertex of the quadratic log-odds to it, where the posterior turns."""
    curvature = 1 / variances[0] - 1 / variances[1]
    if curvature == 0:
        return scaled
    vertex = (means[0] / variances[0] - means[1] / variances[1]) / curvature
    # A narrow clean component loses both tails: losses below the vertex, left of its mean, would look noisy.
    # A wide one wins both: losses above the vertex, right of the noisy mean, would look clean.
    levelled: Floats = np.maximum(scaled, vertex) if curvature > 0 else np.minimum(scaled, vertex)
    return levelled
