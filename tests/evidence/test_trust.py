import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import anchored_posterior, matching_share, mixture_posterior, standardize, trust
from in2r.metrics import calibration_error
from in2r.partition import TwoGaussians, fit_two_gaussians


def two_groups(count=2000, trusted=0.3, gap=4.0, widths=(1.0, 1.0), seed=0):
    """Scores of two groups: the upper one at 0, the lower one at -gap."""
    generator = torch.Generator().manual_seed(seed)
    upper = torch.rand(count, generator=generator) < trusted
    noise = torch.randn(count, generator=generator)
    return torch.where(upper, widths[0] * noise, widths[1] * noise - gap)


def gaussians(weights, means=(0.2, 0.8), variances=(0.04, 0.04), scale=(0.0, 1.0)):
    """Two Gaussians on losses in [0, 1], so scores in [-1, 0]."""
    arrays = (np.array(values) for values in (means, variances, weights))
    return TwoGaussians(np.ones(1), *arrays, scale, 3.0, True, True, False)


def scores(least=2, most=40):
    """Distinct scores, not too close for float32."""
    return st.lists(st.integers(-1000, 1000), min_size=least, max_size=most, unique=True).map(
        lambda values: torch.tensor(values, dtype=torch.float32) / 64
    )


# Standardised scores


def test_standardize_by_hand():
    torch.testing.assert_close(standardize(torch.tensor([1.0, 3.0, 1.0, 3.0])), torch.tensor([-1.0, 1.0, -1.0, 1.0]))


@pytest.mark.parametrize(
    "values", [torch.full((7,), 0.1), torch.full((1000,), math.log(1e-5)), torch.ones(1), torch.ones(0)]
)
def test_equal_scores_are_standardised_to_zeros(values):
    assert torch.equal(standardize(values), torch.zeros_like(values))


@given(scores(), st.floats(0.1, 10), st.floats(-10, 10))
def test_standardize_ignores_place_and_unit(values, scale, shift):
    found = standardize(values)
    assert float(found.mean()) == pytest.approx(0, abs=1e-5)
    assert float(found.std(correction=0)) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(standardize(scale * values + shift), found, rtol=1e-3, atol=1e-3)


# The mixture


@pytest.mark.parametrize("widths", [(1.0, 1.0), (0.7, 1.5), (1.5, 0.7)])
def test_between_the_means_it_is_the_posterior_of_the_partition(widths):
    values = two_groups(widths=widths)
    mixture = mixture_posterior(values)
    fitted = fit_two_gaussians(-values, max_iter=100, tol=1e-3)
    low, high = fitted.scale
    upper, lower = (-(low + mean * (high - low)) for mean in fitted.means)
    inner = (values > lower) & (values < upper)
    assert inner.float().mean() > 0.3
    theirs = torch.from_numpy(fitted.clean_probability).float()
    torch.testing.assert_close(mixture.prob[inner], theirs[inner])
    for beyond, end in (
        (values <= lower, inner & (values < lower + 0.1)),
        (values >= upper, inner & (values > upper - 0.1)),
    ):
        assert len(mixture.prob[beyond].unique()) == 1
        assert float(mixture.prob[beyond][0]) == pytest.approx(float(mixture.prob[end].mean()), abs=0.1)


def test_the_share_of_well_parted_groups_is_found():
    assert float((mixture_posterior(two_groups(gap=8.0)).prob > 0.5).float().mean()) == pytest.approx(0.3, abs=0.03)


@given(scores(), st.integers(0, 99))
def test_the_posterior_never_falls_and_ignores_order_place_and_unit(values, seed):
    mixture = mixture_posterior(values)
    in_order = mixture.prob[values.argsort()]
    assert (in_order.diff() >= -1e-6).all()
    assert ((in_order >= 0) & (in_order <= 1)).all()
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(mixture_posterior(4 * values[order] + 1).prob, mixture.prob[order], rtol=0, atol=1e-4)


def test_options_reach_the_fit():
    values = two_groups()
    usual = mixture_posterior(values).prob
    assert not torch.equal(mixture_posterior(values, max_iter=1).prob, usual)
    assert not torch.equal(mixture_posterior(values, tol=1e-9).prob, usual)
    assert mixture_posterior(values, reg_covar=0.1).fitted.variances.min() > 0.1


@pytest.mark.parametrize("values", [torch.full((5,), 0.3), torch.ones(1), torch.ones(0)])
def test_equal_scores_are_not_split(values):
    mixture = mixture_posterior(values)
    assert not mixture.fitted.split
    assert torch.equal(mixture.prob, torch.ones_like(values))
    assert torch.equal(anchored_posterior(values, 0.2), torch.full_like(values, 0.2))


# The mixture with a given share


