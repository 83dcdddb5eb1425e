"""The whole job through the command line, and a user's mistakes: one line, exit status 2."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import in2r
from in2r.cli.main import main

SMALL = [
    "model.dim=16",
    "model.word_dim=8",
    "train.epochs=3",
    "method.warmup_epochs=1",
    "train.device=cpu",
    "partition.single_mode=split",
]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "scenes"
    assert main(["data", "scenes", str(folder), "--train", "60", "--dev", "12", "--test", "12"]) == 0
    return folder


@pytest.fixture(scope="module")
def run(scenes: Path) -> Path:
    index, folder = scenes.parent / "noise.npy", scenes.parent / "run"
    noise = ["--ratio", "0.4", "--level", "caption", "--seed", "1", "--out", str(index)]
    assert main(["noise", "make", str(scenes), *noise]) == 0
    settings = [f"data.path={scenes}", f"noise.index={index}", "noise.ratio=0.4", "record.tensorboard=true", *SMALL]
    assert main(["train", "in2r", *settings, "--out", str(folder)]) == 0
    return folder


def test_a_run_describes_itself_and_its_result(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run)]) == 0
    assert "rSum" in capsys.readouterr().out
    result = json.loads((run / "result_test.json").read_text())
    assert set(result["rows"]) == {"A", "B", "ensemble"}
    noise = result["protocol"]["noise"]
    assert (noise["level"], noise["nominal"], noise["seed"]) == ("caption", 0.4, 1)
    assert 0.3 < noise["realised"] <= 0.4
    epochs = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [epoch["phase"] for epoch in epochs] == ["warm-up", "main", "main"]
    for name in ("loss_clean_A", "memory_fill_B", "clean_fraction_A", "auroc_sce_A", "auroc_triplet-mean_B"):
        assert np.isfinite(epochs[-1][name]), name
    assert list((run / "tensorboard").iterdir())


def test_a_run_that_ends_at_chance_says_so(scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"data.path={scenes}", *SMALL, "train.epochs=1", "train.learning_rate=1e6"]
    assert main(["train", "sce", *(one for one in settings if "warmup" not in one), "--out", str(tmp_path / "r")]) == 0
    said = (
        "NOTHING LEARNT: network A and B: no better than a random order; train again with a smaller train.learning_rate"
    )
    assert f"the last epoch: {said}" in " ".join(capsys.readouterr().out.split())
    record = json.loads((tmp_path / "r" / "log.jsonl").read_text())
    assert record["at_chance_A"] is record["at_chance_B"] is True
    assert main(["eval", str(tmp_path / "r")]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "r" / "result_test.json").read_text())["health"]["at_chance_A"] is True


def test_scores_hold_every_pair_worst_first(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(run), "--top", "3"]) == 0
    assert "noise rate: not known" in capsys.readouterr().out  # three epochs teach too little to say it
    assert json.loads((run / "scores.json").read_text())["estimated_noise_rate"]["mean"] is None
    with (run / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = json.loads((run / "scores.json").read_text())["loss"]
    losses = [float(row[f"loss_{chosen}_A"]) + float(row[f"loss_{chosen}_B"]) for row in rows]
    assert len(losses) == 300
    assert np.all(np.diff(losses) <= 1e-5)
    assert {row["clean_prob"] for row in rows} == {""}


def test_the_model_folder_searches(run: Path, scenes: Path) -> None:
    model = in2r.load(run / "model")
    captions = (scenes / "test_caps.txt").read_text().splitlines()
    vectors = np.asarray(model.encode_captions(captions))
    assert vectors.shape == (60, 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    out = run.parent / "captions.npy"
    text = scenes / "test_caps.txt"
    assert main(["encode", str(run / "model"), "--captions", str(text), "--out", str(out)]) == 0
    assert np.allclose(np.load(out), vectors, atol=1e-6)


def test_a_finished_run_resumes_to_itself(run: Path) -> None:
    before = (run / "best.safetensors").read_bytes(), (run / "log.jsonl").read_bytes()
    assert main(["resume", str(run)]) == 0
    assert ((run / "best.safetensors").read_bytes(), (run / "log.jsonl").read_bytes()) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "in2r", "data.path={data}", "train.epoch=3", "--out", "{new}"], "did you mean `train.epochs`?"),
        (["train", "in3r", "--out", "{new}"], "neither a file nor a preset"),
        (["train", "in2r", "data.path={data}/no", "--out", "{new}"], "no such"),
        (["train", "in2r", "data.path={data}", "noise.index=no.npy", "--out", "{new}"], "in2r noise make"),
        (["train", "in2r", "data.path={data}", "noise.oracle=true", "--out", "{new}"], "noise.oracle"),
        (["train", "in2r", "data.path={data}", "--out", "{run}"], "holds a run already"),
        (["train", "in2r", "--out", "{new}"], "data.path"),
        (["noise", "make", "{data}", "--ratio", "60", "--level", "caption", "--out", "{new}.npy"], "did you mean 0.6?"),
        (["resume", "{data}"], "not a run folder"),
        (["eval", "{new}"], "not a run folder"),
        (["encode", "{data}", "--captions", "{data}/test_caps.txt", "--out", "{new}.npy"], "{data}"),
        (["data", "check", "{new}"], "{new}"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: list[str], expected: str, run: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"data": scenes, "run": run, "new": tmp_path / "new"}
    assert main([argument.format(**names) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert expected.format(**names) in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_settings_are_shown_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    shown = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines() if "." in line[:30]}
    assert shown["noise.index"] == "null"
    assert (shown["noise.oracle"], shown["method.memory_elite"]) == ("false", "true")


def test_a_terminal_without_unicode_shows_what_it_can(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(in2r.__file__).parents[1])}
    command = [sys.executable, "-m", "in2r.cli.main", "config", "show", "in2r", f"data.path={tmp_path}/猫"]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"data.path" in done.stdout


def test_brackets_in_paths_are_no_markup(scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "[red]" / "x[" / "y]"
    assert main(["train", "in2r", f"data.path={scenes}", *SMALL, "train.epochs=1", "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"model: {folder}/model   test it: in2r eval '{folder}'\n" in printed
    assert main(["config", "show", "sce", "data.path='[/x]'"]) == 0
    assert "[/x]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory:\n you tried 9 bytes"), "out of memory (Default"),
        (RuntimeError("CUDA out of memory. Tried to allocate 9 GiB"), "lower train.batch_size"),
        (MemoryError(), "out of memory"),
        (OSError(21, "Is a directory", "dir/x.npy"), "in2r: dir/x.npy: Is a directory"),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    error: Exception, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("in2r.cli.config.run", fail)
    assert main(["config", "show"]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    with pytest.raises(type(error)):
        main(["--debug", "config", "show"])


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: object) -> int:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("in2r.cli.config.run", fail)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["config", "show"])


def test_declared_noise_that_differs_is_refused(
    run: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = scenes.parent / "noise.npy"
    settings = [f"data.path={scenes}", f"noise.index={index}", "noise.ratio=0.8", *SMALL]
    assert main(["train", "in2r", *settings, "--out", str(tmp_path / "new")]) == 2
    assert "0.8" in capsys.readouterr().err


def test_every_setting_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "in2r/released", "--yaml"]) == 0
    text = capsys.readouterr().out
    assert "prototype-contrast" in text
    assert main(["config", "show", "in2r"]) == 0
    assert "method.lambda_intra" in capsys.readouterr().out
