"""Results of a tiny run: equal to the plain computation, refused where they would mislead."""

import csv
import errno
import json
import logging
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import in2r
from in2r.errors import InputError
from in2r.losses import triplet_loss
from in2r.methods import Seen
from in2r.metrics import Copies, auroc, recall_at_k
from in2r.models.encode import evaluating
from in2r.results import evaluate, evaluate_run, export_model, judged, load_best, score_run, scores
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.seeds import torch_generator
from in2r.tensors import load_tensors, save_tensors
from in2r.training.setup import Setup
from in2r.training.train import reopen
from tiny_run import IMAGES, make_data, make_noise, train

COLOURS = ("red", "blue", "green")
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


def test_copies_of_the_right_item_count_as_asked(data: Path, tmp_path: Path) -> None:
    """Every test pair is stored twice: R@1 is that of the pairs once, or 0 where copies are wrong."""
    twice = Path(shutil.copytree(data, tmp_path / "twice"))
    for name in ("ims", "vecs"):
        np.save(twice / f"test_{name}.npy", np.concatenate(2 * [np.load(data / f"test_{name}.npy")]))
    (twice / "test_caps.txt").write_text(2 * (data / "test_caps.txt").read_text())
    run = train(tmp_path / "run", twice, "triplet").path
    once = similarity(run, data, "ensemble")
    expected = recall_at_k(once, OWN, tolerance=1e-6)
    owner, copies = np.repeat(np.arange(20), 5), Copies(np.arange(20) % 10, np.arange(100) % 50)
    right = evaluate_run(run)
    assert right["rows"]["ensemble"] == pytest.approx(
        recall_at_k(np.tile(once, (2, 2)), owner, tolerance=1e-6, copies=copies)
    )
    for name in ("i2t_r1", "t2i_r1"):
        assert right["rows"]["ensemble"][name] == pytest.approx(expected[name])
        assert expected[name] > 0
    assert right["chance"]["t2i_r1"] == pytest.approx(10)
    assert right["protocol"]["evaluated"]["duplicates"] == {"counted_as": "right", "images": 20, "captions": 100}
    wrong = evaluate_run(run, duplicates="wrong")
    assert wrong["rows"]["ensemble"]["i2t_r1"] == wrong["rows"]["ensemble"]["t2i_r1"] == 0
    assert wrong["chance"]["t2i_r1"] == pytest.approx(5)
    assert wrong["protocol"]["evaluated"]["duplicates"] == {"counted_as": "wrong", "images": 20, "captions": 100}
    # each half is a fold of its own: no copy is left within it
    assert evaluate_run(run, folds=2)["rows"] == evaluate_run(run, folds=2, duplicates="wrong")["rows"]
    with pytest.raises(InputError, match="`duplicates` must be one of auto, right, wrong, got 'ignore'"):
        evaluate_run(run, duplicates="ignore")


