import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from in2r.losses import (
    distilled,
    group_sce_loss,
    image_targets,
    owner_targets,
    sce_loss,
    soft_contrast_loss,
    text_soft_targets,
)
from in2r.losses.sce import sce_rows

OWNER = torch.tensor([0, 1, 2, 2, 0, 0])  # of six captions, among three images


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def batches() -> st.SearchStrategy[tuple[int, torch.Tensor, int]]:
    """Number of images, owners and a seed."""
    return st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.integers(0, n - 1), min_size=1, max_size=8).map(torch.tensor),
            st.integers(0, 99),
        )
    )


# Targets


def test_owner_targets_by_hand():
    expected = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    assert torch.equal(owner_targets(torch.tensor([1, 2, 1]), 3), expected)
    assert owner_targets(torch.empty(0, dtype=torch.int64), 3).shape == (0, 3)


def test_text_soft_targets_by_hand():
    # Captions 0 and 1 are alike, 2 is at a right angle to both: cosines 1, 1, 0 over a temperature of 1/2.
    texts = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    near, far = math.exp(2), 1.0
    soft = text_soft_targets(owner_targets(torch.tensor([0, 1, 1]), 2), texts, softness=0.4, temperature=0.5)
    to_first = near / (2 * near + far)
    torch.testing.assert_close(soft[0], torch.tensor([0.6 + 0.4 * to_first, 0.4 * (1 - to_first)]))
    last = 0.4 * far / (near + 2 * far)
    torch.testing.assert_close(soft[2], torch.tensor([last, 1 - last]))
    # A caption of half the weight counts half; one of no weight is pointed to by nobody, not even by itself.
    soft = text_soft_targets(
        owner_targets(torch.tensor([0, 1, 1]), 2), texts, 1.0, 0.5, weights=torch.tensor([1.0, 0.5, 0.0])
    )
    torch.testing.assert_close(soft[:2], torch.tensor([[2 / 3, 1 / 3]]).expand(2, 2))
    torch.testing.assert_close(soft[2], torch.tensor([2 / 3, 1 / 3]))


def test_text_soft_targets_equal_plain_loops():
    texts, weights, hard = drawn(6, 4), drawn(6, seed=1).abs(), drawn(6, 3, seed=2).abs()
    soft = text_soft_targets(hard, texts, 0.3, 0.1, weights)
    for t in range(6):
        terms = [
            float(weights[o]) * math.exp(float(texts[t] @ texts[o] / texts[t].norm() / texts[o].norm()) / 0.1)
            for o in range(6)
        ]
        for i in range(3):
            alike = sum(term * float(hard[o, i]) for o, term in enumerate(terms)) / sum(terms)
            assert float(soft[t, i]) == pytest.approx(0.7 * float(hard[t, i]) + 0.3 * alike)


def test_text_soft_targets_without_softness_are_the_targets():
    hard = owner_targets(OWNER, 3)
    assert torch.equal(text_soft_targets(hard, torch.randn(6, 4), softness=0), hard)


def test_image_targets_by_hand():
    targets = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(image_targets(targets), torch.tensor([[1 / 3, 2 / 3], [1.0, 0.0], [0.0, 0.0]]))
    weighted = image_targets(targets, torch.tensor([1.0, 0.0]))
    assert weighted.tolist() == [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]


@given(batches())
def test_targets_are_distributions(batch):
    images, owner, seed = batch
    weights = drawn(len(owner), seed=seed).abs()
    soft = text_soft_targets(owner_targets(owner, images).double(), drawn(len(owner), 3, seed=seed), weights=weights)
    torch.testing.assert_close(soft.sum(1), torch.ones(len(owner), dtype=torch.float64))
    back = image_targets(soft, weights)
    own = torch.isin(torch.arange(images), owner)
    torch.testing.assert_close(back.sum(1), own.double())
    assert (soft >= 0).all()
    assert (back >= 0).all()


# The loss


def test_soft_contrast_by_hand():
    # Two images, one caption, S/tau = [[2], [0]]: -log p is h for image 0, h + 2 for image 1. The images' side is 0.
    similarity, h = torch.tensor([[1.0], [0.0]]), math.log(1 + math.exp(-2))
    loss = soft_contrast_loss(similarity, torch.tensor([[0.75, 0.25]]), torch.ones(2, 1), temperature=0.5)
    torch.testing.assert_close(loss, torch.tensor((h + 0.25 * 2) / 2))


