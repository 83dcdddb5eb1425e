import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from in2r.methods.division import Belief, PartitionConfig, divide_by_mixture, fit_gaussians
from in2r.partition import fit_two_betas, fit_two_gaussians
from in2r.partition.histogram import BLOCK, Losses

TOLERANCE = 1e-3
"""of clean probabilities, and of means, shares and standard deviations of the losses scaled to [0, 1]"""


def two_groups(seed, count, noisy, gap, width):
    draw = np.random.default_rng(seed)
    losses = np.where(draw.random(count) < noisy, draw.normal(gap, width, count), draw.normal(0, 1, count))
    return losses.astype(np.float32)


MADE = st.builds(two_groups, st.integers(0, 99), st.just(5000), st.floats(0.1, 0.9), st.floats(3, 8), st.floats(0.2, 2))
"""two groups that can be told apart: of one, EM stops anywhere"""


def assert_alike(histogram, exact):
    assert histogram.clean_probability.dtype == np.float32
    assert exact.clean_probability.dtype == np.float64
    np.testing.assert_allclose(histogram.clean_probability, exact.clean_probability, rtol=0, atol=TOLERANCE)
    for part in ("means", "weights"):
        np.testing.assert_allclose(getattr(histogram, part), getattr(exact, part), rtol=0, atol=TOLERANCE)
    deviations = np.sqrt(histogram.variances), np.sqrt(exact.variances)
    np.testing.assert_allclose(*deviations, rtol=0, atol=TOLERANCE)
    assert histogram.scale == exact.scale
    assert histogram.monotone == exact.monotone


@settings(max_examples=15, deadline=None)
@given(MADE)
def test_a_histogram_says_of_two_groups_what_the_losses_say(losses):
    assert_alike(fit_two_gaussians(losses, histogram_from=len(losses)), fit_two_gaussians(losses))
    for rule in ("lowest_loss", "lower_mean"):
        histogram = fit_two_betas(losses, clean=rule, histogram_from=len(losses))
        assert_alike(histogram, fit_two_betas(losses, clean=rule))


def test_one_loss_fewer_is_fitted_as_it_is():
    losses = two_groups(0, 500, 0.4, 4, 1)
    for fit in (fit_two_gaussians, fit_two_betas):
        exact = fit(losses).clean_probability
        assert np.array_equal(fit(losses, histogram_from=501).clean_probability, exact)
        assert not np.array_equal(fit(losses, histogram_from=500).clean_probability, exact)


@pytest.mark.parametrize("count", [3, 64, 5000])
def test_losses_that_each_count_once_are_fitted_as_scikit_learn_does(count):
    losses = two_groups(count, count, 0.3, 5, 0.5)
    ours = fit_two_gaussians(losses)
    wide = losses.astype(np.float64)
    points = np.sort((wide - wide.min()) / np.ptp(wide))[:, None]
    labels = KMeans(2, init=np.array([[0.0], [1.0]]), n_init=1).fit_predict(points)
    groups = [points[labels == label] for label in (0, 1)]
    theirs = GaussianMixture(
        2,
        max_iter=10,
        tol=1e-2,
        reg_covar=5e-4,
        weights_init=[len(group) / count for group in groups],
        means_init=[group.mean(0) for group in groups],
        precisions_init=[[[1 / (group.var() + 5e-4)]] for group in groups],
    ).fit(points)
    np.testing.assert_allclose(ours.means, theirs.means_[:, 0], rtol=1e-14)
    np.testing.assert_allclose(ours.variances, theirs.covariances_[:, 0, 0], rtol=1e-13)
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=1e-14)


def test_equal_losses_weigh_as_often_as_they_occur():
    """A histogram whose bins hold equal losses is the same data: bins of one value each, 0, 1/4, 1/2 and 1."""
    losses = np.repeat(np.float32([0, 1, 2, 4]), [500, 20, 40, 300])
    values, counts = Losses(losses, histogram_from=1).points()
    assert values.tolist() == [0, 0.25, 0.5, 1]
    assert counts.tolist() == [500, 20, 40, 300]
    assert_alike(fit_two_gaussians(losses, histogram_from=1), fit_two_gaussians(losses))


def test_the_means_of_bins_are_those_of_their_losses_in_every_block():
    losses = np.random.default_rng(0).random(BLOCK + 1000, dtype=np.float32)
    given_losses = Losses(losses, histogram_from=1)
    values, counts = given_losses.points()
    low, high = given_losses.scale
    assert counts.sum() == len(losses)
    assert len(values) == 2**16
    assert (np.diff(values) > 0).all()
    scaled = (losses.astype(np.float64) - low) / (high - low)
    assert (values * counts).sum() == pytest.approx(scaled.sum(), rel=1e-12)
    first = scaled[scaled < 2**-16]
    assert values[0] == pytest.approx(first.mean(), rel=1e-9)
    assert counts[0] == len(first)


def test_the_settings_reach_every_fit_and_the_division_stays():
    losses = torch.from_numpy(two_groups(1, 5000, 0.4, 5, 1))
    mismatched = losses[losses > 3]
    pairs = torch.arange(len(losses))
    divisions = []
    for config in (PartitionConfig(), PartitionConfig(histogram_from=100)):
        fit = fit_gaussians(losses, config)
        belief = Belief.of(fit, mismatched, config)
        divisions.append(divide_by_mixture("sce", losses, fit, belief, pairs, len(losses), config, "A"))
    exact, histogram = divisions
    assert exact.split
    assert histogram.split
    assert not torch.equal(exact.columns["clean_prob"], histogram.columns["clean_prob"])
    assert (exact.sets != histogram.sets).float().mean() < TOLERANCE
    assert exact.figures["tau"] == pytest.approx(histogram.figures["tau"], abs=TOLERANCE)


@pytest.mark.parametrize("fit", [fit_two_gaussians, fit_two_betas])
def test_a_fit_to_a_histogram_takes_little_memory_beside_the_posteriors(fit):
    losses = two_groups(2, 4 * BLOCK, 0.3, 4, 1)
    tracemalloc.start()
    try:
        found = fit(losses, histogram_from=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # float32 posteriors, a mask of what is not finite, and what is computed of one block, of at most 16 numbers a loss
    assert peak < len(losses) * 5 + BLOCK * 16 * 8
    assert found.split
