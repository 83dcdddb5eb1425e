import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn.functional import kl_div, softmax

from in2r.losses import symmetric_kl_loss
from in2r.partition import partial_transport

SIMS_4 = torch.tensor([[0.8, 0.3, 0.75, 0.2], [0.1, 0.6, 0.4, 0.55], [0.5, 0.45, 0.5, 0.3], [0.35, 0.7, 0.2, 0.4]])


def draw(images: int, texts: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sims = torch.rand(images, texts, generator=generator, dtype=torch.float64) * 2 - 1
    plan = torch.rand(images, texts, generator=generator, dtype=torch.float64)
    return sims, plan * (plan > 0.4)  # zeros among them


def loop(sims, plan, temperature: float) -> float:
    total = 0.0
    for s, given_plan in ((sims, plan), (sims.T, plan.T)):
        for row, target in zip(s.tolist(), given_plan.tolist(), strict=True):
            exps = [math.exp(value / temperature) for value in row]
            floored = [max(value, 1e-10) for value in target]
            for e, t in zip(exps, floored, strict=True):
                p, q = e / sum(exps), t / sum(floored)
                total += (q * math.log(q / p) + p * math.log(p / q)) / len(s) / 2
    return total


def test_the_plan_of_the_specification():
    plan = partial_transport(1 - SIMS_4, 0.1, 0.07, torch.eye(4, dtype=torch.bool))
    assert symmetric_kl_loss(SIMS_4, plan).item() == pytest.approx(7.816793, abs=2e-5)


def test_by_hand():
    # tau = 1, rows of S: gap log 3, p = (3/4, 1/4); the plan's rows are even, q = (1/2, 1/2):
    # J = (q_1 - p_1) log(q_1/p_1) + (q_2 - p_2) log(q_2/p_2) = 1/4 log 3. Columns: both are even, J = 0.
    sims = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]], dtype=torch.float64)
    loss = symmetric_kl_loss(sims, torch.full((2, 2), 0.25, dtype=torch.float64), temperature=1.0)
    assert loss.item() == pytest.approx(math.log(3) / 8)


@given(images=st.integers(1, 6), texts=st.integers(1, 6), seed=st.integers(0, 999), temperature=st.floats(0.05, 2))
def test_equals_a_plain_loop(images, texts, seed, temperature):
    sims, plan = draw(images, texts, seed)
    loss = symmetric_kl_loss(sims, plan, temperature)
    assert loss.item() == pytest.approx(loop(sims, plan, temperature), rel=1e-8, abs=1e-9)
    torch.testing.assert_close(symmetric_kl_loss(sims.T, plan.T, temperature), loss)
    rows, columns = (torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for n in (images, texts))
    torch.testing.assert_close(symmetric_kl_loss(sims[rows][:, columns], plan[rows][:, columns], temperature), loss)


def test_equals_pytorchs_divergence_in_both_ways():
    sims, plan = draw(5, 5)
    total = 0.0
    for s, target in ((sims, plan), (sims.T, plan.T)):
        p = softmax(s / 0.1, dim=1)
        q = target.clamp(min=1e-10)
        q = q / q.sum(1, keepdim=True)
        total += kl_div(p.log(), q, reduction="batchmean") + kl_div(q.log(), p, reduction="batchmean")
    torch.testing.assert_close(symmetric_kl_loss(sims, plan, 0.1), total / 2)


def test_zero_where_probabilities_follow_the_plan():
    # A symmetric circulant matrix has the same softmax over rows as over columns, up to the transpose.
    sims = torch.tensor([[0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9]], dtype=torch.float64)
    plan = softmax(sims / 0.3, dim=1) / 3
    assert symmetric_kl_loss(sims, plan, 0.3).item() == pytest.approx(0, abs=1e-12)
    assert symmetric_kl_loss(sims, plan * 7, 0.3).item() == pytest.approx(0, abs=1e-12)  # its total has no influence


def test_a_row_without_mass_is_uniform():
    sims = torch.zeros(3, 3)
    assert symmetric_kl_loss(sims, torch.zeros(3, 3)).item() == pytest.approx(0, abs=1e-7)


def test_gradient_reaches_the_similarity_and_not_the_plan():
    sims, plan = draw(4, 3)
    plan.requires_grad_()
    assert gradcheck(lambda s: symmetric_kl_loss(s, plan.detach(), 0.5), (sims.requires_grad_(),))
    symmetric_kl_loss(sims, plan).backward()
    assert plan.grad is None
    assert sims.grad is not None
    assert sims.grad.abs().sum() > 0


def test_batch_of_one_and_extreme_similarities_are_finite():
    assert symmetric_kl_loss(torch.tensor([[-0.3]]), torch.zeros(1, 1)).item() == 0
    sims = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], requires_grad=True)
    loss = symmetric_kl_loss(sims, torch.eye(2), temperature=0.01)  # gaps of 200: exp overflows float32
    loss.backward()
    assert torch.isfinite(loss)
    assert sims.grad is not None
    assert torch.isfinite(sims.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    sims, plan = (values.to(dtype) for values in draw(4, 4))
    loss = symmetric_kl_loss(sims, plan)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, symmetric_kl_loss(sims.float(), plan.float()))


@pytest.mark.parametrize(
    ("similarity", "plan", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), r"one shape \(Q, B\) with Q, B >= 1, got \(2, 3\) and \(3, 2\)"),
        (torch.zeros(3), torch.zeros(3), r"one shape \(Q, B\) with Q, B >= 1, got \(3,\) and \(3,\)"),
        (torch.zeros(0, 3), torch.zeros(0, 3), r"one shape \(Q, B\) with Q, B >= 1, got \(0, 3\) and \(0, 3\)"),
    ],
)
def test_wrong_shapes_are_named(similarity, plan, message):
    with pytest.raises(ValueError, match=message):
        symmetric_kl_loss(similarity, plan)


def test_a_temperature_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="must be positive, got 0"):
        symmetric_kl_loss(SIMS_4, SIMS_4, 0.0)
