import dataclasses
import inspect
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from in2r.partition import elite, elite_threshold, fit_two_gaussians, is_believable, mismatch_divergence, split_pairs
from in2r.runs.settings import PartitionConfig

REFERENCE = np.load(Path(__file__).parents[1] / "arrays" / "mixture.npz")
MIXTURES = ["mixed", "mostly_clean", "mostly_noisy"]


def two_groups(count=1000, noisy=0.4, gap=4.0, widths=(1.0, 1.0), seed=0):
    draw = np.random.default_rng(seed)
    is_noisy = draw.random(count) < noisy
    return np.where(is_noisy, gap + widths[1] * draw.normal(size=count), widths[0] * draw.normal(size=count))


def bayes(losses, fitted):
    """The posterior of component 0 by Bayes' rule on the fitted parameters, not levelled."""
    low, high = fitted.scale
    scaled = (losses - low) / (high - low)
    density = np.exp(-((scaled[:, None] - fitted.means) ** 2) / (2 * fitted.variances))
    joint = fitted.weights * density / np.sqrt(fitted.variances)
    return joint[:, 0] / joint.sum(1)


@pytest.mark.parametrize("name", MIXTURES)
def test_posteriors_equal_the_reference(name):
    fitted = fit_two_gaussians(REFERENCE[f"{name}_loss"])
    np.testing.assert_allclose(fitted.clean_probability, REFERENCE[f"{name}_posterior"], rtol=0, atol=1e-2)
    assert fitted.split
    assert fitted.monotone
    assert not fitted.single_mode
    truth = REFERENCE[f"{name}_is_clean"]
    assert np.mean((fitted.clean_probability > 0.5) == truth) > 0.95
    assert fitted.noise_rate == pytest.approx(1 - truth.mean(), abs=0.03)


def test_parameters_describe_the_scaled_losses_clean_component_first():
    losses = two_groups(4000, noisy=0.3, gap=10.0, widths=(1.0, 2.0))
    fitted = fit_two_gaussians(losses)
    low, high = fitted.scale
    assert (low, high) == (losses.min(), losses.max())
    span = high - low
    np.testing.assert_allclose(fitted.means * span + low, [0, 10], atol=0.2)
    np.testing.assert_allclose(np.sqrt(fitted.variances) * span, [1, 2], atol=0.2)
    np.testing.assert_allclose(fitted.weights, [0.7, 0.3], atol=0.02)
    gap = fitted.means[1] - fitted.means[0]
    assert fitted.separation == pytest.approx(gap / math.sqrt(fitted.variances.sum() / 2))
    posterior = bayes(losses, fitted)
    inner = losses > losses[posterior.argmax()]  # below it the posterior is levelled
    np.testing.assert_allclose(fitted.clean_probability[inner], posterior[inner], rtol=1e-9, atol=1e-12)


def test_fit_options_reach_the_fit():
    losses = REFERENCE["mostly_clean_loss"]
    scaled = (losses - losses.min()) / np.ptp(losses)
    converged = GaussianMixture(2, max_iter=500, tol=1e-9, reg_covar=1e-6, random_state=0).fit(scaled[:, None])
    fitted = fit_two_gaussians(losses, max_iter=500, tol=1e-9, reg_covar=1e-6)
    np.testing.assert_allclose(fitted.means, np.sort(converged.means_[:, 0]), atol=1e-5)
    assert abs(fitted.means[0] - fit_two_gaussians(losses).means[0]) > 1e-3
    assert fit_two_gaussians(losses, reg_covar=0.1).variances.min() > 0.1
    assert fit_two_gaussians(losses, minimum_separation=5.0).single_mode


def test_a_fit_that_stops_early_does_not_warn():
    # Warnings are errors in this suite.
    one = fit_two_gaussians(REFERENCE["mostly_noisy_loss"], max_iter=1, tol=1e-9)
    assert (
        one.clean_probability.tolist() != fit_two_gaussians(REFERENCE["mostly_noisy_loss"]).clean_probability.tolist()
    )