def test_few_copies_count_as_in_the_literature_unless_asked(triplet_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 50 captions have copies: at most 5 %, and no figure of the field's data sets moves."""
    for copied, share in ((2, "wrong"), (3, "right")):
        same = Copies(np.arange(10), np.where(np.isin(np.arange(50), [0, 5, 10][:copied]), 0, np.arange(50)))
        monkeypatch.setattr(evaluate, "find_copies", lambda images, captions, same=same: same)
        found = {
            asked: evaluate_run(triplet_run, duplicates=asked)["protocol"]["evaluated"]["duplicates"]
            for asked in ("auto", "right", "wrong")
        }
        assert [entry["counted_as"] for entry in found.values()] == [share, "right", "wrong"]
        assert all(entry["captions"] == copied for entry in found.values())


def test_without_copies_both_ways_of_counting_are_the_literature_s(triplet_run: Path) -> None:
    duplicates = {"counted_as": "wrong", "images": 0, "captions": 0}
    assert evaluate_run(triplet_run)["protocol"]["evaluated"]["duplicates"] == duplicates


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
        with pytest.raises(InputError, match="changed since the start of the run"):
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
        with pytest.raises(InputError, match=r"run: unfinished \(1 of 2 epochs\); `in2r resume .*run` resumes it"):
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
    with pytest.raises(InputError, match=r"start of the run: setting model\.dim \(8, now 4\)"):
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
        assert int(row["row"]) == pair
        assert row["image_id"] == f"train:{given[pair]}"  # the image it was trained with, right or wrong
        # sixty pairs teach too little for a probability: none is made up
        assert row["clean_prob"] == row["clean_prob_A"] == row["clean_prob_B"] == ""
    keys = [float(row["loss_triplet-mean_A"]) + float(row["loss_triplet-mean_B"]) for row in rows]
    assert all(a >= b - 1e-5 for a, b in pairwise(keys))


def two_groups(*noisy: int, of: int = 60) -> Seen:
    """Return losses of so many pairs of which the given ones lie where mismatched pairs do."""
    losses = torch.linspace(0, 0.2, of)
    losses[list(noisy)] += 2
    return Seen({"sce": losses, "triplet-mean": losses}, dict.fromkeys(("sce", "triplet-mean"), losses[[*noisy]]))


def test_a_rank_and_a_percentile_say_how_suspicious_a_pair_is(triplet_run: Path) -> None:
    rows = read_scores(score_run(triplet_run))
    assert [int(row["rank"]) for row in rows] == list(range(1, 61))
    assert [float(row["percentile"]) for row in rows] == pytest.approx([100 * rank / 60 for rank in range(1, 61)], 1e-5)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_scores_join_the_users_table(kind: str, tmp_path: Path) -> None:
    """By the row number, and by a column of the user's own; captions hold line ends, quotes and separators."""
    rng = np.random.default_rng(0)
    ends = ("", "\r\n")
    captions = [f'a "{COLOURS[n % 3]}" thing,\nno {n};\tand\r{n % 5}{ends[n % 2]}' for n in range(48)]
    table = {
        "key": [f"k{(7 * number) % 48}, {number}" for number in range(48)],
        "image": [str((5 * number) % 24) for number in range(48)],
        "caption": captions,
        "split": [("train", "train", "dev", "test")[((5 * number) % 24) % 4] for number in range(48)],
    }
    folder = tmp_path / "mine"
    folder.mkdir()
    np.save(folder / "images.npy", rng.standard_normal((24, 2, 6)).astype(np.float32))
    write_pairs(folder / f"pairs.{kind}", table)
    run = train(tmp_path / "run", folder, "sce", words=True).path
    file = score_run(run, keep=["key"], bom=True)
    assert file.read_bytes().startswith(b"\xef\xbb\xbfrank,percentile,pair,row,image_id,")
    with file.open(encoding="utf-8-sig", newline="") as opened:
        rows = list(csv.DictReader(opened))
    trained = [number for number in range(48) if table["split"][number] == "train"]
    assert sorted(int(row["row"]) for row in rows) == trained
    for row in rows:
        number = int(row["row"])
        assert row["key"] == table["key"][number]
        assert row["caption"] == table["caption"][number].strip()
        assert row["image_id"] == table["image"][number]
    with pytest.raises(InputError, match=rf"pairs\.{kind}.*no column 'id'; found 'key', 'image', 'caption', 'split'"):
        score_run(run, keep=["id"])
    assert not read_scores(score_run(run))[0].keys() & {"key"}


def write_pairs(file: Path, table: dict[str, list[str]]) -> None:
    if file.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), file)
    elif file.suffix == ".jsonl":
        rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    else:
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened, delimiter="\t" if file.suffix == ".tsv" else ",", quoting=csv.QUOTE_ALL)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))


def test_columns_that_cannot_be_kept_are_refused_before_anything_is_computed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "observe_pairs", lambda *_: pytest.fail("scored for nothing"))
    with pytest.raises(InputError, match=r"--keep clean_prob: scores\.csv has a column of that name itself; rename it"):
        score_run(run, keep=["url", "clean_prob"])
    with pytest.raises(InputError, match=r"data: a precomp folder has no column 'url'; only a pair table has columns"):
        score_run(run, keep=["url"])


