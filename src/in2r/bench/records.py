"""Records: what is kept of a finished cell, small enough to be committed, and enough for every table and figure."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from in2r.bench.protocols import Protocol
from in2r.config import deciding, to_dict
from in2r.errors import InputError
from in2r.files import is_temporary, read_json, write_text
from in2r.form import read
from in2r.runs.folder import RunFolder
from in2r.runs.identity import changed_settings
from in2r.runs.settings import RunConfig, resolve

logger = logging.getLogger(__name__)

FORMAT = 1
"""the `format_version` of the records that are written; the records of an older in2r have none"""
RECALLS = tuple(f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10))
ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class Result:
    """A run's result, as far as tables and figures read it."""

    rows: dict[str, dict[str, float]]
    """A, B (where the run has two networks) and ensemble → recalls in percent, rsum and more"""
    protocol: Protocol
    chance: dict[str, float] | None = None
    """the recalls of a random order"""

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of the networks: A, or A and B."""
        return tuple(name for name in self.rows if name != ENSEMBLE)


@dataclass(frozen=True)
class Epoch:
    """An epoch, as far as tables read it."""

    epoch: int
    phase: Literal["warm-up", "main"]
    seconds: float
    steps: dict[str, int]
    """network → its optimiser steps"""
    taken_over: int = 0
    """1: its state was taken from the warm-up of another run, whose `seconds` these are"""
    one_group: float = 0.0
    """the share of the networks whose losses formed one group, so that a network trained on all pairs with the warm-up
    loss"""


@dataclass(frozen=True)
class Record:
    """A finished run."""

    name: str
    """of its cell"""
    seed: int
    config: RunConfig
    result: Result
    epochs: tuple[Epoch, ...]
    log: tuple[dict[str, Any], ...]
    """the same epochs with everything that the run's log says of them"""


@dataclass(frozen=True)
class _File:
    """What a record's file holds."""

    name: str
    seed: int
    settings: dict[str, dict[str, object]]
    result: Result
    epochs: tuple[dict[str, object], ...]
    format_version: int = 0


@dataclass(frozen=True)
class MainPhase:
    """The epochs of the main phase, of one run or several, and in how many of them the losses formed one group."""

    epochs: int
    one_group: float
    """an epoch in which that holds for one of two networks counts half"""

    def __str__(self) -> str:
        return f"{self.one_group:g} of {self.epochs}"


def main_phase(records: Iterable[Record]) -> MainPhase:
    """Return the main phase of these runs together."""
    epochs = [epoch for record in records for epoch in record.epochs if epoch.phase == "main"]
    return MainPhase(len(epochs), sum(epoch.one_group for epoch in epochs))


