"""A grid: groups of rows, each row one setting, trained with several seeds; every (row, seed) is a cell."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from in2r.config import deciding
from in2r.errors import InputError, near
from in2r.runs.presets import on_preset
from in2r.runs.settings import RunConfig, resolve
from in2r.settings_text import merge


@dataclass(frozen=True)
class Row:
    """One setting of a group, and its cells."""

    labels: tuple[str, ...]
    """its point on each axis of the group"""
    cells: Mapping[int, str]
    """seed → name of the cell"""


@dataclass(frozen=True)
class PaperRows:
    """Where the paper has figures for rows of a group."""

    dataset: str
    noise: float | None
    """None = the ratio of the row's own settings"""
    rows: Mapping[str, str]
    """label on the first axis → method in the paper's table"""
    quoted: tuple[str, ...] = ()
    """methods that are no rows here, because they cannot be run: their printed figures are named under the table"""


@dataclass(frozen=True)
class Group:
    """Rows to compare with each other."""

    name: str
    title: str
    axes: tuple[str, ...]
    rows: tuple[Row, ...]
    baseline: str | None
    """label on the first axis of the rows that are subtracted from the others"""
    paper: PaperRows | None


@dataclass(frozen=True)
class Cell:
    """One run."""

    name: str
    seed: int
    priority: int
    settings: Mapping[str, Any]
    """nested settings, with the seed; `noise.index` may still be missing where a ratio is given"""

    @property
    def asked_index(self) -> str | None:
        """The noise index that the grid names; None = none, or one that is to be drawn."""
        found = self.settings["noise"].get("index") if "noise" in self.settings else None
        return None if found is None else str(found)


@dataclass(frozen=True)
class Grid:
    """All cells in order of priority, and the groups that they belong to."""

    title: str
    groups: tuple[Group, ...]
    cells: tuple[Cell, ...]
    folds: int
    """test folds, as `in2r eval --folds`"""

    def named(self, names: Iterable[str]) -> list[Group]:
        """Return the groups of these names; `InputError` for a name that none has."""
        known = {group.name: group for group in self.groups}
        for name in names:
            if name not in known:
                raise InputError(f"no group {name} in the grid; groups: {', '.join(known)}{near(name, known)}")
        return [known[name] for name in names]


def cell_config(cell: Cell) -> RunConfig:
    """Resolve a cell's settings; `noise.index` is "drawn" where a ratio is given without a file."""
    settings = on_preset(cell.settings)
    noise = settings.get("noise")
    if isinstance(noise, Mapping) and noise.get("ratio") and not noise.get("index"):
        settings = merge(settings, {"noise": {"index": "drawn", "level": noise.get("level") or "caption"}})
    return resolve(settings)


def identity(config: RunConfig) -> str:
    """Return what tells two cells apart: all settings but on what they compute and how the run is kept."""
    return json.dumps(deciding(config, "learning", "main phase", "place"), sort_keys=True)
