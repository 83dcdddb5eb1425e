"""PCSR by hand: votes, threshold, three sets, borrowed captions, losses of each step."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from given import Given, Pairs, S, batch
from in2r.layers.classifier import PseudoClassifier
from in2r.losses import entropy, pseudo_class_loss, sce_loss, soft_margin_triplet_loss
from in2r.methods import Net, Now, PartitionConfig, Seen, Step
from in2r.methods.pcsr import Pcsr, PcsrConfig, PcsrOwn, consistency, generalised_cross_entropy
from in2r.methods.pseudo_class import Borrowed
from in2r.partition import fit_two_gaussians
from in2r.testing import CHECKS, Case

MAIN = Now(epoch=0, epochs=10, seed=0, name="A")
LAST = replace(MAIN, epoch=9)


def net(pairs: int = 4, classes: int = 4) -> Net:
    torch.manual_seed(0)
    return Net(Given(S), PcsrOwn(PseudoClassifier(4, 6, classes), pairs)).train()


def method(**settings: object) -> Pcsr:
    return Pcsr(replace(PcsrConfig(), **settings), PartitionConfig())


def batches(*names: str, label: list[float] | None = None) -> dict[str, object]:
    place = [3.0, 2.0, 1.0, 0.0]
    made = {name: batch(label=label or [1.0] * 4, place=place) for name in names}
    return {
        name: replace(one, columns={**one.columns, "place": one.columns["place"].long()}) for name, one in made.items()
    }


def steps(one: Net, which: dict[str, object], now: Now, **settings: object) -> list[Step]:
    return list(method(**settings).steps(one, one, which, now))


def value(step: Step, name: str = "total") -> float:
    return float(step.losses[name].detach())


def logits(one: Net) -> Tensor:
    """Of either side: both have the same vectors."""
    return one.own.head(torch.eye(4)).detach()


# --- losses


def test_the_clean_loss_is_hinge_and_class_less_the_weighted_entropy() -> None:
    one, y = net(), [1.0, 0.5, 0.25, 0.0]
    (step,) = steps(one, batches("clean", label=y), MAIN, entropy_weight=3.0)
    assert value(step, "clean") == pytest.approx(1.032641, abs=1e-5)  # the specification's
    f = logits(one)
    wanted = 1.032641 + float(pseudo_class_loss(f, f)) - 3 * float(entropy(f))
    assert value(step) == pytest.approx(wanted, abs=1e-5)
    assert float(step.notes["label_clean"]) == pytest.approx(0.4375)


def test_released_margins_and_entropy_are_those_of_the_released_code() -> None:
    one, y = net(), [1.0, 0.5, 0.25, 0.0]
    (step,) = steps(one, batches("clean", label=y), MAIN, margins="released", entropy_of="pair")
    assert value(step, "clean") == pytest.approx(1.215346, abs=1e-5)  # the specification's
    assert value(step, "entropy") == pytest.approx(float(entropy(logits(one), "pair")), abs=1e-6)


def test_captions_give_targets_and_learn_nothing_from_the_class_loss() -> None:
    one = net()
    (step,) = steps(one, batches("clean"), MAIN)
    step.losses["pseudo_class"].backward(retain_graph=True)
    assert one.backbone.matrix.grad is None
    assert one.own.head.hidden.weight.grad is not None


def test_gce_equals_a_plain_loop_and_has_its_limits() -> None:
    f, t = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    chosen = [1 / (1 + math.e), math.exp(2) / (1 + math.exp(2))]  # class 1 of both
    wanted = sum((1 - p**0.7) / 0.7 for p in chosen) / 2
    assert float(generalised_cross_entropy(f, t, 0.7)) == pytest.approx(wanted, abs=1e-6)
    assert float(generalised_cross_entropy(f, t, 1.0)) == pytest.approx(sum(1 - p for p in chosen) / 2, abs=1e-6)
    assert float(generalised_cross_entropy(f, t, 1e-4)) == pytest.approx(float(pseudo_class_loss(f, t)), abs=1e-3)


def test_the_warm_up_is_the_mean_contrast_and_the_classifier_learns_nothing_in_it() -> None:
    one = net()
    step = method().warmup()[1].step(one, batch())
    logits_ = S / 0.05
    loop = sum(torch.logsumexp(logits_[i], 0) + torch.logsumexp(logits_[:, i], 0) - 2 * logits_[i, i] for i in range(4))
    assert value(step) == pytest.approx(float(loop) / 8, abs=1e-4)
    assert value(step) == pytest.approx(float(sce_loss(S, 0.05, 1.0, 0.0)), abs=1e-5)
    step.losses["total"].backward()
    assert one.own.head.hidden.weight.grad is None


def test_the_warm_up_stores_predictions_and_counts_a_vote_when_the_step_is_taken() -> None:
    one = net(pairs=8)
    given = replace(batch(), pairs=torch.tensor([6, 1, 0, 3]))
    step = method().warmup()[1].step(one, given)
    assert not one.own.bank.any()
    step.after()
    p = logits(one).softmax(1)
    assert torch.equal(one.own.bank[[6, 1, 0, 3]], p)
    counts = one.own.counts
    assert counts.sum(1).tolist() == [1, 1, 0, 1, 0, 0, 1, 0]
    assert counts[6].argmax() == p[0].argmax()


# --- stages and borrowed captions


@pytest.mark.parametrize(
    ("epoch", "names"), [(4, ["clean"]), (5, ["clean", "refinable"]), (8, ["clean", "ambiguous", "refinable"])]
)
def test_stages_begin_after_their_share_of_the_main_phase(epoch: int, names: list[str]) -> None:
    found = steps(net(), batches("clean", "refinable", "ambiguous"), replace(MAIN, epoch=epoch))
    assert [next(iter(step.losses)) for step in found] == names


def test_a_set_without_a_batch_makes_no_step() -> None:
    assert len(steps(net(), batches("clean"), LAST)) == 1
    assert len(steps(net(), batches("clean", "refinable"), LAST)) == 2


def test_an_image_borrows_from_the_clean_image_of_the_most_alike_prediction() -> None:
    p = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.1, 0.8], [0.0, 1.0, 0.0]])
    clean = torch.tensor([[0.2, 0.1, 0.7], [0.7, 0.2, 0.1]])
    found = Borrowed.of(p, clean, 0.5)
    cosines = [[float(a @ b / a.norm() / b.norm()) for b in clean] for a in p]
    assert found.rows.tolist() == [1, 0, 1]
    assert found.labels.tolist() == pytest.approx([cosines[0][1], cosines[1][0], 0.0], abs=1e-6)  # 0.27 is too little
    assert 0 < cosines[2][1] < 0.5


def test_the_refinable_loss_is_the_hinge_on_borrowed_captions() -> None:
    one = net()
    shuffled = torch.tensor([2, 0, 3, 1])
    which = batches("clean", "refinable")
    clean = which["clean"]
    clean = replace(clean, images=clean.images[shuffled], texts=clean.texts[shuffled])
    _, step = steps(one, {**which, "clean": clean}, LAST)
    # each image finds itself among the clean images, and takes the caption that stands there: label 1, S as given
    assert value(step, "refinable") == pytest.approx(float(soft_margin_triplet_loss(S, torch.ones(4))), abs=1e-4)
    assert float(step.notes["label_refinable"]) == pytest.approx(1, abs=1e-6)
    assert not step.notes["label_refinable"].requires_grad


@pytest.mark.parametrize(("margins", "loss"), [("own", 1.032641), ("released", 1.113396)])
def test_released_margins_of_borrowed_captions_are_those_of_the_negative_caption(
    margins: str, loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Borrowed(torch.arange(4), torch.tensor([1.0, 0.5, 0.25, 0.0]))
    monkeypatch.setattr("in2r.methods.pcsr.borrowing", lambda *_: given)
    _, step = steps(net(), batches("clean", "refinable"), LAST, margins=margins)
    assert value(step) == pytest.approx(loss, abs=1e-5)  # the specification's


def test_an_ambiguous_pair_has_a_robust_loss_alone_and_as_released_a_borrowed_caption_too() -> None:
    one = net()
    _, robust = steps(one, batches("clean", "ambiguous"), LAST)
    f = logits(one)
    wanted = float(generalised_cross_entropy(f, f, 0.7)) - 10 * float(entropy(f))
    assert value(robust) == pytest.approx(wanted, abs=1e-5)
    _, released = steps(one, batches("clean", "ambiguous"), LAST, ambiguous_borrow=True)
    hinge = float(soft_margin_triplet_loss(S, torch.ones(4)))
    assert value(released) == pytest.approx(wanted + hinge, abs=1e-4)


def test_the_released_bank_is_overwritten_at_places_inside_a_set() -> None:
    one = net()
    for step in steps(one, batches("clean", "refinable"), LAST, bank_mode="released"):
        step.after()
    assert torch.equal(one.own.bank[[3, 2, 1, 0]], logits(one).softmax(1))
    one = net()
    for step in steps(one, batches("clean", "refinable"), LAST):
        step.after()
    assert not one.own.bank.any()


# --- votes, threshold, sets


def test_the_consistency_score_is_the_lead_of_the_first_class() -> None:
    counts = torch.tensor([[5, 2, 3], [4, 4, 0], [0, 6, 0], [0, 0, 0]], dtype=torch.int16)
    assert consistency(counts).tolist() == [2, 0, 6, 0]


def test_the_threshold_starts_at_the_mean_and_follows_the_share_aimed_at() -> None:
    scores, one = torch.tensor([0.0, 1.0, 2.0, 5.0]), method()
    # mean 2; one of four is above it; aimed at 0.4 + 0.5 * 5 / 15
    wanted = 0.7 * 2 + 0.3 * (2 - 0.2 * (0.4 + 0.5 * 5 / 15 - 0.25))
    assert one._threshold(scores, 99.0, MAIN) == pytest.approx(wanted)
    wanted = 0.7 * 0.5 + 0.3 * (0.5 - 0.2 * (0.4 + 0.5 * 9 / 15 - 0.75))  # epoch 4: from the last one's 0.5
    assert one._threshold(scores, 0.5, replace(MAIN, epoch=4)) == pytest.approx(wanted)
    wanted = 0.7 * 2 + 0.3 * (2 - 0.2 * (0.4 + 0.5 * 2 / 12 - 0.25))  # the run's warm-up had two epochs
    assert method(common_warmup=2)._threshold(scores, 99.0, MAIN) == pytest.approx(wanted)


def observed(moved: Tensor) -> Seen:
    low = torch.rand(20, generator=torch.Generator().manual_seed(0)) * 0.1
    return Seen(
        {"triplet-mean": torch.cat([low, torch.ones(20)]), "oscillation": moved}, {"triplet-mean": torch.ones(8)}
    )


def test_noisy_pairs_are_cut_by_the_votes_of_the_judging_network() -> None:
    a, b = net(40), net(40)
    for one, steady in ((a, 30), (b, 25)):
        one.own.bank[:, 0] = 1.0
        one.own.counts[:steady, 0] = 3
    moved = torch.rand(40, generator=torch.Generator().manual_seed(1))
    found = method().divide({"A": observed(moved), "B": observed(moved)}, {"A": a, "B": b}, Pairs(40), MAIN)
    assert found["A"].sets.tolist() == [0] * 20 + [1] * 5 + [2] * 15  # B's votes
    assert found["B"].sets.tolist() == [0] * 20 + [1] * 10 + [2] * 10
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    assert found["A"].columns["place"].tolist() == [*range(20), *range(5), *range(15)]
    assert a.own.counts.sum(1).tolist() == [4] * 30 + [1] * 10
    assert found["B"].figures["refinable_fraction"] == pytest.approx(0.25)


def test_a_clean_label_rises_where_the_prediction_is_calm() -> None:
    moved = torch.cat([torch.linspace(0, 0.1, 30), torch.linspace(2, 2.1, 10)])
    found = method().divide({"A": observed(moved), "B": observed(moved)}, {"A": net(40), "B": net(40)}, Pairs(40), MAIN)
    w, y = found["A"].columns["clean_prob"], found["A"].columns["label"]
    v = torch.as_tensor(fit_two_gaussians(moved).clean_probability).float()
    wanted = [float(a + (1 - a) * (b if b > 0.5 else 0)) for a, b in zip(w, v, strict=True)]
    assert y.tolist() == pytest.approx(wanted, abs=1e-6)
    assert float(v[20:30].min()) > 0.9  # noisy by the hinge, calm: y is v
    assert y[30:].tolist() == w[30:].tolist()


def test_equal_oscillations_say_nothing() -> None:
    seen = observed(torch.zeros(40))
    found = method().divide({"A": seen, "B": seen}, {"A": net(40), "B": net(40)}, Pairs(40), MAIN)
    assert torch.equal(found["A"].columns["label"], found["A"].columns["clean_prob"])


def test_oscillations_compare_with_the_last_epoch_and_every_pair_has_its_own_row() -> None:
    one = net(pairs=6)
    images, texts = one.encode(batch())[0]
    pairs, p = torch.tensor([5, 2, 0, 3]), logits(one).softmax(1)
    before = torch.full((4, 4), 0.25)
    one.own.store(pairs, before)
    twice = [method().observe(one, images, texts, pairs)["oscillation"] for _ in range(2)]  # pairs fill up a last batch
    wanted = [sum(float(x) * math.log(float(x) / 0.25) for x in row) for row in p]
    for found in twice:
        assert found.tolist() == pytest.approx(wanted, abs=1e-6)
    one.own.renew("released")
    assert torch.equal(one.own.bank[pairs], before)
    method().observe(one, images, texts, pairs)
    one.own.renew("refreshed")
    assert torch.equal(one.own.bank[pairs], p)
    assert not one.own.bank[[1, 4]].any()
    assert float(method().observe(one, images, texts, pairs)["oscillation"].max()) == 0


def test_the_observed_hinge_is_that_of_the_specification() -> None:
    one = net()
    seen = method().observe(one, *one.encode(batch())[0], torch.arange(4))
    assert seen["triplet-mean"].tolist() == pytest.approx([0.0375, 0.125, 0.225, 0.275], abs=1e-5)


STAGES = {
    "refinable": ("gpo", ["method.refinable_from=0"]),
    "ambiguous": ("gpo", ["method.ambiguous_from=0", "method.stable_start=0", "method.stable_end=0"]),
    "released": (
        "sgr",
        [
            "method.refinable_from=0",
            "method.ambiguous_from=0",
            "method.ambiguous_borrow=true",
            "method.bank_mode=released",
            "method.positions=4",
        ],
    ),
}
"""stages that the common tests of test_contract.py, on the first epoch of the main phase, do not reach"""
QUICK = [name for name in CHECKS if name not in ("computes_in_bf16", "exports_what_was_trained", "counts_its_cost")]


@pytest.mark.parametrize("check", QUICK)
@pytest.mark.parametrize("stage", STAGES)
def test_later_stages_keep_the_contract(stage: str, check: str, tmp_path: Path) -> None:
    backbone, settings = STAGES[stage]
    CHECKS[check](Case("pcsr", backbone, tmp_path, tuple(settings)))


@pytest.mark.parametrize(("stage", "which"), [("refinable", "refinable"), ("ambiguous", "ambiguous")])
def test_these_stages_have_batches_of_their_set(stage: str, which: str, tmp_path: Path) -> None:
    backbone, settings = STAGES[stage]
    ready = Case("pcsr", backbone, tmp_path, tuple(settings)).ready()
    assert which in ready.batches()
    assert which in {name for losses in ready.losses(ready.batches()) for name in losses}