def make_record(name: str, folder: RunFolder, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run that was tested, as plain values; of the places of its data it has the last part."""
    config = folder.config()
    settings = to_dict(config)
    for key, value in deciding(config, "place").items():
        section, last = key.split(".")
        settings[section][last] = None if value is None else Path(value).name
    for key in deciding(config, "keeping"):
        section, last = key.split(".")
        del settings[section][last]
    result = json.loads(json.dumps(result))
    result["protocol"]["data"]["path"] = Path(result["protocol"]["data"]["path"]).name
    return {
        "format_version": FORMAT,
        "name": name,
        "seed": config.train.seed,
        "settings": settings,
        "result": result,
        "epochs": folder.records(),
    }


def write_record(file: Path, record: Mapping[str, Any]) -> None:
    """Write a record: a line per epoch, so that two records can be compared."""
    lines = [f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in record.items() if key != "epochs"]
    epochs = ",\n".join(json.dumps(epoch, ensure_ascii=False) for epoch in record["epochs"])
    write_text(file, "{" + ",\n".join(lines) + f',\n"epochs": [\n{epochs}\n]' + "}\n")


def read_record(file: Path) -> Record:
    """Read a record; one of an older in2r as what it means today.

    Raises:
        InputError: not a record, a damaged one, or one of a newer in2r.
    """
    return parse_record(read_json(file), str(file))


def parse_record(values: Any, source: str) -> Record:
    """Make a record from what its file holds; see `read_record`."""
    found = read(_File, values, source)
    if found.format_version > FORMAT:
        raise InputError(
            f"{source}: format_version: expected at most {FORMAT}, got {found.format_version}; a newer in2r wrote it"
        )
    _require_rows(found.result.rows, f"{source}: result.rows")
    try:
        config = resolve(found.settings if found.format_version else _as_today(found.settings))
    except InputError as error:
        raise InputError(f"{source}: settings: {error}") from None
    log = in_phases(found.epochs, found.settings)
    epochs = tuple(_epoch(line, source, f"epochs[{number}]") for number, line in enumerate(log))
    return Record(found.name, found.seed, config, found.result, epochs, log)


def _as_today(settings: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return the settings of an older in2r with today's keys: the loss that divides the pairs is now the method's."""
    found = {section: dict(values) for section, values in settings.items()}
    partition, method = found.get("partition", {}), found.get("method", {})
    for old, new in (("loss", "partition_loss"), ("sce_from", "sce_from")):
        if old in partition and method.get("name") == "in2r":
            method[new] = partition[old]
        partition.pop(old, None)
    return found


def _require_rows(rows: Mapping[str, Mapping[str, float]], place: str) -> None:
    if set(rows) not in ({"A", ENSEMBLE}, {"A", "B", ENSEMBLE}):
        raise InputError(f"{place}: expected A, B (of two networks) and {ENSEMBLE}, got {', '.join(rows) or 'none'}")
    for name, row in rows.items():
        for figure in (*RECALLS, "rsum"):
            if figure not in row:
                raise InputError(f"{place}.{name}: no `{figure}`")


def in_phases(
    lines: Iterable[Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], ...]:
    """Return the lines of a run's log with the phases "warm-up" and "main".

    An older in2r called them "all pairs" and "co-training", and the main phase of plain methods "all pairs" too.

    Args:
        lines: of the log.
        settings: the run's, section by section.
    """
    warmup = settings.get("method", {}).get("warmup_epochs", 0)
    older = {"all pairs": "warm-up", "co-training": "main"}
    found = []
    for line in lines:
        phase, epoch = line.get("phase"), line.get("epoch")
        if phase == "all pairs" and isinstance(epoch, int) and epoch > warmup:
            phase = "main"
        found.append({**line, **({"phase": older.get(phase, phase)} if isinstance(phase, str) else {})})
    return tuple(found)


def _epoch(line: Mapping[str, Any], source: str, key: str) -> Epoch:
    epoch = read(Epoch, line, source, key)
    alone = [
        name for name in epoch.steps if line.get(f"single_mode_{name}") and line.get(f"clean_fraction_{name}") == 1
    ]
    return replace(epoch, one_group=len(alone) / max(1, len(epoch.steps)))


def require_settings(record: Record, config: RunConfig) -> None:
    """Refuse a record that was made with other settings than these; paths and devices do not count.

    Raises:
        InputError: names up to three of them.
    """
    changed = [*record.result.protocol.changed_settings, *changed_settings(to_dict(record.config), config)]
    if changed:
        raise InputError(f"record {record.name}: made with other settings than the grid has: {'; '.join(changed[:3])}")


class Records(Mapping[str, Record]):
    """The records of a folder by the name of their cell; each is read when it is asked for.

    Args:
        folder: it may be absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._said_older = False

    def file(self, name: str) -> Path:
        """Return where the record of a cell lies."""
        return self.folder / f"{name}.json"

    def __getitem__(self, name: str) -> Record:
        """Read a record; `KeyError` where there is none, else as `read_record`."""
        if name not in self:
            raise KeyError(name)
        values = read_json(self.file(name))
        record = parse_record(values, str(self.file(name)))
        if "format_version" not in values and not self._said_older:
            self._said_older = True
            logger.warning("%s: records of an older in2r; they are read as format %d", self.folder, FORMAT)
        return record

    def __contains__(self, name: object) -> bool:
        """Say whether a cell has a record, without reading it."""
        return self.file(str(name)).is_file()

    def __iter__(self) -> Iterator[str]:
        """Yield the names in alphabetical order."""
        names = (file.stem for file in self.folder.glob("*.json") if not is_temporary(file.name))
        return iter(sorted(names))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(list(iter(self)))
