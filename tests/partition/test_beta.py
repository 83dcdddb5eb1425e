import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from in2r.partition import fit_two_betas, split_pairs


def two_groups(shapes=((5, 50), (8, 5)), noisy=0.4, count=4000, seed=0):
    draw = np.random.default_rng(seed)
    is_noisy = draw.random(count) < noisy
    return np.where(is_noisy, draw.beta(*shapes[1], count), draw.beta(*shapes[0], count)), ~is_noisy


def scaled(losses):
    return np.clip((losses - losses.min()) / np.ptp(losses), 0.001, 0.999)


def bayes(x, fitted):
    """The posterior of component 0 by Bayes' rule with SciPy's densities, not levelled."""
    joint = [w * beta.pdf(x, a, b) for w, (a, b) in zip(fitted.weights, fitted.shapes, strict=True)]
    return joint[0] / (joint[0] + joint[1])


def loop(x, iterations):
    """Moment-matching EM as the specification has it, one component after the other."""
    components = [(0.5, 1.0, 2.0), (0.5, 2.0, 1.0)]
    for _ in range(iterations):
        joint = [np.maximum(w * beta.pdf(x, a, b), 1e-12) for w, a, b in components]
        share = [j / (joint[0] + joint[1]) for j in joint]
        components = []
        for r in share:
            mean = (r * x).sum() / r.sum()
            variance = (r * (x - mean) ** 2).sum() / r.sum()
            a = mean * (mean * (1 - mean) / variance - 1)
            components.append((r.sum() / len(x), a, a * (1 - mean) / mean))
    return components


