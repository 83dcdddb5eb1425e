import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from in2r.losses import soft_margin, soft_margin_triplet_loss, triplet_loss

REFERENCE = np.load(Path(__file__).parents[1] / "arrays" / "soft_margin.npz")
SIMS_4 = torch.tensor([[0.8, 0.3, 0.75, 0.2], [0.1, 0.6, 0.4, 0.55], [0.5, 0.45, 0.5, 0.3], [0.35, 0.7, 0.2, 0.4]])
LABELS_4 = torch.tensor([1.0, 0.5, 0.25, 0.0])
CURVES = ["exponential", "linear", "sine"]
MARGINS = ["own", "released"]


def draw(batch: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sims = torch.rand(batch, batch, generator=generator, dtype=torch.float64) * 2 - 1
    return sims, torch.rand(batch, generator=generator, dtype=torch.float64)


def loop(sims, labels, curve: str, margins: str) -> list[float]:
    """Each pair's cost, one entry after another."""
    alpha = [float(soft_margin(y, 0.3, curve, 4.0)) for y in labels]
    costs = []
    for i in range(len(sims)):
        row = column = 0.0
        for j in range(len(sims)):
            if j != i:
                row = max(row, alpha[i] + float(sims[i, j]) - float(sims[i, i]))
                own = alpha[i] if margins == "own" else alpha[j]
                column = max(column, own + float(sims[j, i]) - float(sims[i, i]))
        costs.append(row + column)
    return costs


def test_margins_by_hand():
    # exponential: 0.2 (10^y - 1) / 9, 10^0.5 = 3.16228, 10^0.25 = 1.77828
    torch.testing.assert_close(soft_margin(LABELS_4), torch.tensor([0.2, 0.048051, 0.017295, 0]), rtol=0, atol=1e-6)
    torch.testing.assert_close(soft_margin(LABELS_4, curve="linear"), torch.tensor([0.2, 0.1, 0.05, 0]))
    # sine: 0.2 (1 - cos(pi y)) / 2, cos(pi/4) = 0.707107
    sine = soft_margin(LABELS_4, curve="sine")
    torch.testing.assert_close(sine, torch.tensor([0.2, 0.1, 0.0292893, 0]), rtol=0, atol=1e-6)
    # base 4: (4^0.5 - 1) / 3 = 1/3
    torch.testing.assert_close(soft_margin(torch.tensor([0.5]), margin=0.6, base=4.0), torch.tensor([0.2]))


@pytest.mark.parametrize("curve", CURVES)
def test_every_curve_rises_from_zero_to_the_margin(curve):
    margins = soft_margin(torch.linspace(0, 1, 101, dtype=torch.float64), 0.3, curve)
    assert margins[0].item() == pytest.approx(0, abs=1e-12)
    assert margins[-1].item() == pytest.approx(0.3)
    assert (margins.diff() > 0).all()


def test_margins_keep_the_shape_and_are_at_least_float32():
    assert soft_margin(torch.zeros(2, 3)).shape == (2, 3)
    assert soft_margin(torch.ones(2, dtype=torch.float16)).dtype == torch.float32
    assert soft_margin(torch.ones(2, dtype=torch.bool)).tolist() == pytest.approx([0.2, 0.2])


def test_loss_by_hand():
    # margins .2, .048051, .017295, 0. Rows: .2-.8+.75 = .15; 0 (.55+.048 < .6); .017295-.5+.5; -.4+.7 = .3
    # Columns, own margin: 0 (.5+.2 < .8); .048051-.6+.7; .017295-.5+.75; -.4+.55
    cost = soft_margin_triplet_loss(SIMS_4, LABELS_4, reduction="none")
    expected = torch.tensor([0.15, 0.148051, 0.017295 + 0.267295, 0.3 + 0.15])
    torch.testing.assert_close(cost, expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(soft_margin_triplet_loss(SIMS_4, LABELS_4), torch.tensor(1.032641), rtol=0, atol=2e-6)


def test_released_margins_are_those_of_the_negative_image():
    # Columns: 0 (.017295+.5 < .8); text 1 against image 3, margin 0: -.6+.7; text 2 against image 0, margin .2:
    # .2-.5+.75; text 3 against image 1, margin .048051: .048051-.4+.55
    cost = soft_margin_triplet_loss(SIMS_4, LABELS_4, margins="released", reduction="none")
    expected = torch.tensor([0.15, 0.1, 0.017295 + 0.45, 0.3 + 0.198051])
    torch.testing.assert_close(cost, expected, rtol=0, atol=2e-6)
    assert soft_margin_triplet_loss(SIMS_4, LABELS_4, margins="released").item() == pytest.approx(1.215346, abs=2e-6)


@pytest.mark.parametrize("curve", CURVES)
def test_released_margins_equal_the_reference(curve):
    sims, labels = (torch.from_numpy(REFERENCE[name]) for name in ("similarity", "labels"))
    loss = soft_margin_triplet_loss(sims, labels, curve=curve, margins="released")
    torch.testing.assert_close(loss, torch.from_numpy(REFERENCE[curve]), rtol=1e-5, atol=0)
    assert abs(loss - soft_margin_triplet_loss(sims, labels, curve=curve)) > 1e-3  # the switch is seen in these arrays


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("margins", MARGINS)
@given(batch=st.integers(1, 7), seed=st.integers(0, 999))
def test_loss_equals_a_plain_loop(curve, margins, batch, seed):
    sims, labels = draw(batch, seed)
    cost = soft_margin_triplet_loss(sims, labels, 0.3, curve, 4.0, margins, "none")
    assert cost.tolist() == pytest.approx(loop(sims, labels, curve, margins), abs=1e-12)
    total = soft_margin_triplet_loss(sims, labels, 0.3, curve, 4.0, margins)
    torch.testing.assert_close(total, cost.sum())


@pytest.mark.parametrize("margins", MARGINS)
@given(batch=st.integers(2, 8), seed=st.integers(0, 999))
def test_permuting_the_batch_permutes_the_costs(margins, batch, seed):
    sims, labels = draw(batch, seed)
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))
    permuted = soft_margin_triplet_loss(sims[order][:, order], labels[order], margins=margins, reduction="none")
    torch.testing.assert_close(
        permuted, soft_margin_triplet_loss(sims, labels, margins=margins, reduction="none")[order]
    )