def test_soft_contrast_equals_plain_loops():
    similarity, weights = drawn(3, 6), drawn(6, seed=1).abs()
    target_t2i, target_i2t = drawn(6, 3, seed=2).softmax(1), drawn(3, 6, seed=3).softmax(1)
    total = 0.0
    for t in range(6):
        below = sum(math.exp(float(similarity[i, t]) / 0.2) for i in range(3))
        log_p = [float(similarity[i, t]) / 0.2 - math.log(below) for i in range(3)]
        total += float(weights[t] / weights.mean()) * sum(float(target_t2i[t, i]) * log_p[i] for i in range(3)) / 6
    for i in range(3):
        below = sum(math.exp(float(similarity[i, t]) / 0.2) for t in range(6))
        log_p = [float(similarity[i, t]) / 0.2 - math.log(below) for t in range(6)]
        total += sum(float(target_i2t[i, t]) * log_p[t] for t in range(6)) / 3
    loss = soft_contrast_loss(similarity, target_t2i, target_i2t, 0.2, weights)
    assert float(loss) == pytest.approx(-total / 2)


def test_with_one_caption_per_image_it_is_info_nce():
    similarity, own = drawn(5, 5), torch.eye(5)
    torch.testing.assert_close(
        soft_contrast_loss(similarity, own, own, weights=torch.full((5,), 0.3)), sce_loss(similarity, rce_weight=0)
    )


def test_without_any_weight_the_captions_give_no_loss():
    similarity, own = drawn(3, 3), torch.eye(3)
    weighted = soft_contrast_loss(similarity, own, torch.zeros(3, 3), weights=torch.zeros(3))
    assert weighted == 0


@given(batches())
def test_soft_contrast_ignores_the_order_of_images_and_captions(batch):
    images, owner, seed = batch
    similarity, weights = drawn(images, len(owner), seed=seed), drawn(len(owner), seed=seed).abs() + 0.1
    texts = drawn(len(owner), 3, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(k, generator=generator) for k in (images, len(owner)))

    def loss(similarity, owner, texts, weights):
        soft = text_soft_targets(owner_targets(owner, images).double(), texts, weights=weights)
        return soft_contrast_loss(similarity, soft, image_targets(soft, weights), weights=weights)

    torch.testing.assert_close(
        loss(similarity[rows][:, columns], rows.argsort()[owner[columns]], texts[columns], weights[columns]),
        loss(similarity, owner, texts, 7 * weights),  # nor does the size of all weights matter
    )


def test_soft_contrast_gradients_reach_the_similarity_alone():
    similarity = drawn(3, 6).requires_grad_()
    soft = drawn(6, 3, seed=1).softmax(1).requires_grad_()
    weights = drawn(6, seed=2).abs().requires_grad_()

    def loss(s):
        return soft_contrast_loss(s, soft, image_targets(soft, weights), 0.5, weights)

    assert gradcheck(loss, (similarity,))
    loss(similarity).backward()
    assert soft.grad is None
    assert weights.grad is None


# Distillation


def test_distilled_by_hand():
    teacher = torch.tensor([[0.5 * math.log(3), 0.0]])  # over 1/2: odds of 3 to 1
    mixed = distilled(torch.tensor([[0.0, 1.0]]), teacher, temperature=0.5, share=0.4)
    torch.testing.assert_close(mixed, torch.tensor([[0.3, 0.7]]))
    assert torch.equal(distilled(mixed, teacher, share=0), mixed)


# Symmetric cross-entropy with several positives


def test_group_sce_equals_sce_with_one_caption_per_image():
    similarity = drawn(5, 5)
    weights = {"ce_weight": 0.7, "rce_weight": 1.3, "epsilon": 1e-4, "temperature": 0.1}
    torch.testing.assert_close(
        group_sce_loss(similarity, torch.arange(5), **weights), sce_loss(similarity, **weights), rtol=1e-10, atol=0
    )


def test_group_sce_parts():
    similarity = drawn(3, 6)
    own = owner_targets(OWNER, 3)
    torch.testing.assert_close(
        group_sce_loss(similarity, OWNER, rce_weight=0), soft_contrast_loss(similarity, own, image_targets(own))
    )
    # The reverse part is 16.1 (1 - p), p what the own captions have together.
    p_t2i = ((similarity / 0.05).softmax(0) * own.T).sum(0)
    p_i2t = ((similarity / 0.05).softmax(1) * own.T).sum(1)
    expected = -math.log(1e-7) * ((1 - p_t2i).mean() + (1 - p_i2t).mean()) / 2
    reverse = group_sce_loss(similarity, OWNER, ce_weight=0)
    torch.testing.assert_close(reverse, expected, rtol=1e-6, atol=1e-6)


