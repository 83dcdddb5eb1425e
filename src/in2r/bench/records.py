"""Records: what is kept of a finished cell, small enough to be committed, and enough for every table and figure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from in2r.config import to_dict
from in2r.errors import InputError
from in2r.files import read_json, write_text
from in2r.runs.folder import RunFolder, changed_settings
from in2r.runs.settings import RunConfig, resolve

PLACES = (("data", "path"), ("data", "vocabulary"), ("data", "word_vectors"), ("noise", "index"))
"""Settings that say where things lie: a record keeps the last part only."""


@dataclass(frozen=True)
class Record:
    """A finished run, as far as tables and figures ask."""

    name: str
    seed: int
    settings: Mapping[str, Any]
    """the run's resolved settings, section by section"""
    result: Mapping[str, Any]
    """as `in2r eval` writes it: rows, chance, health, protocol"""
    epochs: list[dict[str, Any]]
    """the run's log"""


@dataclass(frozen=True)
class Cotraining:
    """How co-training went, over one run or several."""

    epochs: int
    one_group: float
    """epochs of these in which the pairs formed one group, so that a network went on with the warm-up loss on all of
    them; half a one where that befell one network of the two"""

    def __str__(self) -> str:
        return f"{self.one_group:g} of {self.epochs}"


def cotraining(records: Iterable[Record]) -> Cotraining:
    """Return how co-training went in these runs together."""
    later = [entry for record in records for entry in record.epochs if entry.get("phase") == "co-training"]
    alone = [
        entry
        for entry in later
        for name in "AB"
        if entry.get(f"single_mode_{name}") and entry.get(f"clean_fraction_{name}") == 1
    ]
    return Cotraining(len(later), len(alone) / 2)  # of two networks


def make_record(name: str, folder: RunFolder, result: Mapping[str, Any]) -> Record:
    """Make the record of a run that was tested."""
    settings = to_dict(folder.config())
    for section, key in PLACES:
        if settings[section][key] is not None:
            settings[section][key] = Path(settings[section][key]).name
    settings["checkpoint"]["warmups"] = None
    result = json.loads(json.dumps(result))
    result["protocol"]["data"]["path"] = Path(result["protocol"]["data"]["path"]).name
    return Record(name, settings["train"]["seed"], settings, result, folder.records())


def write_record(file: Path, record: Record) -> None:
    """Write a record: one line per epoch, so that two of them can be compared."""
    lines = [
        f'"{key}": {json.dumps(value, ensure_ascii=False)}'
        for key, value in (
            ("name", record.name), ("seed", record.seed), ("settings", record.settings), ("result", record.result),
        )
    ]  # fmt: skip
    epochs = ",\n".join(json.dumps(epoch, ensure_ascii=False) for epoch in record.epochs)
    write_text(file, "{" + ",\n".join(lines) + f',\n"epochs": [\n{epochs}\n]' + "}\n")


def read_record(file: Path) -> Record:
    """Read a record.

    Raises:
        InputError: not a record.
    """
    values = read_json(file)
    try:
        return Record(values["name"], values["seed"], values["settings"], values["result"], list(values["epochs"]))
    except (KeyError, TypeError):
        raise InputError(f"{file}: not the record of a run (name, seed, settings, result, epochs)") from None


def require_settings(record: Record, config: RunConfig) -> None:
    """Refuse a record that was made with other settings than these; where things lie does not count.

    Raises:
        InputError: names up to three of them.
    """
    try:
        settings = to_dict(resolve(record.settings))
    except InputError as error:
        raise InputError(f"record {record.name}: {error}") from None
    changed = [*record.result["protocol"].get("changed_settings", []), *changed_settings(settings, config)]
    if changed:
        raise InputError(f"record {record.name}: made with other settings than the grid has: {'; '.join(changed[:3])}")


def read_records(folder: Path) -> dict[str, Record]:
    """Read all records of a folder, by the name of their cell."""
    files = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith(".")]  # those are half written
    return {file.stem: read_record(file) for file in files}
