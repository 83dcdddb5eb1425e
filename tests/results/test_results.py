"""Results of a tiny run: equal to the plain computation, refused where they would mislead."""

import csv
import errno
import json
import logging
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import in2r
from in2r.errors import InputError
from in2r.metrics import auroc, recall_at_k
from in2r.results import evaluate, evaluate_run, export_model, score_run, scores
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.tensors import load_tensors, save_tensors
from in2r.training.setup import Setup
from in2r.training.train import reopen
from tiny_run import IMAGES, make_data, make_noise, train

OWN = np.repeat(np.arange(IMAGES["test"]), 5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("results") / "data")


@pytest.fixture(scope="module")
def noise(data: Path) -> Path:
    return make_noise(data.parent / "noise_0.4.npy")


@pytest.fixture(scope="module")
def triplet_run(data: Path, noise: Path) -> Path:
    """A run on caption vectors, with noise."""
    return train(data.parent / "triplet", data, "triplet", f"noise.index={noise}").path


@pytest.fixture(scope="module")
def in2r_run(data: Path) -> Path:
    """A run on words, without noise."""
    return train(data.parent / "in2r", data, "in2r", words=True).path


@pytest.fixture
def run(triplet_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(triplet_run, tmp_path / "run"))


def similarity(run: Path, data: Path, network: str) -> np.ndarray:
    export_model(RunFolder(run), reopen(RunFolder(run)))
    model = in2r.load(run, device="cpu", network=network)
    words = model.info["inputs"]["text"] == "words"
    captions = (data / "test_caps.txt").read_text().splitlines() if words else np.load(data / "test_vecs.npy")
    return model.encode_images(np.load(data / "test_ims.npy")) @ model.encode_captions(captions).T


