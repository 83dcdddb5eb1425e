"""What is left to do of a grid: which cells this invocation takes, which of them cannot be started, and the time."""

import json
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean

from in2r.bench.cell import Placement, placed_config
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell, cell_config
from in2r.bench.records import Record
from in2r.bench.warmups import warmup_key
from in2r.config import deciding, to_dict
from in2r.device import resolve_device
from in2r.errors import InputError
from in2r.runs.settings import RunConfig
from in2r.training.setup import open_setup


def share_of(cells: Sequence[Cell], number: int, shares: int) -> list[Cell]:
    """Return the cells of one of several shares of almost equal size, which together are all cells.

    The cells are dealt out in their order, each to the share with the fewest so far. A cell that shares a warm-up with
    one before it goes to that one's share, as long as no share gets more than its part of all cells, rounded up.

    Args:
        cells: what is dealt out.
        number: which share, from 1.
        shares: how many there are.
    """
    most = ceil(len(cells) / shares)
    dealt: list[list[Cell]] = [[] for _ in range(shares)]
    by_warmup: dict[str, list[Cell]] = {}
    for cell in cells:
        key = warmup_key(cell_config(cell)) or cell.name
        own = by_warmup.get(key)
        if own is None or len(own) >= most:
            own = by_warmup[key] = min(dealt, key=len)
        own.append(cell)
    return dealt[number - 1]


def faults(folder: GridFolder, cells: Iterable[Cell], place: Placement) -> dict[str, str]:
    """Open the data of cells and draw their noise indices; return the cells that cannot be started here, and why."""
    checked: dict[str, str] = {}
    found = {}
    for cell in cells:
        values = to_dict(cell_config(cell))
        key = json.dumps([values["data"], values["noise"], values["model"], cell.seed], sort_keys=True)
        if key not in checked:
            checked[key] = _fault(folder, cell, place)
        if checked[key]:
            found[cell.name] = checked[key]
    return found


def _fault(folder: GridFolder, cell: Cell, place: Placement) -> str:
    try:
        config = placed_config(folder, cell, place)
        open_setup(config, resolve_device(config.train.device), first=False)
    except InputError as error:
        return str(error)
    return ""


def epochs_left(folder: GridFolder, cell: Cell) -> int:
    """Return how many epochs of an unfinished cell are left to train."""
    return max(0, cell_config(cell).train.epochs - folder.epochs_done(cell.name))


def seconds_left(folder: GridFolder, cells: Iterable[Cell]) -> float | None:
    """Return how long unfinished cells will take, one after the other; None before any cell of the grid is finished.

    A cell's epoch counts as long as the mean epoch of the finished cells with the same data, noise, model, training
    settings and method, whatever their seed; of all finished cells where none is like it. Epochs that were taken over
    from a shared warm-up took no time.

    Args:
        folder: the grid's folder.
        cells: the cells that are left.
    """
    measured: dict[str, list[float]] = {}
    for record in folder.records.values():
        measured.setdefault(_kind(record.config), []).append(_epoch_seconds(record))
    if not measured:
        return None
    everything = [seconds for found in measured.values() for seconds in found]
    return sum(epochs_left(folder, cell) * fmean(measured.get(_kind(cell_config(cell)), everything)) for cell in cells)


def _kind(config: RunConfig) -> str:
    settings = {key: value for key, value in deciding(config, "learning").items() if key != "train.seed"}
    return json.dumps([config.method.name, Path(config.data.path).name, settings], sort_keys=True)


def _epoch_seconds(record: Record) -> float:
    return fmean(0.0 if epoch.taken_over else epoch.seconds for epoch in record.epochs)
