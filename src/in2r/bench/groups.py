"""Groups of a grid with what has been measured of them: what tables and figures are made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell, Grid, Group, Row, cell_config
from in2r.bench.records import Record, require_settings
from in2r.errors import InputError
from in2r.runs.settings import RunConfig


@dataclass(frozen=True)
class GroupRecords:
    """A group, its settings, and the records that are there; each is of its cell and settings."""

    group: Group
    records: Mapping[str, Record]
    """name of a cell → its record; cells that are not finished are missing"""
    configs: Mapping[str, RunConfig]
    """name of a cell, finished or not → its settings"""
    unknown: tuple[str, ...]
    """records in the grid's folder that are of no cell of the grid"""

    @property
    def missing(self) -> int:
        """Return how many cells have no record."""
        return len(self.configs) - len(self.records)

    def config(self, row: Row) -> RunConfig:
        """Return the row's settings, with the seed of its first cell."""
        return self.configs[next(iter(row.cells.values()))]

    def of(self, row: Row) -> dict[int, Record]:
        """Return the row's records by seed."""
        return {seed: self.records[cell] for seed, cell in row.cells.items() if cell in self.records}


def read_group_records(folder: str | Path, names: Iterable[str] = ()) -> list[GroupRecords]:
    """Read groups of a grid folder, from its grid.yaml and records/ alone.

    Args:
        folder: the grid folder.
        names: of groups; none = all.

    Raises:
        InputError: not a grid folder, no such group, or a record of a group that is damaged or not of its settings.
    """
    grid = GridFolder(folder)
    return group_records(grid.grid(), grid.records, names)


def group_records(grid: Grid, records: Mapping[str, Record], names: Iterable[str] = ()) -> list[GroupRecords]:
    """Put the records of a grid into its groups; see `read_group_records`."""
    wanted = list(names)
    cells = {cell.name: cell for cell in grid.cells}
    unknown = tuple(sorted(records.keys() - cells.keys()))
    found = []
    for group in grid.named(wanted) if wanted else grid.groups:
        own = sorted({cell for row in group.rows for cell in row.cells.values()})
        configs = {name: cell_config(cells[name]) for name in own}
        measured = {name: records[name] for name in own if name in records}
        for name, record in measured.items():
            _require_record(record, cells[name], configs[name])
        found.append(GroupRecords(group, measured, configs, unknown))
    return found


def _require_record(record: Record, cell: Cell, config: RunConfig) -> None:
    """Refuse a record of another cell or other settings, and one of an unfinished run."""
    place = f"record {cell.name}"
    if (record.name, record.seed) != (cell.name, cell.seed):
        raise InputError(f"{place}: is of cell {record.name}, seed {record.seed}; the grid has seed {cell.seed} here")
    require_settings(record, config)
    if not record.result.protocol.finished:
        raise InputError(f"{place}: of an unfinished run ({record.result.protocol.epochs_done} epochs)")