@pytest.mark.parametrize("which", ["triplet_run", "in2r_run"])
def test_recalls_equal_those_of_the_whole_matrix(which: str, data: Path, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(which)
    rows = evaluate_run(run)["rows"]
    sims = {network: similarity(run, data, network) for network in ("A", "B", "ensemble")}
    assert list(rows) == list(sims)
    for network, matrix in sims.items():
        assert rows[network] == pytest.approx(recall_at_k(matrix, OWN, tolerance=1e-6))
    np.testing.assert_allclose(sims["ensemble"], (sims["A"] + sims["B"]) / 2, atol=1e-6)


def test_folds_are_the_mean_over_parts(triplet_run: Path, data: Path) -> None:
    matrix = similarity(triplet_run, data, "ensemble")
    parts = [
        recall_at_k(matrix[2 * fold : 2 * fold + 2, 10 * fold : 10 * fold + 10], OWN[:10], tolerance=1e-6)
        for fold in range(5)
    ]
    row = evaluate_run(triplet_run, folds=5)["rows"]["ensemble"]
    assert row == pytest.approx({name: np.mean([part[name] for part in parts]) for name in row})
    assert (triplet_run / "result_test_5fold.json").is_file()
    with pytest.raises(InputError, match="test: folds=6 of 10 images; a fold needs two images or more"):
        evaluate_run(triplet_run, folds=6)


def test_result_file_says_what_its_figures_mean(triplet_run: Path, noise: Path) -> None:
    result = evaluate_run(triplet_run)
    assert json.loads((triplet_run / "result_test.json").read_text()) == result
    protocol = result["protocol"]
    assert protocol["noise"]["sha256"] == json.loads(Path(f"{noise}.json").read_text())["sha256"]
    assert (protocol["noise"]["level"], protocol["noise"]["nominal"]) == ("caption", 0.4)
    assert 0.2 < protocol["noise"]["realised"] <= 0.4
    assert protocol["oracle"] is False
    assert (protocol["method"], protocol["seed"], protocol["epochs"], protocol["finished"]) == (
        "triplet",
        0,
        2,
        True,
    )
    assert protocol["steps_per_network"] == {"A": 10, "B": 10}  # 2 epochs × 60 pairs / 12
    assert (protocol["evaluated"]["images"], protocol["evaluated"]["captions"]) == (10, 50)
    assert protocol["data"]["caption_vectors"] == "vecs"
    assert protocol["data"]["same_as_in_training"] is True
    records = RunFolder(triplet_run).records()
    sums = [record["dev"]["ensemble"]["rsum"] for record in records]
    assert protocol["selection"]["dev_rsum"] == max(sums)
    assert protocol["selection"]["epoch"] == 1 + int(np.argmax(sums))


def test_dev_result_equals_the_record(triplet_run: Path) -> None:
    result = evaluate_run(triplet_run, split="dev")
    record = RunFolder(triplet_run).records()[result["protocol"]["selection"]["epoch"] - 1]
    assert result["rows"]["ensemble"] == pytest.approx(record["dev"]["ensemble"])


def test_other_features_are_refused_unless_forced(data: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(data, tmp_path / "mine"))
    run = train(tmp_path / "run", mine, "sce").path
    first = evaluate_run(run)
    np.save(mine / "test_ims.npy", np.load(mine / "test_ims.npy")[::-1])
    for call in (evaluate_run, score_run):
        with pytest.raises(InputError, match="changed since the run began"):
            call(run)
    forced = evaluate_run(run, force=True)
    assert forced["protocol"]["data"]["same_as_in_training"] is False
    assert forced["protocol"]["data"]["fingerprint_in_training"] == first["protocol"]["data"]["fingerprint"]
    assert forced["rows"] != first["rows"]
    assert first["protocol"]["forced"] == {"training": [], "now": []}
    assert forced["protocol"]["forced"] == {"training": [], "now": [f"the features or captions of test in {mine}"]}


def test_an_unfinished_run_is_refused_unless_asked_for(run: Path) -> None:
    log = run / "log.jsonl"
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    checkpoints(run / "checkpoints")[-1].unlink()
    for call in (evaluate_run, score_run):
        with pytest.raises(InputError, match=r"run: unfinished \(1 of 2 epochs\); `in2r resume .*run` goes on"):
            call(run)
    protocol = evaluate_run(run, unfinished=True)["protocol"]
    assert (protocol["finished"], protocol["epochs_done"]) == (False, 1)
    (run / "best.safetensors").unlink()
    with pytest.raises(InputError, match=r"best\.safetensors: no such file, but 1 epochs have ended"):
        evaluate_run(run, unfinished=True)
    log.unlink()
    with pytest.raises(InputError, match="run: no epoch has ended yet"):
        evaluate_run(run, unfinished=True)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        evaluate_run(tmp_path)


def test_collapsed_embeddings_are_flagged(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = run / "best.safetensors"
    tensors, meta = load_tensors(file)
    for name in tensors:
        if name.startswith("B.text.") and name.endswith("layers.1.weight"):
            tensors[name] = torch.zeros_like(tensors[name])
        if name.startswith("B.text.") and name.endswith("layers.1.bias"):
            tensors[name] = torch.ones_like(tensors[name])
    save_tensors(file, tensors, meta)
    with caplog.at_level(logging.WARNING):
        result = evaluate_run(run)
    assert result["health"]["collapsed_B"] is True
    assert "network B is collapsed" in caplog.text
    assert result["rows"]["B"]["t2i_r1"] == 10  # all captions alike: one image of ten is always first
    assert result["rows"]["B"]["i2t_r1"] == 0  # every caption ties, and a tie counts against us


def test_weights_of_another_size_are_refused(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("dim: 8", "dim: 4", 1))
    with pytest.raises(InputError, match=r"began: setting model\.dim \(8, now 4\)"):
        evaluate_run(run)
    with pytest.raises(InputError, match=r"best\.safetensors: weights of network A do not fit"):
        evaluate_run(run, force=True)


def test_a_result_says_which_settings_were_changed(run: Path) -> None:
    assert evaluate_run(run)["protocol"]["changed_settings"] == []
    file = run / "config.yaml"
    file.write_text(file.read_text().replace("threshold: 0.5", "threshold: 0.9", 1))
    with pytest.raises(InputError, match=r"setting partition\.threshold \(0\.5, now 0\.9\)"):
        score_run(run)
    changed = evaluate_run(run, force=True)["protocol"]["changed_settings"]
    assert changed == ["partition.threshold (0.5, now 0.9)"]


def read_scores(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


def test_scores_list_every_pair_worst_first(triplet_run: Path, data: Path, noise: Path) -> None:
    rows = read_scores(score_run(triplet_run))
    captions = (data / "train_caps.txt").read_text().splitlines()
    given = np.load(noise)
    assert sorted(int(row["pair"]) for row in rows) == list(range(60))
    for row in rows:
        pair = int(row["pair"])
        assert row["caption"] == captions[pair]
        assert row["place"] == f"train_caps.txt line {pair + 1}"
        assert row["image_id"] == f"train:{given[pair]}"  # the image it was trained with, right or wrong
        mean = (float(row["clean_prob_A"]) + float(row["clean_prob_B"])) / 2
        assert float(row["clean_prob"]) == pytest.approx(mean, rel=1e-4, abs=1e-6)
    keys = [(float(row["clean_prob"]), -float(row["loss_sce_A"]) - float(row["loss_sce_B"])) for row in rows]
    assert all(a[0] <= b[0] for a, b in pairwise(keys))
    assert all(a[1] <= b[1] + 1e-3 for a, b in pairwise(keys) if a[0] == b[0])


def test_truth_is_measured_beside_the_scores(triplet_run: Path, noise: Path) -> None:
    rows = read_scores(score_run(triplet_run))
    summary = json.loads((triplet_run / "scores.json").read_text())
    pairs = np.array([int(row["pair"]) for row in rows])
    clean = np.load(noise)[pairs] == pairs // 5
    for network in ("A", "B"):
        losses = np.array([float(row[f"loss_sce_{network}"]) for row in rows])
        assert summary["measurement_only"][network]["auroc_sce"] == pytest.approx(auroc(-losses, clean), abs=5e-3)
    truth = {"clean", "moved", "true", "original", "label"}
    assert not truth & set(rows[0])
    rate = summary["estimated_noise_rate"]
    assert rate["mean"] == pytest.approx((rate["A"] + rate["B"]) / 2)


def test_scores_do_not_depend_on_what_the_captions_were(
    run: Path, noise: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = score_run(run).read_bytes()

    def reopen_with_another_truth(*args: Any, **more: Any) -> Setup:
        setup = reopen(*args, **more)
        monkeypatch.setattr("in2r.data.noise.NoiseIndex.clean", property(lambda self: np.zeros(60, bool)))
        return setup

    monkeypatch.setattr(scores, "reopen", reopen_with_another_truth)
    assert score_run(run).read_bytes() == before


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_computed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for module, name in ((evaluate, "evaluate_split"), (scores, "observe_pairs")):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} for nothing"))
    monkeypatch.setattr("in2r.files.tempfile.TemporaryFile", read_only)  # root may write everywhere
    for call in (evaluate_run, score_run):
        with pytest.raises(InputError, match=r"run: nothing can be written here \(Read-only file system\)"):
            call(run)


def test_weights_that_are_not_a_runs_best_are_refused(run: Path) -> None:
    folder = RunFolder(run)
    shutil.copy(export_model(folder, reopen(folder)) / "weights.safetensors", folder.best_file)
    with pytest.raises(InputError, match=r"best\.safetensors: of another run \(mark None"):
        evaluate_run(run)


def test_without_injected_noise_nothing_is_measured(in2r_run: Path) -> None:
    assert len(read_scores(score_run(in2r_run))) == 60
    summary = json.loads((in2r_run / "scores.json").read_text())
    assert summary["measurement_only"] is None
    assert summary["protocol"]["noise"] is None


def test_captions_with_separators_survive(data: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(data, tmp_path / "mine"))
    odd = ['say "cheese", please', "tab\there", "", "[bold]x[/bold]", "日本語"]
    rest = (mine / "train_caps.txt").read_text().splitlines()[5:]
    (mine / "train_caps.txt").write_text("\n".join(odd + rest) + "\n", encoding="utf-8")
    run = train(tmp_path / "run", mine, "sce").path
    rows = {int(row["pair"]): row["caption"] for row in read_scores(score_run(run))}
    assert [rows[pair] for pair in range(5)] == odd


def test_an_oracle_run_is_marked_and_scores_all_pairs(data: Path, noise: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", data, "sce", f"noise.index={noise}", "noise.oracle=true").path
    assert evaluate_run(run)["protocol"]["oracle"] is True
    assert len(read_scores(score_run(run))) == 60
    card = export_model(RunFolder(run), reopen(RunFolder(run))) / "README.md"
    assert "ORACLE: trained on the truly matching pairs only" in card.read_text()


def test_ragged_captions(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "images.npy", rng.standard_normal((15, 8)).astype(np.float32))
    split_of = ["train"] * 6 + ["dev"] * 4 + ["test"] * 5
    counts = [1, 2, 7, 3, 1, 4, 1, 2, 3, 1, 2, 1, 7, 1, 3]
    images = np.repeat(np.arange(15), counts)
    lines = [
        "image\tcaption\tsplit",
        *(f"{image}\tdog {k}\t{split_of[image]}" for k, image in enumerate(images)),
    ]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    vectors = rng.standard_normal((len(images), 6)).astype(np.float32)
    np.save(folder / "captions.npy", vectors)
    run = train(tmp_path / "run", folder, "triplet", "data.caption_vectors=captions", "model.image=linear").path
    result = evaluate_run(run)
    export_model(RunFolder(run), reopen(RunFolder(run)))
    model = in2r.load(run, device="cpu")
    test = images >= 10
    matrix = model.encode_images(np.load(folder / "images.npy")[10:]) @ model.encode_captions(vectors[test]).T
    expected = recall_at_k(matrix, images[test] - 10, tolerance=1e-6)
    assert result["rows"]["ensemble"] == pytest.approx(expected)
    assert result["protocol"]["evaluated"]["captions"] == 14


def test_model_card_names_data_noise_method_results_and_limits(run: Path) -> None:
    folder = RunFolder(run)
    model = export_model(folder, reopen(folder))
    assert model == run / "model"
    card = (model / "README.md").read_text()
    fingerprint = folder.info()["data"]["fingerprint"]["hash"][:12]
    best = max(record["dev"]["ensemble"]["rsum"] for record in folder.records())
    for text in (
        fingerprint,
        "caption-level noise 0.4",
        "Method triplet, 2 of 2 epochs",
        f"| {best:.1f} |",
        "limits",
    ):
        assert text in card
    assert in2r.load(model, device="cpu").info["protocol"]["noise"]["level"] == "caption"


def test_export_holds_the_run(run: Path) -> None:
    folder = RunFolder(run)
    setup = reopen(folder)
    with folder.locked(), pytest.raises(InputError, match=r"run: process \d+ is working in this run folder"):
        export_model(folder, setup)
    assert export_model(folder, setup) == folder.model


def test_an_export_that_is_killed_leaves_no_half_model(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(run / "model", ignore_errors=True)
    killed = RunFolder(tmp_path / "killed")
    with monkeypatch.context() as patch:  # the last file is about to be written: what a kill would leave
        patch.setattr("in2r.models.folder.write_json", lambda *_: shutil.copytree(run, killed.path))
        export_model(RunFolder(run), reopen(RunFolder(run)))
    assert not killed.model.exists()
    export_model(killed, reopen(killed))
    assert in2r.load(killed.path, device="cpu").dim == 16
    assert not [path.name for path in killed.path.iterdir() if path.name.startswith(".")]


def test_a_large_evaluation_says_what_it_needs(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate_run(run)
    assert "blocks" not in caplog.text
    monkeypatch.setattr(evaluate, "LARGE", 0)
    with caplog.at_level(logging.INFO):
        evaluate_run(run)
    assert "test: 0.0 GiB of embeddings; ranks are counted in blocks of 8 MiB" in caplog.text
