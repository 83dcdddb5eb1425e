"""A method of one's own in a file trains, is recorded, resumes and is evaluated like those of the package."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from in2r.errors import InputError
from in2r.results import evaluate_run, export_model, score_run
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig
from in2r.tensors import load_tensors
from in2r.training.loop import Trainer
from in2r.training.setup import open_setup
from in2r.training.train import Silent, reopen, resume_run, start_run
from tiny_engine import assert_same, settings

FILE = Path(__file__).with_name("own_method.py")


def configured(data: Path, *overrides: str, file: Path = FILE) -> RunConfig:
    return settings(data, f"{file}:Head", "checkpoint.every_steps=1", "checkpoint.keep=9", *overrides)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return start_run(tmp_path_factory.mktemp("own") / "run", configured(data))


def test_its_epochs_are_recorded(run: RunFolder) -> None:
    """30 even pairs in whole batches of 12: two iterations of two steps; the odd ones are there in both."""
    for number, record in enumerate(run.records(), start=1):
        assert record["phase"] == "main"
        assert list(record["dev"]) == ["A", "ensemble"]
        assert record["dev"]["A"] == record["dev"]["ensemble"]
        assert (record["steps"], record["left_out"]) == ({"A": 2}, {"A": 6})
        assert record["made_A"] == 2 * number
        assert record["odd_A"] == 1
        assert {"loss_head_A", "loss_inter_A", "loss_total_A", "mean_far_A", "gradient_norm_A"} <= record.keys()
        assert record["loss_total_A"] == record["loss_inter_A"]  # not the total of the head's own optimiser
        cost = record["cost"]["A"]
        # two passes of 12 pairs in each of two iterations; all 12 images and 60 captions once, in two batches of 30
        assert (cost["steps"], cost["passes"], cost["encoded"]) == (4, 1, 2 * 2 * 24)
        assert (cost["encoded_without_gradient"], cost["scored"]) == (12 + 60, 2 * 144)
        assert "mixture" not in record


def test_its_head_has_the_learning_rate_that_it_asks_for(data: Path, tmp_path: Path) -> None:
    trainer = Trainer(RunFolder(tmp_path), open_setup(configured(data), torch.device("cpu")), Silent())
    optimizers = trainer.state.optimizers["A"]
    assert list(optimizers) == ["net", "head"]
    trainer.state.epoch = 1
    trainer._set_learning_rate("A", 0, 2)
    rate = trainer._rate(0, 2)
    assert rate == pytest.approx(0.01 * 0.5 * (1 + math.cos(math.pi / 3)))
    assert [optimizer.param_groups[0]["lr"] for optimizer in optimizers.values()] == [rate, 3 * rate]
    own = {id(weight) for weight in trainer.state.nets["A"].own.head.parameters()}
    assert {id(weight) for weight in optimizers["head"].param_groups[0]["params"]} == own
    assert not own & {id(weight) for weight in optimizers["net"].param_groups[0]["params"]}


@pytest.mark.parametrize("left", [1, 2, 3])
def test_it_resumes_bit_identically(run: RunFolder, tmp_path: Path, left: int) -> None:
    """From within the first epoch, from its end, and from within the second."""
    folder = Path(shutil.copytree(run.path, tmp_path / "copy"))
    for path in checkpoints(folder / "checkpoints")[left:]:
        path.unlink()
    meta = load_tensors(checkpoints(folder / "checkpoints")[-1])[1]
    assert (meta["epoch"], meta["position"]) == ((0, 1), (1, 0), (1, 1))[left - 1]
    resume_run(folder)
    assert_same(folder, run.path)


def test_it_is_evaluated_scored_and_exported(run: RunFolder) -> None:
    assert list(evaluate_run(run.path)["rows"]) == ["A", "ensemble"]
    scores = score_run(run.path)
    assert len(scores.read_text(encoding="utf-8").splitlines()) == 61
    assert json.loads(scores.with_suffix(".json").read_text(encoding="utf-8"))["pairs"] == 60
    export_model(run, reopen(run))
    names = load_tensors(run.best_file)[0].keys()
    assert {name.split(".")[0] for name in names} == {"A"}
    assert not any("head" in name for name in names)


def test_a_run_resumes_from_any_folder_though_its_file_was_named_relatively(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(FILE, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    folder = start_run("run", configured(data, "train.epochs=1", file=Path("mine.py"))).path.absolute()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resume_run(folder)


def test_a_file_that_has_changed_is_refused_unless_forced(data: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(FILE, tmp_path / "mine.py"))
    folder = start_run(tmp_path / "run", configured(data, "train.epochs=1", file=file)).path
    checkpoints(folder / "checkpoints")[-1].unlink()
    file.write_text(file.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"changed since the start of the run: the method's file {file}"):
        resume_run(folder)
    resume_run(folder, force=True)
    assert RunFolder(folder).info()["forced"] == [f"the method's file {file}"]
