import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import anchored_posterior, mixture_posterior, standardize, trust
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
    at_the_means = mixture.posterior(torch.tensor([lower, upper], dtype=torch.float64)).float()
    torch.testing.assert_close(mixture.prob[values <= lower], at_the_means[0].expand(int((values <= lower).sum())))
    torch.testing.assert_close(mixture.prob[values >= upper], at_the_means[1].expand(int((values >= upper).sum())))
    assert lower < mixture.middle < upper
    assert float(mixture.posterior(torch.tensor(mixture.middle, dtype=torch.float64))) == pytest.approx(0.5, abs=1e-12)


def test_the_share_of_well_parted_groups_is_found():
    assert float((mixture_posterior(two_groups(gap=8.0)).prob > 0.5).float().mean()) == pytest.approx(0.3, abs=0.03)


@given(scores(), st.integers(0, 99))
def test_the_posterior_never_falls_and_ignores_order_place_and_unit(values, seed):
    mixture = mixture_posterior(values)
    in_order = mixture.prob[values.argsort()]
    assert (in_order.diff() >= -1e-6).all()
    assert ((in_order >= 0) & (in_order <= 1)).all()
    torch.testing.assert_close(mixture.posterior(values), mixture.prob)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(mixture_posterior(4 * values[order] + 1).prob, mixture.prob[order], rtol=0, atol=1e-4)


def test_options_reach_the_fit():
    values = two_groups()
    assert mixture_posterior(values, max_iter=1).middle != mixture_posterior(values).middle
    assert mixture_posterior(values, tol=1e-9).middle != mixture_posterior(values).middle
    assert mixture_posterior(values, reg_covar=0.1).fitted.variances.min() > 0.1


@pytest.mark.parametrize("values", [torch.full((5,), 0.3), torch.ones(1), torch.ones(0)])
def test_equal_scores_are_not_split(values):
    mixture = mixture_posterior(values)
    assert not mixture.fitted.split
    assert mixture.middle == 0
    assert torch.equal(mixture.prob, torch.ones_like(values))
    assert torch.equal(anchored_posterior(values, 0.2), torch.ones_like(values))


def test_without_a_middle_it_is_halfway_between_the_means(monkeypatch):
    outweighed = gaussians((0.999, 0.001))  # the upper group at score -0.2, the lower one at -0.8: f > 1/2 everywhere
    monkeypatch.setattr(trust, "fit_two_gaussians", lambda *_: outweighed)
    values = torch.tensor([-0.9, -0.7, -0.5, -0.4])
    mixture = mixture_posterior(values)
    assert mixture.middle == pytest.approx(-0.5)
    assert (mixture.prob > 0.5).all()
    # The weights of the components are left out: log-odds 15 (s - q), of means 0.6 apart and a variance of 0.04.
    expected = (15 * (values + 0.6)).clamp(-4.5, 4.5).sigmoid()  # q is halfway between -0.7 and -0.5
    torch.testing.assert_close(anchored_posterior(values, 0.5), expected)


# The mixture with a given share


def test_anchored_by_hand(monkeypatch):
    monkeypatch.setattr(trust, "fit_two_gaussians", lambda *_: gaussians((0.5, 0.5)))  # f(s) = sigmoid(15 (s + 0.5))
    values = torch.tensor([-0.5, -0.4, -0.8, -0.2])
    torch.testing.assert_close(trust.mixture_posterior(values).prob, (15 * (values + 0.5)).sigmoid())
    for share, quantile in ((0, -0.2), (0.25, -0.3), (0.5, -0.45), (0.75, -0.65), (1, -0.8)):
        expected = (15 * (values - quantile)).clamp(-4.5, 4.5).sigmoid()
        torch.testing.assert_close(anchored_posterior(values, share), expected)


@given(scores(), st.floats(0, 1))
def test_the_share_of_trusted_pairs_is_the_given_one(values, share):
    prob = anchored_posterior(values, share)
    trusted = round(share * len(values))
    assert int((prob > 0.5).sum()) == min(trusted, len(values) - 1)
    assert (prob[values.argsort()].diff() >= 0).all()


def test_anchored_at_the_mixtures_own_share_it_is_the_mixture():
    values = two_groups(20_000)
    mixture = mixture_posterior(values)
    own_share = float((mixture.prob > 0.5).double().mean())
    torch.testing.assert_close(anchored_posterior(values, own_share), mixture.prob, rtol=0, atol=1e-2)
    assert int((anchored_posterior(values, 0.1) > 0.5).sum()) == 2000


def test_pairs_that_tie_at_the_quantile_are_trusted_by_half():
    values = torch.tensor([0.0, 1.0, 2.0, 2.0, 2.0, 9.0])
    assert anchored_posterior(values, 0.5)[2:5].tolist() == [0.5, 0.5, 0.5]


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
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], got 20"):
        anchored_posterior(torch.zeros(3), 20)
