"""Tables of a grid, from its grid.yaml and its records alone."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from in2r.bench.compare import RANKED, SINGLE, Block, Line, Run, make_blocks
from in2r.bench.grid import Group, Row
from in2r.bench.groups import GroupRecords, read_group_records
from in2r.bench.paper import PaperFigure, paper_figure
from in2r.bench.records import Record, main_phase
from in2r.errors import InputError


@dataclass(frozen=True)
class Table:
    """A group of a grid."""

    group: str
    title: str
    axes: tuple[str, ...]
    baseline: str | None
    blocks: tuple[Block, ...]
    unknown: tuple[str, ...]
    """records in the grid's folder that are of no cell of the grid"""
    quoted: tuple[PaperFigure, ...]
    """printed figures of methods that are no rows"""

    @property
    def is_measured(self) -> bool:
        """Whether anything of it is."""
        return any(line.runs for block in self.blocks for line in block.lines)

    @property
    def shown(self) -> tuple[Block, ...]:
        """What people are shown: no blocks of dashes where nothing is measured, which the notes say."""
        return self.blocks if self.is_measured else ()


def read_tables(folder: Path, groups: Sequence[str] = (), minus: str | None = None) -> list[Table]:
    """Make the tables of a grid folder from its grid.yaml and records/ alone.

    Args:
        folder: the grid folder.
        groups: names of groups; none = all.
        minus: label on the first axis of the row that differences are taken to, in place of the groups' own.

    Raises:
        InputError: not a grid folder, no such group or label, or a record that is not of the grid's settings.
    """
    return make_tables(read_group_records(folder, groups), minus)


def make_tables(groups: Sequence[GroupRecords], minus: str | None = None) -> list[Table]:
    """Make the tables of groups; see `read_tables`."""
    return [_table(found, minus) for found in groups]


def make_run(record: Record) -> Run:
    """Take from a record what a table shows."""
    return Run(_figures(record), record.result.protocol)


def _figures(record: Record) -> dict[str, float]:
    result, epochs = record.result, record.epochs
    recalls = {f"{name}_{figure}": value for name, row in result.rows.items() for figure, value in row.items()}
    return {
        SINGLE: statistics.fmean(result.rows[name]["rsum"] for name in result.networks),
        **{figure: recalls[figure] for figure in RANKED if figure != SINGLE},  # the first columns of a file
        **recalls,
        "steps": statistics.fmean(result.protocol.steps_per_network.values()),
        "seconds": math.fsum(epoch.seconds for epoch in epochs),
        "epochs_taken_over": sum(epoch.taken_over for epoch in epochs),
        **_course(record),
        **({} if result.chance is None else {"chance_rsum": result.chance["rsum"]}),
    }


def _course(record: Record) -> dict[str, float]:
    """Say which epoch was selected, and in how many epochs of the main phase the losses formed one group."""
    selected = record.result.protocol.selection.epoch
    main = main_phase([record])
    return {
        "epoch": selected,
        "epoch_is_of_warmup": float(
            any(epoch.epoch == selected and epoch.phase == "warm-up" for epoch in record.epochs)
        ),
        "main_epochs": main.epochs,
        "one_group_epochs": main.one_group,
    }


def _table(found: GroupRecords, minus: str | None) -> Table:
    group = found.group
    labels = dict.fromkeys(row.labels[0] for row in group.rows)
    if minus is not None and minus not in labels:
        raise InputError(f"group {group.name} has no row {minus}; labels of {group.axes[0]}: {', '.join(labels)}")
    baseline = minus or group.baseline
    lines = [_line(found, row, baseline) for row in group.rows]
    quoted = _quoted(group, [found.config(row).noise.ratio for row in group.rows])
    return Table(group.name, group.title, group.axes, baseline, make_blocks(lines), found.unknown, quoted)


def _line(found: GroupRecords, row: Row, baseline: str | None) -> Line:
    """Make a row, not yet compared with others."""
    config = found.config(row)
    noise, data = config.noise, config.data
    own = {seed: make_run(record) for seed, record in found.of(row).items()}
    return Line(
        labels=row.labels,
        cells=row.cells,
        runs=own,
        uses_truth=noise.oracle or noise.hide_original,
        is_forced=any(run.protocol.was_forced for run in own.values()),
        declared=(noise.level, noise.ratio, data.path, data.dev_rule, data.caption_vectors),
        paper=_paper(found.group, row, noise.ratio),
        spreads={},
        differences={},
        time_ratio=None,
        is_baseline=row.labels[0] == baseline,
        is_ranked=False,
    )


def _quoted(group: Group, ratios: Sequence[float | None]) -> tuple[PaperFigure, ...]:
    """Return what is printed of methods that are no rows, at the ratios of the rows."""
    if group.paper is None:
        return ()
    own = [group.paper.noise] if group.paper.noise is not None else list(dict.fromkeys(ratios))
    found = (paper_figure(group.paper.dataset, ratio, method) for method in group.paper.quoted for ratio in own)
    return tuple(figure for figure in found if figure is not None)


def _paper(group: Group, row: Row, ratio: float | None) -> PaperFigure | None:
    paper = group.paper
    if paper is None or row.labels[0] not in paper.rows:
        return None
    return paper_figure(paper.dataset, ratio if paper.noise is None else paper.noise, paper.rows[row.labels[0]])
