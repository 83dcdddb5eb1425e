"""What the terminal says before, during and around a run, and how fast it answers."""

import io
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import in2r
from in2r.cli import main as cli
from in2r.cli import show, train
from in2r.cli.show import Terminal
from in2r.runs.folder import RunFolder
from in2r.runs.presets import presets
from in2r.runs.settings import load_config
from in2r.training.plan import Plan
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
        (["train", "in2r", "--out", "a run"], True, "; `in2r resume 'a run'` resumes it"),
        (["train", "in2r", "--out", "a run"], False, ""),
        (["resume", "a run"], True, "; `in2r resume 'a run'` resumes it"),
        (["demo"], False, "; `in2r demo` (the same command) resumes it"),
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
    assert line == b"reading the data ...\n"
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
    assert capsys.readouterr().out.splitlines() == ["the run is finished already: nothing is trained", last]
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
    assert f"the first argument must be a preset ({', '.join(presets())}) or a YAML file" in said
    assert f"`in2r {' '.join(verb)} in2r data.path=x ...`" in said


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


def test_what_differs_from_other_settings_is_shown_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def shown(*arguments: str) -> list[list[str]]:
        assert cli.main(["config", "show", *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split()[:3] for line in lines if line.startswith(("model.", "method.", "partition.", "train."))]

    assert shown("in2r/tuned", "model.dim=8", "--changed-from", "in2r") == [
        ["model.dim", "8", "1024"],
        ["method.partition_loss", "auto", "sce"],
    ]
    assert shown("ncr/released", "--changed-from", "ncr/flickr30k") == [["method.margins", "released", "own"]]
    file = tmp_path / "mine.yaml"
    file.write_text("preset: ncr/flickr30k\ntrain: {epochs: 9}\n")
    assert shown("ncr/flickr30k", "--changed-from", str(file)) == [["train.epochs", "45", "9"]]
    assert shown("in2r", "--changed-from", "in2r") == []
    assert ["method.margins", "own", "(no"] in shown("ncr", "--changed-from", "in2r")
    assert cli.main(["config", "show", "in2r", "--changed-from", "ncr/coca"]) == 2
    assert "did you mean ncr/coco" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "in2r", "--out", "x", "train.seed=1", "--sed=1"], "--sed=1"),
        (["train", "in2r", "--out", "x", "train.seed=1", "y"], "y"),
        (["resume", "x", "y"], "y"),
        (
            ["resume", "x", "train.seed=1"],
            "train.seed=1; a run is resumed with the settings of its config.yaml (`in2r resume --help`)",
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


def test_a_warning_is_one_line_and_written_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a/long/path: " + "words [and brackets] " * 20 + "end"

    def warn(args: object) -> int:
        for _ in range(2):
            logging.getLogger("in2r.test").warning("%s", text)
            logging.getLogger("in2r.test").info("ours")
            logging.getLogger("torch.test").info("not ours")
        return 0

    monkeypatch.setattr("in2r.cli.config.run", warn)
    for _ in range(2):  # the next command says it again
        assert cli.main(["config", "show"]) == 0
        assert capsys.readouterr().err == f"WARNING: {text}\nINFO: ours\nINFO: ours\n"


def test_a_standard_error_that_goes_to_a_file_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(Console(file=io.StringIO(), force_terminal=True))
    terminal.epoch(0, 1, "warm-up", 10, 0)
    sys.stderr.write("a warning\n")
    terminal.close()
    assert capsys.readouterr().err == "a warning\n"


# --- the plan


def make_terminal() -> tuple[Terminal, io.StringIO]:
    printed = io.StringIO()
    return Terminal(Console(file=printed, width=80)), printed


PLAN = Plan(
    method="in2r",
    networks=2,
    pairs=145_000,
    epochs=45,
    warmup_epochs=5,
    steps_per_epoch=2266,
    memory_bytes=2**20,
    step_bytes=2**30,
    processes=1,
    batch_rows=128,
    sent_bytes=0,
    computes="cpu, float32",
    round_epochs=(),
    fresh_weights=True,
    features=Residency("mapped", "file", 2**20, None),
    disk_bytes=2**20,
    free_disk_bytes=2**30,
    dev_images=50,
    dev_rsum_by_chance=42.5,
)


@pytest.mark.parametrize(
    ("changes", "method", "epochs"),
    [
        ({}, "in2r, 2 networks", "45 (5 of warm-up), of up to 2,266 steps on 145,000 pairs"),
        ({"networks": 1, "warmup_epochs": 0}, "in2r, 1 network", "45, of up to 2,266 steps on 145,000 pairs"),
    ],
)
def test_the_plan_says_what_applies(changes: dict[str, Any], method: str, epochs: str) -> None:
    terminal, printed = make_terminal()
    terminal.plan(replace(PLAN, **changes))
    said = {line.split()[0]: " ".join(line.split()[1:]) for line in printed.getvalue().splitlines() if line.strip()}
    assert (said["method"], said["epochs"], said["device"]) == (method, epochs, "cpu, float32")
    assert "rounds" not in said
    assert "processes" not in said
    assert said["memory"] == "1 MiB for weights, optimisers, memory banks; 1.0 GiB more in a step"
    assert said["disk"] == "at most 1 MiB (1.0 GiB free)"


@pytest.mark.parametrize(("processes", "rows"), [(2, "64"), (3, "42 or 43")])
def test_the_plan_says_what_each_of_several_processes_does(processes: int, rows: str) -> None:
    printed = io.StringIO()
    Terminal(Console(file=printed, width=200)).plan(replace(PLAN, processes=processes, sent_bytes=3 * 2**20))
    line = next(line for line in printed.getvalue().splitlines() if "processes" in line)
    said = f"{processes}; each encodes {rows} of 128 images of a batch and sends about 3 MiB in a step"
    assert " ".join(line.split()) == f"processes {said}; memory is that of each"


@pytest.mark.parametrize(("fresh", "said"), [(True, "; fresh weights in the first"), (False, "")])
def test_the_plan_of_a_method_with_rounds_says_where_dev_rsum_will_fall(fresh: bool, said: str) -> None:
    terminal, printed = make_terminal()
    terminal.plan(replace(PLAN, round_epochs=(8, 20), fresh_weights=fresh))
    line = next(line for line in printed.getvalue().splitlines() if "rounds" in line)
    assert " ".join(line.split()) == f"rounds 2, of 8 and 20 epochs after the warm-up{said}"


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
    terminal.plan(replace(PLAN, features=features))
    line = next(line for line in printed.getvalue().splitlines() if "features" in line)
    assert " ".join(line.split()) == f"features {expected}"


def test_a_run_on_a_cpu_is_told_what_makes_it_slower_than_it_must_be() -> None:
    plan = replace(PLAN, networks=2, steps_per_epoch=20)
    assert train.remarks(load_config("in2r", ["train.device=cpu"]), plan) == []
    assert train.remarks(load_config("in2r", ["train.device=cpu", "train.precision=bf16"]), plan) == [
        "few CPUs compute bf16, the others imitate it slowly: train.precision=float32"
    ]


def test_few_steps_in_an_epoch_are_said() -> None:
    few = replace(PLAN, networks=2, steps_per_epoch=6)
    assert train.remarks(load_config("in2r"), few) == [
        "an epoch has 3 steps a network; from few pairs, smaller batches learn more: train.batch_size=32"
    ]
    assert train.remarks(load_config("in2r", ["train.batch_size=32"]), few) == []


# --- the epochs


@pytest.mark.parametrize(
    ("epoch", "done", "expected"),
    [
        (0, 0, ""),
        (3, 0, "resumed at epoch 4\n"),
        (3, 120, "resumed at epoch 4, step 120 of 2,350\n"),
        (0, 1, "resumed at epoch 1, step 1 of 2,350\n"),
    ],
)
def test_a_resumed_run_says_where_it_is_resumed_once(epoch: int, done: int, expected: str) -> None:
    terminal, printed = make_terminal()
    terminal.epoch(epoch, 45, "main", 2350, done)
    terminal.epoch(epoch + 1, 45, "main", 2350, 0)
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
    terminal.epoch(0, 45, "warm-up", 10, 0)
    record = {"epoch": 45, "phase": "main", "dev": {"ensemble": {"rsum": 212.34}}, "seconds": 9.6, **figures}
    terminal.record(record)
    assert printed.getvalue() == f"epoch  45/45  main     dev rSum  212.3{expected}  10 s\n"


def ended(epoch: int, seconds: float, phase: str = "main", **more: Any) -> dict[str, Any]:
    return {"epoch": epoch, "phase": phase, "dev": {"ensemble": {"rsum": 100.0}}, "seconds": seconds, **more}


def left(printed: io.StringIO) -> list[str]:
    """Return what the epochs' lines say of time."""
    return [line.partition("100.0  ")[2] for line in printed.getvalue().splitlines() if "100.0" in line]


def test_the_time_left_is_by_the_measured_epochs_of_each_phase() -> None:
    """Two epochs of warm-up, two of the main phase, of which nothing is known before its first."""
    printed = io.StringIO()
    terminal = Terminal(Console(file=printed, width=80), warmup=2)
    terminal.epoch(0, 4, "warm-up", 10, 0)
    for number, seconds, phase in ((1, 20.0, "warm-up"), (2, 10.0, "warm-up"), (3, 120.0, "main"), (4, 1.0, "main")):
        terminal.record(ended(number, seconds, phase))
    assert left(printed) == [
        "20 s, at least 60 s left", "10 s, at least 30 s left", "120 s, 2 min left", "1 s"
    ]  # fmt: skip


def test_the_time_left_of_a_resumed_run_is_by_what_it_did_itself() -> None:
    printed = io.StringIO()
    terminal = Terminal(Console(file=printed, width=80), warmup=1)
    terminal.epoch(1, 3, "main", 10, 0)
    terminal.record(ended(2, 20.0))
    assert left(printed) == ["20 s, 20 s left"]


def test_the_time_of_epochs_taken_over_foretells_nothing() -> None:
    printed = io.StringIO()
    terminal = Terminal(Console(file=printed, width=80), warmup=1)
    terminal.epoch(0, 3, "warm-up", 10, 0)
    terminal.record(ended(1, 500.0, "warm-up", taken_over=1))
    assert left(printed) == ["500 s"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(2.0, "first 50 steps: 2 s each, at least 10 min for 3 epochs\n"), (0.3, "")],  # 600 s, and 90 s
)
def test_the_first_steps_say_how_long_the_run_takes_at_least(
    seconds: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, printed = make_terminal()
    now = iter(range(999))
    monkeypatch.setattr(show.time, "monotonic", lambda: seconds * 50 * next(now))  # asked at steps 1 and 51 alone
    terminal.epoch(0, 3, "warm-up", 100, 0)
    for _ in range(100):
        terminal.step()
    assert printed.getvalue() == said
