"""Grids that are run: through the command line, by several processes, killed, gone on with, broken, retried."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from in2r.bench import runner
from in2r.bench.cell import BROKEN, Where
from in2r.bench.folder import Fault, GridFolder
from in2r.bench.grid import Cell
from in2r.bench.leases import claim
from in2r.bench.records import Record, write_record
from in2r.bench.runner import Runner
from in2r.cli.bench import _Display
from in2r.cli.main import main
from in2r.tensors import load_tensors
from tiny_run import make_noise

pytestmark = pytest.mark.slow

SETTINGS = {
    "preset": "paper",
    "data": {"path": "tiny", "caption_vectors": "vecs"},
    "noise": {"level": "caption", "ratio": 0.4},
    "model": {"dim": 8},
    "method": {"warmup_epochs": 1},
    "partition": {"single_mode": "split", "batch_size": 12},
    "train": {"epochs": 2, "threads": 1, "batch_size": 12, "device": "cpu"},
}
ROWS = {"none": {"method": {"rectifier": "none"}}, "all": {}}


def write_grid(file: Path, seeds: tuple[int, ...] = (0,), **more: Any) -> Path:
    values = {"settings": SETTINGS, "seeds": list(seeds), "groups": {"rows": {"axes": {"row": {**ROWS, **more}}}}}
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    return file


def start(folder: Path, data_root: Path, *arguments: str, lease: str = "120") -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "in2r.cli.main",
        "bench",
        "run",
        *arguments,
        "--data",
        str(data_root),
        "--lease",
        lease,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait(condition: Any, seconds: float = 250) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)


def test_two_runners_share_a_grid_and_one_that_is_killed_is_replaced(data_root: Path, tmp_path: Path) -> None:
    """Every cell is done once, shared warm-ups are trained once, and each is what a run by itself would be."""
    file, path = write_grid(tmp_path / "grid.yaml", (0, 1)), tmp_path / "grid"
    first = start(path, data_root, str(file), "--out", str(path), lease="4")
    folder = GridFolder(path)
    wait(lambda: folder.leases.is_dir() and any(folder.leases.glob("*_s?.1")))
    second = start(path, data_root, str(path), lease="4")
    first.kill()
    first.communicate()
    said, _ = second.communicate(timeout=250)
    assert second.returncode == 0, said
    records = folder.finished()
    assert sorted(records) == ["rows_all_s0", "rows_all_s1", "rows_none_s0", "rows_none_s1"]
    for seed in (0, 1):
        taken = [sum(epoch.get("taken_over", 0) for epoch in records[f"rows_{row}_s{seed}"].epochs) for row in ROWS]
        assert sorted(taken) == [0, 1]
        hashes = {records[f"rows_{row}_s{seed}"].result["protocol"]["noise"]["sha256"] for row in ROWS}
        assert len(hashes) == 1
    assert records["rows_all_s0"].settings["data"]["path"] == "tiny"
    assert str(tmp_path) not in folder.record_file("rows_all_s0").read_text()
    alone = tmp_path / "alone"
    config = yaml.safe_load((folder.cells / "rows_all_s0" / "config.yaml").read_text())
    config["checkpoint"]["warmups"] = None
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump(config))
    assert main(["train", str(tmp_path / "alone.yaml"), "--out", str(alone)]) == 0
    ours, theirs = (load_tensors(run / "best.safetensors")[0] for run in (alone, folder.cells / "rows_all_s0"))
    assert ours.keys() == theirs.keys()
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)
    assert main(["bench", "table", str(path), "--format", "csv"]) == 0


def test_cells_that_cannot_be_begun_are_told_and_left_open(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    asked = ["bench", "run", str(file), "--out", str(path), "--data"]
    assert main([*asked, str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "cannot begin rows_none_s0 and 1 more: " in said
    assert "tiny: no such folder" in said
    assert "begun" not in said
    assert {GridFolder(path).state(cell.name) for cell in GridFolder(path).grid().cells} == {"open"}


def test_one_missing_index_keeps_no_other_cell_from_being_begun(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = yaml.safe_load(write_grid(tmp_path / "grid.yaml", (0, 1)).read_text())
    values["settings"]["noise"]["index"] = f"{tmp_path}/{{seed}}.npy"
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    make_noise(tmp_path / "1.npy")
    asked = ["bench", "run", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "grid"), "--data", str(data_root)]
    assert main([*asked, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "for 2 cells" in said
    assert "cannot begin rows_none_s0 and 1 more: " in said


def test_a_broken_cell_is_told_and_retried_on_demand(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    shutil.copytree(data_root, root)
    (root / "tiny" / "test_vecs.npy").rename(root / "away.npy")  # missed when the training is done
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    asked = ["bench", "run", str(file), "--out", str(path), "--data", str(root)]
    assert main([*asked, "--jobs", "2"]) == 1
    assert "broken      rows_all_s0" in capsys.readouterr().out
    assert "test_vecs.npy" in GridFolder(path).fault("rows_all_s0").error
    assert main(["bench", "status", str(path)]) == 0
    assert "broken" in capsys.readouterr().out
    (root / "away.npy").rename(root / "tiny" / "test_vecs.npy")
    assert main(asked) == 1  # not of itself
    assert "begun" not in capsys.readouterr().out
    assert main([*asked, "--retry", "--plan"]) == 0
    assert GridFolder(path).state("rows_all_s0") == "broken"  # a plan changes nothing
    assert main([*asked, "--retry"]) == 0
    assert {GridFolder(path).state(cell) for cell in ("rows_none_s0", "rows_all_s0")} == {"finished"}
    GridFolder(path).record_file("rows_all_s0").unlink()  # to have it tested again
    assert main(asked) == 0
    assert GridFolder(path).state("rows_all_s0") == "finished"


def test_a_runner_stops_where_cell_after_cell_breaks(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml", (0, 1, 2)), tmp_path / "grid"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def broken_start(folder: GridFolder, cell: Cell, *_: Any) -> "subprocess.Popen[bytes]":
        folder.write_fault(cell.name, Fault("no such device", ""))
        return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({BROKEN})"])

    monkeypatch.setattr(runner, "start", broken_start)
    assert main(["bench", "run", str(file), "--out", str(path), "--data", str(data_root)]) == 2
    assert "3 cells in a row broke before their first epoch" in capsys.readouterr().err
    states = [GridFolder(path).state(cell.name) for cell in GridFolder(path).grid().cells]
    assert states == ["broken"] * 3 + ["open"] * 3


def with_processes(monkeypatch: pytest.MonkeyPatch, begin: Callable[[GridFolder, Cell], str]) -> list[str]:
    """Have each cell worked on by a process that runs what `begin` returns; return the names of those begun."""
    begun: list[str] = []

    def start(folder: GridFolder, cell: Cell, *_: Any) -> "subprocess.Popen[bytes]":
        begun.append(cell.name)
        return subprocess.Popen([sys.executable, "-S", "-c", begin(folder, cell)])

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "POLL", 0.01)
    return begun


def work(folder: GridFolder, jobs: int, tick: Callable[[], None] = lambda: None) -> tuple[bool, list[str]]:
    """Run a grid in this process; return whether it is whole, and what was told."""
    told: list[str] = []
    done = Runner(folder, Where(), jobs, (), lambda name, state: told.append(f"{state} {name}"), tick).run()
    return done, told


def test_a_cell_that_the_system_kills_is_broken_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells' processes stand in for trainings, so that nothing depends on how long one takes."""
    folder = GridFolder(tmp_path / "grid")
    folder.write(yaml.safe_load(write_grid(tmp_path / "grid.yaml").read_text()))

    def begin(_: GridFolder, cell: Cell) -> str:
        if cell.name == "rows_all_s0":
            return "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        write_record(folder.record_file(cell.name), Record(cell.name, cell.seed, {}, {}, []))
        return ""

    with_processes(monkeypatch, begin)
    whole, told = work(folder, jobs=2)
    assert not whole
    assert sorted(told) == ["begun rows_all_s0", "begun rows_none_s0", "broken rows_all_s0", "finished rows_none_s0"]
    error = folder.fault("rows_all_s0").error
    assert error.startswith("killed by SIGKILL, as the system does when memory runs out; see ")
    assert folder.claim("rows_all_s0") is not None  # its lease was given back


