import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from in2r.losses import prototype_contrast_loss, rectification_loss, sce_loss, soft_target, triplet_loss

REFERENCE = np.load(Path(__file__).parents[1] / "arrays" / "losses.npz")
SIMS_3 = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.3, 0.2], [0.0, 0.35, 0.9]])


def reference(name: str) -> torch.Tensor:
    return torch.from_numpy(REFERENCE[name])


def random_sims(batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(batch, batch, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - 1


# Hinge triplet, Eq. 2


def test_triplet_hardest_by_hand():
    # rows: 0.2-0.5+0.4 = 0.1; 0.2-0.3+0.6 = 0.5; 0.2-0.9+0.35 < 0
    # columns: 0.2-0.5+0.6 = 0.3; 0.2-0.3+0.4 = 0.3; 0.2-0.9+0.2 < 0
    per_sample = triplet_loss(SIMS_3, reduction="none")
    torch.testing.assert_close(per_sample, torch.tensor([0.4, 0.8, 0.0]))
    torch.testing.assert_close(triplet_loss(SIMS_3), torch.tensor(1.2))


def test_triplet_mean_by_hand():
    # rows: (0.1 + 0)/3; (0.5 + 0.1)/3; 0.   columns: (0.3 + 0)/3; (0.3 + 0.25)/3; 0
    per_sample = triplet_loss(SIMS_3, negatives="mean", reduction="none")
    torch.testing.assert_close(per_sample, torch.tensor([0.4, 1.15, 0.0]) / 3)


def test_triplet_ignores_marked_negatives_but_never_the_given_pair():
    ignore = torch.zeros(3, 3, dtype=torch.bool)
    ignore[1, 0] = True  # the hardest negative of row 1 and of column 0
    # row 1 falls to 0.2-0.3+0.2 = 0.1, column 0 to 0
    torch.testing.assert_close(triplet_loss(SIMS_3, ignore=ignore, reduction="none"), torch.tensor([0.1, 0.4, 0.0]))
    torch.testing.assert_close(
        triplet_loss(SIMS_3, ignore=ignore | torch.eye(3, dtype=torch.bool)),
        triplet_loss(SIMS_3, ignore=ignore),
    )


def test_triplet_equals_the_reference():
    sims = reference("similarity")
    torch.testing.assert_close(triplet_loss(sims), reference("triplet_hardest"), rtol=1e-5, atol=0)
    torch.testing.assert_close(triplet_loss(sims, negatives="mean"), reference("triplet_mean"), rtol=1e-5, atol=0)
    torch.testing.assert_close(triplet_loss(sims, negatives="mean", reduction="none"), reference("triplet_per_sample"))


@pytest.mark.parametrize("negatives", ["hardest", "mean"])
def test_triplet_gradients(negatives):
    sims = random_sims(5).requires_grad_()
    assert gradcheck(lambda s: triplet_loss(s, negatives=negatives, reduction="none"), (sims,))


# Symmetric cross-entropy, Eq. 1


def test_sce_by_hand():
    # S/tau = [[2, 0], [1, 3]]; softmax of a gap of 2 is s = 1/(1 + e^-2), of a gap of 1 is w = 1/(1 + e^-1),
    # of a gap of 3 is r. Rows: gaps 2 and 2; columns: gaps 1 and 3.
    s, w, r = (1 / (1 + math.exp(-gap)) for gap in (2, 1, 3))
    eps = 1e-7

    def l_sce(p):
        return -math.log(p) - (p * math.log(1 + eps) + (1 - p) * math.log(eps))

    expected = torch.tensor([(l_sce(s) + l_sce(w)) / 2, (l_sce(s) + l_sce(r)) / 2], dtype=torch.float64)
    sims = torch.tensor([[1.0, 0.0], [0.5, 1.5]], dtype=torch.float64)
    torch.testing.assert_close(sce_loss(sims, temperature=0.5, reduction="none"), expected)
    torch.testing.assert_close(sce_loss(sims, temperature=0.5), expected.mean())


@pytest.mark.parametrize(("temperature", "name"), [(0.05, "sce_005"), (0.1, "sce_01")])
def test_sce_equals_the_reference(temperature, name):
    torch.testing.assert_close(
        sce_loss(reference("similarity"), temperature=temperature), reference(name), rtol=1e-5, atol=0
    )


def test_sce_forward_part_is_info_nce():
    sims = random_sims(6)
    own = torch.arange(6)
    expected = (cross_entropy(sims / 0.05, own) + cross_entropy(sims.T / 0.05, own)) / 2
    torch.testing.assert_close(sce_loss(sims, rce_weight=0), expected)


def test_sce_weights_and_epsilon():
    sims = random_sims(6)
    forward, reverse = sce_loss(sims, rce_weight=0), sce_loss(sims, ce_weight=0)
    torch.testing.assert_close(sce_loss(sims, ce_weight=2, rce_weight=3), 2 * forward + 3 * reverse)
    # The reverse term is (1 - p_ii) * -log(epsilon), up to log(1 + epsilon).
    torch.testing.assert_close(
        sce_loss(sims, ce_weight=0, epsilon=1e-4),
        reverse * math.log(1e-4) / math.log(1e-7),
        rtol=1e-3,
        atol=0,
    )


def test_sce_ignored_entries_leave_both_softmaxes():
    # Text 2 and image 2 ignored by all others: the first two pairs see a batch of two.
    sims = random_sims(3)
    ignore = torch.zeros(3, 3, dtype=torch.bool)
    ignore[2, :2] = ignore[:2, 2] = True
    sims.requires_grad_()
    cost = sce_loss(sims, ignore=ignore | torch.eye(3, dtype=torch.bool), reduction="none")
    torch.testing.assert_close(cost[:2], sce_loss(sims[:2, :2], reduction="none"))
    assert abs(cost[2].item()) < 1e-6
    cost.sum().backward()
    assert torch.isfinite(sims.grad).all()
    assert (sims.grad[ignore] == 0).all()


def test_sce_ignore_is_read_in_the_right_direction():
    sims = random_sims(3)
    ignore = torch.zeros(3, 3, dtype=torch.bool)
    ignore[0, 1] = True  # image 0, text 1: changes row 0 and column 1, so samples 0 and 1 only
    changed = sce_loss(sims, ignore=ignore, reduction="none") != sce_loss(sims, reduction="none")
    assert changed.tolist() == [True, True, False]


def test_sce_gradients():
    sims = random_sims(4).requires_grad_()
    assert gradcheck(lambda s: sce_loss(s, temperature=0.5, reduction="none"), (sims,))


# Soft targets and rectification, Eqs. 10-11


def test_soft_target_by_hand():
    prototype = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    candidates = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    weights = torch.tensor([[math.exp(2.0), math.exp(1.2), 1.0]], dtype=torch.float64)
    torch.testing.assert_close(soft_target(prototype, candidates, 0.5), weights / weights.sum())


def test_soft_target_gradient_reaches_the_prototype_only():
    prototype = random_sims(4).requires_grad_()
    candidates = random_sims(4, seed=1).requires_grad_()
    soft_target(prototype, candidates, 0.5)[:, 0].sum().backward()
    assert prototype.grad.abs().sum() > 0
    assert candidates.grad is None
    assert gradcheck(lambda t: soft_target(t, candidates, 0.5), (prototype,))


def test_soft_target_is_exact_under_autocast():
    prototype, candidates = random_sims(4, dtype=torch.float32), random_sims(4, 1, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = soft_target(prototype, candidates)
    torch.testing.assert_close(inside, soft_target(prototype, candidates), rtol=0, atol=0)


def test_rectification_by_hand():
    # One direction: q = (3/4, 1/4), p = (1/2, 1/2): H(q, p) = log 2, H(p, q) = -(log(3/4) + log(1/4)) / 2.
    target = torch.tensor([[0.75, 0.25], [0.75, 0.25]], dtype=torch.float64)
    one = math.log(2) - (math.log(0.75) + math.log(0.25)) / 2
    cost = rectification_loss(torch.zeros(2, 2, dtype=torch.float64), target, target, reduction="none")
    torch.testing.assert_close(cost, torch.full((2,), one, dtype=torch.float64), rtol=1e-6, atol=0)


def test_rectification_with_one_hot_targets_is_the_warm_up_loss():
    sims, own = random_sims(6), torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(rectification_loss(sims, own, own), sce_loss(sims), rtol=1e-12, atol=0)


def test_rectification_t2i_row_belongs_to_its_text():
    sims = random_sims(3)
    own = torch.eye(3, dtype=torch.float64)
    t2i = own.clone()
    t2i[0] = torch.tensor([0.0, 0.0, 1.0])  # text 0 should retrieve image 2
    changed = rectification_loss(sims, own, t2i, reduction="none") - sce_loss(sims, reduction="none")
    assert changed[1:].abs().max() < 1e-12
    # Both weights 1: the change is half of [log p_00 - log p_02 + (p_00 - p_02) * -log eps] of text 0.
    p = torch.softmax(sims.T / 0.05, dim=1)[0]
    expected = (p[0].log() - p[2].log() + (p[0] - p[2]) * -math.log(1e-7)) / 2
    torch.testing.assert_close(changed[0], expected, rtol=1e-6, atol=1e-9)


def test_rectification_over_more_candidates_than_the_batch():
    wide = random_sims(8)
    i2t, t2i = wide[:3], wide[:, :3].T  # 3 pairs, 8 candidates each way; the row of a text is over images
    targets = torch.softmax(random_sims(8, 1), dim=1)[:3]
    cost = rectification_loss(i2t, targets, targets, similarity_t2i=t2i, reduction="none")
    everything = torch.softmax(random_sims(8, 1), dim=1)
    torch.testing.assert_close(cost, rectification_loss(wide, everything, everything, reduction="none")[:3])


def test_rectification_gradients_reach_similarity_and_targets():
    def loss(sims, raw_i2t, raw_t2i):
        return rectification_loss(sims, raw_i2t.softmax(1), raw_t2i.softmax(1), temperature=0.5, reduction="none")

    inputs = tuple(random_sims(4, seed).requires_grad_() for seed in range(3))
    assert gradcheck(loss, inputs)


def test_prototype_contrast_compares_rows_and_columns():
    image, text = random_sims(4), random_sims(4, 1)
    own = torch.arange(4)
    forward = sum(cross_entropy(s / 0.05, own) for s in (image, image.T, text, text.T)) / 4
    torch.testing.assert_close(prototype_contrast_loss(image, text, rce_weight=0), forward)
    wrong = [1 - torch.softmax(s / 0.05, 1).diagonal() for s in (image, image.T, text, text.T)]
    reverse = -math.log(1e-7) * sum(wrong) / 4
    torch.testing.assert_close(
        prototype_contrast_loss(image, text, ce_weight=0, reduction="none"), reverse, rtol=1e-6, atol=1e-6
    )
    assert gradcheck(lambda a, b: prototype_contrast_loss(a, b, 0.5), (image.requires_grad_(), text))


def test_prototype_contrast_by_hand():
    """Own prototypes are nearer by 1 and 2 in rows, by 2 and 1 in columns, in both directions."""
    sims = torch.tensor([[2.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    gaps = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)  # of samples 0 and 1: row, column
    expected = torch.log1p(torch.exp(-gaps)).mean(dim=1)
    cost = prototype_contrast_loss(sims, sims, temperature=1.0, rce_weight=0, reduction="none")
    torch.testing.assert_close(cost, expected)


def test_an_absent_prototype_is_no_negative():
    image, text = random_sims(4), random_sims(4, 1)
    kept = torch.tensor([0, 1, 3])
    each = prototype_contrast_loss(image, text, reduction="none", ignore=torch.arange(4) == 2)
    alone = prototype_contrast_loss(image[kept][:, kept], text[kept][:, kept], reduction="none")
    torch.testing.assert_close(each[kept], alone)
    assert torch.isfinite(each).all()
    with pytest.raises(ValueError, match=r"one shape, got \(4, 4\) and \(3, 3\)"):
        prototype_contrast_loss(image, text[:3, :3])


# All of them

LOSSES = {
    "triplet hardest": lambda s: triplet_loss(s, reduction="none"),
    "triplet mean": lambda s: triplet_loss(s, negatives="mean", reduction="none"),
    "sce": lambda s: sce_loss(s, reduction="none"),
    "rectification": lambda s: rectification_loss(s, s.softmax(1), s.T.softmax(1), reduction="none"),
    "prototype": lambda s: prototype_contrast_loss(s, s.T, reduction="none"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
class TestEveryLoss:
    def test_batch_of_one_is_finite_and_differentiable(self, loss):
        sims = torch.tensor([[0.3]], requires_grad=True)
        cost = loss(sims)
        cost.sum().backward()
        assert cost.shape == (1,)
        assert abs(cost.item()) < 1e-6
        assert sims.grad.item() == 0

    @settings(max_examples=20, deadline=None)
    @given(batch=st.integers(2, 8), seed=st.integers(0, 999))
    def test_permuting_the_batch_permutes_the_costs(self, loss, batch, seed):
        sims = random_sims(batch, seed)
        order = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(loss(sims[order][:, order]), loss(sims)[order])

    @settings(max_examples=20, deadline=None)
    @given(batch=st.integers(2, 8), seed=st.integers(0, 999))
    def test_both_directions_count_alike(self, loss, batch, seed):
        sims = random_sims(batch, seed)
        torch.testing.assert_close(loss(sims.T), loss(sims))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_inputs_are_computed_in_float32(self, loss, dtype):
        sims = random_sims(6).to(dtype)
        cost = loss(sims)
        assert torch.isfinite(cost).all()
        assert cost.dtype == torch.float32
        tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-3  # targets of "rectification" are made in half
        torch.testing.assert_close(cost, loss(sims.float()), rtol=tolerance, atol=1e-6)

    def test_extreme_similarities_stay_finite(self, loss):
        sims = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], requires_grad=True)
        cost = loss(sims)
        cost.sum().backward()
        assert torch.isfinite(cost).all()
        assert torch.isfinite(sims.grad).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: triplet_loss(torch.zeros(2, 3)), r"square matrix \(B, B\), got shape \(2, 3\)"),
        (lambda: sce_loss(torch.zeros(2, 3)), r"square matrix \(B, B\), got shape \(2, 3\)"),
        (
            lambda: sce_loss(torch.zeros(2, 2), ignore=torch.zeros(3, 3, dtype=torch.bool)),
            r"ignore has shape \(3, 3\), similarity \(2, 2\)",
        ),
        (
            lambda: triplet_loss(torch.zeros(2, 2), negatives="easy"),
            "negatives must be one of hardest, mean, got 'easy'",
        ),
        (
            lambda: triplet_loss(torch.zeros(2, 2), reduction="mean"),
            "reduction must be one of sum, none, got 'mean'",
        ),
        (
            lambda: sce_loss(torch.zeros(2, 2), reduction="sum"),
            "reduction must be one of mean, none, got 'sum'",
        ),
        (
            lambda: rectification_loss(torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 3)),
            r"target_t2i has shape \(2, 3\), but its similarity has \(2, 2\)",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "loss",
    [
        lambda s: sce_loss(s, temperature=0.0),
        lambda s: sce_loss(s, epsilon=0.0),
        lambda s: soft_target(s, s, -1.0),
        lambda s: rectification_loss(s, s, s, temperature=0.0),
        lambda s: prototype_contrast_loss(s, s, epsilon=-1.0),
    ],
)
def test_values_out_of_range_are_refused(loss):
    with pytest.raises(ValueError, match="must be positive, got"):
        loss(random_sims(3))