def test_an_image_without_a_caption_adds_no_gradient():
    similarity, own = drawn(2, 3).requires_grad_(), torch.tensor([0, 0, 0])
    one_hot = torch.tensor([[1.0, 0.0]]).expand(3, 2)
    captions_alone = sce_rows(one_hot, similarity.T / 0.05, 1, 1, 1e-7).mean() / 2
    ours, expected = (torch.autograd.grad(c, similarity)[0] for c in (group_sce_loss(similarity, own), captions_alone))
    torch.testing.assert_close(ours[1], expected[1])


def test_group_sce_gradients():
    assert gradcheck(lambda s: group_sce_loss(s, OWNER, temperature=0.5), (drawn(3, 6).requires_grad_(),))


@given(batches())
def test_group_sce_ignores_the_order(batch):
    images, owner, seed = batch
    similarity = drawn(images, len(owner), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(k, generator=generator) for k in (images, len(owner)))
    shuffled = group_sce_loss(similarity[rows][:, columns], rows.argsort()[owner[columns]])
    torch.testing.assert_close(shuffled, group_sce_loss(similarity, owner))


# Precision and messages


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    similarity, texts, weights = (drawn(*shape).to(dtype) for shape in ((3, 6), (6, 4), (6,)))
    weights = weights.abs()
    full = [values.float() for values in (similarity, texts, weights)]

    def all_of(similarity, texts, weights):
        soft = text_soft_targets(owner_targets(OWNER, 3), texts, weights=weights)
        to_captions = distilled(image_targets(soft, weights), similarity)
        loss = soft_contrast_loss(similarity, soft, to_captions, weights=weights)
        return soft, to_captions, loss, group_sce_loss(similarity, OWNER)

    for ours, expected in zip(all_of(similarity, texts, weights), all_of(*full), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, expected)


def test_nothing_waits_for_the_device():
    # A tensor on the meta device has no values that could be asked for.
    similarity, owner, texts, weights = (torch.empty(x, device="meta") for x in ((3, 6), 6, (6, 4), 6))
    soft = text_soft_targets(owner_targets(owner.long(), 3), texts, weights=weights)
    to_captions = distilled(image_targets(soft, weights), similarity)
    assert soft_contrast_loss(similarity, soft, to_captions, weights=weights).shape == ()
    assert group_sce_loss(similarity, owner.long()).shape == ()


def test_wrong_arguments_are_named():
    similarity, own, texts = torch.zeros(3, 6), owner_targets(OWNER, 3), torch.zeros(6, 4)
    with pytest.raises(ValueError, match=r"owner must be \(m,\) torch.int64, got torch.float32 of shape \(6,\)"):
        owner_targets(OWNER.float(), 3)
    with pytest.raises(ValueError, match=r"owner must be in \[0, 2\), got 0 to 2"):
        owner_targets(OWNER, 2)
    with pytest.raises(ValueError, match=r"softness must be in \[0, 1\], got 2"):
        text_soft_targets(own, texts, softness=2)
    with pytest.raises(ValueError, match="temperature"):
        text_soft_targets(own, texts, temperature=0)
    with pytest.raises(ValueError, match=r"texts must be a matrix \(m, d\), got shape \(6,\)"):
        text_soft_targets(own, texts[:, 0])
    with pytest.raises(ValueError, match=r"targets must be a matrix of shape \(6, 3\), got shape \(5, 3\)"):
        text_soft_targets(own[:5], texts)
    with pytest.raises(ValueError, match=r"weights must have shape \(6,\), got \(6, 1\)"):
        image_targets(own, torch.ones(6, 1))
    with pytest.raises(ValueError, match=r"target_t2i must be a matrix of shape \(6, 3\), got shape \(3, 6\)"):
        soft_contrast_loss(similarity, own.T, own.T)
    with pytest.raises(ValueError, match=r"similarity must be \(n, m\) with n, m >= 1, got shape \(0, 6\)"):
        soft_contrast_loss(similarity[:0], own[:, :0], own.T[:0])
    with pytest.raises(ValueError, match="share must be in"):
        distilled(own, own, share=-0.1)
    with pytest.raises(ValueError, match="target must be a matrix"):
        distilled(own, similarity)
    with pytest.raises(ValueError, match=r"similarity must be \(n, m\) .*got \(3, 6\) and \(5,\)"):
        group_sce_loss(similarity, OWNER[:5])
    with pytest.raises(ValueError, match="epsilon"):
        group_sce_loss(similarity, OWNER, epsilon=0)
