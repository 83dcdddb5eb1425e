"""Every switch of the paper: it runs, it changes what it should and nothing else, and it resumes."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from in2r.data.noise import describe_noise
from in2r.errors import InputError
from in2r.results import evaluate_run
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.tensors import load_tensors
from in2r.training.train import resume_run, start_run
from tiny_engine import assert_same, outcome, settings

OF_THE_MAIN_PHASE = (
    "method.lambda_intra=0",
    "method.gamma=3",
    "method.num_neighbors=2",
    "method.rectifier=none",
    "method.rectifier=top1",
    "method.rectifier=mean",
    "method.refiner=gcn",
    "method.refiner=gat",
    "method.refiner_sharing=per-direction",
    "method.memory_source=self",
    "method.memory_elite=false",
    "method.memory_size=6",
    "method.memory_unique=true",
    "method.memory_prefill=false",
    "method.memory_exclude_self=true",
    "noise.hide_original=true",
    "method.rectification=prototype-contrast",
    "method.rectification_temperature=0.5",
    "method.candidates=both",
    "train.order=alternating",
    "train.schedule_from=main",
)
"""switches that the warm-up, and the first division that follows from it, know nothing of"""
OF_THE_DIVISION = ("method.partition_loss=triplet-mean", "partition.threshold=0.9")
OF_THE_WARMUP = ("method.warmup_temperature=0.1", "train.initial_weights=independent")
WITH_STATE = (
    "method.refiner=gcn",
    "method.refiner=gat",
    "method.refiner_sharing=per-direction",
    "method.memory_size=6",
    "method.memory_unique=true",
    "train.order=alternating",
)
"""switches by which a checkpoint holds something else, or a position means something else"""
DIVISION = (
    "auroc_",
    "estimated_noise_rate",
    "clean_fraction",
    "mean_clean_prob",
    "tau",
    "separation",
    "mixture",
    "partition_",
)
"""what a record says of the division"""


def run(folder: Path, data: Path, noise: Path, *switches: str) -> RunFolder:
    """One epoch of warm-up, one of the main phase."""
    every = 2 if set(switches) & set(WITH_STATE) else 99
    asked = (f"noise.index={noise}", "train.batch_size=8", "train.epochs=2", f"checkpoint.every_steps={every}")
    return start_run(folder, settings(data, "in2r", *asked, *switches))


@pytest.fixture(scope="module")
def usual(data: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(tmp_path_factory.mktemp("usual") / "run", data, noise)


def told(record: dict[str, Any], *beginnings: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key.startswith(beginnings)}


def without(record: dict[str, Any], *beginnings: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if not key.startswith(beginnings)}


@pytest.mark.parametrize("switch", [*OF_THE_MAIN_PHASE, *OF_THE_DIVISION, *OF_THE_WARMUP])
def test_a_switch_changes_what_it_should(
    switch: str, usual: RunFolder, data: Path, noise: Path, tmp_path: Path
) -> None:
    folder = run(tmp_path / "run", data, noise, switch)
    (warm, first), (warm2, first2) = usual.records(), folder.records()
    if switch not in OF_THE_WARMUP:
        assert without(warm, "seconds") == without(warm2, "seconds")
        same = told(first, *DIVISION) == told(first2, *DIVISION)
        assert same == (switch in OF_THE_MAIN_PHASE)
    assert told(first, "loss_") != told(first2, "loss_") or switch.startswith("train.order")
    ours, theirs = outcome(usual.path)[0], outcome(folder.path)[0]
    weights = [name for name in ours if name.startswith("net.") and ".backbone." in name]
    assert any(not torch.equal(ours[name], theirs[name]) for name in weights)
    if switch in WITH_STATE:
        ends_alike_when_resumed(folder.path, tmp_path / "whole")


def ends_alike_when_resumed(folder: Path, copy: Path) -> None:
    """Go back into the epoch of the main phase, and on from there."""
    whole = Path(shutil.copytree(folder, copy))
    checkpoints(folder / "checkpoints")[-1].unlink()
    [left] = checkpoints(folder / "checkpoints")
    meta = load_tensors(left)[1]
    assert meta["epoch"] == 1
    assert meta["position"] > 0
    resume_run(folder)
    assert_same(folder, whole)


def test_independent_weights_change_the_second_network_alone(
    usual: RunFolder, data: Path, noise: Path, tmp_path: Path
) -> None:
    own = run(tmp_path / "run", data, noise, "train.initial_weights=independent").records()[0]
    both = usual.records()[0]
    assert own["dev"]["A"] == both["dev"]["A"]
    assert own["loss_sce_B"] != both["loss_sce_B"]


def test_hiding_the_original_image_is_marked(data: Path, noise: Path, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", data, noise, "noise.hide_original=true")
    last = folder.records()[-1]
    assert last["neighbors_same_image_i2t_A"] == last["neighbors_same_image_t2i_B"] == 0
    protocol = evaluate_run(folder.path)["protocol"]
    assert protocol["noise"]["hide_original"]
    assert "ANALYSIS WITH THE TRUTH" in describe_noise(protocol["noise"])


@pytest.mark.parametrize("preset", ["in2r", "triplet"])
def test_hiding_needs_a_truth_and_a_memory(data: Path, noise: Path, preset: str) -> None:
    index = "noise.index=null" if preset == "in2r" else f"noise.index={noise}"
    with pytest.raises(
        InputError, match=r"`noise.hide_original` needs a `noise.index` and a method that looks pairs up, such as in2r"
    ):
        settings(data, preset, index, "noise.hide_original=true")


def test_a_mixture_is_recorded_with_its_split(usual: RunFolder, noise: Path) -> None:
    matching = int((np.load(noise) == np.repeat(np.arange(12), 5)).sum())
    warm, *later = usual.records()
    assert "mixture" not in warm
    for record in later:
        for name, fitted in record["mixture"].items():
            assert sum(fitted["counts"]) == 60
            assert sum(fitted["weights"]) == pytest.approx(1)
            assert fitted["means"][0] < fitted["means"][1]
            assert sum(fitted["clean_counts"]) == matching
            assert all(clean <= both for clean, both in zip(fitted["clean_counts"], fitted["counts"], strict=True))
            # the pairs up to the split are the clean set
            below = sum(fitted["counts"][: int(64 * fitted["boundary"]) + 1])
            assert below >= round(60 * record[f"clean_fraction_{name}"])
            assert 0 <= fitted["boundary"] < 1


@pytest.mark.parametrize("method", ["pc2", "pcsr", "gsc", "gscplus", "cream", "decl"])
def test_an_oracle_run_of_a_method_with_state_per_pair_trains_on_the_matching_pairs(
    method: str, data: Path, noise: Path, tmp_path: Path
) -> None:
    """Their numbers go up to that of the last pair as given, though they are fewer."""
    warmup = [] if method.startswith("gsc") else ["method.warmup_epochs=1"]
    config = settings(data, method, f"noise.index={noise}", "noise.oracle=true", "train.epochs=2", *warmup)
    records = start_run(tmp_path / "run", config).records()
    assert [record["epoch"] for record in records] == [1, 2]
    matching = round(60 * (1 - describe(noise)))
    assert records[-1]["cost"]["A"]["steps"] == records[-1]["steps"]["A"] == -(-matching // config.train.batch_size)


def describe(noise: Path) -> float:
    """Return the share of pairs that an index mismatches."""
    return float(np.mean(np.load(noise) != np.repeat(np.arange(12), 5)))


@pytest.mark.parametrize("method", ["pc2", "pcsr"])
def test_regions_and_words_are_not_read_where_the_backbone_has_none(method: str, data: Path) -> None:
    """It is said before a run begins, not in its first step."""
    with pytest.raises(InputError, match=rf"{method} reads regions and words \(method.positions=4\)"):
        settings(data, method, "method.positions=4")
    with pytest.raises(InputError, match=r"gscplus reads regions and words \(method.text_relation=place\)"):
        settings(data, "gscplus", "method.text_relation=place")


@pytest.mark.parametrize("setting", ["ncr: method.margin=0", "pcsr: method.votes=40000"])
def test_a_value_that_a_step_or_a_count_cannot_take_is_refused(setting: str, data: Path) -> None:
    """A margin of 0 predicts nothing; votes are counted in 16 bits."""
    method, override = setting.split(": ")
    with pytest.raises(InputError, match=override.split("=")[0]):
        settings(data, method, override)
