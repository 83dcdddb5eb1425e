"""The common tests, one function each: they raise `AssertionError` with what was found."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from in2r.layers.mlp import unit_norm
from in2r.methods import Batch, Division, Seen
from in2r.methods.base import Method
from in2r.methods.division import NOISY
from in2r.metrics import recall_at_k
from in2r.models.base import Backbone, Items
from in2r.models.blocks import SAME_LOG_ODDS
from in2r.models.build import INTERACTION
from in2r.models.folder import load
from in2r.results import export_model
from in2r.runs.folder import RunFolder
from in2r.testing.case import Case, outcome
from in2r.training.health import Truth
from in2r.training.train import reopen

CLOSE = 1e-5
"""how far a loss x may move, times 1 + |x|"""
ALIKE = 1e-4
"""the same where both sides are exchanged: an iteration that stops by one side's change stops otherwise"""


def resumes_bit_identically(case: Case) -> None:
    """Resume a run that is killed in the middle of its last epoch: it ends bit-identical to one that was not killed."""
    straight = case.run("straight")
    steps = [sum(record["steps"].values()) for record in RunFolder(straight).records()]
    killed = case.run_with_kill("killed", sum(steps) - steps[-1] // 2, "checkpoint.every_steps=2")
    (tensors, meta, best, records), (tensors2, meta2, best2, records2) = outcome(straight), outcome(killed)
    assert records == records2, "the records differ"
    assert meta == meta2, "the positions differ"
    differing = [name for name in tensors if not torch.equal(tensors[name], tensors2[name])]
    assert not differing, f"differing after a resume: {', '.join(differing[:5])}: state that no checkpoint holds"
    assert best == best2, "the best weights differ"


def ignores_the_order_in_a_batch(case: Case) -> None:
    """Shuffling the pairs of a batch changes no loss."""
    ready = case.ready()
    batches = ready.batches()
    draws = torch.Generator().manual_seed(0)
    shuffled = {name: _rows(batch, torch.randperm(len(batch), generator=draws)) for name, batch in batches.items()}
    _assert_equal(ready.losses(batches), ready.losses(shuffled), "when a batch is shuffled")


def ignores_the_numbers_of_pairs(case: Case) -> None:
    """Other numbers for the same pairs change no loss: nothing is looked up by position."""
    ready = case.ready()
    batches, total = ready.batches(), len(ready.trainer.data.image_of_pair)
    renumbered = {
        name: replace(batch, pairs=total - 1 - batch.pairs, groups=1000 + batch.groups)
        for name, batch in batches.items()
    }
    _assert_equal(ready.losses(batches), ready.losses(renumbered), "when pairs have other numbers")


def ignores_the_truth(case: Case) -> None:
    """Change what is known of injected noise: nothing else is learnt."""
    one, other = case.trainer(name="one"), case.trainer(name="other")
    truth = other.divider.truth
    assert truth is not None
    shuffled = Truth.__new__(Truth)
    shuffled.__dict__ |= {**truth.__dict__, "clean": ~truth.clean}
    other.divider.truth = shuffled
    other.learner = replace(other.learner, truth=shuffled)
    for trainer in (one, other):
        trainer.state.epoch = trainer.method.warmup()[0]
        trainer._begin()
        for name in trainer.names:
            trainer._iterate(name, 0, trainer._order(name))
    same = one.state.network_tensors()
    for name, value in other.state.network_tensors().items():
        assert torch.equal(value, same[name]), f"{name} depends on which pairs are truly mismatched"


def leaves_the_peer_alone(case: Case) -> None:
    """Make steps of one network: the other one stays."""
    ready = case.ready()
    trainer = ready.trainer
    if len(trainer.names) == 1:
        return
    peer = trainer.state.nets["B"]
    before = {name: value.clone() for name, value in peer.state_dict().items()}
    own = {name: value.clone() for name, value in trainer.state.nets["A"].backbone.state_dict().items()}
    order = trainer._order("A")
    for index in range(min(2, len(order))):
        trainer._iterate("A", index, order)
    for name, value in peer.state_dict().items():
        assert torch.equal(value, before[name]), f"a step of network A changed {name} of network B"
    assert all(weight.grad is None for weight in peer.parameters()), "a gradient reached network B in a step of A"
    after = trainer.state.nets["A"].backbone.state_dict()
    assert any(not torch.equal(value, own[name]) for name, value in after.items()), "the network did not learn"


def takes_any_division(case: Case) -> None:
    """Empty, one-pair, tiny and full sets, and pairs left out, give finite losses."""
    ready = case.ready()
    given, pairs = ready.trainer.state.divisions["A"], ready.trainer.data.pairs
    sets = len(ready.trainer.method.sets)
    for count in (0, 1, 2, len(pairs) - 2):
        chosen = torch.zeros_like(given.sets)
        chosen[pairs[:count]] = NOISY if sets > 1 else -1
        for losses in ready.losses(ready.batches(replace(given, sets=chosen))):
            for name, loss in losses.items():
                assert bool(loss.isfinite()), f"loss {name} is {float(loss)} where {count} pairs are in another set"


def takes_equal_observations(case: Case) -> None:
    """If all pairs are equal, the method still gives each network pairs to train on."""
    ready = case.ready()
    trainer = ready.trainer
    method, state = trainer.method, trainer.state
    if type(method).observe is Method.observe:
        return
    net, _ = ready.nets
    batch = trainer.data.batch(trainer.data.pairs[:4])
    with torch.no_grad():
        columns = method.observe(net, *net.encode(batch)[0], trainer.data.pairs[:4]) or {}
    same = {name: torch.full((len(trainer.data.pairs),), 0.5) for name in columns}
    for division in method.divide(
        dict.fromkeys(state.nets, Seen(same, same)), state.nets, trainer.data, trainer._now()
    ).values():
        _assert_valid(division, sets=len(method.sets))
        assert int((division.sets == 0).sum()) > 1, "no pair is in the first set"


def computes_in_bf16(case: Case) -> None:
    """With train.precision=bf16 a run ends, and its losses are finite."""
    path = case.run("bf16", "train.precision=bf16", "train.epochs=2", "checkpoint.keep=1")
    for record in RunFolder(path).records():
        for name, value in record.items():
            assert not name.startswith("loss_") or value is not None, f"{name} is not finite in epoch {record['epoch']}"


def counts_its_cost(case: Case) -> None:
    """Count encoded items, scored pairs, steps and passes in an epoch of the main phase."""
    path = case.run("cost", "checkpoint.keep=1")
    last = RunFolder(path).records()[-1]
    observes = type(case.trainer(name="asked").method).observe is not Method.observe
    for name, cost in last["cost"].items():
        assert cost["steps"] >= last["steps"][name], f"network {name}: {cost['steps']} optimiser steps are counted"
        assert cost["encoded"] > 0, f"network {name}: no encoded item is counted; encode batches by net.encode"
        assert cost["scored"] > 0, f"network {name}: no scored pair is counted; score them by net.score"
        assert cost["passes"] == int(observes), f"network {name}: {cost['passes']} passes over all pairs are counted"


def treats_both_sides_alike(case: Case) -> None:
    """Exchange images and captions of a batch, negative cosines among them: the total loss stays.

    Not so where an image may have several right captions, and a caption has one image; nor where the method says that
    its loss is one-sided.
    """
    ready = case.ready()
    trainer = ready.trainer
    if trainer.config.loss.kind == "softmax" or trainer.method.one_sided:
        return
    draws = torch.Generator().manual_seed(0)
    for net in trainer.state.nets.values():
        net.backbone = _Vectors(trainer.config.model.dim)
        total = len(trainer.data.image_of_pair)
        net.own = trainer.method.own(net.backbone.dim, total, trainer.config.train.batch_size)
    batches, exchanged = {}, {}
    for name, batch in ready.batches().items():
        v, u = (torch.randn(len(batch), 1, trainer.config.model.dim, generator=draws) for _ in range(2))
        batches[name] = replace(batch, images=v, image_mask=None, texts=u, text_mask=None)
        exchanged[name] = replace(batch, images=u, image_mask=None, texts=v, text_mask=None)
    one, other = ([{"total": losses["total"]} for losses in ready.losses(given)] for given in (batches, exchanged))
    _assert_equal(one, other, "when images and captions are exchanged", ALIKE)


def never_waits_for_the_device(case: Case) -> None:
    """Make the steps on a device that has no values to read: whoever asks for one fails."""
    ready = case.ready()
    trainer = ready.trainer
    if trainer.method.waits:
        return
    batches = {name: _without_values(batch) for name, batch in ready.batches().items()}
    net, peer = (each.to("meta") for each in ready.nets)
    for step in trainer.method.steps(net, peer, batches, trainer._now("A", 0)):
        step.losses["total"].backward()  # type: ignore[no-untyped-call]
        step.after()


def exports_what_was_trained(case: Case) -> None:
    """Load the exported model: its similarities have the recalls that training said of the selected epoch."""
    path = case.run("exported", "checkpoint.keep=1")
    export_model(RunFolder(path), reopen(RunFolder(path)))
    model = load(path / "model", device="cpu")
    data = case.folder / "data"
    captions = (data / "dev_caps.txt").read_text(encoding="utf-8").splitlines()
    texts = captions if case.backbone in INTERACTION else np.load(data / "dev_vecs.npy")
    images = np.load(data / "dev_ims.npy")
    similarity = model.score(images, texts).astype(np.float64)
    tolerance = 1e-6
    if case.backbone in ("sgr", "saf"):  # sigmoids: training counts ties of the log-odds
        similarity, tolerance = np.log(similarity / (1 - similarity)), SAME_LOG_ODDS
    found = recall_at_k(similarity, np.repeat(np.arange(len(images)), 5), tolerance=tolerance)
    said = max((record["dev"]["ensemble"] for record in RunFolder(path).records()), key=lambda row: row["rsum"])
    assert abs(found["rsum"] - said["rsum"]) < 1e-6, f"dev rSum {found['rsum']:.2f}, training said {said['rsum']:.2f}"


Check = Callable[[Case], None]

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        resumes_bit_identically,
        ignores_the_order_in_a_batch,
        ignores_the_numbers_of_pairs,
        ignores_the_truth,
        leaves_the_peer_alone,
        takes_any_division,
        takes_equal_observations,
        treats_both_sides_alike,
        never_waits_for_the_device,
        computes_in_bf16,
        exports_what_was_trained,
        counts_its_cost,
    )
}
"""name → test"""


