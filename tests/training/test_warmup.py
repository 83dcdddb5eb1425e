"""Warm-ups that are kept for other runs: taken over bit-identically, and never by a run that begins otherwise."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from in2r import device
from in2r.methods import METHODS
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig
from in2r.tensors import load_tensors
from in2r.testing.tiny import make_noise
from in2r.training import networks
from in2r.training.loop import Trainer
from in2r.training.state import RunState
from in2r.training.train import resume_run, start_run
from in2r.training.warmup import WarmupStore
from tiny_engine import assert_same, outcome, settings

ALIKE = {
    "in2r": (),
    "in2r/discard": ("method.lambda_intra=0",),
    "triplet": ("method.warmup=sce", "method.warmup_epochs=2"),
    "sce": (),
}
"""preset and its own settings: all of them begin with two epochs of the same loss"""


def wish(data: Path, kept: Path | None, preset: str = "in2r", *overrides: str, words: bool = False):
    own = (*ALIKE.get(preset, ()), *(("method.warmup_epochs=2",) if preset != "triplet" else ()))
    where = f"checkpoint.warmups={'null' if kept is None else kept}"
    return settings(data, preset, "train.threads=1", where, *own, *overrides, words=words)


def taken_over(folder: RunFolder) -> int:
    return sum(record.get("taken_over", 0) for record in folder.records())


def forget_that_it_was_taken_over(folder: RunFolder) -> None:
    """Make its record comparable with that of a run that trained all epochs itself."""
    lines = [{key: value for key, value in record.items() if key != "taken_over"} for record in folder.records()]
    folder.log_file.write_text("")
    for line in lines:
        folder.append(line)


@pytest.mark.parametrize("words", [False, True])
def test_a_warm_up_taken_over_is_that_which_was_trained(data: Path, noise: Path, tmp_path: Path, words: bool) -> None:
    index = f"noise.index={noise}"
    first = start_run(tmp_path / "first", wish(data, tmp_path / "kept", "in2r", index, words=words))
    assert taken_over(first) == 0
    for preset in ALIKE:
        short = start_run(
            tmp_path / preset.replace("/", "_"), wish(data, tmp_path / "kept", preset, index, words=words)
        )
        assert taken_over(short) == 2
        forget_that_it_was_taken_over(short)
        whole = start_run(tmp_path / f"{short.path.name}_whole", wish(data, None, preset, index, words=words))
        assert_same(short.path, whole.path)


@pytest.mark.parametrize(
    "other",
    [
        "train.seed=1",
        "train.epochs=4",
        "model.image_dropout=0.1",
        "method.warmup_temperature=0.1",
        "method.mask_same_image=true",
        "noise.index={}",
    ],
)
def test_a_run_that_begins_otherwise_trains_its_own(data: Path, tmp_path: Path, other: str) -> None:
    start_run(tmp_path / "first", wish(data, tmp_path / "kept"))
    noise = make_noise(tmp_path / "noise.npy")
    assert taken_over(start_run(tmp_path / "other", wish(data, tmp_path / "kept", "in2r", other.format(noise)))) == 0
    assert taken_over(start_run(tmp_path / "same", wish(data, tmp_path / "kept"))) == 2


def test_one_network_does_not_take_over_the_warm_up_of_two(data: Path, tmp_path: Path) -> None:
    """L2RM and IN²R begin with the same loss, epochs and settings."""
    start_run(tmp_path / "two", wish(data, tmp_path / "kept"))
    one = [start_run(tmp_path / name, wish(data, tmp_path / "kept", "l2rm")) for name in ("one", "again")]
    assert [taken_over(folder) for folder in one] == [0, 2]


def test_a_warm_up_by_the_methods_own_steps_is_shared_with_all_that_it_changes(data: Path, tmp_path: Path) -> None:
    """DECL's warm-up counts its steps: the count is taken over, and other settings of the method train their own."""
    first = start_run(tmp_path / "first", wish(data, tmp_path / "kept", "decl"))
    again = start_run(tmp_path / "again", wish(data, tmp_path / "kept", "decl"))
    assert taken_over(again) == 2
    forget_that_it_was_taken_over(again)
    assert_same(first.path, again.path)
    other = wish(data, tmp_path / "kept", "decl", "method.hinge_weight=0.1")
    assert taken_over(start_run(tmp_path / "other", other)) == 0