def test_the_clean_component_is_the_lower_one_even_if_the_means_cross_during_the_fit():
    draw = np.random.default_rng(13)
    losses = np.concatenate([draw.normal(0, 1, 100), draw.normal(-0.3, 0.05, 100)])  # a spike inside a wide group
    fitted = fit_two_gaussians(losses, max_iter=200, tol=1e-6)
    assert fitted.means[0] < fitted.means[1]
    order = np.argsort(losses)
    assert (np.diff(fitted.clean_probability[order]) <= 1e-12).all()
    inner = losses > losses[bayes(losses, fitted).argmax()]
    np.testing.assert_allclose(fitted.clean_probability[inner], bayes(losses, fitted)[inner], atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=40), st.integers(0, 99))
# The order of these decided on which side of the middle the first centres fell.
@example([0.0, 0.0, 0.0, 0.0, 0.0, 28.0, 100.0, 7.651803493499756, 0.0, 3.0, -100.0], 0)
def test_any_losses_give_monotone_probabilities_in_any_order_and_unit(values, seed):
    losses = np.array(values, dtype=np.float64)
    probability = fit_two_gaussians(losses).clean_probability
    assert ((probability >= 0) & (probability <= 1)).all()
    in_order = probability[np.argsort(losses, kind="stable")]
    assert (np.diff(in_order) <= 1e-12).all()
    order = np.random.default_rng(seed).permutation(len(losses))
    np.testing.assert_allclose(fit_two_gaussians(losses[order]).clean_probability, probability[order], atol=1e-12)
    np.testing.assert_allclose(fit_two_gaussians(losses * 4).clean_probability, probability, atol=1e-9)


@pytest.mark.parametrize(("widths", "turning"), [((0.5, 3.0), "low"), ((3.0, 0.5), "high")])
def test_posterior_that_turns_back_is_levelled_and_flagged(widths, turning):
    losses = two_groups(2000, gap=6.0, widths=widths)
    fitted = fit_two_gaussians(losses)
    raw = bayes(losses, fitted)
    order = np.argsort(losses)
    assert (np.diff(raw[order]) > 1e-9).any()  # the raw posterior does turn back
    assert not fitted.monotone
    assert (np.diff(fitted.clean_probability[order]) <= 1e-12).all()
    end = order[0] if turning == "low" else order[-1]
    extreme = raw.max() if turning == "low" else raw.min()
    assert fitted.clean_probability[end] == pytest.approx(extreme, abs=1e-3)
    inner = (losses > losses[raw.argmax()]) if turning == "low" else (losses < losses[raw.argmin()])
    np.testing.assert_allclose(fitted.clean_probability[inner], raw[inner], atol=1e-9)


@pytest.mark.parametrize(
    "losses",
    [
        np.zeros(0),
        np.array([3.0]),
        np.full(64, 0.7),
        np.zeros(64),
        np.float32(5) + np.arange(4, dtype=np.float32) * np.float32(4.8e-7),  # equal but for float32 rounding
    ],
    ids=["none", "one", "equal", "all zero", "rounding"],
)
def test_nothing_to_split_counts_everything_as_clean(losses):
    fitted = fit_two_gaussians(losses)
    assert not fitted.split
    assert fitted.single_mode
    assert fitted.monotone
    assert fitted.noise_rate is None
    assert fitted.clean_probability.dtype == np.float64
    np.testing.assert_array_equal(fitted.clean_probability, np.ones(len(losses)))
    assert split_pairs(fitted.clean_probability, minimum_noisy_share=0.01).all()


def test_two_losses_are_split():
    np.testing.assert_allclose(fit_two_gaussians(np.array([5.0, 1.0])).clean_probability, [0, 1], atol=1e-6)


SINGLE_MODES = {
    "normal": lambda draw, n: draw.normal(size=n),
    "exponential": lambda draw, n: draw.exponential(size=n),
    "gamma": lambda draw, n: draw.gamma(2, size=n),
    "log-normal": lambda draw, n: draw.lognormal(0, 0.5, size=n),
}
PILED_UP = {
    "half-normal": lambda draw, n: np.abs(draw.normal(size=n)),
    "hinge": lambda draw, n: np.maximum(0, draw.normal(-0.5, 1, size=n)),
}


@pytest.mark.parametrize("draw", SINGLE_MODES.values(), ids=SINGLE_MODES.keys())
@pytest.mark.parametrize("seed", range(3))
def test_a_skewed_single_mode_is_recognised(draw, seed):
    fitted = fit_two_gaussians(draw(np.random.default_rng(seed), 20000))
    assert fitted.single_mode
    assert fitted.noise_rate is None
    assert 1 - fitted.clean_probability.mean() > 0.01  # the bare fit calls clean pairs noisy


