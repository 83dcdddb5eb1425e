"""Tables of a grid, from its grid.yaml and its records alone."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from in2r.bench.compare import RANKED, SINGLE, Block, Line, Run, make_blocks
from in2r.bench.grid import Cell, Grid, Group, Row, cell_config, expand, read_grid
from in2r.bench.paper import PaperFigure, paper_figure, paper_methods
from in2r.bench.protocols import describe
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
    file = folder / "grid.yaml"
    if not file.is_file():
        raise InputError(f"{folder}: not a grid folder (no grid.yaml); `in2r bench run` makes one")
    return make_tables(expand(read_grid(file), str(file)), read_records(folder / "records"), groups, minus)


def make_tables(
    grid: Grid, records: Mapping[str, Record], groups: Sequence[str] = (), minus: str | None = None
) -> list[Table]:
    """Make a grid's tables; see `read_tables`."""
    known = {group.name: group for group in grid.groups}
    for name in groups:
        if name not in known:
            raise InputError(f"no group {name} in the grid; groups: {', '.join(known)}")
    configs = {cell.name: cell_config(cell) for cell in grid.cells}
    runs = {}
    for cell in grid.cells:
        if cell.name in records:
            runs[cell.name] = _run(records[cell.name], cell, configs[cell.name])
    strangers = tuple(sorted(records.keys() - configs.keys()))
    return [_table(known[name], configs, runs, minus, strangers) for name in groups or known]


def _run(record: Record, cell: Cell, config: RunConfig) -> Run:
    """Take a record's figures, if it is the record of this cell."""
    place = f"record {cell.name}"
    if (record.name, record.seed) != (cell.name, cell.seed):
        raise InputError(f"{place}: is of cell {record.name}, seed {record.seed}; the grid has seed {cell.seed} here")
    try:
        protocol = record.result["protocol"]
        require_settings(record, config)
        figures = _figures(record)
        describe({record.seed: protocol})
    except (KeyError, TypeError) as error:
        raise InputError(f"{place}: not a whole record of a tested run ({error})") from None
    if not protocol["finished"]:
        raise InputError(f"{place}: of an unfinished run ({protocol['epochs_done']} epochs)")
    return Run(figures, protocol)


def _figures(record: Record) -> dict[str, float]:
    rows, epochs = record.result["rows"], record.epochs
    single = [row["rsum"] for name, row in rows.items() if name != "ensemble"]
    recalls = {f"{name}_{figure}": value for name, row in rows.items() for figure, value in row.items()}
    return {
        SINGLE: statistics.fmean(single),
        **{figure: recalls[figure] for figure in RANKED if figure != SINGLE},  # those must be there
        **recalls,
        "steps": statistics.fmean(record.result["protocol"]["steps_per_network"].values()),
        "seconds": math.fsum(epoch["seconds"] for epoch in epochs),
        "epochs_taken_over": sum("taken_over" in epoch for epoch in epochs),
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
    return Line(
        labels=row.labels,
        cells=row.cells,
        runs={seed: runs[cell] for seed, cell in row.cells.items() if cell in runs},
        uses_truth=noise.oracle or noise.hide_original,
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
    method = paper.rows[row.labels[0]]
    if method not in paper_methods(paper.dataset):
        raise InputError(f"group {group.name}: the paper has no figure of {method} on {paper.dataset}")
    return paper_figure(paper.dataset, ratio if paper.noise is None else paper.noise, method)
