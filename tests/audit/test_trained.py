"""The evidence of trained runs: who judges whom, and what it is worth from the command line."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tests.planted_pairs import plain_folder, planted

from in2r.audit.evidence import TRAINED
from in2r.audit.pairs import read_pairs
from in2r.audit.settings import AuditConfig
from in2r.audit.trained import trained_scorer
from in2r.cli.main import main
from in2r.errors import InputError
from in2r.files import read_json
from in2r.models.folder import load
from in2r.runs.folder import RunFolder
from in2r.training.train import reopen

SETTINGS = [
    "sce", "model.dim=16", "model.word_dim=8", "data.min_count=1", "train.epochs=12", "train.batch_size=16",
    "train.learning_rate=0.01", "train.device=cpu", "train.threads=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, np.ndarray]:
    place = tmp_path_factory.mktemp("trained")
    made = planted(images=150, captions=3, moved=0.2)
    data = plain_folder(place / "data", made)
    assert main(["audit", str(data), "--out", str(place / "audit"), "--top", "0", "--train", *SETTINGS]) == 0
    return data, place / "audit", made["right"]


def rows_of(audit: Path) -> list[dict[str, str]]:
    with (audit / "pairs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_two_runs_judge_what_the_other_has_seen(audited):
    data, audit, _ = audited
    runs = [RunFolder(audit / "train" / f"half_{half}") for half in (0, 1)]
    left_out = [set(map(int, run.left_out_file.read_text().split())) for run in runs]
    assert left_out[0] | left_out[1] == set(range(450))
    assert not left_out[0] & left_out[1]
    pairs = read_pairs(data, text_dim=300, for_runs=True)
    scorer = trained_scorer([run.path for run in runs], pairs, AuditConfig(), "cpu")
    judge = scorer.model_of_image[pairs.vectors.image_of_pair].numpy()
    for half, run in enumerate(runs):
        assert set(pairs.judged[judge == half].tolist()) <= left_out[half]
        assert not set(reopen(run).source.caption_rows("train")) & left_out[half]


def test_the_evidence_is_that_of_the_run_that_judges_the_image(audited):
    data, audit, _ = audited
    runs = [audit / "train" / f"half_{half}" for half in (0, 1)]
    pairs = read_pairs(data, text_dim=300, for_runs=True)
    scorer, features = trained_scorer(runs, pairs, AuditConfig(), "cpu"), np.load(data / "images.npy")
    own = pairs.vectors.image_of_pair
    found = scorer(own, torch.arange(len(own)))
    assert not found.isnan().any()
    for half, run in enumerate(runs):
        model = load(run, "cpu")
        for pair in (scorer.model_of_image[own] == half).nonzero().squeeze(1)[:5].tolist():
            row = int(pairs.judged[pair])
            v = model.encode_images(features[int(pairs.images[row])][None])
            u = model.encode_captions([pairs.captions[row]])
            assert float(found[pair, 0]) == pytest.approx(float((v @ u.T)[0, 0]), abs=1e-5)
    first, second = (int((scorer.model_of_image == half).nonzero()[0]) for half in (0, 1))
    caption = int((own == second).nonzero()[0])
    assert scorer(torch.tensor([first]), torch.tensor([caption])).isnan().all()  # no run judges both


def test_it_is_a_component_of_its_own_that_tells_right_from_wrong(audited):
    _, audit, right = audited
    rows = rows_of(audit)
    for name in TRAINED:
        values = np.array([float(row[name.replace(" ", "_")]) for row in rows])
        assert roc_auc_score(right, values) > 0.7
    assert list(read_json(audit / "summary.json")["components"])[-2:] == list(TRAINED)


def test_the_same_command_again_trains_nothing(audited, capsys):
    data, audit, _ = audited
    before = (audit / "pairs.csv").read_bytes()
    weights = (audit / "train" / "half_0" / "best.safetensors").stat().st_mtime_ns
    assert main(["audit", str(data), "--out", str(audit), "--top", "0", "--train", *SETTINGS]) == 0
    assert (audit / "pairs.csv").read_bytes() == before
    assert (audit / "train" / "half_0" / "best.safetensors").stat().st_mtime_ns == weights
    assert main(["audit", str(data), "--out", str(audit), "--train", *SETTINGS, "train.seed=1"]) == 2
    assert "was trained with other settings: train.seed (0, now 1)" in capsys.readouterr().err


def test_runs_that_exist_are_asked(audited, tmp_path):
    data, audit, _ = audited
    runs = [str(audit / "train" / f"half_{half}") for half in (0, 1)]
    assert main(["audit", str(data), "--out", str(tmp_path / "again"), "--top", "0", "--run", *runs]) == 0
    assert (tmp_path / "again" / "pairs.csv").read_bytes() == (audit / "pairs.csv").read_bytes()
    assert read_json(tmp_path / "again" / "summary.json")["runs"] == runs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--run", "{audit}/train/half_0"], "trained on 60 of the 150 images"),
        (["--run", "{data}"], "not a run folder"),
        (["--train", "sce", "in2r"], "one preset and settings"),
        (["--train", "--noise", "x.npy"], "--train or --run, and --noise: give one"),
        (["--run", "{audit}/train/half_0", "--noise", "x.npy"], "--train or --run, and --noise: give one"),
        (["--train", "sce", "data.path=other"], "--train data.path=other: the runs are trained on the audited pairs"),
        (["--train", "sce", "model.backbone=sgr", "train.region_drop=0"], "compares words with regions"),
        (["--train", "sce", "model.backbone=scan"], "model.backbone=scan compares words with regions"),
        (["--train", "--against", "{audit}"], "--train or --run, and --against: give one"),
    ],
)
def test_what_cannot_be_is_refused(audited, tmp_path, capsys, options, said):
    data, audit, _ = audited
    asked = [option.format(audit=audit, data=data) for option in options]
    assert main(["audit", str(data), "--out", str(tmp_path / "out"), *asked]) == 2
    assert said in capsys.readouterr().err


def test_data_that_changed_since_training_are_refused(audited):
    data, audit, _ = audited
    table, pairs = (data / "pairs.csv").read_text(), read_pairs(data, text_dim=300, for_runs=True)
    (data / "pairs.csv").write_text(table.replace("a0", "a1"))
    try:
        with pytest.raises(InputError, match="has changed since it was trained on"):
            trained_scorer([audit / "train" / "half_0"], pairs, AuditConfig(), "cpu")
    finally:
        (data / "pairs.csv").write_text(table)


def test_a_run_on_other_data_has_seen_the_images_that_are_copies(audited, tmp_path):
    """Of the same photographs with another table, as after an audit's cleaning."""
    data, audit, _ = audited
    table, run = (data / "pairs.csv").read_text(), audit / "train" / "half_0"
    other = tmp_path / "other"
    shutil.copytree(data, other)
    (other / "pairs.csv").write_text(table.replace("a0", "a1"))
    pairs = read_pairs(other, text_dim=300, for_runs=True)
    trained_on = np.unique(reopen(RunFolder(run)).source.split("train").image_ids).tolist()
    assert 0 < len(trained_on) < 150
    with pytest.raises(InputError, match=f"trained on {len(trained_on)} of the 150 images"):
        trained_scorer([run], pairs, AuditConfig(), "cpu")
    both = trained_scorer([run, audit / "train" / "half_1"], pairs, AuditConfig(), "cpu")
    seen = np.isin([pairs.images[int(row)] for row in pairs.judged], trained_on)
    assert (both.model_of_image[pairs.vectors.image_of_pair].numpy()[seen] == 1).all()


def test_a_run_on_other_data_may_judge_all_pairs(audited, tmp_path, caplog):
    _, audit, _ = audited
    other = plain_folder(tmp_path / "other", planted(images=60, captions=3, seed=2))
    scorer = trained_scorer(
        [audit / "train" / "half_0"], read_pairs(other, text_dim=300, for_runs=True), AuditConfig(), "cpu"
    )
    assert (scorer.model_of_image == 0).all()
    assert "trained on other data" not in caplog.text
    data = audited[0].rename(tmp_path / "away")
    try:
        trained_scorer(
            [audit / "train" / "half_0"], read_pairs(other, text_dim=300, for_runs=True), AuditConfig(), "cpu"
        )
        assert "trained on other data, which cannot be read" in caplog.text
    finally:
        data.rename(audited[0])
