import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from in2r.partition import partial_transport

SIMS_4 = torch.tensor([[0.8, 0.3, 0.75, 0.2], [0.1, 0.6, 0.4, 0.55], [0.5, 0.45, 0.5, 0.3], [0.35, 0.7, 0.2, 0.4]])
OWN_4 = torch.eye(4, dtype=torch.bool)


def draw(images: int, texts: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(images, texts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def released(cost: list[list[float]], mass, reg, given, max_iter, tol) -> tuple[list[list[float]], int]:
    """The plan by the released code's arithmetic, entry by entry, and how many iterations it took."""
    images, texts = len(cost), len(cost[0])
    most = max(max(row) for row in cost)
    full = [[*row, 100 * most] for row in cost] + [[100 * most] * texts + [201 * most]]
    p, q = [1 / images] * images + [1 - mass], [1 / texts] * texts + [1 - mass]
    u, v = [0.0] * (images + 1), [0.0] * (texts + 1)

    def kernel(i: int, j: int) -> float:
        return -1e6 if (i, j) in given else (-full[i][j] + u[i] + v[j]) / reg

    def log_sum(values: list[float]) -> float:
        return max(values) + math.log(sum(math.exp(x - max(values)) for x in values) + 1e-10)

    iterations = 0
    for _ in range(max_iter):
        before, iterations = u, iterations + 1
        u = [
            u[i] + reg * (math.log(p[i]) - log_sum([kernel(i, j) for j in range(texts + 1)])) for i in range(images + 1)
        ]
        v = [
            v[j] + reg * (math.log(q[j]) - log_sum([kernel(i, j) for i in range(images + 1)])) for j in range(texts + 1)
        ]
        if math.dist(u, before) < tol:
            break
    return [[math.exp(kernel(i, j)) for j in range(texts)] for i in range(images)], iterations


def test_the_plan_of_the_specification():
    plan = partial_transport(1 - SIMS_4, 0.1, 0.07, OWN_4)
    assert plan.dtype == torch.float32
    assert plan.sum().item() == pytest.approx(0.104759, abs=1e-6)
    assert plan[0, 1].item() == pytest.approx(1.054e-4, abs=1e-7)
    assert plan[0, 2].item() == pytest.approx(0.0585218, abs=1e-6)
    assert plan[3, 1].item() == pytest.approx(0.0357456, abs=1e-6)
    assert (plan.diagonal() == 0).all()


def test_one_pair_by_hand():
    # exp(-C~ / reg) = [[1/2, e], [e, e²/2]] with C = log 2, reg = 1, e = 2^-100; p = q = (1, 1/2); one iteration.
    # exp f = (1 / (1/2), 1/2 / e) up to 2^-99; exp g_0 = 1 / (1/2 · 2 + e · 1/(2 e)) = 2/3; the entry: 1/2 · 2 · 2/3.
    plan = partial_transport(torch.tensor([[math.log(2)]]), 0.5, 1.0, max_iter=1)
    assert plan.item() == pytest.approx(2 / 3)


@settings(max_examples=40)
@given(
    images=st.integers(1, 5),
    texts=st.integers(1, 5),
    seed=st.integers(0, 999),
    mass=st.sampled_from([0.05, 0.1, 0.5, 0.9]),
    reg=st.sampled_from([0.01, 0.07, 0.5]),
    masked=st.booleans(),
    max_iter=st.sampled_from([0, 1, 7, 8, 9, 60]),
    tol=st.sampled_from([1e-1, 1e-3, 1e-5]),
)
def test_equals_the_released_arithmetic(images, texts, seed, mass, reg, masked, max_iter, tol):
    cost = draw(images, texts, seed)
    given = torch.eye(images, texts, dtype=torch.bool) if masked else None
    forbidden = {(i, i) for i in range(min(images, texts))} if masked else set()
    expected, _ = released(cost.tolist(), mass, reg, forbidden, max_iter, tol)
    plan = partial_transport(cost, mass, reg, given, max_iter, tol)
    np.testing.assert_allclose(plan.numpy(), expected, rtol=1e-5, atol=1e-9)


def test_ends_with_the_iteration_that_meets_the_bound():
    # The loop looks every eighth time only; what the oracle needs lies in between, and one more would be seen.
    cost = draw(6, 6)
    expected, needed = released(cost.tolist(), 0.3, 0.07, set(), 1000, 1e-3)
    assert needed % 8
    np.testing.assert_allclose(partial_transport(cost, 0.3, 0.07).numpy(), expected, rtol=1e-6)
    exact = partial_transport(cost, 0.3, 0.07, None, needed, 0.0)
    torch.testing.assert_close(partial_transport(cost, 0.3, 0.07), exact, rtol=0, atol=0)
    assert not torch.equal(partial_transport(cost, 0.3, 0.07, None, needed + 1, 0.0), exact)


@given(images=st.integers(2, 7), texts=st.integers(2, 7), seed=st.integers(0, 999), reg=st.sampled_from([0.05, 0.07]))
def test_marginals_and_mass_of_a_converged_plan(images, texts, seed, reg):
    cost = draw(images, texts, seed)
    plan = partial_transport(cost / cost.max(), 0.2, reg, None, 2000, 1e-9).double()
    assert (plan >= 0).all()
    assert plan.sum().item() == pytest.approx(0.2, abs=1e-3)
    assert plan.sum(1).max() <= 1 / images + 1e-3
    assert plan.sum(0).max() <= 1 / texts + 1e-6


def test_dummies_that_exchange_mass_add_it_to_the_plan():
    # Costs as small as the entropy's weight: the price A = max C of an exchange between the dummies is low.
    small = partial_transport(0.05 * draw(4, 4), 0.2, 0.1, None, 1000, 1e-9)
    assert small.sum() > 0.25
    assert small.sum(1).max() <= 1 / 4 + 1e-4


def test_texts_never_take_more_than_their_share_however_early_it_stops():
    for iterations in range(1, 6):
        plan = partial_transport(draw(6, 4), 0.9, 0.05, None, iterations, 0.0)
        assert plan.sum(0).max() <= 1 / 4 + 1e-6


def test_approaches_the_linear_programme_as_the_entropy_vanishes():
    cost = draw(5, 4, seed=3)
    given = torch.eye(5, 4, dtype=torch.bool)
    plan = partial_transport(cost, 0.3, 0.002, given, 20000, 1e-10).double()
    rows = np.kron(np.eye(5), np.ones(4))
    columns = np.kron(np.ones(5), np.eye(4))
    allowed = (~given).flatten().numpy()
    best = linprog(
        cost.flatten().numpy(),
        A_ub=np.concatenate([rows, columns]),
        b_ub=[1 / 5] * 5 + [1 / 4] * 4,
        A_eq=np.ones((1, 20)),
        b_eq=[0.3],
        bounds=[(0, 1 if free else 0) for free in allowed],
    )
    assert plan.sum().item() == pytest.approx(0.3, abs=1e-4)
    assert (plan * cost).sum().item() == pytest.approx(best.fun, abs=1e-3)
    np.testing.assert_allclose(plan.numpy().ravel(), best.x, atol=1e-2)


@given(images=st.integers(1, 6), texts=st.integers(1, 6), seed=st.integers(0, 999))
def test_permuting_images_and_texts_permutes_the_plan(images, texts, seed):
    cost, given = draw(images, texts, seed), draw(images, texts, seed + 1) < 0.2
    rows, columns = (torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for n in (images, texts))
    plan = partial_transport(cost, 0.1, 0.07, given, 100)
    permuted = partial_transport(cost[rows][:, columns], 0.1, 0.07, given[rows][:, columns], 100)
    torch.testing.assert_close(permuted, plan[rows][:, columns], rtol=1e-4, atol=1e-7)


def test_images_and_texts_count_alike_once_converged():
    cost = draw(5, 5)
    there, back = (partial_transport(c, 0.2, 0.1, None, 1000, 1e-12) for c in (cost, cost.T))
    torch.testing.assert_close(back.T, there, rtol=1e-4, atol=1e-7)


def test_forbidden_entries_are_zero_and_allowed_ones_take_their_mass():
    cost = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    own = torch.eye(3, dtype=torch.bool)
    free, masked = (partial_transport(cost, 0.3, 0.1, given, 1000, 1e-9) for given in (None, own))
    assert free.diagonal().sum() > 0.99 * free.sum()
    assert (masked[own] == 0).all()
    torch.testing.assert_close(masked[~own], torch.full((6,), 0.3 / 6), rtol=1e-3, atol=0)


def test_equal_costs_spread_the_mass_evenly():
    for value in (0.0, 0.7, 2.0):  # 0: every cost dead in the network's ReLU, the dummies are free as well
        plan = partial_transport(torch.full((4, 4), value), 0.1, 0.07, None, 1000, 1e-9)
        torch.testing.assert_close(plan, plan[0, 0].expand(4, 4), rtol=1e-5, atol=0)
        assert torch.isfinite(plan).all()
        if value:
            assert plan.sum().item() == pytest.approx(0.1, abs=1e-4)


def test_a_single_forbidden_pair_has_a_plan_of_zero():
    # No plan meets the marginals then: all iterations are made, and nothing overflows.
    assert partial_transport(torch.tensor([[0.5]]), 0.1, 0.07, torch.ones(1, 1, dtype=torch.bool)).tolist() == [[0.0]]


def test_costs_of_negative_cosines_and_a_small_entropy_stay_finite():
    cost = 1 - (draw(8, 8) * 2 - 1)  # up to 2
    plan = partial_transport(cost, 0.1, 0.001, torch.eye(8, dtype=torch.bool))
    assert torch.isfinite(plan).all()
    assert plan.sum() > 0.05


def test_the_plan_is_a_constant_and_the_cost_is_left_as_it_was():
    cost = draw(4, 4).requires_grad_()
    before = cost.detach().clone()
    assert not partial_transport(cost, 0.1, 0.07, OWN_4).requires_grad
    assert torch.equal(cost.detach(), before)
    half = partial_transport(cost.detach().half(), 0.1, 0.07)
    torch.testing.assert_close(half, partial_transport(cost.detach().half().double(), 0.1, 0.07), rtol=0, atol=0)


@pytest.mark.gpu
def test_a_device_gives_the_same_plan():
    cost = draw(128, 128)
    given = torch.eye(128, dtype=torch.bool)
    there = partial_transport(cost.cuda(), 0.1, 0.01, given.cuda())
    torch.testing.assert_close(there.cpu(), partial_transport(cost, 0.1, 0.01, given), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("shape", [(3,), (0, 4), (4, 0), (2, 2, 2)])
def test_a_cost_that_is_no_matrix_is_named(shape):
    with pytest.raises(ValueError, match=re.escape(f"cost must be a matrix (Q, B) with Q, B >= 1, got shape {shape}")):
        partial_transport(torch.zeros(shape))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (torch.zeros(3, 4, dtype=torch.bool), "torch.bool of shape (3, 4)"),
        (torch.eye(4), "torch.float32 of shape (4, 4)"),
    ],
)
def test_a_mask_of_another_kind_is_named(given, found):
    message = f"given must be torch.bool of cost's shape (4, 4), got {found}"
    with pytest.raises(ValueError, match=re.escape(message)):
        partial_transport(1 - SIMS_4, given=given)


@pytest.mark.parametrize("mass", [0.0, 1.0, -0.1, float("nan")])
def test_a_mass_out_of_range_is_named(mass):
    with pytest.raises(ValueError, match=f"mass must be between 0 and 1, both excluded, got {mass}"):
        partial_transport(1 - SIMS_4, mass)


@pytest.mark.parametrize("reg", [0.0, -1.0, float("nan")])
def test_an_entropy_weight_out_of_range_is_named(reg):
    with pytest.raises(ValueError, match=f"reg must be positive, got {reg}"):
        partial_transport(1 - SIMS_4, 0.1, reg)
