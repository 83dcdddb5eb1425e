"""Where score and truth agree: against a plain search, by its prior, on pairs whose log-odds were shifted."""

import math
import re

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from in2r.evidence import Recalibration, recalibrate
from in2r.evidence.recalibrated import LIMIT, OFFSET_SPREAD, SLOPE_SPREAD


def drawn(count, slope=1.0, offset=0.0, seed=0):
    """Log-odds ℓ, and which pairs are right: with probability sigmoid(slope · ℓ + offset)."""
    draws = np.random.default_rng(seed)
    values = draws.uniform(-6, 6, count)
    return torch.from_numpy(values), torch.from_numpy(draws.random(count) < 1 / (1 + np.exp(-slope * values - offset)))


def test_without_decisions_nothing_moves():
    found = recalibrate(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    assert found == Recalibration(1.0, 0.0)
    assert found.score_at(0.5) == 0.5
    assert found.score_at(0.1) == pytest.approx(0.1)


def test_it_is_the_least_of_the_loss():
    values, right = drawn(30, offset=1.5)
    sign = np.where(right.numpy(), 1, -1)

    def loss(theta):
        margin = sign * (np.exp(theta[0]) * values.numpy() + theta[1])
        prior = theta[0] ** 2 / (2 * SLOPE_SPREAD**2) + theta[1] ** 2 / (2 * OFFSET_SPREAD**2)
        return np.logaddexp(0, -margin).sum() + prior

    best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    found = recalibrate(values, right)
    assert (math.log(found.slope), found.offset) == pytest.approx(tuple(best), abs=1e-5)


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (1.0, -3.0), (0.6, 2.0), (1.7, 1.0)])
def test_many_decisions_find_the_line(slope, offset):
    found = recalibrate(*drawn(4000, slope, offset))
    assert found.slope == pytest.approx(slope, abs=0.1)
    assert found.offset == pytest.approx(offset, abs=0.2)
    score = found.score_at(0.5)
    assert math.log(score / (1 - score)) == pytest.approx(-offset / slope, abs=0.2)


def test_one_decision_moves_little_and_a_slip_bends_nothing():
    assert recalibrate(torch.tensor([0.0]), torch.tensor([False])).score_at(0.5) == pytest.approx(0.7, abs=0.05)
    values, right = drawn(300)
    plain = recalibrate(values, right)
    slip = recalibrate(torch.cat([values, torch.tensor([-40.0])]), torch.cat([right, torch.tensor([True])]))
    assert slip.score_at(0.5) == pytest.approx(plain.score_at(0.5), abs=0.06)
    far = recalibrate(torch.tensor([-40.0, 1.0]), torch.tensor([True, False]))
    near = recalibrate(torch.tensor([-LIMIT, 1.0]), torch.tensor([True, False]))
    assert far == near


def test_shapes_that_do_not_fit_are_refused():
    said = "log_odds and right must be (n,) alike, got (2,) and (3,)"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        recalibrate(torch.zeros(2), torch.zeros(3, dtype=torch.bool))