@pytest.mark.parametrize("noisy", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("iterations", [1, 10, 25])
def test_equals_a_plain_fit_with_scipys_densities(noisy, iterations):
    losses, _ = two_groups(((2, 12), (6, 4)), noisy)
    fitted = fit_two_betas(losses, iterations)
    for k, (weight, a, b) in enumerate(loop(scaled(losses), iterations)):
        np.testing.assert_allclose(fitted.shapes[k], [a, b], rtol=1e-8)
        assert fitted.weights[k] == pytest.approx(weight, rel=1e-8)
        assert fitted.means[k] == pytest.approx(beta.mean(a, b), rel=1e-8)
        assert fitted.variances[k] == pytest.approx(beta.var(a, b), rel=1e-8)
    expected = abs(np.diff(fitted.means)[0]) / math.sqrt(fitted.variances.mean())
    assert fitted.separation == pytest.approx(expected)


def test_a_loss_that_neither_component_explains_counts_half_for_each():
    # Weight × density is below 1e-12 for both there, and is raised to it.
    losses = np.concatenate([np.linspace(0, 0.01, 9000), np.linspace(0.99, 1, 9000), [0.4]])
    fitted = fit_two_betas(losses, 30)
    for k, (weight, a, b) in enumerate(loop(scaled(losses), 30)):
        np.testing.assert_allclose(fitted.shapes[k], [a, b], rtol=1e-6)
        assert fitted.weights[k] == pytest.approx(weight, rel=1e-8)
    np.testing.assert_allclose(fitted.weights, 0.5, rtol=1e-9)


def test_posterior_is_bayes_rule():
    losses, _ = two_groups(((1, 10), (6, 4)))
    fitted = fit_two_betas(losses)
    raw = bayes(scaled(losses), fitted)
    below_turn = losses <= losses[raw.argmin()]
    np.testing.assert_allclose(fitted.clean_probability[below_turn], raw[below_turn], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("noisy", [0.2, 0.5, 0.8])
def test_well_separated_groups_are_found(noisy):
    losses, is_clean = two_groups(noisy=noisy, count=20000)
    fitted = fit_two_betas(losses, 100)
    low, high = fitted.scale
    assert (low, high) == (losses.min(), losses.max())
    span = high - low
    np.testing.assert_allclose(fitted.means * span + low, [5 / 55, 8 / 13], rtol=0.03)
    expected = [beta.std(5, 50), beta.std(8, 5)]
    np.testing.assert_allclose(np.sqrt(fitted.variances) * span, expected, rtol=0.06)
    np.testing.assert_allclose(fitted.weights, [1 - noisy, noisy], atol=0.01)
    assert np.mean((fitted.clean_probability > 0.5) == is_clean) > 0.995
    assert np.mean((fit_two_betas(losses).clean_probability > 0.5) == is_clean) > 0.94
    assert fitted.split
    assert not fitted.single_mode


def test_shapes_of_draws_that_reach_both_ends_are_recovered():
    # Scaled to the smallest and largest draw, these stay as they are.
    losses, _ = two_groups(((0.5, 20), (20, 0.5)), noisy=0.3, count=40000)
    fitted = fit_two_betas(losses, 50)
    np.testing.assert_allclose(fitted.shapes, [[0.5, 20], [20, 0.5]], rtol=0.1)
    np.testing.assert_allclose(fitted.weights, [0.7, 0.3], atol=0.01)
    assert fitted.monotone


@settings(max_examples=40)
@given(
    st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=40),
    st.integers(0, 99),
    st.sampled_from(["lowest_loss", "lower_mean"]),
)
def test_any_losses_give_monotone_probabilities_in_any_order_and_unit(values, seed, clean):
    losses = np.array(values, dtype=np.float64)
    fitted = fit_two_betas(losses, clean=clean)
    probability = fitted.clean_probability
    assert ((probability >= 0) & (probability <= 1)).all()
    assert np.isfinite(fitted.shapes).all()
    assert (np.diff(probability[np.argsort(losses, kind="stable")]) <= 1e-12).all()
    assert fitted.weights.sum() == pytest.approx(1)
    if fitted.split:
        assert (fitted.shapes > 0).all()
    order = np.random.default_rng(seed).permutation(len(losses))
    np.testing.assert_array_equal(fit_two_betas(losses[order], clean=clean).clean_probability, probability[order])
    np.testing.assert_allclose(fit_two_betas(losses * 4, clean=clean).clean_probability, probability, atol=1e-9)


def test_a_posterior_that_turns_back_keeps_its_value_at_the_turn():
    losses, _ = two_groups(((1, 10), (6, 4)), noisy=0.5)  # the noisy component is the narrower one at the upper end
    fitted = fit_two_betas(losses)
    raw = bayes(scaled(losses), fitted)
    order = np.argsort(losses)
    assert np.diff(raw[order]).max() > 1e-6
    assert not fitted.monotone
    beyond = losses > losses[raw.argmin()]
    assert beyond.any()
    np.testing.assert_allclose(fitted.clean_probability[beyond], raw.min(), atol=1e-6)


def test_the_rule_decides_where_a_wide_component_wins_at_both_ends():
    # 4 % noisy, and hardly a clean loss near the smallest one: there the wide component has the larger posterior.
    draw = np.random.default_rng(0)
    losses = np.concatenate([draw.beta(2, 14, 960), draw.normal(0.5, 0.2, 40).clip(0.001, 0.999)])
    by_mean, by_lowest = (fit_two_betas(losses, clean=clean) for clean in ("lower_mean", "lowest_loss"))
    np.testing.assert_array_equal(by_mean.shapes, by_lowest.shapes[::-1])
    assert by_mean.means[0] < by_mean.means[1]
    assert bayes(0.001, by_lowest) > 0.5 > bayes(0.001, by_mean)
    assert (by_mean.clean_probability > 0.5).mean() > 0.9
    assert (by_lowest.clean_probability > 0.5).mean() < 0.05
    smallest = losses.argmin()
    assert by_mean.clean_probability[smallest] == by_mean.clean_probability.max()  # levelled to the turn


def test_the_rules_agree_where_clean_losses_pile_up_at_the_lower_end():
    losses, _ = two_groups(((0.5, 8), (5, 4)))
    by_mean, by_lowest = (fit_two_betas(losses, clean=clean) for clean in ("lower_mean", "lowest_loss"))
    np.testing.assert_array_equal(by_mean.clean_probability, by_lowest.clean_probability)


def test_a_posterior_that_would_rise_throughout_is_constant():
    # Found by search: the component that wins at the lowest loss wins everywhere, the more so the higher the loss.
    losses = np.array([0.98, 0.08, 0.09, 0.86, 0.13, 0.12])
    fitted = fit_two_betas(losses)
    first, second = fitted.shapes
    assert first[0] > second[0]
    assert first[1] < second[1]
    assert not fitted.monotone
    np.testing.assert_allclose(fitted.clean_probability, bayes(0.001, fitted))
    assert fitted.clean_probability[0] > 0.5
    assert fit_two_betas(losses, clean="lower_mean").monotone


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
    fitted = fit_two_betas(losses)
    assert not fitted.split
    assert fitted.single_mode
    assert fitted.monotone
    assert fitted.clean_probability.dtype == np.float64
    np.testing.assert_array_equal(fitted.clean_probability, np.ones(len(losses)))
    assert split_pairs(fitted.clean_probability, minimum_noisy_share=0.01).all()


def test_losses_of_two_values_are_split_without_a_variance():
    np.testing.assert_allclose(fit_two_betas(np.array([5.0, 1.0])).clean_probability, [0, 1], atol=2e-3)
    values = np.array([0.0] * 30 + [1.0] * 10)
    fitted = fit_two_betas(values)
    np.testing.assert_allclose(fitted.clean_probability, 1 - values, atol=2e-3)
    np.testing.assert_allclose(fitted.means, [0, 1], atol=2e-3)
    np.testing.assert_allclose(fitted.weights, [0.75, 0.25], atol=2e-3)


def test_the_bound_of_the_separation_reaches_the_fit():
    losses, _ = two_groups()
    separation = fit_two_betas(losses).separation
    assert fit_two_betas(losses, minimum_separation=separation + 0.01).single_mode
    assert not fit_two_betas(losses, minimum_separation=separation - 0.01).single_mode


def test_tensors_are_accepted_and_the_result_is_frozen():
    losses = torch.tensor(two_groups(count=50)[0], dtype=torch.float32, requires_grad=True)
    fitted = fit_two_betas(losses)
    np.testing.assert_array_equal(fitted.clean_probability, fit_two_betas(losses.detach().numpy()).clean_probability)
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.split = False


def test_unusable_arguments_are_named():
    with pytest.raises(ValueError, match=r"loss 2 is nan \(2 of 5 are not finite\)"):
        fit_two_betas(np.array([1.0, 2.0, np.nan, 3.0, np.inf]))
    with pytest.raises(ValueError, match=r"one-dimensional, got shape \(2, 1\)"):
        fit_two_betas(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="clean must be one of lowest_loss, lower_mean, got 'smallest'"):
        fit_two_betas(np.zeros(2), clean="smallest")
