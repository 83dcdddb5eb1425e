"""Rounds: what is kept, what starts anew, and that a run resumes bit-identically in any of them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_engine import assert_same, settings
from torch import Tensor

from in2r.errors import InputError
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig
from in2r.testing.case import KillAt, KilledError
from in2r.training.loop import Trainer
from in2r.training.setup import open_setup
from in2r.training.train import Silent, resume_run, start_run

SCHEDULE = (
    "method.warmup_epochs=1", "method.rounds=2", "method.round_epochs=2", "train.epochs=5", "train.ramp_steps=2",
    "checkpoint.every_steps=3", "train.batch_size=4",
)  # fmt: skip
"""epoch 0 is the warm-up, 1 and 2 are the first round, 3 and 4 the second"""
CPU = torch.device("cpu")
BELIEVING = ("partition.maximum_divergence=1e9", "partition.minimum_separation=0")
"""tiny data are judged as if a mixture told right from wrong"""


def configured(data: Path, noise: Path, *more: str, words: bool = False) -> RunConfig:
    return settings(data, "corroborate", f"noise.index={noise}", *SCHEDULE, *BELIEVING, *more, words=words)


class Watching(Trainer):
    """Looks at the networks before the first step of each epoch, and after its last one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun: list[dict[str, Any]] = []
        self.ended: list[dict[str, Tensor]] = []

    def _begin(self) -> None:
        super()._begin()
        net = self.state.nets["A"]
        self.begun.append(
            {
                "weights": copied(net.backbone),
                "before": None if net.before is None else copied(net.before),
                "steps": len(self.state.optimizers["A"]["net"].state),
                "divided_at": self.state.divided_at,
            }
        )

    def _finish_epoch(self, *args: Any) -> None:
        super()._finish_epoch(*args)
        self.ended.append(copied(self.state.nets["A"].backbone))


def copied(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.fixture(scope="module")
def watched(data: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory) -> Watching:
    from in2r.training import train

    keep = train.Trainer
    made: list[Watching] = []

    def trainer(*args: Any) -> Watching:
        made.append(Watching(*args))
        return made[0]

    train.Trainer = trainer  # type: ignore[assignment, misc]
    try:
        start_run(tmp_path_factory.mktemp("rounds") / "run", configured(data, noise))
    finally:
        train.Trainer = keep  # type: ignore[misc]
    return made[0]


def test_a_round_keeps_the_networks_that_it_finds(watched: Watching) -> None:
    begun, ended = watched.begun, watched.ended
    assert begun[0]["before"] is None
    for epoch in (1, 3):
        assert alike(begun[epoch]["before"], ended[epoch - 1])


def test_the_first_round_starts_from_fresh_weights_and_the_second_goes_on(watched: Watching) -> None:
    begun, ended = watched.begun, watched.ended
    assert not alike(begun[1]["weights"], ended[0])
    name = next(name for name in ended[0] if name.endswith("fc.weight"))
    assert float(begun[1]["weights"][name].sum()) != float(begun[0]["weights"][name].sum())
    assert begun[1]["steps"] == 0
    assert alike(begun[3]["weights"], ended[2])
    assert begun[3]["steps"] > 0


def test_without_fresh_weights_the_first_round_goes_on_too(data: Path, noise: Path, tmp_path: Path) -> None:
    def begun(name: str, *more: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        trainer = Trainer(RunFolder(tmp_path / name), open_setup(configured(data, noise, *more), CPU), Silent())
        trainer.state.epoch = 1
        warmed = copied(trainer.state.nets["A"].backbone)
        trainer._begin()
        return warmed, copied(trainer.state.nets["A"].backbone)

    assert alike(*begun("kept", "method.fresh_weights=false"))
    assert not alike(*begun("fresh"))


def test_within_a_round_weights_optimiser_and_division_go_on(watched: Watching) -> None:
    begun, ended = watched.begun, watched.ended
    for epoch in (2, 4):
        assert alike(begun[epoch]["weights"], ended[epoch - 1])
        assert begun[epoch]["steps"] > 0
        assert begun[epoch]["divided_at"] == begun[epoch - 1]["divided_at"]
    assert begun[3]["divided_at"] > begun[2]["divided_at"]


def test_each_epoch_of_a_round_has_the_figures_of_its_division(watched: Watching) -> None:
    records = watched.folder.records()
    assert [record.get("round") for record in records] == [None, 1, 1, 2, 2]
    assert "clean_fraction_A" not in records[0]
    for one, other in ((1, 2), (3, 4)):
        assert records[one]["clean_fraction_A"] == records[other]["clean_fraction_A"]
        assert records[one]["auroc_evidence_B"] == records[other]["auroc_evidence_B"]
    assert [record["cost"]["A"]["passes"] for record in records] == [0, 1, 0, 1, 0]


def test_fresh_weights_follow_from_the_seed(data: Path, noise: Path, tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> dict[str, Tensor]:
        config = configured(data, noise, f"train.seed={seed}")
        trainer = Trainer(RunFolder(tmp_path / name), open_setup(config, CPU), Silent())
        trainer.state.epoch = 1
        trainer._begin()
        return copied(trainer.state.nets["B"].backbone)

    assert alike(weights("one", 0), weights("again", 0))
    assert not alike(weights("one", 0), weights("other", 1))


@pytest.mark.parametrize("share", [0.1, 0.37, 0.57, 0.83, 1.0])
def test_a_run_resumes_bit_identically_in_any_phase(
    share: float, watched: Watching, data: Path, noise: Path, tmp_path: Path
) -> None:
    iterations = int(share * sum(sum(record["steps"].values()) for record in watched.folder.records()))
    with pytest.raises(KilledError):
        start_run(tmp_path / "killed", configured(data, noise), KillAt(iterations))
    resume_run(tmp_path / "killed")
    assert_same(tmp_path / "killed", watched.folder.path)


def test_it_resumes_with_captions_as_words(data: Path, noise: Path, tmp_path: Path) -> None:
    config = configured(data, noise, words=True)
    start_run(tmp_path / "straight", config)
    steps = sum(sum(record["steps"].values()) for record in RunFolder(tmp_path / "straight").records())
    with pytest.raises(KilledError):
        start_run(tmp_path / "killed", config, KillAt(steps - 2))
    resume_run(tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_an_oracle_run_has_rounds_and_teachers_too(data: Path, noise: Path, tmp_path: Path) -> None:
    folder = start_run(tmp_path / "run", configured(data, noise, "noise.oracle=true"))
    records = folder.records()
    assert [record["partition_precision_A"] for record in records[1:]] == [1.0] * 4
    assert all(record["loss_contrast_A"] > 0 for record in records[1:])


@pytest.mark.parametrize("count", [8, 11])
def test_within_a_round_another_number_of_pairs_is_refused(data: Path, tmp_path: Path, count: int) -> None:
    own = Path(shutil.copytree(data, tmp_path / "data"))
    config = settings(own, "corroborate", *SCHEDULE, *BELIEVING, "checkpoint.every_steps=1000")
    with pytest.raises(KilledError):  # in the second epoch of the first round
        start_run(tmp_path / "run", config, KillAt(13))
    assert len(RunFolder(tmp_path / "run").records()) == 2
    for name, per_image in (("ims", 1), ("vecs", 5)):
        file = own / f"train_{name}.npy"
        np.save(file, np.load(file)[: per_image * count])
    captions = (own / "train_caps.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (own / "train_caps.txt").write_text("".join(captions[: 5 * count]), encoding="utf-8")
    with pytest.raises(InputError, match=rf"60 training pairs, now there are {5 * count}"):
        resume_run(tmp_path / "run", force=True)
