"""Records: what is written is read again; older ones as what they mean; damaged ones are refused in one line."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from table_records import make_grid, make_row, record_values

from in2r.bench.records import MainPhase, Records, main_phase, read_record, write_record
from in2r.errors import InputError


def refusal(file: Path, values: Any) -> str:
    file.write_text(json.dumps(values))
    with pytest.raises(InputError) as caught:
        read_record(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def remove(*path: str | int) -> Callable[[dict[str, Any]], None]:
    return change(*path, value=...)


def change(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """Return what sets a value deep in a record, or removes it."""

    def apply(values: Any) -> None:
        *outer, last = path
        for key in outer:
            values = values[key]
        if value is ...:
            del values[last]
        else:
            values[last] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove("result", "protocol"), "result: no `protocol`"),
        (remove("result", "protocol", "finished"), "result.protocol: no `finished`"),
        (remove("result", "protocol", "noise"), "result.protocol: no `noise`"),
        (change("result", value=[]), "result: expected keys and values, got []"),
        (change("result", "protocol", value="x"), "result.protocol: expected keys and values, got 'x'"),
        (change("result", "rows", value=[1]), "result.rows: expected keys and values, got [1]"),
        (
            change("result", "rows", value={}),
            "result.rows: expected A, B (of two networks) and ensemble, got none",
        ),
        (
            remove("result", "rows", "A"),
            "result.rows: expected A, B (of two networks) and ensemble, got B, ensemble",
        ),
        (
            change("result", "rows", "C", value=make_row(1.0)),
            "result.rows: expected A, B (of two networks) and ensemble, got A, B, ensemble, C",
        ),
        (remove("result", "rows", "ensemble", "t2i_r5"), "result.rows.ensemble: no `t2i_r5`"),
        (
            change("result", "rows", "ensemble", "rsum", value=None),
            "result.rows.ensemble.rsum: expected a finite number, got None",
        ),
        (change("result", "rows", "A", "rsum", value="3"), "result.rows.A.rsum: expected a finite number, got '3'"),
        (
            change("result", "rows", "A", "i2t_medr", value=float("nan")),
            "result.rows.A.i2t_medr: expected a finite number, got nan",
        ),
        (remove("result", "protocol", "trained"), "result.protocol: no `trained`"),
        (remove("result", "protocol", "date"), "result.protocol: no `date`"),
        (
            change("result", "protocol", "trained", "created", value=None),
            "result.protocol.trained.created: expected text, got None",
        ),
        (
            change("result", "protocol", "trained", "versions", "torch", value=2.9),
            "result.protocol.trained.versions.torch: expected text, got 2.9",
        ),
        (
            change("result", "protocol", "evaluated", "images", value="x"),
            "result.protocol.evaluated.images: expected a whole number, got 'x'",
        ),
        (
            change("result", "protocol", "evaluated", "folds", value=True),
            "result.protocol.evaluated.folds: expected a whole number, got True",
        ),
        (
            change("result", "protocol", "steps_per_network", value=None),
            "result.protocol.steps_per_network: expected keys and values, got None",
        ),
        (
            change("result", "protocol", "noise", "realised", value=float("inf")),
            "result.protocol.noise.realised: expected a finite number, got inf",
        ),
        (
            change("result", "protocol", "forced", value={"training": "yes", "now": []}),
            "result.protocol.forced.training: expected a list, got 'yes'",
        ),
        (remove("name"), "no `name`"),
        (change("seed", value="0"), "seed: expected a whole number, got '0'"),
        (change("format_version", value=2), "format_version: expected at most 1, got 2; a newer in2r wrote it"),
        (change("settings", value=[]), "settings: expected keys and values, got []"),
        (
            change("settings", "method", "gama", value=1.0),
            "settings: configuration: unknown key `method.gama`; did you mean `method.gamma`?",
        ),
        (change("settings", "method", value=None), "settings.method: expected keys and values, got None"),
        (change("epochs", value=[{"epoch": 1, "phase": "main"}]), "epochs[0]: no `seconds`"),
        (change("epochs", value=[{"epoch": 1}]), "epochs[0]: no `phase`"),
        (
            change("epochs", 0, "phase", value="pause"),
            "epochs[0].phase: expected one of warm-up, main, got 'pause'",
        ),
        (change("epochs", 0, "steps", value={"A": 0.5}), "epochs[0].steps.A: expected a whole number, got 0.5"),
        (change("epochs", value=[7]), "epochs[0]: expected keys and values, got 7"),
    ],
)
def test_damaged_records_are_refused_in_one_line(
    damage: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
) -> None:
    values = record_values(make_grid().cells[0], 300.0)
    damage(values)
    assert refusal(tmp_path / "x.json", values) == f"{tmp_path / 'x.json'}: {said}"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    values = record_values(make_grid().cells[0], 300.0, networks="A", taken_over=True)
    write_record(tmp_path / "x.json", values)
    assert json.loads((tmp_path / "x.json").read_text()) == values
    record = read_record(tmp_path / "x.json")
    assert (record.name, record.seed, record.config.method.rectifier) == ("main_none_s0", 0, "none")  # type: ignore[union-attr]
    assert record.result.networks == ("A",)
    assert [(epoch.phase, epoch.seconds, epoch.taken_over) for epoch in record.epochs] == [
        ("warm-up", 25.0, 1), ("main", 75.0, 0),
    ]  # fmt: skip
    assert record.log == tuple(values["epochs"])


def test_an_epoch_of_one_group_in_one_of_two_networks_counts_half(tmp_path: Path) -> None:
    alone = {"single_mode_A": 1.0, "clean_fraction_A": 1.0, "single_mode_B": 1.0, "clean_fraction_B": 0.5}
    write_record(tmp_path / "x.json", record_values(make_grid().cells[0], 300.0, last=alone))
    record = read_record(tmp_path / "x.json")
    assert main_phase([record, record, record]) == MainPhase(3, 1.5)
    assert str(main_phase([record])) == "0.5 of 1"


@pytest.mark.parametrize(
    ("method", "older", "phases"),
    [
        ({"warmup_epochs": 1}, ("all pairs", "co-training"), ["warm-up", "main"]),
        ({"name": "triplet", "warmup": "sce", "warmup_epochs": 1}, ("all pairs", "all pairs"), ["warm-up", "main"]),
        ({"name": "sce"}, ("all pairs", "all pairs"), ["main", "main"]),
    ],
)
def test_older_records_are_read_as_what_they_mean_and_that_is_said_once(
    method: dict[str, Any], older: tuple[str, str], phases: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        values = record_values(make_grid().cells[0], 300.0)
        del values["format_version"]
        values["settings"]["method"] = method
        for line, phase in zip(values["epochs"], older, strict=True):
            line["phase"] = phase
        write_record(tmp_path / f"{name}.json", values)
    records = Records(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = [records[name] for name in records]
    assert [[epoch.phase for epoch in record.epochs] for record in found] == [phases] * 2
    assert [line["phase"] for line in found[0].log] == phases
    assert caplog.messages == [f"{tmp_path}: records of an older in2r; they are read as format 1"]


def test_records_are_read_one_by_one(tmp_path: Path) -> None:
    assert list(Records(tmp_path / "none")) == []
    (tmp_path / "damaged.json").write_text("{")
    (tmp_path / ".tmp-half.json").write_text("")
    write_record(tmp_path / "whole.json", record_values(make_grid().cells[0], 300.0))
    records = Records(tmp_path)
    assert (list(records), len(records), "whole" in records, "other" in records) == (
        ["damaged", "whole"], 2, True, False,
    )  # fmt: skip
    assert records["whole"].seed == 0
    with pytest.raises(InputError, match=r"damaged\.json: not valid JSON"):
        records["damaged"]
    with pytest.raises(KeyError):
        records["other"]
