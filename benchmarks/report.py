"""Write what docs/results.md shows, from the committed records: `make results` does.

In docs/results.md the text between `<!-- NAME -->` and `<!-- end -->` is replaced, where NAME is a key of `PARTS`. Each
group that has been measured gets a page docs/results/GROUP.md with its whole table. The figures go to docs/figures.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from in2r.bench.compare import RSUM, Line
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Group
from in2r.bench.render import render
from in2r.bench.sheets import sheets
from in2r.bench.tables import Table, read_tables
from in2r.cli.main import main as in2r

ROOT = Path(__file__).parents[1]
FOLDER = Path("benchmarks/results/flickr8k")
PAGE = ROOT / "docs" / "results.md"
PAGES = ROOT / "docs" / "results"
FIGURES = {
    "flickr8k_noise.svg": ("noise", ["ratios"]),
    "flickr8k_sensitivity.svg": ("sensitivity", ["K", "M", "lambda_intra", "gamma"]),
}
"""file under docs/figures → kind and groups, as `in2r plot` takes them"""

# --- the main table: rSum of each method against the noise

GROUPS = ("methods", "ratios", "clean", "unwarmed", "partition", "peers")
"""where its rows come from; the first group that has a row counts"""
ROWS = {
    "hardest negative": "hinge, hardest negative (`triplet`)",
    "plain": "the same after IN²R's warm-up",
    "warm-up loss only": "IN²R's warm-up loss to the end (`sce`)",
    "discard": "noisy pairs discarded (`in2r/discard`)",
    "IN²R": "IN²R (`in2r`)",
    "triplet-mean": "IN²R, pairs divided by the hinge (`in2r/tuned` up to 40 %)",
    "NCR": "NCR (`ncr`)",
    "L2RM": "L2RM (`l2rm`)",
    "oracle": "*oracle: the matching pairs alone*",
}
"""label on the first axis → what the main table calls it"""
SINGLE_SEED = {f"{noise}, seed 0": noise for noise in ("0 %", "20 %", "40 %", "60 %", "80 %")}
SEVERAL = {f"{noise}, 3 seeds": noise for noise in ("60 %", "80 %")}
"""heading of a column → label on the axis `noise`"""

# --- epoch by epoch

METHOD, WITH_EPOCHS = "IN²R", ("ratios", "words")
"""the row whose epochs of the main phase are shown, and on which pages"""
Epoch = Mapping[str, Any]
Figure = Callable[[Epoch], float | None]


def both(name: str) -> Figure:
    """Return the mean of both networks' figure of an epoch, None where neither knows it."""

    def figure(epoch: Epoch) -> float | None:
        values = [value for net in "AB" if (value := epoch.get(f"{name}_{net}")) is not None]
        return statistics.mean(values) if values else None

    return figure


PARTITION: dict[str, Figure] = {
    "AUROC, sce": both("auroc_sce"),
    "AUROC, triplet-mean": both("auroc_triplet-mean"),
    "clean fraction": both("clean_fraction"),
    "precision": both("partition_precision"),
    "recall": both("partition_recall"),
    "noise rate by sce": both("estimated_noise_rate_sce"),
    "noise rate by triplet-mean": both("estimated_noise_rate_triplet-mean"),
}
HEALTH: dict[str, Figure] = {
    "dev rSum": lambda epoch: float(epoch["dev"]["ensemble"]["rsum"]),
    "peers' similarity, image": lambda epoch: float(epoch["peer_similarity_image"]),
    "peers' similarity, text": lambda epoch: float(epoch["peer_similarity_text"]),
    "memory fill": both("memory_fill"),
    "distinct of K, image": both("distinct_neighbors_i2t"),
    "distinct of K, text": both("distinct_neighbors_t2i"),
    "same original image, image": both("neighbors_same_image_i2t"),
    "same original image, text": both("neighbors_same_image_t2i"),
    "loss inter": both("loss_inter"),
    "loss rect": both("loss_rect"),
}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], labels: int = 1) -> str:
    """Return a table; the columns after the labels are aligned to the right."""
    rules = ["---"] * labels + ["---:"] * (len(header) - labels)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rules, *rows])


def main_table(tables: Mapping[str, Table]) -> str:
    """Return rSum of the ensemble by method and noise: of seed 0, and the mean of three seeds."""
    lines: dict[tuple[str, str], Line] = {}
    for table in (tables[name] for name in GROUPS if name in tables):
        for line in (line for block in table.blocks for line in block.lines):
            noise = line.labels[table.axes.index("noise")] if "noise" in table.axes else "0 %"
            lines.setdefault((line.labels[0], noise), line)
    for noise in SINGLE_SEED.values():
        runs = [lines[label, noise].protocols for label in ROWS if (label, noise) in lines]
        if len({str(protocols[0].shared()) for protocols in runs if 0 in protocols}) > 1:
            raise SystemExit(f"{noise}: runs of different protocols cannot be in one column")
    columns = {
        **{title: [single(lines.get((label, noise))) for label in ROWS] for title, noise in SINGLE_SEED.items()},
        **{title: [several(lines.get((label, noise))) for label in ROWS] for title, noise in SEVERAL.items()},
    }
    marked = [mark_best(cells) for cells in columns.values()]
    rows = [[name, *cells] for name, *cells in zip(ROWS.values(), *marked, strict=True)]
    return markdown(["training", *columns], rows)


def single(line: Line | None) -> str:
    """Return the figure of seed 0."""
    return "" if line is None or 0 not in line.runs else f"{line.runs[0].figures[RSUM]:.1f}"


