"""From scores to trust: two Gaussians on a score, and the same with the share of trusted pairs held fast.

A score is larger the more likely a pair belongs together, the opposite of a loss.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.partition import TwoGaussians, fit_two_gaussians
from in2r.partition.mixture import EQUAL_LOSSES
from in2r.transfer import at_least_float32

HALVINGS = 60
"""Of the distance between the two means, until where the posterior is 1/2 is known to the last digit."""


@dataclass(frozen=True, eq=False)
class ScoreMixture:
    """Two Gaussians fitted to scores; f is the posterior of the upper one, as a function of the score.

    Attributes:
        prob: (N,) f of the scores it was fitted to, in [0, 1].
        fitted: the Gaussians, fitted to the negated scores; `fitted.split` is False where there was nothing to fit.
        middle: the score at which f is 1/2. If one component outweighs the other all the way between the means there is
            none, and it is the score halfway between them; 0 where there was nothing to fit.
    """

    prob: Tensor
    fitted: TwoGaussians
    middle: float

    def posterior(self, scores: Tensor) -> Tensor:
        """Return f of scores of any shape; 1 where there was nothing to fit."""
        values = at_least_float32(scores.detach())
        odds = _log_odds(self.fitted, values.cpu().double())
        return odds.sigmoid().to(values)


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
        max_iter: iterations of the fit at most.
        tol: bound on the gain in mean log-likelihood at which the fit stops.
        reg_covar: added to the variances, in units of the scores' range squared.

    Returns:
        The mixture. Fewer than two scores, or equal ones, are not split: every p is 1.

    Raises:
        ValueError: if `scores` is not one-dimensional, or names the first one that is not finite.
    """
    values = _checked(scores)
    fitted = fit_two_gaussians(-values, max_iter, tol, reg_covar)
    mixture = ScoreMixture(values, fitted, _middle(fitted))
    return ScoreMixture(mixture.posterior(values), fitted, mixture.middle)


def anchored_posterior(
    scores: Tensor, share: float, max_iter: int = 100, tol: float = 1e-3, reg_covar: float = 5e-4
) -> Tensor:
    """Shift the mixture's posterior so that a given share of the pairs is trusted, whatever the mixture itself says.

    p = f(s - q + f^-1(1/2)), q the (1 - share) quantile of the scores: halfway between the last score that is in the
    share and the next one. So round(share N) pairs have p > 1/2, up to those that tie at q, where p = 1/2. With share 0
    the largest score has 1/2, with share 1 the smallest one. Where f is nowhere 1/2 between the means, its log-odds are
    shifted to be 0 at `ScoreMixture.middle`: the mixture's own weights are then not believed.

    Args:
        scores: (N,), finite.
        share: in [0, 1].
        max_iter: of the fit, see `mixture_posterior`.
        tol: of the fit.
        reg_covar: of the fit.

    Returns:
        (N,) p in [0, 1], in at least float32; 1 where there was nothing to fit, as no score is better than another.

    Raises:
        ValueError: if the share is out of range, or for scores as in `mixture_posterior`.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1], got {share}")
    mixture = mixture_posterior(scores, max_iter, tol, reg_covar)
    if not mixture.fitted.split:
        return mixture.prob
    values = scores.detach().cpu().double()
    falling = values.sort(descending=True).values
    last = round(share * len(values)) - 1
    quantile = (falling[max(last, 0)] + falling[min(last + 1, len(values) - 1)]) / 2
    middle = torch.tensor(mixture.middle, dtype=torch.float64)
    odds = _log_odds(mixture.fitted, values - quantile + middle) - _log_odds(mixture.fitted, middle)
    return odds.sigmoid().to(mixture.prob)


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
    """Return log(w_1 g_1 / (w_0 g_0)) of float64 scores clipped between the means; infinite where none was fitted."""
    if not fitted.split:
        return torch.full_like(scores, torch.inf)
    low, high = fitted.scale
    means, variances, weights = (torch.from_numpy(v) for v in (fitted.means, fitted.variances, fitted.weights))
    scaled = ((-scores - low) / (high - low)).clamp(*means.tolist())
    density = weights.log() - variances.log() / 2 - (scaled[..., None] - means) ** 2 / (2 * variances)
    return density[..., 0] - density[..., 1]


def _middle(fitted: TwoGaussians) -> float:
    """Return the score at which the log-odds are 0, by halving the way between the means, or halfway between them."""
    if not fitted.split:
        return 0.0
    low, high = fitted.scale
    clean, noisy = (float(mean) for mean in fitted.means)
    upper, lower = (-(low + mean * (high - low)) for mean in (clean, noisy))

    def odds(score: float) -> float:
        return float(_log_odds(fitted, torch.tensor(score, dtype=torch.float64)))

    if odds(lower) > 0 or odds(upper) < 0:
        return (lower + upper) / 2
    for _ in range(HALVINGS):
        half = (lower + upper) / 2
        lower, upper = (half, upper) if odds(half) < 0 else (lower, half)
    return (lower + upper) / 2