@pytest.mark.parametrize("method", ["pc2", "pcsr"])
def test_a_warm_up_that_fills_more_than_the_backbones_is_taken_over_whole(
    data: Path, tmp_path: Path, method: str
) -> None:
    start_run(tmp_path / "first", wish(data, tmp_path / "kept", method))
    second = start_run(tmp_path / "second", wish(data, tmp_path / "kept", method))
    assert taken_over(second) == 2
    forget_that_it_was_taken_over(second)
    assert_same(second.path, start_run(tmp_path / "whole", wish(data, None, method)).path)


def test_a_shorter_warm_up_is_gone_on_with(data: Path, tmp_path: Path) -> None:
    start_run(tmp_path / "first", wish(data, tmp_path / "kept", "in2r", "method.warmup_epochs=1"))
    longer = start_run(tmp_path / "longer", wish(data, tmp_path / "kept"))
    assert taken_over(longer) == 1
    forget_that_it_was_taken_over(longer)
    assert_same(longer.path, start_run(tmp_path / "whole", wish(data, None)).path)


def killed_in_the_first_epoch(folder: Path, config: RunConfig) -> Path:
    """Begin a run that has a checkpoint after four steps, and no more."""
    start_run(folder, config)
    for path in checkpoints(folder / "checkpoints")[1:]:
        path.unlink()
    (folder / "log.jsonl").write_text("")
    return folder


def test_a_run_that_went_on_otherwise_offers_nothing(data: Path, tmp_path: Path) -> None:
    other = wish(data, tmp_path / "kept", "in2r", "train.learning_rate=0.02")
    begun = wish(data, None, "in2r", "checkpoint.keep=99")
    folder = killed_in_the_first_epoch(tmp_path / "first", begun)
    RunFolder(folder).write_config(other)
    resume_run(folder, force=True)
    assert taken_over(start_run(tmp_path / "second", other)) == 0


def test_a_resumed_run_offers_what_it_began_as(data: Path, tmp_path: Path) -> None:
    words = tmp_path / "glove.txt"
    words.write_text("red 1 0 0 0\ndog 0 1 0 0\n", encoding="utf-8")
    config = wish(data, tmp_path / "kept", "in2r", f"data.word_vectors={words}", "checkpoint.keep=99", words=True)
    folder = killed_in_the_first_epoch(tmp_path / "first", config)
    for file in (tmp_path / "kept").iterdir():
        file.unlink()
    resume_run(folder)
    assert taken_over(start_run(tmp_path / "without", wish(data, tmp_path / "kept", words=True))) == 0
    assert taken_over(start_run(tmp_path / "with", config)) == 2


