"""The folder of a grid: where everything of it lies, and how each cell stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from in2r.bench.grid import Grid, cell_config, identity
from in2r.bench.grid_file import expand
from in2r.bench.leases import EXPIRES, Lease, claim, holder
from in2r.bench.protocols import RESULT
from in2r.bench.records import Record, read_record, read_records
from in2r.config import read_yaml, to_dict
from in2r.errors import InputError
from in2r.files import read_json, write_json, write_text
from in2r.form import require_form
from in2r.runs.folder import RunFolder, changed_settings
from in2r.runs.settings import resolve

State = Literal["finished", "running", "broken", "interrupted", "open"]


@dataclass(frozen=True)
class Fault:
    """Why a cell is broken."""

    error: str
    date: str


class GridFolder:
    """Where everything of one grid lies; the names of its parts are the attributes.

    Args:
        path: the folder.
        expires: seconds after which a lease that is not renewed has run out.
    """

    def __init__(self, path: str | Path, expires: float = EXPIRES) -> None:
        self.path, self.expires = Path(path), expires
        self.grid_file = self.path / "grid.yaml"
        self.cells = self.path / "cells"
        self.records = self.path / "records"
        self.logs = self.path / "logs"
        self.noise = self.path / "noise"
        self.warmups = self.path / "warmups"
        self.leases = self.path / "leases"
        self.broken = self.path / "broken"

    def require(self) -> "GridFolder":
        """Raise `InputError` unless a grid was begun here."""
        if not self.grid_file.is_file():
            raise InputError(f"{self.path}: not the folder of a grid (no grid.yaml); `in2r bench run` makes one")
        return self

    def values(self) -> dict[str, Any]:
        """Return what the grid asks for, as a grid file holds it."""
        return read_yaml(self.require().grid_file)

    def grid(self) -> Grid:
        """Return the grid."""
        return expand(self.values(), str(self.grid_file))

    def write(self, values: Mapping[str, Any]) -> None:
        """Write what the grid asks for now.

        Raises:
            InputError: a cell that was run would have another name or be gone, or has other settings or folds.
        """
        grid = expand(values)
        self.require_same_settings(grid)
        if self.grid_file.is_file():
            self._refuse_other_names(grid)
        write_text(self.grid_file, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))

    def _refuse_other_names(self, grid: Grid) -> None:
        names = {identity(cell_config(cell)): cell.name for cell in grid.cells}
        for cell in self.grid().cells:
            name = names.get(identity(cell_config(cell)))
            if name != cell.name and (self.run(cell.name).exists() or self.record_file(cell.name).is_file()):
                become = "would be gone from the grid" if name is None else f"would be named {name}"
                raise InputError(
                    f"{self.path}: cell {cell.name}, which was run, {become}; leave groups and labels as they are and "
                    "put what is new after them, or give another folder"
                )

    def require_same_settings(self, grid: Grid) -> None:
        """Refuse a grid whose cells were run or tested otherwise than it asks for.

        Raises:
            InputError: names the cell and what differs.
        """
        for cell in grid.cells:
            run, file, found = self.run(cell.name), self.record_file(cell.name), None
            if file.is_file():
                record = read_record(file)
                require_form(record.result, RESULT, f"{file}: result")
                found = resolve(record.settings)
                folds = record.result["protocol"]["evaluated"]["folds"]
                if folds != grid.folds:
                    raise InputError(
                        f"{self.path}: cell {cell.name} was tested with folds {folds}, the grid asks for {grid.folds} "
                        f"now; remove {file}, and it is tested again"
                    )
            elif run.exists():
                found = run.config()
            changed = [] if found is None else changed_settings(to_dict(found), cell_config(cell))
            if changed:
                raise InputError(
                    f"{self.path}: cell {cell.name} was run with other settings than the grid asks for now: "
                    f"{', '.join(changed)}; give another folder"
                )

    def run(self, name: str) -> RunFolder:
        """Return the run folder of a cell."""
        return RunFolder(self.cells / name)

    def record_file(self, name: str) -> Path:
        """Return where the record of a finished cell lies."""
        return self.records / f"{name}.json"

    def fault_file(self, name: str) -> Path:
        """Return where the fault of a broken cell lies."""
        return self.broken / f"{name}.json"

    def log_file(self, name: str) -> Path:
        """Return where the messages of a cell's training lie."""
        return self.logs / f"{name}.log"

    def claim(self, name: str) -> Lease | None:
        """Take a cell; None when someone holds it."""
        return claim(self.leases, name, self.expires)

    def state(self, name: str) -> State:
        """Say how a cell stands."""
        if self.record_file(name).is_file():
            return "finished"
        if holder(self.leases, name, self.expires) is not None:
            return "running"
        if self.fault_file(name).is_file():
            return "broken"
        return "interrupted" if self.run(name).exists() else "open"

    def epochs_done(self, name: str) -> int:
        """Return how many epochs of a cell are done; 0 where its log cannot be read, of which the cell itself tells."""
        try:
            return len(self.run(name).records())
        except InputError:
            return 0

    def fault(self, name: str) -> Fault:
        """Return why a cell is broken."""
        try:
            found = read_json(self.fault_file(name))
            return Fault(found["error"], found["date"])
        except (InputError, KeyError, TypeError):
            return Fault(f"not known: {self.fault_file(name)} cannot be read", "")

    def write_fault(self, name: str, fault: Fault) -> None:
        """Note why a cell is broken."""
        write_json(self.fault_file(name), {"error": fault.error, "date": fault.date})

    def finished(self) -> dict[str, Record]:
        """Return the records of all finished cells."""
        return read_records(self.records)