def test_a_cell_under_way_is_begun_once_though_its_lease_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that slept, or was very busy, was late to renew it."""
    folder, end = GridFolder(tmp_path / "grid"), tmp_path / "end"
    folder.write(yaml.safe_load(write_grid(tmp_path / "grid.yaml").read_text()))
    wait_for_end = (
        f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.01)\nraise SystemExit(1)"
    )
    begun = with_processes(monkeypatch, lambda folder, cell: wait_for_end)
    monkeypatch.setattr(runner, "LOOK", 0.0)
    monkeypatch.setattr(runner, "TRIES", 1)
    looks = iter(range(5))

    def tick() -> None:
        for lease in folder.leases.iterdir():
            os.utime(lease, (0, 0))
        if next(looks, None) is None:
            end.touch()

    assert work(folder, jobs=3, tick=tick)[0] is False
    assert sorted(begun) == ["rows_all_s0", "rows_none_s0"]


def test_one_cell_is_under_way_and_two_cells_are(tmp_path: Path) -> None:
    folder = GridFolder(tmp_path / "grid")
    folder.write(yaml.safe_load(write_grid(tmp_path / "grid.yaml").read_text()))
    display = _Display(Console(file=io.StringIO(), force_terminal=True), folder, ())
    for running, said in ((["a"], "1 cell under way"), (["b"], "2 cells under way")):
        display.running.update(running)
        display.tick()
        assert display.progress.tasks[0].description == said


def test_an_interrupted_grid_saves_and_goes_on(data_root: Path, tmp_path: Path) -> None:
    file = write_grid(tmp_path / "grid.yaml", all={"train": {"epochs": 12}})
    path = tmp_path / "grid"
    started = start(path, data_root, str(file), "--out", str(path), "--jobs", "2")
    log = path / "cells" / "rows_all_s0" / "log.jsonl"
    wait(log.is_file)
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=250)
    assert started.returncode == 130
    assert f"`in2r bench run {path}` goes on with it" in said
    folder = GridFolder(path)
    assert folder.state("rows_all_s0") in ("interrupted", "finished")  # at once: the lease was given back
    again = start(path, data_root, str(path))
    said, _ = again.communicate(timeout=250)
    assert again.returncode == 0, said
    assert len(folder.finished()["rows_all_s0"].epochs) == 12


def test_a_cell_that_someone_holds_is_left_to_them_and_a_plan_starts_nothing(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    two = tmp_path / "two.yaml"
    groups = {name: {"axes": {"row": {name: ROWS[row]}}} for name, row in (("a", "none"), ("b", "all"))}
    two.write_text(yaml.safe_dump({"settings": SETTINGS, "groups": groups}, sort_keys=False))
    asked = ["bench", "run", str(file), "--out", str(path), "--data", str(data_root)]
    assert main([*asked, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "2 cells (2 open)" in said
    assert "time: about" in said
    assert "no co-training" not in said
    assert main([*asked[:3], "method.warmup_epochs=2", "--out", str(tmp_path / "short"), *asked[5:], "--plan"]) == 0
    assert capsys.readouterr().out.count("no co-training in 2 of 2 cells, such as rows_none_s0: train.epochs=2") == 1
    assert not (path / "cells").exists()
    assert main(["bench", "run", str(path), "--data", str(data_root), "--plan", "--group", "rows", "--seed", "0"]) == 0
    assert "for 2 cells" in capsys.readouterr().out
    assert main(["bench", "run", str(two), "--out", str(tmp_path / "two"), *asked[5:], "--plan", "--group", "b"]) == 0
    assert "for 1 cell\n" in capsys.readouterr().out
    claim(GridFolder(path).leases, "rows_none_s0")
    assert GridFolder(path).state("rows_none_s0") == "running"


def test_a_run_that_someone_works_on_without_a_lease_is_waited_for(data_root: Path, tmp_path: Path) -> None:
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    with GridFolder(path).run("rows_none_s0").locked():
        started = start(path, data_root, str(file), "--out", str(path), lease="4")
        wait((path / "records" / "rows_all_s0.json").is_file)  # the other cell goes on meanwhile
        assert GridFolder(path).state("rows_none_s0") != "broken"
    said, _ = started.communicate(timeout=250)
    assert started.returncode == 0, said
    assert "rows_none_s0" in GridFolder(path).finished()


def test_other_settings_for_a_cell_that_was_run_are_refused(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    asked = ["bench", "run", str(file), "--out", str(path), "--data", str(data_root)]
    assert main(asked) == 0
    before = (path / "grid.yaml").read_text()
    shutil.rmtree(path / "cells")  # the records alone tell
    assert main([*asked, "train.epochs=3"]) == 2
    assert "cell rows_none_s0 was run with other settings than the grid asks for now: train.epochs (2, now 3)" in (
        capsys.readouterr().err
    )
    assert (path / "grid.yaml").read_text() == before
    (path / "grid.yaml").write_text(before.replace("epochs: 2", "epochs: 3"))  # by hand
    assert main(["bench", "run", str(path)]) == 2
    assert "train.epochs (2, now 3)" in capsys.readouterr().err
    (path / "grid.yaml").write_text(before)
    folds = yaml.safe_load(file.read_text())
    (tmp_path / "folds.yaml").write_text(yaml.safe_dump({**folds, "folds": 5}, sort_keys=False))
    assert main(["bench", "run", str(tmp_path / "folds.yaml"), *asked[3:]]) == 2
    assert "cell rows_none_s0 was tested with folds 1, the grid asks for 5 now" in capsys.readouterr().err
    first = {"groups": {"first": {"axes": {"row": {"everything": {}}}}, **folds["groups"]}}
    (tmp_path / "first.yaml").write_text(yaml.safe_dump({**folds, **first}, sort_keys=False))
    assert main(["bench", "run", str(tmp_path / "first.yaml"), *asked[3:]]) == 2
    assert "cell rows_all_s0, which was run, would be named first_everything_s0" in capsys.readouterr().err
    fewer = {**folds, "groups": {"rows": {"axes": {"row": {"all": {}}}}}}
    (tmp_path / "fewer.yaml").write_text(yaml.safe_dump(fewer, sort_keys=False))
    assert main(["bench", "run", str(tmp_path / "fewer.yaml"), *asked[3:], "--plan"]) == 2
    assert "cell rows_none_s0, which was run, would be gone from the grid" in capsys.readouterr().err
    assert (path / "grid.yaml").read_text() == before
    more = write_grid(tmp_path / "more.yaml", mean={"method": {"rectifier": "mean"}})
    assert main(["bench", "run", str(more), *asked[3:]]) == 0  # more of it is welcome
    assert "begun       rows_mean_s0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "ablations", "--out", "{}", "--group", "components", "--group", "x"],
            "no group x in the grid; groups: components",
        ),
        (["run", "ablations", "--out", "{}", "--seed", "7"], "--seed 7: no cell of the grid has it"),
        (["run", "nothing", "--out", "{}"], "nothing: neither a file nor a grid"),
        (["run", "nothing"], "--out is missing"),
        (["run", "{}"], "not the folder of a grid"),
        (["run", "{}", "--jobs", "0"], "at least one job"),
        (["status", "{}"], "not the folder of a grid"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *(argument.format(tmp_path) for argument in arguments)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
