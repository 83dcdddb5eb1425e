import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.losses import triplet_loss
from in2r.partition import matching_probability

SIMS_4 = torch.tensor([[0.8, 0.3, 0.75, 0.2], [0.1, 0.6, 0.4, 0.55], [0.5, 0.45, 0.5, 0.3], [0.35, 0.7, 0.2, 0.4]])


def random_sims(batch: int, seed: int = 0) -> torch.Tensor:
    noise = torch.rand(batch, batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return noise * 1.2 - 0.6 + torch.eye(batch) * 0.4


def loop(sims: torch.Tensor, margin: float) -> list[float]:
    size, quality = len(sims), []
    for i in range(size):
        hinges = 0.0
        for j in range(size):
            if j != i:
                hinges += max(0.0, margin + float(sims[i, j] - sims[i, i])) / size
                hinges += max(0.0, margin + float(sims[j, i] - sims[i, i])) / size
        quality.append(min(margin, max(0.0, margin - hinges / 2)))
    best = sorted(quality, reverse=True)[: size // 10 + 1]
    tau = sum(best) / len(best)
    return [min(1.0, q / tau) if tau > 0 else 0.0 for q in quality]


def test_by_hand():
    # mean hinges l = .0375, .125, .225, .275: q = .2 - l/2 = .18125, .1375, .0875, .0625; one of four sets tau = .18125
    torch.testing.assert_close(
        matching_probability(SIMS_4), torch.tensor([1, 0.758621, 0.482759, 0.344828]), rtol=0, atol=1e-6
    )


@given(batch=st.integers(1, 33), seed=st.integers(0, 999), margin=st.floats(0.05, 1))
def test_equals_a_plain_loop(batch, seed, margin):
    sims = random_sims(batch, seed)
    predicted = matching_probability(sims, margin)
    assert predicted.tolist() == pytest.approx(loop(sims, margin), abs=1e-9)
    assert ((predicted >= 0) & (predicted <= 1)).all()
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(matching_probability(sims[order][:, order], margin), predicted[order])
    torch.testing.assert_close(matching_probability(sims.T, margin), predicted)


@pytest.mark.parametrize(("batch", "best"), [(9, 1), (10, 2), (19, 2), (20, 3)])
def test_tau_is_the_mean_of_a_tenth_and_one(batch, best):
    sims = random_sims(batch)
    quality = (0.2 - triplet_loss(sims, negatives="mean", reduction="none") / 2).clamp(min=0)
    tau = quality.sort(descending=True).values[:best].mean()
    torch.testing.assert_close(matching_probability(sims), (quality / tau).clamp(max=1))


def test_no_pair_with_a_distance_gives_zeros_and_no_nan():
    worse_than_any = 1 - torch.eye(4)  # each own pair at 0, each negative at 1: l = 2 · 3/4 · 1.2
    assert matching_probability(worse_than_any).tolist() == [0.0] * 4


def test_equal_similarities_are_all_the_best():
    # l = 2 · 3/4 · .2 each, whatever the value: all q are equal, and so is tau
    assert matching_probability(torch.full((4, 4), -0.9)).tolist() == pytest.approx([1.0] * 4)


def test_batch_of_one_matches():
    assert matching_probability(torch.tensor([[-0.4]])).tolist() == [1.0]


def test_half_inputs_are_computed_in_float32_and_nothing_has_a_gradient():
    sims = random_sims(12).half().requires_grad_()
    predicted = matching_probability(sims)
    assert predicted.dtype == torch.float32
    assert not predicted.requires_grad
    torch.testing.assert_close(predicted, matching_probability(sims.float()))


@pytest.mark.parametrize("shape", [(2, 3), (4,), (0, 0)])
def test_a_similarity_that_is_no_square_is_named(shape):
    with pytest.raises(ValueError, match=re.escape(f"square matrix (B, B), B >= 1, got shape {shape}")):
        matching_probability(torch.zeros(shape))


@pytest.mark.parametrize("margin", [0.0, -0.2, float("nan")])
def test_a_margin_that_is_not_positive_is_named(margin):
    with pytest.raises(ValueError, match=f"margin must be positive, got {margin}"):
        matching_probability(SIMS_4, margin)
