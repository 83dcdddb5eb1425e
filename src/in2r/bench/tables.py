"""Tables of a grid, from its grid.yaml and its records alone."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from in2r.bench.compare import RANKED, SINGLE, Block, Line, Run, make_blocks
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell, Grid, Group, Row, cell_config
from in2r.bench.paper import PaperFigure, paper_figure
from in2r.bench.protocols import RESULT, forced, require_form
from in2r.bench.records import Record, read_records, require_settings
from in2r.engine.settings import RunConfig
from in2r.errors import InputError


@dataclass(frozen=True)
class Table:
    """A group of a grid."""

    group: str
    title: str
    axes: tuple[str, ...]
    baseline: str | None
    blocks: tuple[Block, ...]
    strangers: tuple[str, ...]
    """records in the grid's folder that are of no cell of the grid"""


def read_tables(folder: Path, groups: Sequence[str] = (), minus: str | None = None) -> list[Table]:
    """Make the tables of a grid folder from its grid.yaml and records/ alone.

    Args:
        folder: the grid folder.
        groups: names of groups; none = all.
        minus: label on the first axis of the row that differences are taken to, in place of the groups' own.

    Raises:
        InputError: not a grid folder, no such group or label, or a record that is not of the grid's settings.
    """
    grid = GridFolder(folder)
    return make_tables(grid.grid(), read_records(grid.records), groups, minus)


def make_tables(
    grid: Grid, records: Mapping[str, Record], groups: Sequence[str] = (), minus: str | None = None
) -> list[Table]:
    """Make a grid's tables; see `read_tables`."""
    wanted = grid.named(groups) if groups else grid.groups
    configs = {cell.name: cell_config(cell) for cell in grid.cells}
    runs = {}
    for cell in grid.cells:
        if cell.name in records:
            runs[cell.name] = read_run(records[cell.name], cell, configs[cell.name])
    strangers = tuple(sorted(records.keys() - configs.keys()))
    return [_table(group, configs, runs, minus, strangers) for group in wanted]


def read_run(record: Record, cell: Cell, config: RunConfig) -> Run:
    """Take what tables and figures read of a record, once all of it is found whole.

    Args:
        record: what is kept of the cell.
        cell: whose record it must be.
        config: the cell's settings.

    Raises:
        InputError: a record of another cell or other settings, a damaged one, or one of an unfinished run.
    """
    place = f"record {cell.name}"
    if (record.name, record.seed) != (cell.name, cell.seed):
        raise InputError(f"{place}: is of cell {record.name}, seed {record.seed}; the grid has seed {cell.seed} here")
    require_form(record.settings, {str: {str: object}}, f"{place}: settings")
    require_form(record.result, RESULT, f"{place}: result")
    require_form(record.epochs, [{"seconds": float}], f"{place}: epochs")
    rows, protocol = record.result["rows"], record.result["protocol"]
    if len(rows) != 3:
        raise InputError(f"{place}: result.rows: expected A, B and ensemble, got {', '.join(rows)}")
    require_settings(record, config)
    if not protocol["finished"]:
        raise InputError(f"{place}: of an unfinished run ({protocol['epochs_done']} epochs)")
    return Run(_figures(record), protocol)


def _figures(record: Record) -> dict[str, float]:
    rows, epochs = record.result["rows"], record.epochs
    recalls = {f"{name}_{figure}": value for name, row in rows.items() for figure, value in row.items()}
    return {
        SINGLE: statistics.fmean(rows[name]["rsum"] for name in ("A", "B")),
        **{figure: recalls[figure] for figure in RANKED if figure != SINGLE},  # the first columns of a file
        **recalls,
        "steps": statistics.fmean(record.result["protocol"]["steps_per_network"].values()),
        "seconds": math.fsum(epoch["seconds"] for epoch in epochs),
        "epochs_taken_over": sum("taken_over" in epoch for epoch in epochs),
        **_course(record),
        **({"chance_rsum": record.result["chance"]["rsum"]} if "chance" in record.result else {}),
    }


def _course(record: Record) -> dict[str, float]:
    """Say which epoch was selected, and whether co-training was what its name says."""
    epoch = record.result["protocol"]["selection"]["epoch"]
    later = [entry for entry in record.epochs if entry.get("phase") == "co-training"]
    alone = [
        entry
        for entry in later
        for name in "AB"
        if entry.get(f"single_mode_{name}") and entry.get(f"clean_fraction_{name}") == 1
    ]
    return {
        "epoch": epoch,
        "epoch_is_of_warmup": float(epoch <= record.settings.get("method", {}).get("warmup_epochs", 0)),
        "cotraining_epochs": len(later),
        "one_group_epochs": len(alone) / 2,  # of two networks
    }


def _table(
    group: Group,
    configs: Mapping[str, RunConfig],
    runs: Mapping[str, Run],
    minus: str | None,
    strangers: tuple[str, ...],
) -> Table:
    labels = dict.fromkeys(row.labels[0] for row in group.rows)
    if minus is not None and minus not in labels:
        raise InputError(f"group {group.name} has no row {minus}; labels of {group.axes[0]}: {', '.join(labels)}")
    baseline = minus or group.baseline
    lines = [_line(group, row, configs, runs, baseline) for row in group.rows]
    return Table(group.name, group.title, group.axes, baseline, make_blocks(lines), strangers)


def _line(
    group: Group, row: Row, configs: Mapping[str, RunConfig], runs: Mapping[str, Run], baseline: str | None
) -> Line:
    """Make a row as it is before it is set beside others."""
    config = configs[next(iter(row.cells.values()))]
    noise, data = config.noise, config.data
    own = {seed: runs[cell] for seed, cell in row.cells.items() if cell in runs}
    return Line(
        labels=row.labels,
        cells=row.cells,
        runs=own,
        uses_truth=noise.oracle or noise.hide_original,
        is_forced=any(forced(run.protocol) for run in own.values()),
        declared=(noise.level, noise.ratio, data.path, data.dev_rule, data.caption_vectors),
        paper=_paper(group, row, noise.ratio),
        spreads={},
        differences={},
        time_ratio=None,
        is_baseline=row.labels[0] == baseline,
        is_ranked=False,
    )


def _paper(group: Group, row: Row, ratio: float | None) -> PaperFigure | None:
    paper = group.paper
    if paper is None or row.labels[0] not in paper.rows:
        return None
    return paper_figure(paper.dataset, ratio if paper.noise is None else paper.noise, paper.rows[row.labels[0]])
