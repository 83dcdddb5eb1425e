"""What the terminal says before, during and around a run, and how fast it answers."""

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import in2r
from in2r.cli import main as cli
from in2r.cli import train
from in2r.cli.show import Terminal
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.training.residency import Residency
from tiny_run import make_data

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(in2r.__file__).parents[1])}


# --- answers at once, and an interrupt at any time


def test_parsing_imports_nothing_heavy() -> None:
    code = """
import sys
from in2r.cli import main
main.build_parser()
sys.stdout.write(" ".join({"torch", "sklearn", "numpy"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("module", ["rich", "torch"])
def test_an_interrupt_during_imports_is_one_line(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n")
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}
    code = "import sys; from in2r.cli.main import main; sys.exit(main(['eval', 'runs/mine']))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "in2r: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "begun", "expected"),
    [
        (["train", "paper", "--out", "a run"], True, "; `in2r resume 'a run'` goes on with it"),
        (["train", "paper", "--out", "a run"], False, ""),
        (["resume", "a run"], True, "; `in2r resume 'a run'` goes on with it"),
        (["demo"], False, "; `in2r demo` (the same command) goes on"),
        (["config", "show"], False, ""),
    ],
)
def test_an_interrupt_says_what_goes_on(
    arguments: list[str],
    begun: bool,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    for verb in ("train", "resume", "demo", "config"):
        monkeypatch.setattr(f"in2r.cli.{verb}.run", interrupted)
    if begun:
        (tmp_path / "a run").mkdir()
        (tmp_path / "a run" / "config.yaml").touch()
    assert cli.main(arguments) == 130
    assert capsys.readouterr().err == f"in2r: interrupted{expected}\n"


# --- a standard output that nobody reads


def unread(*arguments: str) -> tuple[bytes, int, bytes]:
    """Run a verb, read its first line, close the pipe, and wait; return that line, exit status, standard error."""
    command = [sys.executable, "-m", "in2r.cli.main", *arguments]
    environment = {**ENVIRONMENT, "COLUMNS": "80"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        line = child.stdout.readline()
        child.stdout.close()
        said = child.stderr.read()
    return line, child.returncode, said


def test_training_goes_on_when_nobody_reads_its_lines(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    small = ("data.caption_vectors=vecs", "model.dim=8", "train.epochs=2", "train.device=cpu")
    line, status, said = unread("train", "sce", f"data.path={data}", *small, "--out", str(tmp_path / "run"))
    assert line == b"reading the data, timing a few steps ...\n"
    assert (status, said) == (0, b"")
    assert len(RunFolder(tmp_path / "run").records()) == 2
    assert (tmp_path / "run" / "model").is_dir()


def test_a_finished_run_says_so_and_a_test_is_proposed_where_there_is_a_split_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = make_data(tmp_path / "data"), str(tmp_path / "run")
    small = ("data.caption_vectors=vecs", "model.dim=8", "train.epochs=1", "train.device=cpu")
    assert cli.main(["train", "sce", f"data.path={data}", *small, "--out", run]) == 0
    last = f"model: {run}/model   test it: in2r eval {run}"
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert cli.main(["resume", run]) == 0
    assert capsys.readouterr().out.splitlines() == ["was finished before: nothing is trained", last]
    for file in data.glob("test_*"):
        file.unlink()
    other = str(tmp_path / "other")
    assert cli.main(["train", "sce", f"data.path={data}", *small, "--out", other]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"model: {other}/model"


@pytest.mark.parametrize(
    ("arguments", "first"),
    [(("config", "show"), b"data "), (("config", "show", "--yaml"), b"data:\n"), (("--help",), b"usage: in2r ")],
)
def test_a_verb_that_prints_ends_quietly_when_nobody_reads_on(arguments: tuple[str, ...], first: bytes) -> None:
    line, status, said = unread(*arguments)
    assert line.startswith(first)
    assert (status, said) == (0, b"")


# --- settings without a preset


@pytest.mark.parametrize("verb", [["train"], ["config", "show"]])
def test_a_setting_in_place_of_the_preset(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*verb, "data.path=x"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "the first argument must be a preset (discard, paper, released, sce, triplet, tuned) or a YAML file" in said
    assert f"`in2r {' '.join(verb)} paper data.path=x ...`" in said


def test_a_settings_file_may_have_an_equals_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seed=7.yaml").write_text("train: {seed: 7}\n")
    assert cli.main(["config", "show", "seed=7.yaml", "--yaml"]) == 0
    assert "seed: 7\n" in capsys.readouterr().out


def test_settings_may_come_after_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "show", "sce", "train.epochs=4", "--yaml", "train.seed=7", "model.dim=8"]) == 0
    said = capsys.readouterr().out
    assert "  seed: 7\n" in said
    assert "  dim: 8\n" in said
    assert "  epochs: 4\n" in said


def test_what_differs_from_the_paper_is_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "show", "tuned", "model.dim=8", "--changed"]) == 0
    said = capsys.readouterr().out
    shown = [line.split()[:2] for line in said.splitlines() if line.startswith(("model.", "partition.", "train."))]
    assert shown == [["model.dim", "8"], ["partition.loss", "auto"]]
    assert cli.main(["config", "show", "paper", "--changed"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "paper", "--out", "x", "train.seed=1", "--sed=1"], "--sed=1"),
        (["train", "paper", "--out", "x", "train.seed=1", "y"], "y"),
        (["resume", "x", "y"], "y"),
        (
            ["resume", "x", "train.seed=1"],
            "train.seed=1; a run goes on with the settings of its config.yaml (`in2r resume --help`)",
        ),
    ],
)
def test_what_is_no_setting_is_refused(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: unrecognized arguments: {named}\n")


# --- log lines


def test_a_closed_standard_error_stops_nothing() -> None:
    code = """
