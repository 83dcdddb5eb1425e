"""The verbs eval, score and encode: what they print, write and refuse."""

import argparse
import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

import in2r
from in2r.cli import encode, evaluate, score
from in2r.cli.main import main
from in2r.errors import InputError
from in2r.results import export_model
from in2r.runs.folder import RunFolder
from in2r.training.train import reopen
from tiny_run import make_data, make_noise, train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("verbs") / "data")


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """An oracle run on words, with its model."""
    noise = make_noise(data.parent / "noise.npy")
    settings = (f"noise.index={noise}", "noise.oracle=true")
    folder = train(data.parent / "run", data, "triplet", *settings, words=True)
    export_model(folder, reopen(folder))
    return folder.path


@pytest.fixture(scope="module")
def vector_model(data: Path) -> Path:
    folder = train(data.parent / "vectors", data, "sce")
    return export_model(folder, reopen(folder))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def call(*argv: object) -> int:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers(required=True)
    for verb in (evaluate, score, encode):
        verb.register(subparsers)
    args = parser.parse_args([str(word) for word in argv])
    return int(args.run(args))


def test_eval_prints_three_rows_and_the_protocol(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", run) == 0
    printed = capsys.readouterr().out
    result = json.loads((run / "result_test.json").read_text())
    for name in ("A", "B", "ensemble"):
        line = next(line for line in printed.splitlines() if line.startswith(f"{name} (oracle)"))
        assert f"{result['rows'][name]['rsum']:.1f}" in line
    assert f"{result['chance']['rsum']:.1f}" in next(line for line in printed.splitlines() if "by chance" in line)
    assert "10 images, 50 captions; data" in printed
    assert "caption-level noise 0.4 (realised 0." in printed
    assert "ORACLE" in printed
    assert "FORCED" not in printed
    assert "UNFINISHED" not in printed
    assert "duplicates" not in printed


def test_eval_says_how_copies_were_counted(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The captions of the second test image are those of the first."""
    folder = make_data(tmp_path / "data")
    captions = (folder / "test_caps.txt").read_text().splitlines()
    (folder / "test_caps.txt").write_text("\n".join([*captions[:5], *captions[:5], *captions[10:]]) + "\n")
    run = train(tmp_path / "run", folder, "triplet", words=True).path
    found = (
        "duplicates: 0 images have an identical copy, 10 captions are those of another image too; a copy of the right"
    )
    for asked, said in (
        ((), "counts as right (--duplicates wrong: as wrong, as in the literature)"),
        (("--duplicates", "wrong"), "counts as wrong, as in the literature (--duplicates right: as right)"),
    ):
        assert call("eval", run, *asked) == 0
        assert f"{found} item {said}\n" in capsys.readouterr().out


def test_eval_says_what_wrong_pairs_do_and_how_many_look_wrong(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", run) == 0
    said = "mismatched pairs of test lower these figures; how many there are is not known (few, or the model cannot"
    assert said in capsys.readouterr().out
    result = {"wrong_pairs": {"A": 0.2, "B": 0.3, "mean": 0.25}, "protocol": {"evaluated": {"split": "dev"}}}
    assert evaluate.wrong_pairs(result) == (
        "mismatched pairs of dev lower these figures; about 25 % of the pairs look mismatched"
    )


def shown(table: Table) -> str:
    printed = io.StringIO()
    Console(file=printed, width=80).print(table)
    return printed.getvalue()


@pytest.mark.parametrize("columns", [evaluate.RECALLS, evaluate.RANKS])
def test_results_stand_whole_in_80_columns(columns: dict[str, str]) -> None:
    longest = 12345.6 if columns is evaluate.RANKS else 100.0
    row = dict.fromkeys(columns, longest)
    result = {
        "rows": {"A": row, "B": row, "ensemble": row},
        "chance": row,
        "health": {"collapsed_A": False, "collapsed_B": True},
        "protocol": {"oracle": True, "noise": None},
    }
    heading, *lines = shown(evaluate.result_table(result, columns)).splitlines()
    assert heading.split() == " ".join(["network", *columns.values()]).split()
    names = ["A (oracle)", "B (oracle) (collapsed)", "ensemble (oracle) (collapsed)"]
    names += ["by chance"] if columns is evaluate.RECALLS else []
    assert [line.split() for line in lines] == [[*name.split(), *[f"{longest:.1f}"] * len(columns)] for name in names]
    assert lines[2].startswith(names[2])


def test_every_recall_and_rank_is_shown() -> None:
    figures = {f"{way}_{name}" for way in ("i2t", "t2i") for name in ("r1", "r5", "r10", "medr", "meanr")}
    assert evaluate.RECALLS.keys() | evaluate.RANKS.keys() == figures | {"rsum"}


def test_the_worst_pairs_fit_in_80_columns(tmp_path: Path) -> None:
    image, caption = "COCO_val2014_000000391895.jpg", " ".join(f"word{number}" for number in range(40))
    file = tmp_path / "scores.csv"
    place = "train_caps.txt line 1234567"
    row = f"0,{image},0.123,0.456,0.789,{place},{caption}"
    file.write_text(f"pair,image_id,clean_prob,clean_prob_A,clean_prob_B,place,caption\n{row}\n")
    printed = shown(score.worst_pairs(file, 1))
    for whole in ("clean", "prob.", "0.123", "0.456", "0.789"):
        assert f" {whole} " in printed, whole
    cells = [[cell.strip() for cell in line.split("│")] for line in printed.splitlines() if line.startswith("│")]
    assert " ".join(line[1] for line in cells if line[1]) == place
    assert "".join(line[2] for line in cells) == image
    assert " ".join(line[-2] for line in cells) == caption


def test_eval_of_folds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", run, "--folds", 5, "--device", "cpu") == 0
    assert "mean of 5 folds" in capsys.readouterr().out


def test_reservations_are_printed() -> None:
    protocol = {
        "forced": {"training": ["the noise index n.npy"], "now": ["setting train.seed (0, now 1)"]},
        "finished": False,
        "epochs_done": 3,
        "epochs": 45,
    }
    assert evaluate.reservations(protocol) == [
        "FORCED: changed since the start of the run: setting train.seed (0, now 1)",
        "FORCED: changed while it was trained: the noise index n.npy",
        "UNFINISHED: 3 of 45 epochs",
    ]


def test_score_prints_the_worst_pairs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("score", run, "--top", 3) == 0
    printed = capsys.readouterr().out
    with (run / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["caption"] in printed for row in rows[:3]] == [True] * 3
    assert sum(row["caption"] in printed for row in rows) < 10
    assert "noise rate: " in printed
    assert "WEAK MODEL: dev rSum" in printed
    assert "against the injected noise: AUROC 0." in printed
    assert "not known" in printed
    with pytest.raises(InputError, match="--top must be at least 0, got -1"):
        call("score", run, "--top", -1)


def summary(
    rate: tuple[float | None, float | None], single: tuple[int, int], dev: float, measured: float | None
) -> dict[str, Any]:
    known = [value for value in rate if value is not None]
    mean = sum(known) / len(known) if known else None
    return {
        "pairs": 1000,
        "loss": "sce",
        "estimated_noise_rate": {"A": rate[0], "B": rate[1], "mean": mean},
        "networks": {"A": {"single_mode": single[0]}, "B": {"single_mode": single[1]}},
        "dev_rsum": dev,
        "dev_rsum_by_chance": 40.0,
        "measurement_only": None if measured is None else {"auroc_order": measured},
    }


def test_a_noise_rate_is_said_with_what_it_is_worth() -> None:
    assert score.noise_rate(summary((0.2, 0.3), (0, 0), 300, 0.9)) == [
        "estimated noise rate: 25.0 % of 1,000 pairs (network A 20.0 %, B 30.0 %)",
        "order of the pairs against the injected noise: AUROC 0.900 (chance 0.5)",
    ]
    assert score.noise_rate(summary((0.2, None), (0, 1), 180, None)) == [
        "estimated noise rate: 20.0 % of 1,000 pairs (network A 20.0 %, B not known)",
        "clean probabilities of network B: not known; the pairs' order is that of their losses",
    ]
    not_known = (
        "noise rate: not known: the losses do not show a group of mismatched pairs (there are few of them, or the "
        "model cannot tell them apart, or has learnt them by heart)"
    )
    [weak] = score.doubts(summary((None, None), (1, 1), 179, None))  # 40 + a quarter of 560 is 180
    assert weak.startswith("WEAK MODEL: dev rSum 179.0 (by chance 40.0, at most 600)")
    assert score.doubts(summary((0.2, 0.3), (0, 0), 180, None)) == []
    [few] = score.doubts({**summary((0.2, 0.3), (0, 0), 180, None), "pairs": 999})
    assert few.startswith("FEW PAIRS: 999; with fewer than 1,000")
    assert score.noise_rate(summary((None, None), (1, 1), 400, None)) == [
        not_known,
        "clean probabilities of network A and B: not known; the pairs' order is that of their losses",
    ]


@pytest.mark.parametrize(
    ("written", "shown"),
    [("0.000001", "<0.001"), ("0.001000", "0.001"), ("0.500000", "0.500"), ("0.999999", ">0.999"), ("", "not known")],
)
def test_no_probability_is_shown_as_0_or_1(written: str, shown: str) -> None:
    assert score.probability(written) == shown


def test_score_keeps_columns_and_marks_its_encoding(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "in2r.data.precomp.PrecompSource.caption_columns",
        lambda _self, _name, wanted: {name: ["x"] * 60 for name in wanted},
    )
    assert call("score", run, "--keep", "id, url", "--bom", "--top", 1) == 0
    header, first = (run / "scores.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert header.startswith("\ufeffrank,percentile,pair,row,image_id,clean_prob,")
    assert header.endswith(",place,caption,id,url")
    assert first.startswith("1,1.66667,")
    assert first.endswith(",x,x")
    assert "not known" in capsys.readouterr().out


def test_brackets_in_captions_are_no_markup(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("image_id,clean_prob,clean_prob_A,clean_prob_B,place,caption\n[/i],0,0,0,[a],[red]x\\[/blue]\n")
    printed = io.StringIO()
    Console(file=printed, width=200).print(score.worst_pairs(file, 1))
    assert r"[red]x\[/blue]" in printed.getvalue()
    assert "[/i]" in printed.getvalue()


def test_encode_words_and_images(run: Path, data: Path, tmp_path: Path) -> None:
    assert call("encode", run, "--images", data / "test_ims.npy", "--out", tmp_path / "v.npy", "--device", "cpu") == 0
    assert call("encode", run, "--captions", data / "test_caps.txt", "--out", tmp_path / "u.npy") == 0
    model = in2r.load(run, device="cpu")
    captions = (data / "test_caps.txt").read_text().splitlines()
    np.testing.assert_allclose(
        np.load(tmp_path / "v.npy"), model.encode_images(np.load(data / "test_ims.npy")), atol=1e-6
    )
    np.testing.assert_allclose(np.load(tmp_path / "u.npy"), model.encode_captions(captions), atol=1e-5)
    assert np.load(tmp_path / "v.npy").dtype == np.float32
    assert sorted(os.listdir(tmp_path)) == ["u.npy", "v.npy"]


def test_encode_vectors_lengths_and_one_network(vector_model: Path, data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "lengths.npy", np.full(10, 2))
    ims, vecs, out = data / "test_ims.npy", data / "test_vecs.npy", tmp_path / "o.npy"
    call("encode", vector_model, "--captions", vecs, "--out", out, "--network", "B")
    expected = in2r.load(vector_model, "cpu", "B").encode_captions(np.load(vecs))
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    call("encode", vector_model, "--images", ims, "--lengths", tmp_path / "lengths.npy", "--out", out, "--force")
    expected = in2r.load(vector_model, "cpu").encode_images(np.load(ims)[:, :2])
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)


def test_encode_refuses_and_leaves_nothing(vector_model: Path, run: Path, data: Path, tmp_path: Path) -> None:
    bad = np.load(data / "test_ims.npy")
    bad[4, 1, 0] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    (tmp_path / "empty.txt").write_text("")
    out = tmp_path / "out.npy"
    cases = [
        (
            vector_model,
            "--images",
            tmp_path / "bad.npy",
            r"bad.npy: images: row 4 \(counted from 0\) holds NaN",
        ),
        (vector_model, "--images", data / "test_vecs.npy", r"test_vecs.npy: images: shape \(50, 6\)"),
        (vector_model, "--captions", data / "test_caps.txt", "test_caps.txt: captions: found text"),
        (
            run,
            "--captions",
            data / "test_vecs.npy",
            "test_vecs.npy: captions: item 0 is ndarray; expected text",
        ),
        (run, "--captions", tmp_path / "empty.txt", "empty.txt: captions: an empty list"),
        (run, "--captions", tmp_path / "none.txt", "none.txt: no such file"),
        (run, "--images", data / "train_caps.txt", "train_caps.txt: images: found text"),
        (tmp_path, "--images", data / "test_ims.npy", "no config.json here"),
    ]
    for model, what, source, message in cases:
        with pytest.raises(InputError, match=message):
            call("encode", model, what, source, "--out", out)
        assert sorted(os.listdir(tmp_path)) == ["bad.npy", "empty.txt"]
    with pytest.raises(InputError, match=r"out.bin: the result is an npy array; name it out.bin.npy"):
        call("encode", run, "--images", data / "test_ims.npy", "--out", tmp_path / "out.bin")
    with pytest.raises(InputError, match=r"empty\.txt: cannot be made a folder \(File exists\)"):
        call("encode", vector_model, "--images", data / "test_ims.npy", "--out", tmp_path / "empty.txt" / "v.npy")
    before = (tmp_path / "bad.npy").read_bytes()
    with pytest.raises(InputError, match=r"bad\.npy: exists; choose another --out, or --force to overwrite it"):
        call("encode", vector_model, "--images", tmp_path / "bad.npy", "--out", tmp_path / "bad.npy")
    assert (tmp_path / "bad.npy").read_bytes() == before
    with pytest.raises(InputError, match=r"pairs\.csv: captions are a \.txt, one a line, or their vectors as \.npy"):
        call("encode", run, "--captions", data / "pairs.csv", "--out", out)
    with pytest.raises(InputError, match="--lengths belongs to --images"):
        call("encode", run, "--captions", data / "test_caps.txt", "--lengths", out, "--out", out)


def test_encode_says_what_it_does_not_know(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries.txt").write_text("rotes Kleid\nred dog\n")
    np.save(tmp_path / "one.npy", np.zeros((3, 8), np.float32))
    out = tmp_path / "out.npy"
    assert main(["encode", str(run), "--captions", str(tmp_path / "queries.txt"), "--out", str(out)]) == 0
    assert (
        "WARNING: captions: 50 % of the words are not in the model's vocabulary; 1 of 2 captions"
        in capfd.readouterr().err
    )
    assert main(["encode", str(run), "--images", str(tmp_path / "one.npy"), "--out", str(tmp_path / "v.npy")]) == 2
    assert "one.npy: images: shape (3, 8), but the model was trained on 3 regions: one image" in capfd.readouterr().err


def test_eval_says_that_test_captions_are_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_data(tmp_path / "data")
    (folder / "test_caps.txt").write_text("ein roter Hund\n" * 50)
    run = train(tmp_path / "run", folder, "triplet", words=True).path
    caplog.clear()
    assert call("eval", run) == 0
    assert "test captions: 100 % of the words are not in the vocabulary; 50 of 50 captions hold no known" in caplog.text


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r", "\r\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_of_captions(run: Path, tmp_path: Path, ends: str, last: bool) -> None:
    captions = ["red dog", "", "a blue  cat", "green horse"]
    file = tmp_path / "captions.txt"
    file.write_bytes((ends.join(captions) + ends * last).encode())
    call("encode", run, "--captions", file, "--out", tmp_path / "v.npy")
    expected = in2r.load(run, device="cpu").encode_captions(captions)
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)


def test_a_carriage_return_among_other_line_ends_is_refused(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "captions.txt"
    file.write_bytes(b"red dog\r\nblue\rcat\n")
    with pytest.raises(InputError, match=r"captions\.txt: line 2 holds a carriage return, while lines end with a line"):
        call("encode", run, "--captions", file, "--out", tmp_path / "v.npy")


def test_a_run_folder_is_a_model(run: Path) -> None:
    assert in2r.load(RunFolder(run).path, device="cpu").info["protocol"]["oracle"] is True
