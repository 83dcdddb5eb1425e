"""Grids that are run: by the command line, by several runners, killed, resumed, failed, retried."""

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
from table_records import record_values

from in2r.bench import runner
from in2r.bench.cell import FAILED, Placement
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell
from in2r.bench.records import write_record
from in2r.bench.runner import Runner
from in2r.cli.bench_run import _Display
from in2r.cli.main import main
from in2r.tensors import load_tensors
from tiny_run import make_noise

pytestmark = pytest.mark.slow

SETTINGS = {
    "preset": "in2r",
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


def start(data_root: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "in2r.cli.main", "bench", "run", *arguments, "--data", str(data_root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait(condition: Any, seconds: float = 250) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)


def test_two_runners_share_a_grid_and_one_that_is_killed_is_replaced(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell is done once, the shared warm-up is trained once, and each is what a run by itself would be."""
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    first = start(data_root, str(file), "--out", str(path))
    folder = GridFolder(path)
    wait(lambda: any(folder.claims.glob("*.json")))
    first.kill()
    monkeypatch.setattr(runner, "LOOK", 0.5)  # the killed one's cell still stops: it is waited for
    assert main(["bench", "run", str(path), "--data", str(data_root)]) == 0
    first.communicate()
    records = folder.records
    assert sorted(records) == ["rows_all_s0", "rows_none_s0"]
    taken = [sum(epoch.taken_over for epoch in records[f"rows_{row}_s0"].epochs) for row in ROWS]
    assert sorted(taken) == [0, 1]
    assert len({records[f"rows_{row}_s0"].result.protocol.seed_noise for row in ROWS}) == 1
    assert records["rows_all_s0"].config.data.path == "tiny"
    assert str(tmp_path) not in folder.records.file("rows_all_s0").read_text()
    alone = tmp_path / "alone"
    config = yaml.safe_load((folder.cells / "rows_all_s0" / "config.yaml").read_text())
    config["checkpoint"]["warmups"] = None
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump(config))
    assert main(["train", str(tmp_path / "alone.yaml"), "--out", str(alone)]) == 0
    ours, theirs = (load_tensors(run / "best.safetensors")[0] for run in (alone, folder.cells / "rows_all_s0"))
    assert ours.keys() == theirs.keys()
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)
    assert main(["bench", "table", str(path), "--format", "csv"]) == 0
    assert list(folder.claims.iterdir()) == []


def test_cells_that_cannot_be_started_are_named_and_stay_open(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    asked = ["bench", "run", str(file), "--out", str(path), "--data"]
    assert main([*asked, str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "cannot start rows_none_s0 and 1 more: " in said
    assert "tiny: no such folder" in said
    assert "started" not in said
    assert {GridFolder(path).state(cell.name) for cell in GridFolder(path).grid().cells} == {"open"}


def test_one_missing_index_keeps_no_other_cell_from_being_started(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = yaml.safe_load(write_grid(tmp_path / "grid.yaml", (0, 1)).read_text())
    values["settings"]["noise"]["index"] = f"{tmp_path}/{{seed}}.npy"
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    make_noise(tmp_path / "1.npy")
    asked = ["bench", "run", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "grid"), "--data", str(data_root)]
    assert main([*asked, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "cannot start rows_none_s0 and 1 more: " in said
    assert said.endswith("open        rows_none_s1  2 epochs\nopen        rows_all_s1  2 epochs\n")


@pytest.mark.usefixtures("forked_cells")
def test_a_failed_cell_is_reported_and_retried_on_demand(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    shutil.copytree(data_root, root)
    (root / "tiny" / "test_vecs.npy").rename(root / "away.npy")  # missed when the training is done
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    asked = ["bench", "run", str(file), "--out", str(path), "--data", str(root)]
    assert main([*asked, "--jobs", "2"]) == 1
    assert "failed      rows_all_s0" in capsys.readouterr().out
    assert "test_vecs.npy" in GridFolder(path).failure("rows_all_s0")
    assert main(["bench", "status", str(path)]) == 0
    assert "failed" in capsys.readouterr().out
    (root / "away.npy").rename(root / "tiny" / "test_vecs.npy")
    assert main(asked) == 1  # not of itself
    assert "started" not in capsys.readouterr().out
    assert main([*asked, "--retry", "--plan"]) == 0
    assert GridFolder(path).state("rows_all_s0") == "failed"  # a plan changes nothing
    assert main([*asked, "--retry"]) == 0
    assert {GridFolder(path).state(cell) for cell in ("rows_none_s0", "rows_all_s0")} == {"finished"}
    GridFolder(path).records.file("rows_all_s0").unlink()  # to have it tested again
    assert main(asked) == 0
    assert GridFolder(path).state("rows_all_s0") == "finished"


def test_a_runner_stops_when_cell_after_cell_fails(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml", (0, 1, 2)), tmp_path / "grid"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def begin(folder: GridFolder, cell: Cell) -> str:
        folder.write_failure(cell.name, "no such device")
        return f"raise SystemExit({FAILED})"

    with_processes(monkeypatch, begin)
    assert main(["bench", "run", str(file), "--out", str(path), "--data", str(data_root)]) == 2
    assert "3 cells in a row failed before their first epoch" in capsys.readouterr().err
    states = [GridFolder(path).state(cell.name) for cell in GridFolder(path).grid().cells]
    assert states == ["failed"] * 3 + ["open"] * 3


def with_processes(monkeypatch: pytest.MonkeyPatch, begin: Callable[[GridFolder, Cell], str]) -> None:
    """Have each cell worked on by a process that runs what `begin` returns: nothing depends on how long it trains."""

    def start(folder: GridFolder, cell: Cell, *_: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-S", "-c", begin(folder, cell)])

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "POLL", 0.01)
    monkeypatch.setattr(runner, "LOOK", 0.1)


def finish(folder: GridFolder, cell: Cell) -> str:
    """Finish a cell before its process begins."""
    write_record(folder.records.file(cell.name), record_values(cell, 300.0))
    return ""


def grid_folder(tmp_path: Path) -> GridFolder:
    folder = GridFolder(tmp_path / "grid")
    folder.write(yaml.safe_load(write_grid(tmp_path / "grid.yaml").read_text()))
    return folder


def work(folder: GridFolder, jobs: int, tick: Callable[[], None] = lambda: None) -> tuple[bool, list[str]]:
    """Run a grid in this process; return whether it is whole, and what was reported."""
    said: list[str] = []
    cells = folder.grid().cells
    whole = Runner(folder, cells, Placement(), jobs, lambda name, state: said.append(f"{state} {name}"), tick).run()
    return whole, said


def test_a_cell_that_the_system_kills_is_failed_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = grid_folder(tmp_path)

    def begin(folder: GridFolder, cell: Cell) -> str:
        if cell.name == "rows_all_s0":
            return "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        return finish(folder, cell)

    with_processes(monkeypatch, begin)
    whole, said = work(folder, jobs=2)
    assert not whole
    assert sorted(said) == [
        "failed rows_all_s0",
        "finished rows_none_s0",
        "started rows_all_s0",
        "started rows_none_s0",
    ]
    error = folder.failure("rows_all_s0")
    assert error.startswith("killed by SIGKILL, as the system does when memory runs out; see ")
    assert list(folder.claims.iterdir()) == []


def test_a_cell_that_another_runner_holds_is_waited_for_and_taken_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = grid_folder(tmp_path)
    with_processes(monkeypatch, finish)
    held = folder.claim("rows_none_s0")
    assert held is not None
    looks = iter(range(100))

    def tick() -> None:
        if next(looks) == 50:
            assert "rows_none_s0" not in folder.records
            held.release()

    assert work(folder, jobs=3, tick=tick)[0]


def test_a_cell_of_another_machine_is_not_waited_for_and_its_claim_is_named(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = grid_folder(tmp_path)
    with_processes(monkeypatch, finish)
    file = folder.claim_file("rows_none_s0")
    file.parent.mkdir()
    file.write_text('{"host": "node7", "process": 12}')
    assert main(["bench", "run", str(folder.path), "--data", str(data_root)]) == 1
    said = capsys.readouterr().out
    assert "2 cells (1 running, 1 open)" in said
    assert f"not finished: rows_none_s0, process 12 on node7; if it has ended, remove {file}\n" in said
    assert [cell.name for cell in folder.grid().cells if cell.name in folder.records] == ["rows_all_s0"]
    assert main(["bench", "status", str(folder.path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "rows_none_s0 running 0 of 2 epochs, process 12 on node7; if it has ended, remove" in shown
    file.unlink()
    assert main(["bench", "run", str(folder.path), "--data", str(data_root)]) == 0


def test_shares_together_run_the_whole_grid(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_processes(monkeypatch, finish)
    file, path = write_grid(tmp_path / "grid.yaml", (0, 1)), tmp_path / "grid"
    asked = ["bench", "run", str(file), "--out", str(path), "--data", str(data_root), "--share"]
    assert main([*asked, "2/2"]) == 0
    assert "2 cells (2 open)" in capsys.readouterr().out
    assert list(GridFolder(path).records) == ["rows_all_s1", "rows_none_s1"]  # one warm-up
    assert main([*asked, "1/2"]) == 0
    assert len(GridFolder(path).records) == 4


def test_one_cell_is_running_and_two_cells_are(tmp_path: Path) -> None:
    folder = grid_folder(tmp_path)
    display = _Display(Console(file=io.StringIO(), force_terminal=True), folder, folder.grid().cells)
    for running, said in ((["a"], "1 cell running"), (["b"], "2 cells running")):
        display.running.update(running)
        display.tick()
        assert display.progress.tasks[0].description == said


@pytest.mark.usefixtures("forked_cells")  # of the one that resumes it
def test_an_interrupted_grid_saves_its_work_and_is_resumed(data_root: Path, tmp_path: Path) -> None:
    file = write_grid(tmp_path / "grid.yaml", all={"train": {"epochs": 12}})
    path = tmp_path / "grid"
    started = start(data_root, str(file), "--out", str(path), "--jobs", "2")
    logs = [path / "cells" / cell / "log.jsonl" for cell in ("rows_all_s0", "rows_none_s0")]
    wait(lambda: all(log.is_file() for log in logs))  # a process that is still being imported cannot save anything
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=250)
    assert started.returncode == 130
    assert f"`in2r bench run {path}` resumes it" in said
    folder = GridFolder(path)
    assert folder.state("rows_all_s0") in ("interrupted", "finished")  # at once: the claim was given back
    assert main(["bench", "run", str(path), "--data", str(data_root)]) == 0
    assert len(folder.records["rows_all_s0"].epochs) == 12


def test_a_plan_lists_what_is_left_and_starts_nothing(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = write_grid(tmp_path / "grid.yaml"), tmp_path / "grid"
    where = ["--data", str(data_root), "--plan"]
    asked = ["bench", "run", str(file), "--out", str(path), *where]
    assert main(asked) == 0
    assert capsys.readouterr().out == (
        f"{path / 'grid.yaml'}: 2 cells (2 open)\n"
        "left: 2 cells; time: not known before the first cell has ended\n"
        "open        rows_none_s0  2 epochs\n"
        "open        rows_all_s0  2 epochs\n"
    )
    assert not (path / "cells").exists()
    finish(GridFolder(path), GridFolder(path).grid().cells[0])  # 100 s
    assert main([*asked, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 cells (1 finished, 1 open)" in said
    assert "left: 1 cell; time: about 2 min by the cells that are finished, about 50 s with 2 at a time\n" in said
    assert main([*asked[:3], "method.warmup_epochs=2", "--out", str(tmp_path / "short"), *where]) == 0
    said = capsys.readouterr().out
    assert "2 of 2 cells end within their warm-up, such as rows_none_s0: train.epochs=2" in said
    two = tmp_path / "two.yaml"
    groups = {name: {"axes": {"row": {name: ROWS[row]}}} for name, row in (("a", "none"), ("b", "all"))}
    two.write_text(yaml.safe_dump({"settings": SETTINGS, "groups": groups}, sort_keys=False))
    for chosen in (["--group", "b"], ["--share", "2/2"]):
        assert main(["bench", "run", str(two), "--out", str(tmp_path / "two"), *where, *chosen]) == 0
        assert capsys.readouterr().out.endswith("open        b_b_s0  2 epochs\n")


@pytest.mark.usefixtures("forked_cells")
def test_a_run_that_someone_resumed_by_hand_is_reported(data_root: Path, tmp_path: Path) -> None:
    file, path = tmp_path / "grid.yaml", tmp_path / "grid"
    groups = {"one": {"axes": {"row": {"all": {}}}}}
    file.write_text(yaml.safe_dump({"settings": SETTINGS, "groups": groups}, sort_keys=False))
    folder = GridFolder(path)
    with folder.run("one_all_s0").locked():
        assert main(["bench", "run", str(file), "--out", str(path), "--data", str(data_root)]) == 1
    assert folder.failure("one_all_s0").endswith(f"process {os.getpid()} is working in this run folder")


@pytest.mark.usefixtures("forked_cells")
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
    assert "started     rows_mean_s0" in capsys.readouterr().out


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
        (["run", "{}", "--jobs", "0"], "--jobs must be at least 1, got 0"),
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