def check_method(
    method: str, backbone: str = "gpo", overrides: Iterable[str] = (), on_passed: Callable[[str], None] | None = None
) -> None:
    """Run all common tests on a method.

    Args:
        method: its name, or "file.py:Class".
        backbone: one of `BACKBONES`.
        overrides: settings that differ.
        on_passed: gets the name of each test that is passed.

    Raises:
        AssertionError: the first test that fails, with what was found.
    """
    for name, check in CHECKS.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(Case(method, backbone, Path(folder), tuple(overrides)))
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
        if on_passed is not None:
            on_passed(name)


class _Vectors(Backbone):
    """Takes given vectors for embeddings of either side."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.ones(dim))

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        return Items(unit_norm(values.mean(1) * self.scale))

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        return self.encode_images(values)

    def logits(self, images: Items, texts: Items) -> Tensor:
        return images.vector @ texts.vector.T


def _without_values(batch: Batch) -> Batch:
    """Return a batch on the meta device; what is known on the CPU stays there."""
    return replace(
        batch,
        owner=None if batch.owner is None else batch.owner.to("meta"),
        first=None if batch.first is None else batch.first.to("meta"),
        pairs=batch.pairs.to("meta"),
        groups=batch.groups.to("meta"),
        images=batch.images.to("meta"),
        texts=batch.texts.to("meta"),
    )


def _rows(batch: Batch, rows: Tensor) -> Batch:
    """Return a batch with its pairs in another order."""

    def pick(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[rows]

    by_pair = batch.owner is None  # else the images stay where they are
    return replace(
        batch,
        pairs=batch.pairs[rows],
        groups=batch.groups[rows],
        images=batch.images[rows] if by_pair else batch.images,
        image_mask=pick(batch.image_mask) if by_pair else batch.image_mask,
        owner=pick(batch.owner),
        first=None if batch.first is None else torch.argsort(rows)[batch.first],
        texts=batch.texts[rows],
        text_mask=pick(batch.text_mask),
        columns={name: values[rows] for name, values in batch.columns.items()},
    )


def _assert_equal(
    one: list[dict[str, Tensor]], other: list[dict[str, Tensor]], when: str, close: float = CLOSE
) -> None:
    assert len(one) == len(other), f"{len(one)} and {len(other)} steps {when}"
    for losses, again in zip(one, other, strict=True):
        for name, loss in losses.items():
            apart = float((loss - again[name]).abs())
            assert apart <= close * (1 + float(loss.abs())), f"loss {name} changes by {apart:.2g} {when}"


def _assert_valid(division: Division, sets: int) -> None:
    assert division.sets.dtype == torch.int8, f"`sets` is {division.sets.dtype}, expected int8"
    low, high = int(division.sets.min()), int(division.sets.max())
    assert -1 <= low <= high < sets, f"`sets` has values {low} to {high}; the method has {sets} sets"
