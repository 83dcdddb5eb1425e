"""What is left of a grid: shares of the cells, and the time by the finished ones, worked out by hand."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_records import make_row, record_values

from in2r.bench.folder import GridFolder
from in2r.bench.grid import Grid, cell_config
from in2r.bench.grid_file import expand
from in2r.bench.plan import epochs_left, seconds_left, share_of
from in2r.bench.records import write_record
from in2r.bench.warmups import warmup_key
from in2r.cli.main import main
from in2r.settings_text import merge

GRID: dict[str, Any] = {
    "settings": {"data": {"path": "data/birds", "caption_vectors": "vecs"}, "train": {"epochs": 2}},
    "seeds": [0, 1],
    "groups": {
        "a": {"axes": {"row": {"all": {}, "none": {"method": {"rectifier": "none"}}, "sce": {"preset": "sce"}}}},
    },
}


def grid(rows: int, seeds: int, *, warmup: bool) -> Grid:
    """Rows that differ in their main phase, or in their learning rate."""
    key = "method.gamma" if warmup else "train.learning_rate"
    axes = {key: [0.1 + 0.01 * row for row in range(rows)]}
    return expand({**GRID, "seeds": list(range(seeds)), "groups": {"a": {"axes": axes}}})


def test_without_shared_warm_ups_a_share_is_every_nth_cell() -> None:
    cells = grid(7, 1, warmup=False).cells
    names = [[cell.name for cell in share_of(cells, number, 3)] for number in (1, 2, 3)]
    assert names == [[cell.name for cell in cells[number::3]] for number in range(3)]


def test_cells_that_share_a_warm_up_are_of_one_share() -> None:
    cells = grid(4, 3, warmup=True).cells
    for number in (1, 2, 3):
        assert [cell.seed for cell in share_of(cells, number, 3)] == [number - 1] * 4


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 13), st.booleans())
def test_shares_are_the_whole_and_none_is_larger_than_its_part(
    rows: int, seeds: int, shares: int, warmup: bool
) -> None:
    cells = grid(rows, seeds, warmup=warmup).cells
    dealt = [share_of(cells, number, shares) for number in range(1, shares + 1)]
    assert Counter(cell.name for share in dealt for cell in share) == Counter(cell.name for cell in cells)
    assert max(map(len, dealt)) <= -(-len(cells) // shares)
    for share in dealt:
        assert share == sorted(share, key=cells.index)  # in the grid's order
    if warmup:  # as many warm-ups more as shares, at most
        trained = sum(len({warmup_key(cell_config(cell)) for cell in share}) for share in dealt)
        assert trained <= seeds + shares


def finish(folder: GridFolder, name: str, seconds: float, *, taken_over: bool = False) -> None:
    """Write the record of a cell of two epochs, of which the first takes a quarter of the seconds."""
    (cell,) = [cell for cell in folder.grid().cells if cell.name == name]
    record = record_values(cell, 300.0, seconds=seconds, taken_over=taken_over)
    write_record(folder.records.file(name), merge(record, {"settings": {"train": {"device": "cpu", "threads": 2}}}))


@pytest.fixture
def folder(tmp_path: Path) -> GridFolder:
    made = GridFolder(tmp_path)
    made.write(GRID)
    return made


def left(folder: GridFolder, *names: str) -> float | None:
    return seconds_left(folder, [cell for cell in folder.grid().cells if cell.name in names])


def test_the_time_is_not_known_before_a_cell_is_finished(folder: GridFolder) -> None:
    assert left(folder, "a_all_s0") is None


def test_a_cell_takes_as_long_as_the_finished_ones_like_it(folder: GridFolder) -> None:
    finish(folder, "a_sce_s0", 8.0)  # 4 s an epoch
    assert left(folder, "a_sce_s1") == 8.0
    assert left(folder, "a_all_s1", "a_sce_s1") == 16.0  # nothing else is measured
    finish(folder, "a_all_s0", 100.0)  # 50 s an epoch
    finish(folder, "a_none_s0", 80.0, taken_over=True)  # 20 s of the warm-up were another run's: 30 s an epoch
    assert left(folder, "a_all_s1", "a_none_s1") == 4 * 40.0
    assert left(folder, "a_sce_s1") == 8.0


def test_epochs_that_are_done_are_not_left(folder: GridFolder) -> None:
    (cell,) = [cell for cell in folder.grid().cells if cell.name == "a_sce_s1"]
    assert epochs_left(folder, cell) == 2
    run = folder.run(cell.name)
    run.path.mkdir(parents=True)
    rows = {name: make_row(1.0) for name in ("A", "ensemble")}
    run.append({"epoch": 1, "phase": "main", "steps": {"A": 1}, "seconds": 1.0, "dev": rows})
    assert epochs_left(folder, cell) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--only", "60 %"], ["a_ncr_60_s0", "a_in2r_60_s0", "b_ncr_60_s0", "a_ncr_60_s1", "a_in2r_60_s1"]),
        (["--only", "60 %", "--only", "ncr"], ["a_ncr_60_s0", "b_ncr_60_s0", "a_ncr_60_s1"]),
        (["--only", "ncr", "--group", "b"], ["b_ncr_60_s0"]),
        (["--only", "in2r", "--seed", "1"], ["a_in2r_20_s1", "a_in2r_60_s1"]),
    ],
)
def test_rows_are_chosen_by_their_labels(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: list[str]
) -> None:
    file = write_rows(tmp_path, data)
    assert main(["bench", "run", str(file), "--out", str(tmp_path / "g"), "--plan", *options]) == 0
    assert re.findall(r"^open +(\w+)", capsys.readouterr().out, re.MULTILINE) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "nrc"], "--only nrc: no row has this label; labels: ncr, 20 %, 60 %, in2r; did you mean ncr?"),
        (["--only", "in2r", "--group", "b"], "--only in2r: no row has this label; labels: ncr, 60 %"),
        (["--only", "ncr", "--only", "in2r"], "--only ncr --only in2r: no row has all these labels"),
    ],
)
def test_labels_that_no_row_has_are_refused(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["bench", "run", str(write_rows(tmp_path, data)), "--out", str(tmp_path / "g"), *options]) == 2
    assert capsys.readouterr().err == f"in2r: {message}\n"


def write_rows(folder: Path, data: Path) -> Path:
    """Write a grid of two methods at two ratios, and of another setting of one of them."""
    ratios = {f"{percent} %": {"noise": {"ratio": percent / 100}} for percent in (20, 60)}
    values = {
        "settings": {"data": {"path": str(data), "caption_vectors": "vecs"}, "noise": {"level": "caption"}},
        "groups": {
            "a": {"seeds": [0, 1], "axes": {"m": {"ncr": {"preset": "ncr"}, "in2r": {}}, "noise": ratios}},
            "b": {"axes": {"m": {"ncr": {"preset": "ncr/flickr30k"}}, "noise": {"60 %": ratios["60 %"]}}},
        },
    }
    values["groups"]["a"]["priority"] = [1, 2]
    (folder / "grid.yaml").write_text(json.dumps(values))
    return folder / "grid.yaml"