def test_anchored_by_hand(monkeypatch):
    monkeypatch.setattr(trust, "fit_two_gaussians", lambda *_: gaussians((0.5, 0.5)))  # log-odds 15 (s + 0.5)
    values = torch.tensor([-0.5, -0.4, -0.8, -0.1])
    torch.testing.assert_close(mixture_posterior(values).prob, torch.tensor([0.0, 1.5, -4.5, 4.5]).sigmoid())
    odds, mean = torch.tensor([0.0, 1.5, -4.5, 4.5]), float(torch.tensor([-2.0, -0.5, -6.5, 2.5]).sigmoid().mean())
    torch.testing.assert_close(anchored_posterior(values, mean), (odds - 2).sigmoid())
    assert anchored_posterior(values, 0).tolist() == [0, 0, 0, 0]
    assert anchored_posterior(values, 1).tolist() == [1, 1, 1, 1]


@given(scores(), st.floats(0.01, 0.99))
def test_the_mean_of_the_trust_is_the_given_share(values, share):
    prob = anchored_posterior(values, share)
    assert float(prob.mean()) == pytest.approx(share, abs=1e-4)
    assert (prob[values.argsort()].diff() >= 0).all()


def test_anchored_at_the_mixtures_own_share_it_is_the_mixture():
    values = two_groups(20_000)
    mixture = mixture_posterior(values)
    torch.testing.assert_close(anchored_posterior(values, float(mixture.prob.mean())), mixture.prob, rtol=0, atol=1e-4)


def test_the_right_share_makes_the_trust_honest():
    """Unequal widths: the mixture says too many are right; with their share given, the trust is what it says."""
    values = two_groups(50_000, trusted=0.2, gap=2.5, widths=(0.7, 1.2))
    right = torch.rand(50_000, generator=torch.Generator().manual_seed(0)) < 0.2  # as `two_groups` draws them
    honest, own = anchored_posterior(values, 0.2), mixture_posterior(values).prob
    assert calibration_error(honest.numpy(), right.numpy()) < 0.1
    assert calibration_error(honest.numpy(), right.numpy()) < calibration_error(own.numpy(), right.numpy())


# The share of right pairs


@pytest.mark.parametrize("trusted", [0.1, 0.4, 0.95, 1.0])
def test_the_share_is_found_by_what_mismatched_pairs_look_like(trusted):
    generator = torch.Generator().manual_seed(1)
    right = torch.rand(40_000, generator=generator) < trusted
    skewed = torch.randn(40_000, generator=generator).exp()  # no Gaussian
    values = torch.where(right, skewed + 1.5, skewed)  # some right pairs lie below the median of wrong ones
    sure = right & (torch.rand(40_000, generator=generator) < 0.3)
    assert matching_share(values, torch.randn(9_000, generator=generator).exp(), sure) == pytest.approx(
        trusted, abs=0.02
    )


def test_the_share_by_hand():
    values, mismatched = torch.tensor([0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 9.0]), torch.tensor([1.0, 3.0, 4.0])
    sure = values > 5
    assert matching_share(values, mismatched, sure) == pytest.approx((0.5 - 3 / 8) / 0.5)
    sure = values != 1  # 2 of 7 below the median
    assert matching_share(values, mismatched, sure) == pytest.approx((0.5 - 3 / 8) / (0.5 - 2 / 7))
    assert matching_share(-values, -mismatched, sure) is None  # trusted pairs look like mismatched ones
    assert matching_share(values, mismatched, values > 10) is None
    assert matching_share(values, mismatched + 10, values == 0) is None
    assert matching_share(values, mismatched - 10, sure) == 1


# Both


def test_half_scores_give_float32():
    values = two_groups().half()
    assert standardize(values).dtype == mixture_posterior(values).prob.dtype == torch.float32
    torch.testing.assert_close(anchored_posterior(values, 0.3), anchored_posterior(values.float(), 0.3))


def test_wrong_arguments_are_named():
    for function in (standardize, mixture_posterior, lambda values: anchored_posterior(values, 0.5)):
        with pytest.raises(ValueError, match=r"score 2 is nan \(2 of 4 are not finite\)"):
            function(torch.tensor([0.0, 1.0, math.nan, math.inf]))
        with pytest.raises(ValueError, match=r"scores must be one-dimensional, got shape \(2, 2\)"):
            function(torch.zeros(2, 2))
    with pytest.raises(
        ValueError, match=r"trusted must be torch.bool of shape \(3,\), got torch.int64 of shape \(3,\)"
    ):
        matching_share(torch.zeros(3), torch.zeros(3), torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="mismatched must hold a score"):
        matching_share(torch.zeros(3), torch.zeros(0), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="max_iter must be a whole number of at least 1, got 0"):
        mixture_posterior(torch.arange(3.0), max_iter=0)
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], got 20"):
        anchored_posterior(torch.zeros(3), 20)