@pytest.mark.parametrize("draw", PILED_UP.values(), ids=PILED_UP.keys())
def test_losses_that_pile_up_are_at_the_bound(draw):
    fitted = fit_two_gaussians(draw(np.random.default_rng(0), 20000), minimum_separation=2.5)
    assert fitted.single_mode
    assert fitted.separation > 1.9


@pytest.mark.parametrize(("function", "data"), [(fit_two_gaussians, 1), (mismatch_divergence, 2), (is_believable, 2)])
def test_the_functions_and_the_settings_have_the_same_defaults(function, data):
    config = PartitionConfig()
    for name, parameter in list(inspect.signature(function).parameters.items())[data:]:
        assert parameter.default == getattr(config, name), name


@pytest.mark.parametrize("noisy", [0.2, 0.4, 0.6, 0.8])
def test_two_groups_are_not_taken_for_one(noisy):
    fitted = fit_two_gaussians(two_groups(2000, noisy, gap=3.5))
    assert not fitted.single_mode
    assert fitted.noise_rate == pytest.approx(noisy, abs=0.05)


# Whether the noisy component holds mismatched pairs


def test_the_divergence_by_hand():
    fitted = fit_two_gaussians(np.array([0.0, 0.0, 1.0, 1.0]), reg_covar=0.25)
    mean, variance = fitted.means[1], fitted.variances[1]
    # mismatched losses 2 and 4: mean 3, variance 1, and 0.25 more as in the fit
    wanted = math.log(math.sqrt(variance / 1.25)) + (1.25 + (3 - mean) ** 2) / (2 * variance) - 0.5
    assert mismatch_divergence(fitted, np.array([2.0, 4.0]), 0.25) == pytest.approx(wanted)
    assert mismatch_divergence(fitted, torch.tensor([4.0, 2.0]), 0.25) == pytest.approx(wanted)
    same = mean + math.sqrt(variance - 0.25) * np.array([-1.0, 1.0])
    assert mismatch_divergence(fitted, same, 0.25) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="loss 1 is nan"):
        mismatch_divergence(fitted, np.array([2.0, np.nan]))


def test_the_divergence_equals_pytorchs():
    fitted = fit_two_gaussians(two_groups(500))
    mismatched = two_groups(500, noisy=1.0, gap=5.0, seed=1)
    low, high = fitted.scale
    scaled = (mismatched - low) / (high - low)
    known = torch.distributions.Normal(scaled.mean(), math.sqrt(scaled.var() + 5e-4))
    noisy = torch.distributions.Normal(fitted.means[1], math.sqrt(fitted.variances[1]))
    wanted = float(torch.distributions.kl_divergence(known, noisy))
    assert mismatch_divergence(fitted, mismatched) == pytest.approx(wanted, abs=1e-6)


@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50))
@settings(max_examples=20, deadline=None)
def test_the_divergence_has_no_unit(scale, shift):
    losses, mismatched = two_groups(300), two_groups(300, noisy=1.0, seed=1)
    once = mismatch_divergence(fit_two_gaussians(losses), mismatched)
    again = mismatch_divergence(fit_two_gaussians(scale * losses + shift), scale * mismatched + shift)
    assert again == pytest.approx(once, abs=1e-6)


@pytest.mark.parametrize("noisy", [0.1, 0.2, 0.4, 0.6, 0.8])
def test_a_group_of_mismatched_pairs_is_believed(noisy):
    fitted = fit_two_gaussians(two_groups(2000, noisy))
    divergence = mismatch_divergence(fitted, two_groups(2000, noisy=1.0, seed=1))
    assert is_believable(fitted, divergence), divergence
    assert is_believable(fitted, divergence, maximum_divergence=divergence)
    assert not is_believable(fitted, divergence, maximum_divergence=divergence / 2)


def test_the_worse_half_of_clean_pairs_is_not():
    """Clean losses that pile up at 0: two components told apart, both far below the mismatched pairs."""
    draw = np.random.default_rng(0)
    fitted = fit_two_gaussians(np.maximum(0, draw.normal(-0.5, 1, 4000)))
    assert not fitted.single_mode
    assert fitted.noise_rate > 0.2
    divergence = mismatch_divergence(fitted, draw.normal(4, 1, 4000))
    assert divergence > 1
    assert not is_believable(fitted, divergence)