def test_probabilities_are_readable_and_keep_their_order(triplet_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As fitted they go down to 1e-33; written are six decimals, none 0 or 1, and the rank keeps the order."""
    monkeypatch.setattr(judged, "observe_pairs", lambda *_: two_groups(*range(30)))
    rows = read_scores(score_run(triplet_run))
    for name in ("clean_prob", "clean_prob_A", "clean_prob_B"):
        assert all(re.fullmatch(r"0\.\d{6}", row[name]) and 0 < float(row[name]) < 1 for row in rows)
        values = [float(row[name]) for row in rows]
        assert values == sorted(values)
    assert rows[0]["clean_prob"] == "0.000001"
    assert rows[-1]["clean_prob"] == "0.999999"
    assert [int(row["pair"]) for row in rows] == [*range(29, -1, -1), *range(59, 29, -1)]


def test_known_probabilities_order_the_pairs(triplet_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([two_groups(*range(10, 30)), two_groups(*range(20, 40))])
    monkeypatch.setattr(judged, "observe_pairs", lambda *_, **__: next(losses))
    rows = read_scores(score_run(triplet_run))
    for row in rows:
        mean = (float(row["clean_prob_A"]) + float(row["clean_prob_B"])) / 2
        assert float(row["clean_prob"]) == pytest.approx(mean, abs=2e-6)
    assert {int(row["pair"]) for row in rows[:10]} == set(range(20, 30))
    assert {int(row["pair"]) for row in rows[10:30]} == {*range(10, 20), *range(30, 40)}
    rate = json.loads((triplet_run / "scores.json").read_text())["estimated_noise_rate"]
    assert rate == {name: pytest.approx(1 / 3, abs=0.01) for name in ("A", "B", "mean")}


def test_a_network_that_shows_no_group_of_mismatched_pairs_has_no_say(
    triplet_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsure = two_groups(*range(20))
    unsure = replace(unsure, mismatched={name: values + 9 for name, values in unsure.mismatched.items()})
    losses = iter([unsure, two_groups(*range(20, 40))])
    monkeypatch.setattr(judged, "observe_pairs", lambda *_, **__: next(losses))
    rows = read_scores(score_run(triplet_run))
    assert all(row["clean_prob_A"] == "" and row["clean_prob"] == row["clean_prob_B"] != "" for row in rows)
    assert {int(row["pair"]) for row in rows[:20]} == set(range(20, 40))
    summary = json.loads((triplet_run / "scores.json").read_text())
    assert summary["estimated_noise_rate"]["A"] is None
    assert summary["estimated_noise_rate"]["mean"] == summary["estimated_noise_rate"]["B"] > 0.3
    assert [summary["networks"][name]["single_mode"] for name in "AB"] == [1, 0]
    assert summary["networks"]["A"]["mean_clean_prob"] is None


@pytest.mark.parametrize(("known", "share"), [((True, True), 0.4), ((True, False), None), ((False, False), None)])
def test_wrong_pairs_of_the_tested_split_are_counted_where_both_networks_see_them(
    run: Path, monkeypatch: pytest.MonkeyPatch, known: tuple[bool, bool], share: float | None
) -> None:
    before = evaluate_run(run)
    assert before["wrong_pairs"] == {"A": None, "B": None, "mean": None}  # sixty pairs teach too little
    found = two_groups(*range(20), of=len(OWN))
    none = replace(found, mismatched={name: values + 9 for name, values in found.mismatched.items()})
    losses = iter([found if network else none for network in known])
    monkeypatch.setattr(judged, "observe_pairs", lambda *_, **__: next(losses))
    result = evaluate_run(run)
    assert result["rows"] == before["rows"]
    wrong = result["wrong_pairs"]
    assert [wrong["A"] is not None, wrong["B"] is not None] == [*known]
    assert wrong["mean"] == (None if share is None else pytest.approx(share, abs=0.01))
    assert json.loads((run / "result_test.json").read_text())["wrong_pairs"] == wrong


def test_the_pairs_of_a_split_are_judged_by_their_own_losses(triplet_run: Path) -> None:
    """By a plain loop: one batch of 50 test pairs, in the order that scoring draws."""
    setup = reopen(RunFolder(triplet_run))
    best, test = load_best(RunFolder(triplet_run), setup), setup.split("test")
    found = judged.judge_split(setup, best, test, torch.as_tensor(OWN))["A"]
    with evaluating(best.backbones["A"]):
        v = best.backbones["A"].encode_images(torch.as_tensor(test.images.array[OWN]).float(), None).vector
        u = best.backbones["A"].encode_texts(torch.as_tensor(np.array(test.caption_vectors.array)).float(), None).vector  # type: ignore
    size = setup.config.partition.batch_size
    order = torch.randperm(len(OWN), generator=torch_generator(setup.config.train.seed, "scoring order"))
    first = order[:size]
    wanted = triplet_loss(v[first] @ u[first].T, negatives="mean", reduction="none")
    assert torch.allclose(found.losses["triplet-mean"][first], wanted, atol=1e-5)


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
    assert summary["estimated_noise_rate"] == {"A": None, "B": None, "mean": None}
    own = np.array([pair // 5 for pair in range(60)]) == np.load(noise)
    assert summary["measurement_only"]["auroc_order"] == auroc(np.argsort(pairs), own)


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

    for module, name in ((evaluate, "evaluate_split"), (judged, "observe_pairs")):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} for nothing"))
    monkeypatch.setattr("in2r.files.tempfile.TemporaryFile", read_only)  # root may write everywhere
    for call in (evaluate_run, score_run):
        with pytest.raises(InputError, match=r"run: nothing can be written here \(Read-only file system\)"):
            call(run)


def test_weights_that_are_not_a_runs_best_are_refused(run: Path) -> None:
    folder = RunFolder(run)
    shutil.copy(export_model(folder, reopen(folder)) / "model.safetensors", folder.best_file)
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
