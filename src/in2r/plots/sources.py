"""What figures are made of: the log of a run, or the records of a grid's group."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from in2r.bench.grid import Group, Row, cell_config, expand
from in2r.bench.records import Record, read_record, read_records, require_settings
from in2r.config import read_yaml
from in2r.engine.run import RunFolder
from in2r.errors import InputError
from in2r.results.protocol import describe_noise


@dataclass(frozen=True)
class RunLog:
    """A run, as far as its own log tells."""

    name: str
    seed: int
    method: str
    data: str
    """name of the data folder"""
    fingerprint: str
    """of the data that it was trained with"""
    noise: dict[str, Any] | None
    """as in run.json"""
    epochs: list[dict[str, Any]]

    def describe(self) -> str:
        """Say in one line what the run is."""
        return f"{self.name}: {self.method}, seed {self.seed}; {describe_data(self)}; {describe_noise(self.noise)}"


def describe_data(log: RunLog) -> str:
    """Name data and their fingerprint."""
    return f"data {log.data} ({log.fingerprint[:12]})"


def read_log(path: str | Path) -> RunLog:
    """Read a run folder, or the record of a run (a .json file).

    Raises:
        InputError: neither of them, or no epoch has ended.
    """
    log = _of_record(Path(path)) if Path(path).suffix == ".json" else _of_folder(RunFolder(path))
    if not log.epochs:
        raise InputError(f"{path}: no epoch has ended yet")
    return log


def _of_record(file: Path) -> RunLog:
    record = read_record(file)
    protocol = record.result["protocol"]
    data = protocol["data"]
    fingerprint = data["fingerprint_in_training"]
    return RunLog(
        record.name, record.seed, protocol["method"], data["path"], fingerprint, protocol["noise"], record.epochs
    )


def _of_folder(folder: RunFolder) -> RunLog:
    info = folder.info()
    data = info["data"]
    return RunLog(
        folder.path.resolve().name,
        info["seed"],
        info["method"],
        Path(data["path"]).name,
        data["fingerprint"]["hash"],
        info["noise"],
        folder.records(),
    )


@dataclass(frozen=True)
class GroupRecords:
    """A group of a grid with what has been measured of it."""

    group: Group
    records: dict[str, Record]
    """name of a cell → its record; cells that are not finished are missing"""
    missing: int
    """cells of the group without a record"""

    def of(self, row: Row) -> dict[int, Record]:
        """Return the row's records by seed."""
        return {seed: self.records[cell] for seed, cell in row.cells.items() if cell in self.records}


def read_groups(grid: str | Path, names: Iterable[str]) -> list[GroupRecords]:
    """Read groups of a grid folder from grid.yaml and records/ alone.

    Raises:
        InputError: no grid folder, no such group, a group without any record, or a record of other settings.
    """
    file = Path(grid) / "grid.yaml"
    if not file.is_file():
        raise InputError(f"{grid}: not a grid folder (no grid.yaml); `in2r bench run` makes one")
    wanted = expand(read_yaml(file), str(file))
    groups = {group.name: group for group in wanted.groups}
    by_name = {cell.name: cell for cell in wanted.cells}
    records = read_records(Path(grid) / "records")
    found = []
    for name in names:
        if name not in groups:
            raise InputError(f"{file}: no group {name}; groups: {', '.join(groups)}")
        cells = {cell for row in groups[name].rows for cell in row.cells.values()}
        own = {cell: records[cell] for cell in sorted(cells) if cell in records}
        for cell, record in own.items():
            require_settings(record, cell_config(by_name[cell]))
        if not own:
            raise InputError(f"{grid}: no record of group {name} yet; `in2r bench run` makes them")
        found.append(GroupRecords(groups[name], own, len(cells) - len(own)))
    return found
