"""What a run will cost: the reckoning by hand, with a clock that the steps advance; the run is not touched."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from in2r.errors import InputError
from in2r.methods import Peer
from in2r.runs.folder import RunFolder
from in2r.training import plan
from in2r.training.loop import Trainer
from in2r.training.plan import Plan, make_plan
from in2r.training.setup import open_setup
from in2r.training.train import Silent, start_run
from tiny_engine import settings


def trainer(folder: Path, data: Path, noise: Path, preset: str = "in2r", *overrides: str) -> Trainer:
    index = (f"noise.index={noise}", "noise.ratio=0.4")
    setup = open_setup(settings(data, preset, *index, *overrides), torch.device("cpu"))
    folder.mkdir()
    return Trainer(RunFolder(folder), setup, Silent())


class Clock:
    """Time that only the timed calls spend."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, target: Any, name: str, costs: list[float], patch: pytest.MonkeyPatch) -> Iterator[float]:
        """Let the calls of a method cost these seconds, one after the other; return what is left of them."""
        method, left = getattr(target, name), iter(costs)

        def wrapped(*args: Any) -> Any:
            self.now += next(left)
            return method(*args)

        patch.setattr(target, name, wrapped)
        return left


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(plan.time, "perf_counter", made)
    return made


def test_each_kind_of_step_is_timed_warm(
    data: Path, noise: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path / "run", data, noise)
    clock.spend(made.method, "all_pairs_step", [9.0, 0.25, 0.125, 0.25], monkeypatch)
    clock.spend(made.method, "partition_step", [99.0, 0.5, 0.25, 0.5], monkeypatch)
    planned = make_plan(made)
    # 60 pairs in batches of 12, two networks: 10 steps an epoch, of which 60 % are of clean pairs
    assert (planned.warmup_steps, planned.cotraining_steps) == (10, 2 * 6)
    assert planned.seconds == 10 * 0.125 + 12 * 0.25
    assert planned.epoch_seconds == (10 * 0.125, 6 * 0.25, 6 * 0.25)


def test_partition_and_validation_count(
    data: Path, noise: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path / "run", data, noise)
    monkeypatch.setattr(plan._Rehearsal, "all_pairs_step", lambda self: None)
    monkeypatch.setattr(plan._Rehearsal, "partition_step", lambda self: None)
    clock.spend(Peer, "embed", [9.0, 0.5, 0.25, 0.5], monkeypatch)
    # two partitions of 60 pairs, three validations of 20, by two networks, in batches of 12
    planned = make_plan(made)
    assert planned.seconds == pytest.approx(2 * (2 * 60 + 3 * 20) / 12 * 0.25)
    assert planned.epoch_seconds == pytest.approx((0.75, 3.375, 3.375), rel=0.1)  # of the warm-up validation alone


def test_slow_steps_are_timed_once(
    data: Path, noise: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path / "run", data, noise, "sce")
    clock.spend(made.method, "all_pairs_step", [100.0, 50.0], monkeypatch)
    assert make_plan(made).seconds == 30 * 50


def test_a_plan_that_the_disk_has_no_room_for_is_said(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = settings(data, "sce", "train.epochs=1")
    start_run(tmp_path / "room", made)
    assert "want of room" not in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
    planned: list[Plan] = []
    with pytest.raises(InputError, match=r"0\.0 MiB free"):  # at the first checkpoint, as said
        start_run(tmp_path / "none", made, on_plan=planned.append)
    assert planned[0].disk_bytes > planned[0].free_disk_bytes == 0
    said = "MiB needed, 0.0 MiB free on this disk for checkpoints and best weights; the run may stop for want of room"
    assert caplog.text.count(said) == 1


@pytest.mark.parametrize("preset", ["in2r", "in2r/released", "in2r/discard", "triplet", "sce"])
def test_the_run_is_not_touched(data: Path, noise: Path, tmp_path: Path, preset: str) -> None:
    made = trainer(tmp_path / "run", data, noise, preset)
    before = copy.deepcopy({name: net.state_dict() for name, net in made.nets.items()})
    torch.manual_seed(5)
    generator = torch.get_rng_state()
    planned = make_plan(made)
    assert planned.seconds > 0
    assert torch.equal(torch.get_rng_state(), generator)
    for name, net in made.nets.items():
        assert all(torch.equal(value, net.state_dict()[key]) for key, value in before[name].items())
        assert all(weight.grad is None for weight in net.parameters())
        assert not made.optimizers[name].state
    assert made.means.read() == {}
