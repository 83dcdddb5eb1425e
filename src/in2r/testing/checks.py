"""The common tests, one function each: they raise `AssertionError` with what was found."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from in2r.methods import Batch, Division, Seen
from in2r.methods.base import Method
from in2r.methods.division import NOISY
from in2r.runs.folder import RunFolder
from in2r.testing.case import Case, outcome
from in2r.training.health import Truth

CLOSE = 1e-5


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
        trainer._divide()
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
    for index in range(2):
        trainer._iterate("A", index, trainer._order("A"))
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
    """Where all pairs look alike, the method still gives each network something to train on."""
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
        assert int((division.sets == 0).sum()) > 1, "no pair is left to train on"


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
        computes_in_bf16,
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
        on_passed: is told the name of each test that was passed.

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


def _rows(batch: Batch, rows: Tensor) -> Batch:
    """Return a batch with its pairs in another order."""

    def pick(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[rows]

    return replace(
        batch,
        pairs=batch.pairs[rows],
        groups=batch.groups[rows],
        images=batch.images[rows],
        image_mask=pick(batch.image_mask),
        texts=batch.texts[rows],
        text_mask=pick(batch.text_mask),
        columns={name: values[rows] for name, values in batch.columns.items()},
    )


def _assert_equal(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]], when: str) -> None:
    assert len(one) == len(other), f"{len(one)} and {len(other)} steps {when}"
    for losses, again in zip(one, other, strict=True):
        for name, loss in losses.items():
            apart = float((loss - again[name]).detach().abs())
            assert torch.isclose(loss, again[name], rtol=CLOSE, atol=CLOSE), (
                f"loss {name} changes by {apart:.2g} {when}"
            )


def _assert_valid(division: Division, sets: int) -> None:
    assert division.sets.dtype == torch.int8, f"`sets` is {division.sets.dtype}, expected int8"
    low, high = int(division.sets.min()), int(division.sets.max())
    assert -1 <= low <= high < sets, f"`sets` has values {low} to {high}; the method has {sets} sets"