def test_both_directions_count_alike_with_own_margins_only():
    sims, labels = draw(6)
    own, released = (
        [soft_margin_triplet_loss(s, labels, margins=margins, reduction="none") for s in (sims, sims.T)]
        for margins in MARGINS
    )
    torch.testing.assert_close(own[0], own[1])
    assert (released[0] - released[1]).abs().max() > 1e-3


@pytest.mark.parametrize("curve", CURVES)
def test_labels_of_one_give_the_hard_margin(curve):
    sims, _ = draw(6)
    for margins in MARGINS:
        cost = soft_margin_triplet_loss(sims, torch.ones(6), 0.25, curve, margins=margins, reduction="none")
        torch.testing.assert_close(cost, triplet_loss(sims, 0.25, reduction="none"), rtol=1e-6, atol=1e-7)


def test_gradient_reaches_the_similarity_and_not_the_labels():
    sims, labels = draw(5)
    labels.requires_grad_()
    assert gradcheck(lambda s: soft_margin_triplet_loss(s, labels.detach(), reduction="none"), (sims.requires_grad_(),))
    soft_margin_triplet_loss(sims, labels).backward()
    assert labels.grad is None
    assert sims.grad is not None
    assert sims.grad.abs().sum() > 0


def test_batch_of_one_costs_nothing():
    sims = torch.tensor([[-0.3]], requires_grad=True)
    cost = soft_margin_triplet_loss(sims, torch.ones(1), reduction="none")
    assert cost.tolist() == [0.0]
    cost.sum().backward()
    assert sims.grad is not None
    assert sims.grad.item() == 0


def test_equal_similarities_cost_two_margins_each():
    cost = soft_margin_triplet_loss(torch.full((4, 4), -0.7), LABELS_4, reduction="none")
    torch.testing.assert_close(cost, 2 * soft_margin(LABELS_4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    sims, labels = draw(6)
    cost = soft_margin_triplet_loss(sims.to(dtype), labels.float())
    assert cost.dtype == torch.float32
    torch.testing.assert_close(cost, soft_margin_triplet_loss(sims.to(dtype).float(), labels.float()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: soft_margin(LABELS_4, curve="cubic"), "curve must be one of exponential, linear, sine, got 'cubic'"),
        (lambda: soft_margin(LABELS_4, base=1.0), r"base must be greater than 1, got 1\.0"),
        (lambda: soft_margin_triplet_loss(SIMS_4[:3], LABELS_4), r"square matrix \(B, B\), got shape \(3, 4\)"),
        (lambda: soft_margin_triplet_loss(SIMS_4, LABELS_4[:, None]), r"labels must have shape \(4,\), got \(4, 1\)"),
        (lambda: soft_margin_triplet_loss(SIMS_4, LABELS_4[:3]), r"labels must have shape \(4,\), got \(3,\)"),
        (
            lambda: soft_margin_triplet_loss(SIMS_4, LABELS_4, margins="paper"),
            "margins must be one of own, released, got 'paper'",
        ),
        (
            lambda: soft_margin_triplet_loss(SIMS_4, LABELS_4, reduction="mean"),
            "reduction must be one of sum, none, got 'mean'",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_gradient_flows_to_the_labels_only_where_it_is_asked_for() -> None:
    for asked in (False, True):
        labels = torch.tensor([0.5, 1.0], requires_grad=True)
        similarity = torch.tensor([[0.5, 0.4], [0.45, 0.5]], requires_grad=True)
        soft_margin_triplet_loss(similarity, labels, through_labels=asked).backward()
        if not asked:
            assert labels.grad is None
            continue
        # a margin counts in those of a pair's two hinges that are above zero; its slope is 0.2 / 9 * ln 10 * 10^y
        slope = [0.2 / 9 * math.log(10) * 10**y for y in (0.5, 1.0)]
        margin = 0.2 * (10**0.5 - 1) / 9
        above = [sum(margin - 0.5 + s > 0 for s in (0.4, 0.45)), sum(0.2 - 0.5 + s > 0 for s in (0.45, 0.4))]
        assert labels.grad is not None
        assert labels.grad.tolist() == pytest.approx([k * n for k, n in zip(slope, above, strict=True)], rel=1e-5)
