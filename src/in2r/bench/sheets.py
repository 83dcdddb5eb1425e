"""A grid's tables as sheets that people read: the cells as text, with their marks."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from in2r.bench.compare import RANKED, RSUM, SINGLE, Block, Line, Spread, shown
from in2r.bench.paper import TITLES, PaperFigure
from in2r.bench.tables import Table

EMPTY = "-"
_RECALLS = {f"ensemble_{way}_r{k}": f"{way} R@{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)}
"""figure → its heading"""


@dataclass(frozen=True)
class Text:
    """A cell of a sheet."""

    text: str
    best: bool = False
    """of its column, among the rows that are ranked"""
    unrankable: bool = False
    """of a row that is never ranked"""


@dataclass(frozen=True)
class Sheet:
    """A part of a block that fits on a page: a heading per column, the labels first."""

    header: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    labels: int
    """how many of the columns are labels"""


def heading_lines(text: str) -> list[str]:
    """Break a heading, so that its column is as narrow as the figures under it."""
    return textwrap.wrap(text, 6 if text in _RECALLS.values() else 12, break_long_words=False) or [""]


Column = Callable[[Line], Text | str]


def sheets(table: Table, block: Block) -> list[Sheet]:
    """Return a block of a table as two sheets: recalls; then differences, steps and time."""
    return [_sheet(table, block, columns) for columns in (_recalls(block), _costs(table))]


def _sheet(table: Table, block: Block, columns: Mapping[str, Column]) -> Sheet:
    rows = []
    for line in block.lines:
        cells = [*_labels(line), *(column(line) for column in columns.values())]
        texts = (cell if isinstance(cell, Text) else Text(cell) for cell in cells)
        rows.append(tuple(Text(cell.text, cell.best, line.is_unrankable) for cell in texts))
    return Sheet((*table.axes, *columns), tuple(rows), len(table.axes))


def _recalls(block: Block) -> dict[str, Column]:
    seeds = max(len(line.runs) for line in block.lines)

    def ranked(figure: str, *, with_sd: bool = False) -> Column:
        def cell(line: Line) -> Text:
            found = line.spreads.get(figure)
            best = found is not None and line.is_ranked and shown(found.mean) == block.best[figure]
            text = _spread(found, with_sd)
            return Text(f"({text})" if 0 < len(line.runs) < seeds else text, best)

        return cell

    columns: dict[str, Column] = {
        "n": lambda line: f"{len(line.runs)} of {len(line.cells)}",
        "rSum, ensemble": ranked(RSUM, with_sd=True),
        "rSum, single network": ranked(SINGLE, with_sd=True),
        **{_RECALLS[figure]: ranked(figure) for figure in RANKED if figure in _RECALLS},
    }
    quoted = [line.paper for line in block.lines if line.paper]
    if quoted:
        columns[_paper_title(quoted)] = lambda line: _paper(line.paper)
    return columns


def _costs(table: Table) -> dict[str, Column]:
    steps: dict[str, Column] = {
        "epoch": _epochs,
        "steps per network": lambda line: f"{line.spreads['steps'].mean:,.0f}" if line.spreads else EMPTY,
    }
    if table.baseline is None:
        return {**steps}
    return {
        f"ensemble minus {table.baseline}": lambda line: _difference(line, RSUM),
        f"single network minus {table.baseline}": lambda line: _difference(line, SINGLE),
        **steps,
        f"time / {table.baseline}": lambda line: EMPTY if line.time_ratio is None else f"{line.time_ratio:.2f}",
    }


def _epochs(line: Line) -> str:
    """Say which epoch each seed selected; w: one of the warm-up."""
    epochs, warm = (line.values(figure).values() for figure in ("epoch", "epoch_is_of_warmup"))
    return ", ".join(f"{epoch:.0f}{'w' * bool(w)}" for epoch, w in zip(epochs, warm, strict=True)) or EMPTY


def _labels(line: Line) -> tuple[str, ...]:
    first, *rest = line.labels
    marks = " †" * line.uses_truth + " §" * line.is_forced + " ¶" * (line.main_phase.one_group > 0)
    return (f"{first}{marks}", *rest)


def _spread(found: Spread | None, with_sd: bool) -> str:
    if found is None:
        return EMPTY
    sd = f" ± {found.sd:.1f}" if with_sd and found.sd is not None else ""
    return f"{found.mean:.1f}{sd}"


def _difference(line: Line, figure: str) -> str:
    found = line.differences.get(figure)
    if found is None:
        return "baseline" if line.is_baseline else EMPTY
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f} (n {found.n})"
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f}; n {found.n})"


def _paper_title(found: Sequence[PaperFigure]) -> str:
    noises = sorted({"real noise" if figure.noise is None else f"{figure.noise:g}" for figure in found})
    return f"paper's own ({TITLES[found[0].dataset]}, {', '.join(noises)}; not ours)"


def _paper(figure: PaperFigure | None) -> str:
    return EMPTY if figure is None else f"{figure.rsum:.1f}{' ‡' if figure.disagrees else ''}"