import logging, sys
from in2r.cli import main
from in2r.errors import InputError
def run(args):
    logging.getLogger("in2r.test").warning("unheard")
    raise InputError("unheard")
from in2r.cli import config
config.run = run
sys.exit(main.main(["config", "show"]))
"""
    shell = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    assert subprocess.run(shell, env=ENVIRONMENT, check=False).returncode == 2


def test_a_long_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "a/long/path: " + "words [and brackets] " * 20 + "end"

    def warn(args: object) -> int:
        logging.getLogger("in2r.test").warning("%s", text)
        logging.getLogger("in2r.test").info("ours")
        logging.getLogger("torch.test").info("not ours")
        return 0

    monkeypatch.setattr("in2r.cli.config.run", warn)
    assert cli.main(["config", "show"]) == 0
    assert capsys.readouterr().err == f"WARNING: {text}\nINFO: ours\n"


def test_a_standard_error_that_goes_to_a_file_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(Console(file=io.StringIO(), force_terminal=True))
    terminal.epoch(0, 1, "all pairs", 10, 0)
    sys.stderr.write("a warning\n")
    terminal.close()
    assert capsys.readouterr().err == "a warning\n"


# --- the plan


def make_terminal() -> tuple[Terminal, io.StringIO]:
    printed = io.StringIO()
    return Terminal(Console(file=printed, width=80)), printed


def plan(warmup: int = 0, cotraining: int = 0, seconds: float = 1.0) -> Any:
    return SimpleNamespace(
        warmup_steps=warmup,
        cotraining_steps=cotraining,
        seconds=seconds,
        epoch_seconds=(seconds / 2, seconds / 2),
        memory_bytes=2**20,
        step_bytes=2**30,
        computes="cpu, float32",
        features=Residency("mapped", "file", 2**20, None),
        disk_bytes=2**20,
        free_disk_bytes=2**30,
    )


@pytest.mark.parametrize(
    ("warmup", "cotraining", "expected"),
    [
        (1200, 0, "1,200 on all pairs"),
        (0, 3400, "about 3,400 of co-training"),
        (1200, 3400, "1,200 on all pairs + about 3,400 of co-training"),
    ],
)
def test_the_plan_says_what_applies(warmup: int, cotraining: int, expected: str) -> None:
    terminal, printed = make_terminal()
    terminal.plan(plan(warmup, cotraining))
    steps = next(line for line in printed.getvalue().splitlines() if "steps" in line)
    assert " ".join(steps.split()) == f"steps {expected}"
    assert "1 MiB for weights, optimisers, memory banks; 1.0 GiB more in a step" in printed.getvalue()
    assert "cpu, float32" in printed.getvalue()


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (Residency("device", "cuda:0", 2**32, 74 * 2**30), "4.0 GiB on cuda:0 (74.0 GiB free)"),
        (Residency("device", "main memory", 2**32, 2**33), "4.0 GiB in main memory (8.0 GiB free)"),
        (
            Residency("pinned", "main memory", 2**32, 2**33),
            "4.0 GiB in main memory (8.0 GiB free), sent batch by batch",
        ),
        (Residency("mapped", "file", 2**32, None), "4.0 GiB, read from the file batch by batch"),
    ],
)
def test_the_plan_says_where_features_lie(features: Residency, expected: str) -> None:
    terminal, printed = make_terminal()
    made = plan()
    made.features = features
    terminal.plan(made)
    line = next(line for line in printed.getvalue().splitlines() if "features" in line)
    assert " ".join(line.split()) == f"features {expected}"


def test_a_run_on_a_cpu_is_told_what_makes_it_shorter() -> None:
    config = load_config("paper", ["train.device=cpu"])
    assert train.remarks(plan(seconds=7100), config) == []
    assert train.remarks(plan(seconds=7300), config) == [
        "what makes it shorter: train.threads=1 on a shared machine, a smaller model.dim, fewer train.epochs"
    ]
    config = load_config("paper", ["train.device=cpu", "train.threads=1"])
    assert train.remarks(plan(seconds=7300), config) == [
        "what makes it shorter: a smaller model.dim, fewer train.epochs"
    ]
    config = load_config("paper", ["train.device=cpu", "train.precision=bf16"])
    assert train.remarks(plan(seconds=10), config) == [
        "few CPUs compute bf16, the others imitate it slowly: train.precision=float32"
    ]


# --- the epochs


@pytest.mark.parametrize(
    ("epoch", "done", "expected"),
    [
        (0, 0, ""),
        (3, 0, "goes on at epoch 4\n"),
        (3, 120, "goes on at epoch 4, step 120 of 2,350\n"),
        (0, 1, "goes on at epoch 1, step 1 of 2,350\n"),
    ],
)
def test_a_resumed_run_says_where_it_goes_on_once(epoch: int, done: int, expected: str) -> None:
    terminal, printed = make_terminal()
    terminal.epoch(epoch, 45, "co-training", 2350, done)
    terminal.epoch(epoch + 1, 45, "co-training", 2350, 0)
    assert printed.getvalue() == expected


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, ""),
        ({"clean_fraction_A": 0.6, "clean_fraction_B": 0.584}, "  clean 60 %/58 %"),
        (
            {"clean_fraction_A": 1.0, "single_mode_A": 1.0, "clean_fraction_B": 0.5, "single_mode_B": 0.0},
            "  clean all/50 %",
        ),
        (
            {"clean_fraction_A": 1.0, "single_mode_A": 1.0, "clean_fraction_B": 1.0, "single_mode_B": 1.0},
            "  no group of mismatched pairs",
        ),
        (
            {"clean_fraction_A": 0.6, "clean_fraction_B": 0.584, "mixture": {"A": {"loss": "sce"}, "B": {}}},
            "  clean 60 %/58 % by sce",
        ),
        (
            {"clean_fraction_A": 0.6, "clean_fraction_B": 0.5, "mixture": {"A": {"loss": "x"}, "B": {"loss": "y"}}},
            "  clean 60 %/50 % by x/y",
        ),
        # partition.single_mode=split: the two components are followed all the same
        (
            {"clean_fraction_A": 0.7, "single_mode_A": 1.0, "clean_fraction_B": 1.0, "single_mode_B": 0.0},
            "  clean 70 %/100 %",
        ),
    ],
)
def test_the_line_of_an_epoch(figures: dict[str, Any], expected: str) -> None:
    terminal, printed = make_terminal()
    terminal.epoch(0, 45, "all pairs", 10, 0)
    record = {"epoch": 6, "phase": "co-training", "dev": {"ensemble": {"rsum": 212.34}}, "seconds": 9.6, **figures}
    terminal.record(record)
    phase = "all pairs  " if expected.endswith("no group of mismatched pairs") else "co-training"
    assert printed.getvalue() == f"epoch   6/45  {phase} dev rSum  212.3{expected}  10 s\n"


def ended(epoch: int, seconds: float) -> dict[str, Any]:
    return {"epoch": epoch, "phase": "x", "dev": {"ensemble": {"rsum": 100.0}}, "seconds": seconds}


def test_the_time_left_is_that_of_the_plan_times_how_true_it_was() -> None:
    printed = io.StringIO()
    terminal = Terminal(Console(file=printed, width=80), foretold=(10.0, 10.0, 40.0, 40.0))
    for epoch, seconds in ((1, 20.0), (2, 10.0), (3, 120.0), (4, 1.0)):
        terminal.record(ended(epoch, seconds))
    left = [line.partition("100.0  ")[2] for line in printed.getvalue().splitlines()]
    assert left == ["20 s, 3 min left", "10 s, 2 min left", "120 s, 2 min left", "1 s"]


def test_the_time_left_of_a_resumed_run_is_by_what_it_did_itself() -> None:
    printed = io.StringIO()
    terminal = Terminal(Console(file=printed, width=80), foretold=(10.0, 10.0, 40.0))
    terminal.record(ended(2, 20.0))
    assert printed.getvalue().endswith("20 s, 80 s left\n")


def test_a_plan_of_no_time_foretells_none() -> None:
    printed = io.StringIO()
    terminal = Terminal(Console(file=printed, width=80), foretold=(0.0, 1.0))
    terminal.record(ended(1, 2.0))
    assert printed.getvalue().endswith("100.0  2 s\n")
