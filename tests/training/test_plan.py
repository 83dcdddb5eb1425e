"""What a run will need: steps, memory and disk by hand; the run is not touched."""

import copy
import shutil
from pathlib import Path

import pytest
import torch

from in2r.errors import InputError
from in2r.runs.folder import RunFolder
from in2r.training.loop import Trainer
from in2r.training.plan import Plan, make_plan
from in2r.training.setup import open_setup
from in2r.training.train import Silent, plan_run, start_run
from tiny_engine import settings


def trainer(folder: Path, data: Path, noise: Path, preset: str = "in2r", *overrides: str) -> Trainer:
    index = (f"noise.index={noise}", "noise.ratio=0.4")
    setup = open_setup(settings(data, preset, *index, *overrides), torch.device("cpu"))
    folder.mkdir()
    return Trainer(RunFolder(folder), setup, Silent())


def test_steps_and_phases_by_hand(data: Path, noise: Path, tmp_path: Path) -> None:
    """60 pairs in batches of 12, or of 13: five steps of each network."""
    for batch, steps in ((12, 10), (13, 10), (15, 8)):
        planned = make_plan(trainer(tmp_path / f"run{batch}", data, noise, "in2r", f"train.batch_size={batch}"))
        assert (planned.method, planned.networks, planned.pairs) == ("in2r", 2, 60)
        assert (planned.epochs, planned.warmup_epochs, planned.steps_per_epoch) == (3, 1, steps)
        assert planned.computes == "cpu, float32"
    longer = make_plan(trainer(tmp_path / "longer", data, noise, "in2r/discard", "method.warmup_epochs=9"))
    assert (longer.method, longer.epochs, longer.warmup_epochs) == ("discard", 3, 3)


def test_batches_of_images_make_as_many_steps_as_there_are_images(data: Path, noise: Path, tmp_path: Path) -> None:
    planned = make_plan(
        trainer(tmp_path / "run", data, noise, "triplet", "train.batch_size=5", "train.batch_of=images")
    )
    assert planned.steps_per_epoch == 2 * 3  # twelve images, two networks


def test_memory_and_disk_by_hand(data: Path, noise: Path, tmp_path: Path) -> None:
    made = trainer(tmp_path / "run", data, noise)
    planned = make_plan(made)
    nets = made.state.nets.values()
    weights = sum(weight.nbytes for net in nets for weight in net.parameters())
    held = sum(tensor.nbytes for net in nets for tensor in net.state_dict().values())
    assert planned.memory_bytes == held + 3 * weights  # gradients, and two moments of Adam
    checkpoint = held + 2 * weights  # without gradients
    assert planned.disk_bytes == 3 * checkpoint + 2 * weights  # two kept and a new one; best weights, and new ones
    larger = make_plan(trainer(tmp_path / "larger", data, noise, "in2r", "method.memory_size=32"))
    entry = 2 * 8 * 4 + 3 * 8  # two embeddings in float32; pair, image and stamp in int64
    assert larger.memory_bytes - planned.memory_bytes == 2 * 16 * entry
    more = make_plan(trainer(tmp_path / "more", data, noise, "in2r", "checkpoint.keep=5"))
    assert more.disk_bytes - planned.disk_bytes == 3 * checkpoint


def test_what_a_process_sends_by_hand(data: Path, noise: Path, tmp_path: Path) -> None:
    """Two passes of a ring over the gradient, and what is encoded of two views and a noisy batch of 12 pairs."""
    config = settings(data, "in2r", f"noise.index={noise}", "train.device=cpu")
    one, three = plan_run(config, tmp_path), plan_run(config, tmp_path, 3)
    assert (one.processes, one.sent_bytes) == (1, 0)
    assert (three.processes, three.batch_rows, three.step_bytes) == (3, 12, one.step_bytes // 3)
    assert three.memory_bytes > one.memory_bytes  # the gradients of both networks once more, as they are sent
    weights = sum(weight.nbytes for weight in trainer(tmp_path / "run", data, noise).state.nets["A"].parameters())
    items = 3 * 12 * 2 * 8 * 4
    assert three.sent_bytes == (2 * weights + items) * 2 // 3
    assert sorted(tmp_path.iterdir()) == [tmp_path / "run"]  # a plan makes no folder


def test_a_backbone_of_regions_and_words_sends_these_and_their_gradients(data: Path, tmp_path: Path) -> None:
    more = ("model.backbone=sgr", "train.region_drop=0", "model.sgr_dim=8")
    config = settings(data, "triplet", *more, words=True)
    made = Trainer(RunFolder(tmp_path), open_setup(config, torch.device("cpu")), Silent())
    weights = sum(weight.nbytes for weight in made.state.nets["A"].parameters())
    words = 5.0  # start, colour, thing, number, end
    items = 3 * 12 * 3 * (1 + 3 + 1 + words) * 8 * 4
    assert plan_run(config, tmp_path, 2).sent_bytes == int(weights + items / 2)


def test_a_plan_that_the_disk_has_no_room_for_is_said(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = settings(data, "sce", "train.epochs=1")
    start_run(tmp_path / "room", made)
    assert "disk is full" not in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
    planned: list[Plan] = []
    with pytest.raises(InputError, match=r"0\.0 MiB free"):  # at the first checkpoint, as said
        start_run(tmp_path / "none", made, on_plan=planned.append)
    assert planned[0].disk_bytes > planned[0].free_disk_bytes == 0
    said = (
        "MiB needed, 0.0 MiB free on this disk for checkpoints and best weights; the run may stop when the disk is full"
    )
    assert caplog.text.count(said) == 1


@pytest.mark.parametrize("preset", ["in2r", "in2r/released", "in2r/discard", "triplet", "sce"])
def test_the_run_is_not_touched(data: Path, noise: Path, tmp_path: Path, preset: str) -> None:
    made = trainer(tmp_path / "run", data, noise, preset)
    before = copy.deepcopy({name: net.state_dict() for name, net in made.state.nets.items()})
    torch.manual_seed(5)
    generator = torch.get_rng_state()
    make_plan(made)
    assert torch.equal(torch.get_rng_state(), generator)
    for name, net in made.state.nets.items():
        assert all(torch.equal(value, net.state_dict()[key]) for key, value in before[name].items())
        assert all(weight.grad is None for weight in net.parameters())
        assert not made.state.optimizers[name]["net"].state
    assert made.state.means.read() == {}
