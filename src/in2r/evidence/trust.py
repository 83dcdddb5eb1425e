"""From scores to trust: two Gaussians on a score, and the same with the share of trusted pairs held fast.

A score is larger the more likely a pair belongs together, the opposite of a loss.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.evidence.vectors import check_positive, check_whole
from in2r.partition import TwoGaussians, fit_two_gaussians
from in2r.partition.mixture import EQUAL_LOSSES
from in2r.transfer import at_least_float32

BLIND = 0.4
"""Share of trusted pairs below the median of random ones, 0.5 by chance, from which a score is no evidence."""
HALVINGS = 60
"""Of the range of the shift, until it is known to the last digit."""
BEYOND = 50.0
"""Log-odds that make every posterior 0 or 1."""


@dataclass(frozen=True, eq=False)
class ScoreMixture:
    """Two Gaussians fitted to scores.

    Attributes:
        prob: (N,) posterior of the upper one, in [0, 1], never falling with the score.
        log_odds: (N,) float64 on the CPU, log(w_1 g_1 / (w_0 g_0)) at scores clipped between the means.
        fitted: the Gaussians, fitted to the negated scores; `fitted.split` is False where there was nothing to fit.
    """

    prob: Tensor
    log_odds: Tensor
    fitted: TwoGaussians

    def anchored(self, share: float) -> Tensor:
        """Return `anchored_posterior` of the same scores, without another fit."""
        if not 0 <= share <= 1:
            raise ValueError(f"share must be in [0, 1], got {share}")
        if not self.fitted.split or share in (0, 1):
            return torch.full_like(self.prob, share)
        low, high = -BEYOND - float(self.log_odds.max()), BEYOND - float(self.log_odds.min())
        for _ in range(HALVINGS):
            shift = (low + high) / 2
            low, high = (shift, high) if float((self.log_odds + shift).sigmoid().mean()) < share else (low, shift)
        return (self.log_odds + low).sigmoid().to(self.prob)


def standardize(scores: Tensor) -> Tensor:
    """Return scores (N,) with mean 0 and standard deviation 1, in at least float32; zeros if they are all equal.

    So a kind of evidence that says the same of all pairs adds nothing to a sum of standardised scores.

    Raises:
        ValueError: if `scores` is not one-dimensional, or names the first one that is not finite.
    """
    values = _checked(scores)
    if _all_equal(values):
        return torch.zeros_like(values)
    return (values - values.mean()) / values.std(correction=0)


def mixture_posterior(scores: Tensor, max_iter: int = 100, tol: float = 1e-3, reg_covar: float = 5e-4) -> ScoreMixture:
    """Fit two Gaussians to scores: how likely each pair is of the upper group.

    f(s) = w_1 g_1(s) / (w_0 g_0(s) + w_1 g_1(s)), s clipped between the two means, so that f never falls. Between them
    it is the posterior of `partition.fit_two_gaussians` on -s, which goes on beyond them to the vertex of its log-odds.
    The fit depends neither on place and unit of the scores nor on their order.

    Args:
        scores: (N,), finite.
        max_iter: iterations of the fit at most, >= 1.
        tol: bound on the gain in mean log-likelihood at which the fit stops, > 0.
        reg_covar: > 0, added to the variances, in units of the scores' range squared.

    Returns:
        The mixture. Fewer than two scores, or equal ones, are not split: every p is 1.

    Raises:
        ValueError: if `scores` is not one-dimensional, or names the first one that is not finite.
    """
    check_whole(max_iter=max_iter)
    check_positive(tol=tol, reg_covar=reg_covar)
    values = _checked(scores)
    fitted = fit_two_gaussians(-values, max_iter, tol, reg_covar)
    odds = _log_odds(fitted, values)
    return ScoreMixture(odds.sigmoid().to(values), odds, fitted)


def anchored_posterior(
    scores: Tensor, share: float, max_iter: int = 100, tol: float = 1e-3, reg_covar: float = 5e-4
) -> Tensor:
    """Shift the mixture's log-odds until the mean of the posteriors is a given share of right pairs.

    p = sigmoid(log(w_1 g_1 / (w_0 g_0)) + delta), delta such that mean p = share, the scores clipped between the means.
    So the fit says how sure a score makes, and the share says how many pairs are right. The components' weights, which
    overlapping groups leave open, are not believed.

    Args:
        scores: (N,), finite.
        share: in [0, 1].
        max_iter: of the fit, see `mixture_posterior`.
        tol: of the fit.
        reg_covar: of the fit.

    Returns:
        (N,) p in [0, 1], in at least float32, never falling with the score. The share itself where there was nothing to
        fit, as no score is better than another.

    Raises:
        ValueError: if the share is out of range, or for scores as in `mixture_posterior`.
    """
    return mixture_posterior(scores, max_iter, tol, reg_covar).anchored(share)


def matching_share(scores: Tensor, mismatched: Tensor, trusted: Tensor) -> float | None:
    """Return the share of pairs that belong together, by what mismatched pairs look like.

    Half of the mismatched pairs lie below the median m of pairs that were put together at random. If a share r of the
    right ones do too, then mean[s < m] = pi r + (1 - pi) / 2, so pi = (1/2 - mean[s < m]) / (1/2 - r); r is taken from
    pairs that are trusted for another reason. No shape of the scores is assumed.

    Args:
        scores: (N,), finite.
        mismatched: (M,) scores of pairs that were put together at random, M at least 1.
        trusted: (N,) bool, pairs that surely belong together.

    Returns:
        pi in [0, 1]; None where no pair is trusted, or more than a share `BLIND` of the trusted ones lies below m: then
        the scores do not tell right from wrong.

    Raises:
        ValueError: for scores as in `mixture_posterior`, and if a shape or type does not fit.
    """
    if trusted.shape != scores.shape or trusted.dtype != torch.bool:
        found = f"{trusted.dtype} of shape {tuple(trusted.shape)}"
        raise ValueError(f"trusted must be torch.bool of shape {tuple(scores.shape)}, got {found}")
    if not len(mismatched):
        raise ValueError("mismatched must hold a score, got none")
    below = _checked(scores) < _checked(mismatched).median()
    if not trusted.any():
        return None
    by_chance = float(below[trusted].double().mean())
    if by_chance > BLIND:
        return None
    return min(max((0.5 - float(below.double().mean())) / (0.5 - by_chance), 0.0), 1.0)


def _checked(scores: Tensor) -> Tensor:
    if scores.ndim != 1:
        raise ValueError(f"scores must be one-dimensional, got shape {tuple(scores.shape)}")
    values = at_least_float32(scores.detach())
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        first = int(bad[0])
        raise ValueError(f"score {first} is {float(values[first])} ({len(bad)} of {len(values)} are not finite)")
    return values


def _all_equal(values: Tensor) -> bool:
    if len(values) < 2:
        return True
    low, high = float(values.min()), float(values.max())
    return high - low <= EQUAL_LOSSES * max(abs(low), abs(high))


def _log_odds(fitted: TwoGaussians, scores: Tensor) -> Tensor:
    """Return log(w_1 g_1 / (w_0 g_0)), (N,) float64 on the CPU, scores clipped between the means."""
    values = scores.cpu().double()
    if not fitted.split:
        return torch.full_like(values, torch.inf)
    low, high = fitted.scale
    means, variances, weights = (torch.from_numpy(v) for v in (fitted.means, fitted.variances, fitted.weights))
    scaled = ((-values - low) / (high - low)).clamp(*means.tolist())
    density = weights.log() - variances.log() / 2 - (scaled[:, None] - means) ** 2 / (2 * variances)
    return density[:, 0] - density[:, 1]
