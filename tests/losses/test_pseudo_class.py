"""Losses of pseudo-classes: the specification's numbers, plain loops, limits."""

import math

import pytest
import torch

from in2r.losses import entropy, oscillation, pseudo_class_loss

F = torch.tensor([[1.0, 0.0, -1.0], [0.2, 0.5, 0.1], [0.0, 2.0, 1.0]])
T = torch.tensor([[0.5, 0.1, 0.9], [0.0, 1.0, 0.0], [1.0, 1.5, 0.2]])


def test_cross_entropy_to_the_captions_class_is_the_specifications() -> None:
    assert float(pseudo_class_loss(F, T)) == pytest.approx(1.231770, abs=1e-6)
    classes = [2, 1, 1]
    loop = sum(
        math.log(sum(math.exp(float(x)) for x in row)) - float(row[c]) for row, c in zip(F, classes, strict=True)
    )
    assert float(pseudo_class_loss(F, T)) == pytest.approx(loop / 3, abs=1e-6)


def test_targets_carry_no_gradient() -> None:
    f, t = F.clone().requires_grad_(), T.clone().requires_grad_()
    pseudo_class_loss(f, t).backward()
    assert f.grad is not None
    assert t.grad is None


def test_entropy_of_pairs_is_the_specifications() -> None:
    assert float(entropy(F, "pair")) == pytest.approx(0.916090, abs=1e-6)


def test_entropy_of_the_batch_is_that_of_the_mean_prediction() -> None:
    mean = F.softmax(1).mean(0).tolist()
    assert float(entropy(F)) == pytest.approx(-sum(p * math.log(p) for p in mean), abs=1e-6)


def test_sure_predictions_of_all_classes_have_the_entropy_of_a_batch_and_none_of_pairs() -> None:
    sure = 100 * torch.eye(3)
    assert float(entropy(sure)) == pytest.approx(math.log(3), abs=1e-5)
    assert float(entropy(sure, "pair")) == pytest.approx(0, abs=1e-5)
    with pytest.raises(ValueError, match="of must be one of batch, pair"):
        entropy(sure, "item")


def test_oscillation_is_the_specifications() -> None:
    found = oscillation(torch.tensor([[0.6, 0.3, 0.1]]), torch.tensor([[0.2, 0.3, 0.5]]))
    assert float(found) == pytest.approx(0.498224, abs=1e-6)


def test_oscillation_is_zero_where_nothing_is_known_and_finite_where_a_probability_vanished() -> None:
    now = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.6, 0.4]])
    found = oscillation(now, torch.tensor([[0.0, 0.0], [0.6, 0.4], [1.0, 0.0]]))
    assert found[:2].tolist() == [0, 0]
    assert 1 < float(found[2]) < 10
