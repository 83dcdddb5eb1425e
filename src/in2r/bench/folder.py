"""The folder of a grid: where everything of it lies, and how far each cell is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from in2r.bench.grid import Grid, cell_config, identity
from in2r.bench.grid_file import expand
from in2r.bench.records import Records
from in2r.claims import Claim, Holder, claim, holder
from in2r.config import to_dict
from in2r.errors import InputError
from in2r.files import write_text
from in2r.methods.registry import method_file
from in2r.runs.folder import RunFolder
from in2r.runs.identity import changed_settings
from in2r.runs.info import MethodFile
from in2r.settings_text import read_yaml

State = Literal["finished", "running", "failed", "interrupted", "open"]


class GridFolder:
    """Where everything of one grid lies; the names of its parts are the attributes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.grid_file = self.path / "grid.yaml"
        self.cells = self.path / "cells"
        self.records = Records(self.path / "records")
        self.logs = self.path / "logs"
        self.noise = self.path / "noise"
        self.warmups = self.path / "warmups"
        self.claims = self.path / "claims"
        self.failed = self.path / "failed"

    def require(self) -> "GridFolder":
        """Raise `InputError` unless this is the folder of a grid."""
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
            if name != cell.name and (self.run(cell.name).exists() or cell.name in self.records):
                become = "would be gone from the grid" if name is None else f"would be named {name}"
                raise InputError(
                    f"{self.path}: cell {cell.name}, which was run, {become}; leave groups and labels as they are and "
                    "put what is new after them, or give another folder"
                )

    def require_same_settings(self, grid: Grid) -> None:
        """Refuse a grid whose cells were run with other settings, or tested with other folds.

        Raises:
            InputError: names the cell and what differs.
        """
        for cell in grid.cells:
            run, found = self.run(cell.name), None
            if cell.name in self.records:
                record = self.records[cell.name]
                found, folds = record.config, record.result.protocol.evaluated.folds
                if folds != grid.folds:
                    raise InputError(
                        f"{self.path}: cell {cell.name} was tested with folds {folds}, the grid asks for {grid.folds} "
                        f"now; remove {self.records.file(cell.name)}, and it is tested again"
                    )
                self._require_same_method(cell.name, record.result.protocol.method_file, cell_config(cell).method.name)
            elif run.exists():
                found = run.config()
            changed = [] if found is None else changed_settings(to_dict(found), cell_config(cell))
            if changed:
                raise InputError(
                    f"{self.path}: cell {cell.name} was run with other settings than the grid asks for now: "
                    f"{', '.join(changed)}; give another folder"
                )

    def _require_same_method(self, name: str, recorded: MethodFile | None, method: str) -> None:
        now = method_file(method)
        if recorded is not None and now is not None and recorded.sha256 != now["sha256"]:
            raise InputError(
                f"{self.path}: cell {name} was run with another version of {now['path']}; put the file back, or give "
                "another folder"
            )

    def run(self, name: str) -> RunFolder:
        """Return the run folder of a cell."""
        return RunFolder(self.cells / name)

    def log_file(self, name: str) -> Path:
        """Return where the messages of a cell's training lie."""
        return self.logs / f"{name}.log"

    def claim_file(self, name: str) -> Path:
        """Return where the claim of a cell lies."""
        return self.claims / f"{name}.json"

    def claim(self, name: str) -> Claim | None:
        """Claim a cell; None when someone holds it."""
        self.claims.mkdir(parents=True, exist_ok=True)
        return claim(self.claim_file(name))

    def holder(self, name: str) -> Holder | None:
        """Return who works on a cell; None when nobody does."""
        return holder(self.claim_file(name))

    def holder_note(self, name: str) -> str:
        """Say who works on a cell; on another machine, which file to remove when that has ended."""
        holder = self.holder(name)
        if holder is None or holder.is_alive:
            return str(holder or "nobody")
        return f"{holder}; if it has ended, remove {self.claim_file(name)}"

    def state(self, name: str) -> State:
        """Say how far a cell is."""
        if name in self.records:
            return "finished"
        if self.holder(name) is not None:
            return "running"
        if self.failure_file(name).is_file():
            return "failed"
        return "interrupted" if self.run(name).exists() else "open"

    def epochs_done(self, name: str) -> int:
        """Return how many epochs of a cell are done; 0 where its log cannot be read, which the cell itself reports."""
        try:
            return len(self.run(name).records())
        except InputError:
            return 0

    def failure_file(self, name: str) -> Path:
        """Return where it is noted why a cell failed."""
        return self.failed / f"{name}.txt"

    def failure(self, name: str) -> str:
        """Return why a cell failed."""
        try:
            return self.failure_file(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            return f"unknown: {self.failure_file(name)}: {error.strerror}"

    def write_failure(self, name: str, error: str) -> None:
        """Note why a cell failed."""
        write_text(self.failure_file(name), f"{error}\n")
