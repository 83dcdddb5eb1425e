"""Logs as figures find them: what is damaged is named in one line, with the place."""

import json
from pathlib import Path
from typing import Any

import pytest
from plot_records import NOISE, epoch, mixture, record

from in2r.bench.grid_file import expand
from in2r.bench.protocols import Noise
from in2r.errors import InputError
from in2r.plots.sources import read_log

INFO: dict[str, Any] = {
    "format_version": 1,
    "networks": ["A", "B"],
    "method_file": None,
    "created": "2026-01-02",
    "versions": {},
    "device": "cpu",
    "device_name": None,
    "threads": 1,
    "seed": 0,
    "method": "in2r",
    "data": {"path": "data/flowers", "fingerprint": {"hash": "a" * 64, "splits": {}}},
    "noise": NOISE,
    "vocabulary": None,
    "word_vectors": None,
    "plan": {"warmup_epochs": 1},
    "mark": "0",
    "settings": {},
}


def write_run(folder: Path, line: dict[str, Any], **info: Any) -> Path:
    """Write what a figure reads of a run: run.json, and a log whose second line is the one given."""
    folder.mkdir()
    (folder / "config.yaml").write_text("{}")
    (folder / "run.json").write_text(json.dumps(INFO | info))
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (epoch(1), line)))
    return folder


def write_record(file: Path, line: dict[str, Any], **changes: Any) -> Path:
    (cell,) = expand({"groups": {"a": {"axes": {"row": {"a": {"data": {"path": "flowers"}}}}}}}).cells
    values = record(cell, 300.0, noise=NOISE) | {"epochs": [epoch(1), line]}
    file.write_text(json.dumps(values | changes))
    return file


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_log(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


DAMAGED = [
    ({"dev": ...}, ": no `dev`"),
    ({"phase": ...}, ": no `phase`"),
    ({"epoch": "two"}, ".epoch: expected a whole number, got 'two'"),
    ({"dev": {"A": {"rsum": 1}, "B": {"rsum": 1}}}, ".dev: no `ensemble`"),
    ({"loss_sce_A": "1.5"}, ".loss_sce_A: expected a finite number, got '1.5'"),
    ({"peer_similarity_image": float("nan")}, ".peer_similarity_image: expected a finite number, got nan"),
    ({"mixture": None}, ".mixture: expected keys and values, got None"),
    ({"mixture": {"A": None}}, ".mixture.A: expected keys and values, got None"),
    ({"mixture": {"B": mixture(means=...)}}, ".mixture.B: no `means`"),
    ({"mixture": {"A": mixture(weights=[1.0])}}, ".mixture.A.weights: expected 2 entries, got [1.0]"),
    ({"mixture": {"A": mixture(counts=7)}}, ".mixture.A.counts: expected a list, got 7"),
    (
        {"mixture": {"A": mixture(variances=[0.0, 1.0])}},
        ".mixture.A: expected variances above 0 and `low` below `high`",
    ),
    ({"mixture": {"A": mixture(high=1.0)}}, ".mixture.A: expected variances above 0 and `low` below `high`"),
    (
        {"mixture": {"A": mixture(counts=[])}},
        ".mixture.A: expected as many `clean_counts` as `counts`, and at least one",
    ),
    (
        {"mixture": {"A": mixture(clean_counts=[1])}},
        ".mixture.A: expected as many `clean_counts` as `counts`, and at least one",
    ),
]


@pytest.mark.parametrize(("changes", "fault"), DAMAGED)
def test_a_damaged_epoch_is_named(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    line = {key: value for key, value in (epoch(2, mixture={"A": mixture()}) | changes).items() if value is not ...}
    run = write_run(tmp_path / "run", line)
    assert refusal(run) == f"{run / 'log.jsonl'}: line 2{fault}"
    file = write_record(tmp_path / "cell.json", line)
    assert refusal(file) == f"{file}: epochs[1]{fault}"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"noise": {}}, ": noise: no `file`"),
        ({"noise": {**NOISE, "realised": "much"}}, ": noise.realised: expected a finite number, got 'much'"),
        ({"data": None}, ": data: expected keys and values, got None"),
        ({"data": {"path": "x", "fingerprint": "a"}}, ": data.fingerprint: expected keys and values, got 'a'"),
        ({"seed": None}, ": seed: expected a whole number, got None"),
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    run = write_run(tmp_path / "run", epoch(2), **changes)
    assert refusal(run) == f"{run / 'run.json'}{fault}"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": 3}, "name: expected text, got 3"),
        ({"result": []}, "result: expected keys and values, got []"),
        ({"epochs": [3]}, "epochs[0]: expected keys and values, got 3"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    file = write_record(tmp_path / "cell.json", epoch(2), **changes)
    assert refusal(file) == f"{file}: {fault}"


def test_a_whole_log_is_read(tmp_path: Path) -> None:
    line = epoch(2, loss_sce_A=None, loss_sce_B=1.5, mixture={"A": mixture(boundary=None, clean_counts=...), "B": {}})
    for path in (write_run(tmp_path / "run", line), write_record(tmp_path / "cell.json", line)):
        found = read_log(path)
        assert (found.method, found.data, found.fingerprint) == ("in2r", "flowers", "a" * 64)
        assert found.noise == Noise("caption", 0.4, 0.4, "f" * 64)
        assert found.networks == ("A", "B")
        assert found.epochs == [epoch(1), line]
    assert read_log(write_run(tmp_path / "clean", line, noise=None)).noise is None


def test_the_phases_of_an_older_log_are_called_as_today(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", epoch(2, "co-training"), settings={"method": {"warmup_epochs": 1}})
    log = run / "log.jsonl"
    log.write_text(log.read_text().replace('"main"', '"all pairs"'))
    assert [line["phase"] for line in read_log(run).epochs] == ["warm-up", "main"]
