"""The verb plot, end to end: a file of each kind, and one line where there is nothing to draw."""

import json
from pathlib import Path

import pytest

import tiny_run
from in2r.bench.records import make_record, write_record
from in2r.cli.main import main
from in2r.results import evaluate_run
from tiny_run import make_data, make_noise, train

GRID = """\
settings: {data: {path: data}}
seeds: [0]
groups:
  K: {axes: {method.num_neighbors: [1, 5]}}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a partition and one without, on the same data, and the record of the first."""
    root = tmp_path_factory.mktemp("plots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_run.IMAGES, "dev", 13)
        data = make_data(root / "data")
    noise = make_noise(root / "noise.npy")
    run = train(root / "runs" / "in2r", data, "in2r", f"noise.index={noise}", "partition.single_mode=split")
    train(root / "runs" / "sce", data, "sce")
    write_record(root / "cell.json", make_record("cell", run, evaluate_run(run.path)))
    return root


def plot(*argv: object) -> int:
    return main(["plot", *map(str, argv)])


def refused(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert plot(*argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("source", ["runs/in2r", "cell.json"])
@pytest.mark.parametrize("options", [[], ["--epoch", 2, "--network", "B"]])
def test_losses(
    root: Path, tmp_path: Path, source: str, options: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "losses.svg"
    assert plot("losses", root / source, *options, "--out", out) == 0
    assert out.read_bytes().startswith(b"<?xml")
    assert capsys.readouterr().out == f"{out}\n"


def test_losses_of_a_method_without_partition(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "losses", root / "runs" / "sce", "--out", tmp_path / "x.svg")
    assert "no epoch's log line holds a `mixture`" in error
    assert list(tmp_path.iterdir()) == []


def test_curves_of_a_run_and_of_several(root: Path, tmp_path: Path) -> None:
    assert plot("curves", root / "runs" / "in2r", "--out", tmp_path / "one.pdf") == 0
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    several = [root / "runs" / "in2r", root / "cell.json", root / "runs" / "sce"]
    assert plot("curves", *several, "--out", tmp_path / "all.png") == 0


def test_runs_of_one_name_are_told_apart_by_their_path(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = root / "runs" / "in2r"
    labels: list[str] = []
    monkeypatch.setattr("in2r.plots.curves.draw_curves", lambda figure, logs, names: labels.extend(names))
    other = root / "runs" / ".." / "runs" / "in2r"
    assert plot("curves", run, other, root / "cell.json", "--out", tmp_path / "x.svg") == 0
    assert labels == [str(run), str(other), "cell"]


def test_curves_of_an_empty_log(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((root / "cell.json").read_text()) | {"epochs": []}
    (tmp_path / "empty.json").write_text(json.dumps(record))
    assert "no epoch has ended yet" in refused(capsys, "curves", tmp_path / "empty.json", "--out", tmp_path / "x.svg")


def test_embeddings_need_the_data_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [root / "runs" / "in2r", root / "runs" / "sce"]
    assert plot("embeddings", *runs, "--out", tmp_path / "one.svg") == 0
    monkeypatch.setattr("in2r.results.embeddings.reopen", None)
    assert plot("embeddings", *runs, "--out", tmp_path / "two.svg") == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("kind", ["sensitivity", "noise"])
def test_a_grid_without_records(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    error = refused(capsys, kind, tmp_path, "--group", "K", "--out", tmp_path / "x.svg")
    assert "no record of group K yet" in error


def test_what_is_no_run_and_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not a run folder" in refused(capsys, "curves", tmp_path, "--out", tmp_path / "x.svg")
    (tmp_path / "other.json").write_text("{}")
    assert "other.json: no `name`" in refused(capsys, "losses", tmp_path / "other.json", "--out", tmp_path / "x.svg")