def test_what_a_model_without_knowledge_says_is_not():
    """At chance, mismatched pairs look like all others, so they spread over both components."""
    fitted = fit_two_gaussians(two_groups(2000))
    assert fitted.separation > 2
    divergence = mismatch_divergence(fitted, two_groups(2000, seed=1))
    assert divergence > 1
    assert not is_believable(fitted, divergence)


def test_one_group_is_not_believed_wherever_the_mismatched_pairs_lie():
    fitted = fit_two_gaussians(np.random.default_rng(0).normal(size=4000))
    assert not is_believable(fitted, 0.0)
    nothing = fit_two_gaussians(np.ones(4))
    assert mismatch_divergence(nothing, np.arange(4.0)) == math.inf
    assert not is_believable(nothing, math.inf)


def test_tensors_are_accepted_and_the_result_is_frozen():
    losses = torch.tensor(two_groups(50), dtype=torch.float32, requires_grad=True)
    fitted = fit_two_gaussians(losses)
    np.testing.assert_array_equal(
        fitted.clean_probability, fit_two_gaussians(losses.detach().numpy()).clean_probability
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.split = False


def test_unusable_losses_are_named():
    with pytest.raises(ValueError, match=r"loss 2 is nan \(2 of 5 are not finite\)"):
        fit_two_gaussians(np.array([1.0, 2.0, np.nan, 3.0, np.inf]))
    with pytest.raises(ValueError, match=r"one-dimensional, got shape \(2, 1\)"):
        fit_two_gaussians(np.zeros((2, 1)))


# Split and elite


def test_split_is_strict():
    assert split_pairs(np.array([0.4, 0.5, 0.51])).tolist() == [False, False, True]
    assert split_pairs(np.array([0.4, 0.5, 0.51]), threshold=0.45).tolist() == [False, True, True]


def test_lowest_share_is_noisy_only_if_all_are_clean():
    probability = np.linspace(0.9, 0.6, 200)
    clean = split_pairs(probability, minimum_noisy_share=0.01)
    assert np.flatnonzero(~clean).tolist() == [198, 199]
    assert split_pairs(probability).all()
    assert (~split_pairs(probability[:50], minimum_noisy_share=0.01)).sum() == 1
    probability[0] = 0.2
    assert np.flatnonzero(~split_pairs(probability, minimum_noisy_share=0.01)).tolist() == [0]


def test_lowest_share_never_divides_equal_posteriors():
    assert split_pairs(np.ones(200), minimum_noisy_share=0.01).all()
    probability = np.array([0.9, 0.7, *[0.8] * 198])
    assert np.flatnonzero(~split_pairs(probability, minimum_noisy_share=0.05)).tolist() == [1]
    assert split_pairs(np.array([0.9]), minimum_noisy_share=0.01).tolist() == [True]
    assert split_pairs(np.zeros(0), minimum_noisy_share=0.01).tolist() == []


def test_elite_is_above_the_mean_of_the_clean_set():
    clean = np.array([0.6, 0.8, 1.0])
    tau = elite_threshold(clean)
    assert tau == pytest.approx(0.8)
    assert elite(clean, tau).tolist() == [False, False, True]
    assert elite(clean[:2], tau).tolist() == [False, False]  # a batch without an elite pair stays without


@pytest.mark.parametrize("value", [0.1, 0.7, 1.0, 1 / 3])
@pytest.mark.parametrize("count", [1, 3, 10, 1000])
def test_equal_posteriors_are_all_elite(value, count):
    clean = np.full(count, value)
    tau = elite_threshold(clean)
    assert elite(clean, tau).all()
    assert elite(clean[:1], tau).all()


def test_posteriors_that_are_equal_up_to_a_digit_are_all_elite():
    clean = np.ones(70_000, dtype=np.float32)
    clean[5] = np.nextafter(np.float32(1), np.float32(0))
    clean = clean.astype(np.float64)
    assert elite(clean, elite_threshold(clean)).all()


def test_a_few_doubtful_pairs_among_saturated_ones_are_not_elite():
    clean = np.ones(1_000_000)
    clean[:3] = 0.9
    assert np.flatnonzero(~elite(clean, elite_threshold(clean))).tolist() == [0, 1, 2]


def test_empty_clean_set_has_no_elite():
    assert elite_threshold(np.zeros(0)) == 1.0
    assert elite(np.zeros(0), 1.0).shape == (0,)
