"""PC² by hand: labels, the clean and the noisy loss, the bank, the slips of the released code."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from given import Given, Pairs, S, batch
from in2r.layers.classifier import PseudoClassifier
from in2r.losses import entropy, pseudo_class_loss, soft_margin_triplet_loss, triplet_loss
from in2r.methods import Batch, Net, Now, PartitionConfig, Seen, Step
from in2r.methods.pc2 import Pc2, Pc2Config
from in2r.methods.pseudo_class import Borrowed, PseudoOwn
from in2r.partition import fit_two_gaussians
from in2r.testing import CHECKS, Case

MAIN = Now(epoch=0, epochs=4, seed=0, name="A")
LATE = replace(MAIN, epoch=2)
Y = [1.0, 0.5, 0.25, 0.0]


def net(pairs: int = 4, classes: int = 4) -> Net:
    torch.manual_seed(0)
    return Net(Given(S), PseudoOwn(PseudoClassifier(4, 6, classes), pairs)).train()


def method(**settings: object) -> Pc2:
    return Pc2(replace(Pc2Config(), **settings), PartitionConfig())


def batches(*names: str, label: list[float] | None = None, place: list[int] | None = None) -> dict[str, Batch]:
    one = batch(label=label or [1.0] * 4)
    columns = {**one.columns, "place": torch.tensor(place or [0, 1, 2, 3])}
    return dict.fromkeys(names, replace(one, columns=columns))


def steps(one: Net, which: dict[str, Batch], now: Now, **settings: object) -> list[Step]:
    return list(method(**settings).steps(one, one, which, now))


def value(step: Step, name: str = "total") -> float:
    return float(step.losses[name].detach())


def logits(one: Net) -> Tensor:
    """Of either side: both have the same vectors."""
    return one.own.head(torch.eye(4)).detach()


# --- losses


def test_the_warm_up_is_the_mean_hinge_with_the_classifier_and_stores_predictions() -> None:
    one = net(pairs=8)
    step = method(entropy_weight=3.0).warmup()[1].step(one, replace(batch(), pairs=torch.tensor([6, 1, 0, 3])))
    f = logits(one)
    assert value(step, "inter") == pytest.approx(0.6625, abs=1e-5)  # the specification's
    assert value(step, "inter") == pytest.approx(float(triplet_loss(S, negatives="mean")), abs=1e-5)
    wanted = 0.6625 + float(pseudo_class_loss(f, f)) - 3 * float(entropy(f))
    assert value(step) == pytest.approx(wanted, abs=1e-5)
    assert not one.own.bank.any()
    step.after()
    assert torch.equal(one.own.bank[[6, 1, 0, 3]], f.softmax(1))
    assert not one.own.bank[[2, 4, 5, 7]].any()


def test_the_clean_loss_is_hinge_and_class_less_the_weighted_entropy() -> None:
    one = net()
    (step,) = steps(one, batches("clean", label=Y), MAIN, entropy_weight=3.0)
    f = logits(one)
    assert value(step, "clean") == pytest.approx(1.032641, abs=1e-5)  # the specification's
    wanted = 1.032641 + float(pseudo_class_loss(f, f)) - 3 * float(entropy(f))
    assert value(step) == pytest.approx(wanted, abs=1e-5)
    (pair,) = steps(one, batches("clean", label=Y), MAIN, entropy_of="pair")
    assert value(pair, "entropy") == pytest.approx(float(entropy(f, "pair")), abs=1e-6)


def test_released_margins_of_clean_pairs_are_those_of_the_negative_image() -> None:
    (step,) = steps(net(), batches("clean", label=Y), MAIN, margins="released")
    assert value(step, "clean") == pytest.approx(1.215346, abs=1e-5)  # the specification's


@pytest.mark.parametrize(("margins", "loss"), [("own", 1.032641), ("released", 1.113396)])
def test_released_margins_of_noisy_pairs_are_those_of_the_negative_caption(
    margins: str, loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("in2r.methods.pc2.borrowing", lambda *_: Borrowed(torch.arange(4), torch.tensor(Y)))
    _, step = steps(net(), batches("clean", "noisy"), LATE, margins=margins)
    assert value(step) == pytest.approx(loss, abs=1e-5)  # the specification's


def test_noisy_pairs_are_trained_on_from_the_middle() -> None:
    which = batches("clean", "noisy")
    assert [[next(iter(step.losses)) for step in steps(net(), which, replace(MAIN, epoch=e))] for e in (1, 2)] == [
        ["clean"],
        ["clean", "noisy"],
    ]
    assert len(steps(net(), batches("clean"), LATE)) == 1


def test_a_noisy_image_is_trained_with_the_caption_of_the_clean_image_that_is_most_like_it() -> None:
    one, which, turned = net(), batches("clean", "noisy"), torch.tensor([2, 0, 3, 1])
    clean = which["clean"]
    which["clean"] = replace(clean, images=clean.images[turned], texts=clean.texts[turned])
    _, step = steps(one, which, LATE)
    # each image finds itself, wherever it stands in the clean batch: label 1, and S as given
    assert value(step) == pytest.approx(float(soft_margin_triplet_loss(S, torch.ones(4))), abs=1e-4)
    which["clean"] = replace(clean, images=clean.images[turned])
    _, step = steps(one, which, LATE)  # now other captions stand beside the images
    wanted = S[:, torch.argsort(turned)]
    assert value(step) == pytest.approx(float(soft_margin_triplet_loss(wanted, torch.ones(4))), abs=1e-4)


def test_labels_of_borrowed_captions_carry_a_gradient_only_as_released() -> None:
    for detach in (True, False):
        one, which = net(), batches("clean", "noisy")
        which["clean"] = replace(which["clean"], images=which["clean"].images[[1, 1, 2, 3]])
        _, step = steps(one, which, LATE, detach_pseudo_label=detach)
        step.losses["total"].backward()
        learnt = one.own.head.hidden.weight.grad
        assert (learnt is None) if detach else (learnt is not None and bool(learnt.abs().sum() > 0))


# --- labels and bank


def observed(moved: Tensor) -> Seen:
    low = torch.rand(20, generator=torch.Generator().manual_seed(0)) * 0.1
    hinge = torch.cat([low, torch.ones(20)])
    return Seen({"triplet-mean": hinge, "oscillation": moved}, {"triplet-mean": torch.ones(8)})


def test_labels_are_those_of_the_peers_posteriors() -> None:
    calm, wild = torch.linspace(0, 0.1, 40), torch.cat([torch.linspace(0, 0.1, 20), torch.linspace(2, 2.1, 20)])
    nets = {"A": net(40), "B": net(40)}
    found = method().divide({"A": observed(calm), "B": observed(wild)}, nets, Pairs(40), MAIN)
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    assert found["A"].sets.tolist() == [0] * 20 + [1] * 20
    w = found["A"].columns["clean_prob"]
    v = torch.as_tensor(fit_two_gaussians(wild).clean_probability).float()
    wanted = [float(a + (1 - a) * (b if b > 0.5 else 0)) for a, b in zip(w, v, strict=True)]
    assert found["A"].columns["label"].tolist() == pytest.approx(wanted, abs=1e-6)
    assert found["A"].columns["place"].tolist() == [*range(20), *range(20)]


def test_the_bank_is_refreshed_by_the_pass_over_the_pairs_or_as_released_stays() -> None:
    moved = torch.rand(40, generator=torch.Generator().manual_seed(1))
    for mode in ("refreshed", "released"):
        nets = {"A": net(40), "B": net(40)}
        method().observe(nets["A"], *nets["A"].encode(batch())[0], torch.tensor([7, 3, 20, 5]))
        method(bank_mode=mode).divide({name: observed(moved) for name in nets}, nets, Pairs(40), MAIN)
        stored = nets["A"].own.bank
        assert bool(stored.any()) == (mode == "refreshed")
        assert nets["A"].own.fresh is None
        if mode == "refreshed":
            assert torch.equal(stored[[7, 3, 20, 5]], logits(nets["A"]).softmax(1))


def test_as_released_a_noisy_step_overwrites_the_rows_at_its_places() -> None:
    for mode in ("refreshed", "released"):
        one = net()
        which = batches("clean", "noisy", place=[3, 2, 1, 0])
        which["clean"] = replace(
            which["clean"], columns={**which["clean"].columns, "place": torch.tensor([3, 2, 1, 0])}
        )
        p = logits(one).softmax(1)
        for step in steps(one, which, LATE, bank_mode=mode):
            step.after()
        assert torch.equal(one.own.bank, p.flip(0) if mode == "released" else torch.zeros(4, 4))


# --- the contract, where noisy pairs are trained on

STAGES = {
    "noisy": ("gpo", ["method.noisy_from=0"]),
    "released": (
        "sgr",
        ["method.noisy_from=0", "method.bank_mode=released", "method.detach_pseudo_label=false", "method.positions=4"],
    ),
}
QUICK = [name for name in CHECKS if name not in ("computes_in_bf16", "exports_what_was_trained", "counts_its_cost")]


@pytest.mark.parametrize("check", QUICK)
@pytest.mark.parametrize("stage", STAGES)
def test_the_noisy_stage_keeps_the_contract(stage: str, check: str, tmp_path: Path) -> None:
    """The common tests of test_contract.py look at the first epoch of the main phase, which has clean pairs alone."""
    backbone, settings = STAGES[stage]
    CHECKS[check](Case("pc2", backbone, tmp_path, tuple(settings)))


def test_this_stage_has_noisy_batches(tmp_path: Path) -> None:
    ready = Case("pc2", "gpo", tmp_path, ("method.noisy_from=0",)).ready()
    assert "noisy" in {name for losses in ready.losses(ready.batches()) for name in losses}