def test_a_damaged_one_is_said_and_trained_afresh(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = start_run(tmp_path / "first", wish(data, tmp_path / "kept"))
    [file] = (tmp_path / "kept").iterdir()
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    again = start_run(tmp_path / "again", wish(data, tmp_path / "kept"))
    assert taken_over(again) == 0
    assert "the warm-up is trained again" in caplog.text
    assert_same(first.path, again.path)
    assert taken_over(start_run(tmp_path / "third", wish(data, tmp_path / "kept"))) == 2  # it was written anew


def test_a_run_killed_while_taking_over_goes_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_run(tmp_path / "first", wish(data, tmp_path / "kept"))
    whole = start_run(tmp_path / "whole", wish(data, tmp_path / "kept"))

    def killed(trainer: Trainer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            start_run(tmp_path / "run", wish(data, tmp_path / "kept"))
    assert len(RunFolder(tmp_path / "run").records()) == 2  # written, but no checkpoint
    assert_same(resume_run(tmp_path / "run").path, whole.path)
    assert len(outcome(tmp_path / "run")[3]) == 3


def test_a_warm_up_that_cannot_be_kept_costs_the_run_nothing(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").write_text("a file where a folder should be")
    with caplog.at_level(logging.WARNING):
        folder = start_run(tmp_path / "run", wish(data, tmp_path / "kept"))
    assert len(folder.records()) == 3
    assert str(tmp_path / "kept") in caplog.text
    assert_same(folder.path, start_run(tmp_path / "whole", wish(data, None)).path)


def test_what_differs_between_machines_belongs_to_the_identity(data: Path, tmp_path: Path) -> None:
    seen = []

    def look(store: WarmupStore, state: RunState) -> list[dict[str, Any]]:
        seen.append(store.identity(state))
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarmupStore, "adopt", look)
        start_run(tmp_path / "run", wish(data, None))
    assert seen[0]["computed_on"] == {
        "device": "cpu", "device_name": None, "precision": "float32", "threads": torch.get_num_threads(),
        "processes": 1,
    }  # fmt: skip
    assert {"torch", "numpy", "platform", "in2r"} <= seen[0]["versions"].keys()
    settings_of_it = seen[0]["warmup"]["settings"]
    assert {"train.seed", "data.min_count", "model.dim", "noise.oracle"} <= settings_of_it.keys()
    moved = {"data.path", "data.vocabulary", "noise.index", "train.device", "train.threads", "train.precision"}
    assert not moved & settings_of_it.keys()


def test_a_warm_up_of_another_card_or_precision_is_not_taken_over(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(name: str, *overrides: str) -> int:
        short = ("train.epochs=1", "method.warmup_epochs=1")
        return taken_over(start_run(tmp_path / name, wish(data, tmp_path / "kept", "in2r/discard", *short, *overrides)))

    monkeypatch.setattr(device, "device_name", lambda device: "one card")
    assert start("first") == 0
    monkeypatch.setattr(device, "device_name", lambda device: "another card")
    assert start("other card") == 0
    assert start("the same precision by its name", "train.precision=float32") == 1
    monkeypatch.setattr(networks, "resolve_precision", lambda setting, device: torch.bfloat16)  # what auto came to
    assert start("other precision") == 0


def kept_weights(folder: Path, networks: int) -> dict[str, torch.Tensor]:
    """Return network A's backbone in the only warm-up of so many networks that is kept."""
    found = [load_tensors(file)[0] for file in folder.iterdir()]
    [chosen] = [one for one in found if any(name.startswith("net.B.") for name in one) == (networks == 2)]
    return {name: value for name, value in chosen.items() if name.startswith("net.A.backbone.")}


def test_all_methods_can_start_from_one_common_warm_up(data: Path, tmp_path: Path) -> None:
    """Whatever their own warm-ups are: two networks take IN²R's over, one network is the first of them."""
    kept = tmp_path / "kept"
    start_run(tmp_path / "in2r", wish(data, kept))
    first_alone = 0
    for name, method in METHODS.items():
        if name == "corroborate":  # its preset trains with other batches and another schedule
            continue
        folder = start_run(tmp_path / f"{name}_too", common(data, kept, name))
        if method.networks == 2:
            assert (name, taken_over(folder)) == (name, 2)
        else:
            assert (name, taken_over(folder)) == (name, 2 * bool(first_alone))
            first_alone += 1
        assert [record["phase"] for record in folder.records()] == ["warm-up", "warm-up", "main"], name
    assert first_alone > 1
    two, one = kept_weights(kept, 2), kept_weights(kept, 1)
    assert two.keys() == one.keys()
    assert len(one) > 5
    assert all(torch.equal(one[name], two[name]) for name in one)


def common(data: Path, kept: Path | None, preset: str, *overrides: str) -> RunConfig:
    where = f"checkpoint.warmups={'null' if kept is None else kept}"
    return settings(data, preset, "train.threads=1", where, "method.common_warmup=2", *overrides)


@pytest.mark.parametrize("name", ["pc2", "pcsr", "decl"])
def test_a_common_warm_up_leaves_alone_what_a_method_keeps(data: Path, tmp_path: Path, name: str) -> None:
    """Banks, votes and counters begin with the main phase, whether the warm-up was trained or taken over."""
    start_run(tmp_path / "first", common(data, tmp_path / "kept", name))
    second = start_run(tmp_path / "second", common(data, tmp_path / "kept", name))
    assert taken_over(second) == 2
    forget_that_it_was_taken_over(second)
    assert_same(second.path, start_run(tmp_path / "whole", common(data, None, name)).path)


def test_a_run_that_ends_within_the_common_warm_up_is_told_so(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_run(tmp_path / "run", common(data, None, "ncr", "train.epochs=2"))
    assert "train.epochs=2 ends within method.common_warmup=2, so the pairs are never divided" in caplog.text


def test_a_main_epoch_of_one_group_has_the_loss_of_the_methods_own_warm_up(data: Path, tmp_path: Path) -> None:
    """Only the start is common: NCR falls back on its own hinge, not on IN²R's loss."""
    asked = ("partition.single_mode=warmup", "partition.minimum_separation=9")
    records = start_run(tmp_path / "run", common(data, None, "ncr", *asked)).records()
    assert [record["phase"] for record in records] == ["warm-up", "warm-up", "main"]
    assert records[-1]["single_mode_A"] == 1
    assert ["loss_sce_A" in record for record in records] == [True, True, False]
    assert ["loss_inter_A" in record for record in records] == [False, False, True]
