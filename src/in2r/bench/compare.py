"""Rows compared: means over seeds, paired differences, ranks; only among runs of one protocol."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scipy.special import stdtrit

from in2r.bench.paper import PaperFigure
from in2r.bench.protocols import Protocol, agree, describe
from in2r.bench.records import RECALLS, MainPhase

RSUM, SINGLE = "ensemble_rsum", "single_rsum"
RANKED = (RSUM, SINGLE, *(f"ensemble_{recall}" for recall in RECALLS))
"""Figures that rows are ranked by, each in its own column."""


@dataclass(frozen=True)
class Spread:
    """The mean over n seeds and their sample standard deviation (None for one)."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """The mean of n differences, each within one seed, and the 95 % interval of the paired t-test (None for one)."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Run:
    """A finished cell."""

    figures: Mapping[str, float]
    """recalls and rSum of each network and the ensemble (`A_i2t_r1`), `single_rsum`, `steps`, `seconds`, and more from
    `tables.make_run`"""
    protocol: Protocol


@dataclass(frozen=True)
class Line:
    """One row of a table, alone and against the baseline of its block."""

    labels: tuple[str, ...]
    cells: Mapping[int, str]
    runs: Mapping[int, Run]
    """seed → its run; those of unfinished cells are missing"""
    uses_truth: bool
    is_forced: bool
    """a run of it was trained or tested in spite of changed data or settings"""
    declared: tuple[Any, ...]
    """data and noise by the settings; they choose the block of a row of which nothing is measured"""
    paper: PaperFigure | None
    spreads: Mapping[str, Spread]
    """figure → over the seeds; empty where nothing is measured or the seeds' protocols differ"""
    differences: Mapping[str, Difference]
    """RSUM and SINGLE → against the baseline"""
    time_ratio: float | None
    """mean over seeds of its seconds over the baseline's"""
    is_baseline: bool
    is_ranked: bool

    @property
    def protocols(self) -> dict[int, Protocol]:
        """Seed → protocol of its run."""
        return {seed: run.protocol for seed, run in self.runs.items()}

    @property
    def is_unrankable(self) -> bool:
        """Whether it must never be ranked."""
        return self.uses_truth or self.is_forced

    @property
    def main_phase(self) -> MainPhase:
        """The main phase of all its runs."""
        epochs, one_group = (sum(self.values(name).values()) for name in ("main_epochs", "one_group_epochs"))
        return MainPhase(int(epochs), one_group)

    @property
    def is_coherent(self) -> bool:
        """Whether all its seeds were run under one protocol."""
        shared = [protocol.shared() for protocol in self.protocols.values()]
        return all(entry == shared[0] for entry in shared)

    def values(self, figure: str) -> dict[int, float]:
        """Return a figure by seed."""
        return {seed: run.figures[figure] for seed, run in sorted(self.runs.items())}


@dataclass(frozen=True)
class Block:
    """Rows of one protocol: what may be compared."""

    heading: str
    lines: tuple[Line, ...]
    best: Mapping[str, float]
    """ranked figure → the best mean of the ranked rows, to the decimal that is shown"""

    def baseline_of(self, line: Line) -> Line | None:
        """Return the row that is subtracted from this one: measured, in this block, equal on all axes but the first."""
        found = (row for row in self.lines if row.is_baseline and row.runs and row.labels[1:] == line.labels[1:])
        return next(found, None)


def spread(values: Sequence[float]) -> Spread:
    """Return mean and sample standard deviation."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def paired_difference(ours: Mapping[int, float], others: Mapping[int, float]) -> Difference | None:
    """Compare the seeds that both have; None where there is none.

    The interval is mean ± t(0.975, n - 1) · s / √n, s the sample standard deviation of the differences.
    """
    differences = [ours[seed] - others[seed] for seed in sorted(ours.keys() & others.keys())]
    if not differences:
        return None
    mean, n = statistics.fmean(differences), len(differences)
    if n == 1:
        return Difference(mean, None, None, 1)
    half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(differences) / n**0.5
    return Difference(mean, mean - half, mean + half, n)


def make_blocks(lines: Sequence[Line]) -> tuple[Block, ...]:
    """Make blocks of rows that may be compared, in their order, and compare them."""
    blocks: list[list[Line]] = []
    # rows of which nothing is measured come last: their settings say to which block they belong
    for line in sorted(lines, key=lambda line: not line.runs):
        own = next((block for block in blocks if _fits(line, block)), None)
        if own is None:
            blocks.append([line])
        else:
            own.append(line)
    order = {id(line): number for number, line in enumerate(lines)}
    for block in blocks:
        block.sort(key=lambda line: order[id(line)])
    return tuple(_compare(block) for block in sorted(blocks, key=lambda block: order[id(block[0])]))


def _fits(line: Line, block: Sequence[Line]) -> bool:
    if line.runs:
        return all(agree(line.protocols, other.protocols) for other in block)
    return any(line.declared == other.declared and other.is_coherent for other in block)


def _compare(lines: Sequence[Line]) -> Block:
    protocols: dict[int, Protocol] = {}
    for line in lines:
        protocols |= line.protocols
    block = Block(describe(protocols) if protocols else "nothing measured yet", tuple(lines), {})
    if not lines[0].is_coherent:
        each = " | ".join(describe({seed: protocols[seed]}) for seed in sorted(protocols))
        return replace(block, heading=f"ITS SEEDS DIFFER IN PROTOCOL, so no mean: {each}")
    seeds = {seed for line in lines if not line.is_unrankable for seed in line.runs}
    ranked = [id(line) for line in lines if seeds and not line.is_unrankable and line.runs.keys() == seeds]
    compared = tuple(_against(line, block.baseline_of(line), len(ranked) > 1 and id(line) in ranked) for line in lines)
    best = {}
    for figure in RANKED:
        means = [shown(line.spreads[figure].mean) for line in compared if line.is_ranked]
        if means:
            best[figure] = max(means)
    return replace(block, lines=compared, best=best)


def shown(mean: float) -> float:
    """Round a recall or rSum as tables show it; figures that look equal there rank equal."""
    return round(mean, 1)


def _against(line: Line, baseline: Line | None, is_ranked: bool) -> Line:
    if not line.runs:
        return line
    first, *more = (run.figures for run in line.runs.values())
    figures = [figure for figure in first if all(figure in other for other in more)]
    spreads = {figure: spread(list(line.values(figure).values())) for figure in figures}
    differences, ratio = {}, None
    if baseline is not None:
        for figure in (RSUM, SINGLE):
            difference = paired_difference(line.values(figure), baseline.values(figure))
            if difference is not None and line is not baseline:
                differences[figure] = difference
        ours, others = line.values("seconds"), baseline.values("seconds")
        ratios = [ours[seed] / others[seed] for seed in ours.keys() & others.keys() if others[seed]]
        ratio = statistics.fmean(ratios) if ratios else None
    return replace(line, spreads=spreads, differences=differences, time_ratio=ratio, is_ranked=is_ranked)
