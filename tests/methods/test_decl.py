"""DECL by hand: evidence, the evidential loss, the dynamic hinge, labels by the best match, and steps made of them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.special import digamma
from torch import Tensor

from given import Given, Pairs, S, batch
from in2r.methods import Net, Now, PartitionConfig, Seen
from in2r.methods.decl import (
    GAP,
    UNCERTAINTY,
    Decl,
    DeclConfig,
    DeclOwn,
    bounded_similarity,
    dynamic_hinge,
    evidential_loss,
    match_gap,
    uncertainty,
)
from in2r.runs.settings import load_config

LOGITS = torch.tensor([[1.5, -0.5, 0.3, -0.2], [-1, 0.8, 0.1, 0.2], [0, 0.4, -0.3, -0.6], [-0.2, 0.9, -0.8, 0.1]])
"""the specification's example, with its numbers below"""
H = LOGITS.tanh()
EVIDENCE = (H / 0.1).exp()
MAIN, WARMUP = Now(epoch=0, epochs=4, seed=0, name="A"), Now(epoch=-2, epochs=4, seed=0, name="A")
SAME_IMAGE = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)


def net(size: int = 4) -> Net:
    return Net(Given(S), DeclOwn(size)).train()


def method(**settings: object) -> Decl:
    return Decl(replace(DeclConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


# --- evidence


def test_h_of_a_sigmoid_is_the_tanh_of_its_logit_and_of_a_cosine_the_cosine() -> None:
    logits = torch.linspace(-12, 12, 97, requires_grad=True)
    h = bounded_similarity(logits.sigmoid(), of_sigmoid=True)
    torch.testing.assert_close(h, logits.tanh(), atol=1e-6, rtol=1e-5)
    (slope,) = torch.autograd.grad(h.sum(), logits)
    torch.testing.assert_close(slope, 1 - logits.tanh() ** 2, atol=1e-6, rtol=1e-3)
    assert torch.equal(bounded_similarity(S, of_sigmoid=False), S)


def test_the_labels_are_those_of_the_specification() -> None:
    assert (match_gap(EVIDENCE) <= 0).tolist() == [True, True, False, False]


def test_the_gap_compares_both_directions_by_a_plain_loop() -> None:
    """With the rows of e alone, without e_ji, image 1 would be taken from its own caption."""
    evidence = torch.tensor([[4.0, 5.0, 1.0], [0.5, 3.0, 2.0], [1.0, 2.5, 4.5]])
    both = [[float(evidence[i, j] + evidence[j, i]) for j in range(3)] for i in range(3)]
    wanted = [max(both[i][j] for j in range(3) if j != i) - both[i][i] for i in range(3)]
    wanted = [gap / sum(row) for gap, row in zip(wanted, both, strict=True)]
    torch.testing.assert_close(match_gap(evidence), torch.tensor(wanted))
    assert (match_gap(evidence) <= 0).tolist() == [True, True, True]
    assert int(evidence[0].argmax()) == 1


def test_a_tie_with_another_match_is_clean_wherever_it_stands() -> None:
    assert match_gap(torch.ones(3, 3)).tolist() == [0, 0, 0]
    assert match_gap(torch.ones(1, 1)).tolist() == [-1]


def test_uncertainty_by_hand() -> None:
    evidence = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    # rows of e + 1: 4 + 1 and 2 + 2; columns: 4 + 2 and 1 + 2
    torch.testing.assert_close(uncertainty(evidence), torch.tensor([2 / 5 + 2 / 6, 2 / 4 + 2 / 3]))


# --- the evidential loss


def test_the_evidential_loss_has_the_specifications_numbers() -> None:
    """They were computed in float32, whose roundings reach 7e-5 here."""
    clean = evidential_loss(EVIDENCE, torch.ones(4))
    torch.testing.assert_close(clean, torch.tensor([0.443324, 0.230392, 2.442131, 3.64343]), atol=1e-5, rtol=3e-5)
    third = evidential_loss(EVIDENCE, torch.tensor([1.0, 1.0, 0.0, 1.0]))
    assert float(third[2]) == pytest.approx(1.479712, abs=2e-5)
    torch.testing.assert_close(third[[0, 1, 3]], clean[[0, 1, 3]])


def test_the_evidential_loss_by_hand() -> None:
    """e = [1, 1], y = [1, 0]: α = [2, 2], L = 4, p = ½; L_m = ¼ + ¼ + ½ / 5 = 0.6; a = [1, 2], A = 3."""
    divergence = math.lgamma(3) - math.lgamma(2) - math.lgamma(2) + (2 - 1) * float(digamma(2) - digamma(3))
    found = evidential_loss(torch.ones(2, 2), torch.ones(2), kl_weight=0.1)
    torch.testing.assert_close(found, torch.full((2,), 0.6 + 0.1 * divergence))
    assert evidential_loss(torch.ones(2, 2), torch.ones(2), kl_weight=0).tolist() == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize("labels", [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
@pytest.mark.parametrize("ignore", [None, SAME_IMAGE], ids=["all", "ignored"])
def test_the_evidential_loss_equals_a_plain_loop(labels: list[int], ignore: Tensor | None) -> None:
    found = evidential_loss(EVIDENCE.double(), torch.tensor(labels).float(), 0.1, ignore)
    for i, label in enumerate(labels):
        here = [j for j in range(4) if ignore is None or not ignore[i, j]]
        e = [float(EVIDENCE[i, j]) for j in here]
        y = [float(label) if j == i else 0.0 for j in here]
        assert float(found[i]) == pytest.approx(_evidential(e, y, 0.1), rel=1e-6)


def test_large_evidence_loses_no_digits() -> None:
    """At h = 1 for all of 128 matches, sums in float32 are wrong by more than one."""
    evidence = torch.full((128, 128), math.exp(10))
    row = [float(evidence[0, 0])] * 128
    found = evidential_loss(evidence, torch.zeros(128))
    assert float(found[0]) == pytest.approx(_evidential(row, [0.0] * 128, 0.1), rel=1e-5)
    assert found.dtype == torch.float32


def test_a_noisy_querys_evidence_is_taken_away_and_a_clean_ones_is_not() -> None:
    evidence = EVIDENCE.clone().requires_grad_()
    evidential_loss(evidence, torch.tensor([0.0, 1.0, 1.0, 1.0])).sum().backward()
    assert evidence.grad is not None
    assert float(evidence.grad[0, 0]) > 0  # a step lowers the evidence of the noisy pair's own match
    assert float(evidence.grad[1, 1]) < 0


# --- the dynamic hinge


def test_the_hinge_has_the_specifications_numbers() -> None:
    found = dynamic_hinge(H, 2)
    torch.testing.assert_close(found, torch.tensor([0, 0.126131, 1.368090, 0.557169]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_the_hinge_equals_a_plain_loop_and_takes_no_more_than_there_are(n: int) -> None:
    found, h, count = dynamic_hinge(H, torch.tensor(n)), H.tolist(), min(n, 3)
    for i in range(4):
        others = [j for j in range(4) if j != i]
        rows = sorted((max(0, 0.2 + h[i][j] - h[i][i]) for j in others), reverse=True)[:count]
        columns = sorted((max(0, 0.2 + h[j][i] - h[i][i]) for j in others), reverse=True)[:count]
        assert float(found[i]) == pytest.approx((sum(rows) + sum(columns)) / count, abs=1e-6)


def test_ignored_entries_are_no_negatives() -> None:
    found = dynamic_hinge(H, 1, 0.2, SAME_IMAGE)
    row, column = 0.2 + max(H[1, 2], H[1, 3]) - H[1, 1], 0.2 + max(H[2, 1], H[3, 1]) - H[1, 1]
    assert float(found[1]) == pytest.approx(max(0, float(row)) + max(0, float(column)), abs=1e-6)
    assert float(dynamic_hinge(H, 1)[1]) == pytest.approx(float(found[1]))  # the hardest is another one here
    assert float(dynamic_hinge(H, 3, 2.0, SAME_IMAGE)[1]) < float(dynamic_hinge(H, 3, 2.0)[1])


def test_the_number_of_negatives_falls_to_the_fewest() -> None:
    own = DeclOwn(128)
    found = {}
    for step in (1, 40, 41, 4880, 4881, 100_000):
        own.steps.fill_(step - 1)  # so many are made already
        found[step] = float(own.negatives(0.025, 5))
    assert found == {1: 127, 40: 127, 41: 126, 4880: 6, 4881: 5, 100_000: 5}


# --- the method


def test_in_the_warm_up_all_pairs_are_clean() -> None:
    one = net()
    (step,) = method(fewest_negatives=2).steps(one, one, {"all": batch()}, WARMUP)
    assert float(step.losses["total"].detach()) == pytest.approx(_total(S, [1, 1, 1, 1], 3), rel=1e-5)
    assert float(step.notes["clean_in_batch"]) == 1


def test_a_step_adds_the_mean_evidential_loss_and_the_summed_hinge_of_clean_pairs() -> None:
    labels, one = [1, 0, 1, 0], net()
    (step,) = method().steps(one, one, {"all": batch(clean_prob=[float(label) for label in labels])}, MAIN)
    wanted = dynamic_hinge(S, 3)
    assert float(step.losses["hinge"].detach()) == pytest.approx(float(wanted[0] + wanted[2]), abs=1e-6)
    assert float(step.losses["total"].detach()) == pytest.approx(_total(S, labels, 3), rel=1e-5)
    assert abs(_total(S, labels, 3) - _total(S, [1, 1, 1, 1], 3)) > 0.1


def test_without_a_clean_pair_there_is_no_hinge() -> None:
    one = net()
    (step,) = method().steps(one, one, {"all": batch(clean_prob=[0.0] * 4)}, MAIN)
    assert float(step.losses["hinge"].detach()) == 0
    step.losses["total"].backward()
    assert one.backbone.matrix.grad is not None
    assert bool(one.backbone.matrix.grad.isfinite().all())


def test_steps_are_counted_when_they_are_taken_from_the_warm_up_on() -> None:
    one = net(size=3)
    decl, batches = method(negatives_decay=1.0, fewest_negatives=1), {"all": batch(clean_prob=[1.0] * 4)}
    notes = []
    for now in (WARMUP, WARMUP, MAIN):
        (step,) = decl.steps(one, one, batches, now)
        assert float(step.notes["negatives"]) == max(1, 3 - (len(notes) + 1))  # asking counts nothing
        step.after()
        notes.append(float(step.notes["negatives"]))
    assert notes == [2, 1, 1]
    assert int(one.own.steps) == 3


def test_a_sigmoids_logit_is_what_the_losses_see() -> None:
    one = net()
    one.backbone.bounded = True  # S = sigmoid(matrix)
    with torch.no_grad():
        one.backbone.matrix.copy_(LOGITS)
    (step,) = method().steps(one, one, {"all": batch(clean_prob=[1.0] * 4)}, MAIN)
    assert float(step.losses["total"].detach()) == pytest.approx(_total(H, [1, 1, 1, 1], 3), rel=1e-4)


def test_what_is_observed_and_how_it_divides() -> None:
    one, decl = net(), method()
    with torch.no_grad():
        one.backbone.matrix.copy_(H)
    seen = decl.observe(one, *one.encode(batch())[0], torch.arange(4))
    torch.testing.assert_close(seen[GAP].detach(), match_gap(EVIDENCE))
    torch.testing.assert_close(seen[UNCERTAINTY].detach(), uncertainty(EVIDENCE))
    columns = {name: values.detach() for name, values in seen.items()}
    found = decl.divide({"A": Seen(columns, columns)}, {"A": one}, Pairs(4), MAIN)["A"]  # type: ignore[arg-type]
    assert found.columns["clean_prob"].tolist() == [1, 1, 0, 0]
    assert found.sets.tolist() == [0, 0, 0, 0]  # the noisy pairs are trained on as negatives
    assert found.figures["clean_fraction"] == 0.5
    assert found.figures["mean_uncertainty"] == pytest.approx(float(uncertainty(EVIDENCE).mean()))


def test_pairs_that_are_left_out_get_no_label() -> None:
    data: Any = Pairs(6)
    data.pairs = torch.tensor([1, 4])
    columns = {GAP: torch.tensor([-0.1, 0.2]), UNCERTAINTY: torch.ones(2)}
    found = method().divide({"A": Seen(columns, columns)}, {"A": net()}, data, MAIN)["A"]
    assert found.columns["clean_prob"].tolist() == [0, 1, 0, 0, 0, 0]
    assert found.sets.tolist() == [-1, 0, -1, -1, 0, -1]


def test_the_published_numbers() -> None:
    for name, warmup, epochs, cut, rate in (("flickr30k", 5, 45, 20, 2e-4), ("coco", 2, 22, 10, 5e-4)):
        config = load_config(f"decl/{name}")
        assert config.method == replace(DeclConfig(), warmup_epochs=warmup)
        train = config.train
        assert (train.epochs, train.step_epochs, train.learning_rate, train.schedule_from) == (
            epochs,
            cut,
            rate,
            "main",
        )
        assert (train.batch_size, train.gradient_clip, train.schedule, train.step_factor) == (128, 2, "step", 0.1)


def _evidential(e: list[float], y: list[float], kl_weight: float) -> float:
    """L_e of one query, by loops."""
    alpha = [each + 1 for each in e]
    strength = sum(alpha)
    p = [each / strength for each in alpha]
    squared = sum((a - b) ** 2 for a, b in zip(y, p, strict=True)) + sum(b * (1 - b) / (strength + 1) for b in p)
    kept = [a + (1 - a) * b for a, b in zip(y, alpha, strict=True)]
    total = sum(kept)
    divergence = math.lgamma(total) - math.lgamma(len(e)) - sum(math.lgamma(each) for each in kept)
    divergence += sum((each - 1) * float(digamma(each) - digamma(total)) for each in kept)
    return squared + kl_weight * divergence


def _total(h: Tensor, labels: list[int], n: int) -> float:
    """mean_i (L_e of image i + L_e of text i) + 0.8 Σ over clean i of L_h,i, by loops."""
    evidence, count = (h.double() / 0.1).exp(), len(labels)
    mean = 0.0
    for i, label in enumerate(labels):
        y = [float(label) if j == i else 0.0 for j in range(count)]
        mean += (_evidential(evidence[i].tolist(), y, 0.1) + _evidential(evidence[:, i].tolist(), y, 0.1)) / count
    hinge = dynamic_hinge(h, n)
    return mean + 0.8 * sum(float(hinge[i]) for i, label in enumerate(labels) if label)
