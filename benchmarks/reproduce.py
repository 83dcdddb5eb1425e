"""Write the tables of docs/reproduce.md from the grids and the printed figures of the package.

In that page the text between `<!-- NAME -->` and `<!-- end -->` is replaced; a test asks that nothing changes by it.
"""

import math
import shlex
from dataclasses import dataclass
from functools import cache

from pages import DOCS, markdown, replace_parts

from in2r.bench.grid import Cell, Group, Row, cell_config
from in2r.bench.grid_file import expand, read_grid
from in2r.bench.paper import TITLES, PaperFigure, paper_figure
from in2r.methods import build_method, warmup_of

PAGE = DOCS / "reproduce.md"
GRIDS = {
    "flickr30k": ("table1_flickr30k", "peers_flickr30k"),
    "mscoco": ("table1_mscoco", "peers_mscoco"),
    "cc152k": ("table2_cc152k", "peers_cc152k"),
    "ablations": ("ablations", "sensitivity"),
}
"""part of the page → grids whose rows with a printed figure it has"""
TRAINING_PAIRS = {"flickr30k": 145_000, "mscoco_1k_5fold": 566_435, "cc152k": 150_000}
"""of the field's training splits"""
ELSEWHERE = ("UCPM", "NPC")
"""methods of which there are printed figures and no row"""
RATIOS = (0.2, 0.4, 0.6, 0.8)
CITED_AS = "IN2R"


@dataclass(frozen=True)
class Printed:
    """A row of a grid whose figure is printed."""

    grid: str
    group: Group
    row: Row
    cell: Cell
    """of the grid's first seed"""
    figure: PaperFigure

    @property
    def command(self) -> str:
        """What trains it, with every seed of the grid."""
        words = ["in2r", "bench", "run", self.grid, "--out", f"grids/{self.grid}", "--group", self.group.name]
        for label in self.row.labels:
            words += ["--only", label]
        return shlex.join(words).replace("'", '"')  # which other shells read too


@cache
def printed_rows(grid: str) -> tuple[Printed, ...]:
    """Return the rows of a grid of the package that have a printed figure, in the grid's order."""
    made = expand(read_grid(grid), grid)
    cells = {cell.name: cell for cell in made.cells}
    found = []
    for group in made.groups:
        for row in group.rows:
            if group.paper is None or row.labels[0] not in group.paper.rows:
                continue
            cell = cells[next(iter(row.cells.values()))]
            ratio = cell_config(cell).noise.ratio if group.paper.noise is None else group.paper.noise
            figure = paper_figure(group.paper.dataset, ratio, group.paper.rows[row.labels[0]])
            if figure is not None:
                found.append(Printed(grid, group, row, cell, figure))
    return tuple(found)


def parts() -> dict[str, str]:
    """Return the tables by the names of their places in the page."""
    found = {name: _rows([row for grid in grids for row in printed_rows(grid)]) for name, grids in GRIDS.items()}
    return {**found, "elsewhere": _elsewhere()}


def _rows(rows: list[Printed]) -> str:
    header = ("noise", "row", "printed rSum", "preset", "backbone", "epochs", "iterations at most", "command")
    return markdown(header, [_line(row) for row in sorted(rows, key=lambda row: row.figure.noise or 0)], labels=8)


def _line(row: Printed) -> tuple[str, ...]:
    config = cell_config(row.cell)
    method = build_method(config.method, config.partition, config.loss)
    warmup = warmup_of(method)[0]
    batches = math.ceil(TRAINING_PAIRS[row.figure.dataset] / config.train.batch_size)
    networks = f"{method.networks} × " if method.networks > 1 else ""
    ratio = row.figure.noise
    return (
        "real" if ratio is None else f"{ratio:.0%}, {config.noise.level}".replace("%", " %"),
        row.row.labels[0] if row.figure.source.startswith("Table") or row.figure.is_elsewhere else row.figure.method,
        f"{row.figure.printed:.1f}" + (f" ({row.figure.rsum:.1f})" if row.figure.disagrees else ""),
        f"`{row.cell.settings['preset']}`",
        config.model.backbone,
        f"{warmup} + {config.train.epochs - warmup}",
        f"{networks}{config.train.epochs * batches:,}",
        f"`{row.command}`",
    )


def _elsewhere() -> str:
    """Return the figures of methods without a row, beside the paper's own."""
    lines = []
    for dataset, title in TITLES.items():
        for ratio in RATIOS if dataset != "cc152k" else (None,):
            figures = {name: paper_figure(dataset, ratio, name) for name in (*ELSEWHERE, CITED_AS)}
            shown = ["-" if figure is None else f"{figure.printed:.1f}" for figure in figures.values()]
            lines.append((title, "real" if ratio is None else f"{ratio:.0%}".replace("%", " %"), *shown))
    return markdown(("data", "noise", *ELSEWHERE, "IN²R, printed"), lines, labels=2)


if __name__ == "__main__":
    replace_parts(PAGE, parts())