def several(line: Line | None) -> str:
    """Return mean and deviation of three seeds."""
    found = None if line is None or len(line.runs) < 3 else line.spreads[RSUM]
    return "" if found is None or found.sd is None else f"{found.mean:.1f} ± {found.sd:.1f}"


def mark_best(cells: Sequence[str]) -> list[str]:
    """Return a column with its largest figure in bold; the last row, the oracle, is no method."""
    best = max((float(cell.split()[0]) for cell in cells[:-1] if cell), default=None)
    methods = [f"**{cell}**" if cell and float(cell.split()[0]) == best else cell for cell in cells[:-1]]
    return [*methods, *(f"*{cell}*" if cell else "" for cell in cells[-1:])]


def short_table(tables: Mapping[str, Table], groups: Sequence[str]) -> str:
    """Return rSum, differences to the baseline and the paper's own figures of several groups."""
    header = ["comparison", "row", "ensemble", "single network", "ensemble minus baseline", "single minus baseline"]
    rows = [row for name in groups if name in tables for row in short_rows(tables[name])]
    if any(row[-1] for row in rows):
        return markdown([*header, "paper, Flickr30K"], rows, 2)
    return markdown(header, [row[:-1] for row in rows], 2)


def short_rows(table: Table) -> list[list[str]]:
    """Return the rows of one group; its title stands in the first one."""
    rows = []
    for block in table.shown:
        recalls, costs = sheets(table, block)
        for line, one, two in zip(block.lines, recalls.rows, costs.rows, strict=True):
            cells = dict(zip(recalls.header, (cell.text for cell in one), strict=True))
            cells |= dict(zip(costs.header, (cell.text for cell in two), strict=True))
            chosen = ["rSum, ensemble", "rSum, single network"]
            chosen += [f"{kind} minus {table.baseline}" for kind in ("ensemble", "single network")]
            paper = "" if line.paper is None else f"{line.paper.rsum:.1f}"
            title = "" if rows else table.title
            rows.append([title, ", ".join(line.labels), *(cells[name] for name in chosen), paper])
    return rows


def listing(tables: Mapping[str, Table]) -> str:
    """Return links to the pages of the groups."""
    return " · ".join(f"[{table.title}](results/{name}.md)" for name, table in tables.items())


# --- pages and figures


def epochs_table(group: Group, folder: GridFolder, columns: Mapping[str, Figure], digits: int) -> str:
    """Return means over seeds and networks, one row per setting of the other axes and epoch of the main phase."""
    rows: list[list[str]] = []
    for row in group.rows:
        runs = [folder.records[name].log for name in row.cells.values() if name in folder.records]
        if row.labels[0] != METHOD or not runs:
            continue
        for epochs in zip(*runs, strict=True):
            if epochs[0]["phase"] != "main":
                continue
            found = [[value for epoch in epochs if (value := figure(epoch)) is not None] for figure in columns.values()]
            figures = [f"{statistics.mean(values):.{digits}f}" if values else "-" for values in found]
            rows.append([*row.labels[1:], str(epochs[0]["epoch"]), *figures])
    return markdown([*group.axes[1:], "epoch", *columns], rows, len(group.axes))


def write_pages(folder: GridFolder, tables: Mapping[str, Table]) -> None:
    """Write one page per group."""
    PAGES.mkdir(exist_ok=True)
    for group in folder.grid().named(tables):
        command = f"in2r bench table {FOLDER} --group {group.name}"
        text = render([tables[group.name]], "md", command).replace("### ", "# ", 1)
        if group.name in WITH_EPOCHS:
            text += f"\n## The partition of {METHOD}, by epoch\n\n{epochs_table(group, folder, PARTITION, 3)}\n"
            text += f"\n## The health of {METHOD}, by epoch\n\n{epochs_table(group, folder, HEALTH, 2)}\n"
        (PAGES / f"{group.name}.md").write_text(text, encoding="utf-8")


def read_measured(folder: GridFolder) -> dict[str, Table]:
    """Return the tables of the groups in which there is something to compare: two points of the first axis at least."""
    found = {}
    for table in read_tables(folder.path):
        labels = {line.labels[0] for block in table.blocks for line in block.lines if line.runs}
        if len(labels) > 1:
            found[table.group] = table
    return found


def draw(folder: GridFolder, tables: Mapping[str, Table]) -> None:
    """Draw the figures; a group without a page is left out."""
    for file, (kind, groups) in FIGURES.items():
        shown = [part for group in groups if group in tables for part in ("--group", group)]
        if shown and in2r(["plot", kind, str(folder.path), *shown, "--out", str(PAGE.parent / "figures" / file)]):
            raise SystemExit(f"{file} could not be drawn")


PARTS: dict[str, Callable[[Mapping[str, Table]], str]] = {
    "main": main_table,
    "ablations": lambda tables: short_table(tables, ("components", "rectifier", "refiner", "memory")),
    "plainest": lambda tables: short_table(tables, ("plainest",)),
    "pages": listing,
}
"""marker in docs/results.md → what follows it"""


def main() -> int:
    """Draw the figures, write the pages, fill docs/results.md."""
    folder = GridFolder(ROOT / FOLDER)
    tables = read_measured(folder)
    draw(folder, tables)
    write_pages(folder, tables)
    text = PAGE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, rest = text.split(start)
        text = f"{before}{start}{part(tables)}\n{end}{rest.split(end, 1)[1]}"
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
