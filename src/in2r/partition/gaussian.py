"""Clean or noisy: two Gaussians on the per-sample losses.

The fit is the field's: losses scaled to [0, 1], scikit-learn's GaussianMixture with two components, ten
iterations, tolerance 1e-2, covariance floor 5e-4; the component with the lower mean is the clean one.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from in2r.partition.histogram import HISTOGRAM_FROM, Losses, checked_losses
from in2r.partition.mixture import Floats, Mixture

K_MEANS_TOLERANCE = 1e-4
"""scikit-learn's: the centres stand when they move by less than this share of the losses' variance"""


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
    histogram_from: int = HISTOGRAM_FROM,
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
        histogram_from: so many losses or more are fitted as a histogram; their posteriors are float32.

    Returns:
        The mixture with the posteriors.

    Raises:
        ValueError: if `losses` is not one-dimensional, or names the first loss that is not finite.
    """
    given = Losses(checked_losses(losses), histogram_from)
    if not given.differ:
        return _without_split(len(given.raw), given.scale)
    means, variances, weights = _fit(*given.points(), max_iter, tol, reg_covar)
    order = np.argsort(means, kind="stable")
    means, variances, weights = means[order], variances[order], weights[order]
    clean_probability, monotone = given.posteriors(
        lambda scaled: _level_beyond_vertex(scaled, means, variances),
        lambda levelled: _expect(levelled, means, 1 / np.sqrt(variances), weights)[1][:, 0],
    )
    separation = float((means[1] - means[0]) / np.sqrt(variances.mean()))
    return TwoGaussians(
        clean_probability=clean_probability,
        means=means,
        variances=variances,
        weights=weights,
        scale=given.scale,
        separation=separation,
        split=True,
        monotone=monotone,
        single_mode=separation < minimum_separation,
    )


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


def _fit(values: Floats, counts: Floats, max_iter: int, tol: float, reg_covar: float) -> tuple[Floats, Floats, Floats]:
    """Return means, variances and weights (2,) of values (n,), each of which stands for so many losses.

    With counts of 1 they are scikit-learn's, operation by operation.
    """
    weights, means, spreads = _start(values, counts)
    precision, likelihood = np.sqrt(1 / (spreads + reg_covar)), -np.inf
    for _ in range(max_iter):
        before = likelihood
        each, share = _expect(values, means, precision, weights)
        likelihood = (counts * each).sum() / counts.sum()
        share *= counts[:, None]
        sizes = share.sum(axis=0) + 10 * np.finfo(np.float64).eps
        means = (share.T @ values[:, None])[:, 0] / sizes
        away = [values - mean for mean in means]
        variances = np.array([(share[:, k] * away[k]) @ away[k] for k in (0, 1)]) / sizes + reg_covar
        weights = sizes / sizes.sum()
        precision = 1 / np.sqrt(variances)
        if abs(likelihood - before) < tol:
            break
    return means, variances, weights


def _start(values: Floats, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return shares, means and variances (2,) of the groups that k-means finds, from the smallest and the largest."""
    ends, mean = np.array([[0.0], [1.0]]), (counts * values).sum() / counts.sum()
    # scikit-learn takes its tolerance for a share of the points' variance, whatever they weigh
    of_losses = (counts * (values - mean) ** 2).sum() / counts.sum()
    k_means = KMeans(n_clusters=2, init=ends, n_init=1, tol=K_MEANS_TOLERANCE * of_losses / values.var())
    labels = k_means.fit_predict(values[:, None], sample_weight=counts)
    groups = [(values[labels == label], counts[labels == label]) for label in (0, 1)]
    sizes = np.array([count.sum() for _, count in groups])
    means = np.array([(count * group).sum() for group, count in groups]) / sizes
    squares = [(count * (group - mean) ** 2).sum() for (group, count), mean in zip(groups, means, strict=True)]
    return sizes / counts.sum(), means, np.array(squares) / sizes


def _expect(scaled: Floats, means: Floats, precision: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the log-likelihood (n,) and the posteriors (n, 2) of values; the precision is 1 / standard deviation."""
    away = scaled[:, None] * precision - means * precision
    joint = -0.5 * (math.log(2 * math.pi) + np.square(away)) + np.log(precision) + np.log(weights)
    larger, smaller = joint.max(axis=1), joint.min(axis=1)
    likelihood = np.log1p(np.exp(smaller - larger)) + larger
    return likelihood, np.exp(joint - likelihood[:, None])


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
