"""Write what the pages of docs show of the benchmarks, from the committed records: `make results` does.

In a page the text between `<!-- NAME -->` and `<!-- end -->` is replaced, where NAME is one of the page's parts.
"""

import statistics
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pages import DOCS, markdown, replace_parts
from report_audit import write_audit, write_feeds, write_scale, write_trained
from report_peers import cost_table, dev_by_epoch, division, guard_table, guarded, rsum_by_epoch
from report_scaling import write_scaling

from in2r.bench.compare import RSUM, Line
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Group
from in2r.bench.render import render
from in2r.bench.sheets import sheets
from in2r.bench.tables import Table, read_tables
from in2r.cli.main import main as in2r

ROOT = Path(__file__).parents[1]
PAGES = DOCS / "results"

# --- the main tables: rSum of each method against the noise


@dataclass(frozen=True)
class MainTable:
    """Which figures a main table shows."""

    groups: tuple[str, ...]
    """where its rows come from; the first group that has a row counts"""
    rows: Mapping[str, str]
    """label on the first axis → what the table calls it; the last one is the oracle"""
    single: Mapping[str, str]
    """heading of a column of seed 0 → label on the axis `noise`"""
    several: Mapping[str, str]
    """heading of a column of three seeds → label on the axis `noise`"""


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
NOISES = ("0 %", "20 %", "40 %", "60 %", "80 %")
FIELD = MainTable(
    ("methods", "ratios", "clean", "unwarmed", "partition", "peers-split", "peers"),
    ROWS,
    {f"{noise}, seed 0": noise for noise in NOISES},
    {f"{noise}, 3 seeds": noise for noise in ("60 %", "80 %")},
)
RECIPE = MainTable(
    ("recipe", "recipe-clean"),
    {
        "plain": "all pairs, softmax (`triplet`)",
        "warm-up loss only": "all pairs, the warm-up's loss (`sce`)",
        "discard": "noisy pairs discarded (`in2r/discard`)",
        "IN²R": "IN²R (`in2r`)",
        "IN²R, γ = 0.05": "IN²R, γ = 0.05",
        "corroborate": "**corroborate**",
        "oracle": "*oracle: the matching pairs alone*",
    },
    {f"{noise}, seed 0": noise for noise in (*NOISES, "60 % of images")},
    {f"{noise}, 3 seeds": noise for noise in (*NOISES, "60 % of images")},
)

PEER_ROWS = {
    "plain": "hinge on all pairs, after IN²R's warm-up (`triplet`)",
    "warm-up loss only": "IN²R's warm-up loss to the end (`sce`)",
    "discard": "noisy pairs discarded (`in2r/discard`)",
    "IN²R": "IN²R (`in2r`)",
    "NCR": "NCR (`ncr`)",
    "DECL": "DECL (`decl`), one network",
    "BiCro": "BiCro (`bicro`)",
    "L2RM": "L2RM (`l2rm`), one network",
    "CREAM": "CREAM (`cream`)",
    "GSC": "GSC (`gsc`), one network",
    "GSC+": "GSC+ (`gscplus`)",
    "ESC": "ESC (`esc`)",
    "PC²": "PC² (`pc2`)",
    "SPS": "SPS (`sps`)",
    "PCSR": "PCSR (`pcsr`)",
    "corroborate": "corroborate, four rounds (`corroborate`)",
    "oracle": "*oracle: the matching pairs alone*",
}
LEVELS = ("20 %", "40 %", "60 %", "80 %", "60 % of images")
PEERS = MainTable(
    ("peers-seeds", "peers-split", "peers", "methods", "ratios", "image-level", "recipe-field"),
    PEER_ROWS,
    {f"{noise}, seed 0": noise for noise in LEVELS},
    {f"{noise}, 3 seeds": noise for noise in ("60 %", "80 %")},
)
SAME_START = MainTable(
    ("same-start-split", "same-start", "methods"),  # of the last: rows whose own warm-up is the common one
    {label: name for label, name in PEER_ROWS.items() if label != "corroborate"},
    {f"{noise}, seed 0": noise for noise in ("60 %", "80 %")},
    {},
)
NO_AXIS = "0 %"
"""label of a row's noise where its group has no axis of that name"""
ON_WORDS = MainTable(
    ("peers-words", "words"),
    {label: name for label, name in PEER_ROWS.items() if label != "corroborate"},
    {"60 %, seed 0": NO_AXIS},
    {},
)

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


def measured_lines(
    tables: Mapping[str, Table], groups: Sequence[str], without: Container[tuple[str, str, str]] = frozenset()
) -> dict[tuple[str, str], Line]:
    """Return label on the first axis and noise → the line of the first group that has measured it.

    Left out are the lines (group, label, noise) of `without`.
    """
    lines: dict[tuple[str, str], Line] = {}
    for name in (name for name in groups if name in tables):
        table = tables[name]
        for line in (line for block in table.blocks for line in block.lines):
            noise = line.labels[table.axes.index("noise")] if "noise" in table.axes else NO_AXIS
            if line.runs and (name, line.labels[0], noise) not in without:
                lines.setdefault((line.labels[0], noise), line)
    return lines


def released_table(tables: Mapping[str, Table], labels: Sequence[str]) -> str:
    """Return test rSum of methods as they are here, and with the settings that compute what their public code does."""
    own, released = measured_lines(tables, PEERS.groups), measured_lines(tables, ["released"])
    rows = [
        [label, noise, single(own.get((label, noise))), single(released[label, noise])]
        for label in labels
        for noise in LEVELS
        if (label, noise) in released
    ]
    return markdown(["training", "noise", "as here", "as the public code"], rows, 2)


def main_table(
    tables: Mapping[str, Table], which: MainTable, without: Container[tuple[str, str, str]] = frozenset()
) -> str:
    """Return rSum of the ensemble by method and noise: of seed 0, and the mean of three seeds.

    `without`: as of `measured_lines`.
    """
    lines = measured_lines(tables, which.groups, without)
    for noise in which.single.values():
        runs = [lines[label, noise].protocols for label in which.rows if (label, noise) in lines]
        if len({str(protocols[0].shared()) for protocols in runs if 0 in protocols}) > 1:
            raise SystemExit(f"{noise}: runs of different protocols cannot be in one column")
    columns = {
        **{title: [single(lines.get((label, noise))) for label in which.rows] for title, noise in which.single.items()},
        **{
            title: [several(lines.get((label, noise))) for label in which.rows]
            for title, noise in which.several.items()
        },
    }
    marked = [mark_best(cells) for cells in columns.values()]
    rows = [[name, *cells] for name, *cells in zip(which.rows.values(), *marked, strict=True)]
    return markdown(["training", *columns], rows)


def single(line: Line | None) -> str:
    """Return the figure of seed 0; w: dev selected an epoch of the warm-up."""
    if line is None or 0 not in line.runs:
        return ""
    figures = line.runs[0].figures
    return f"{figures[RSUM]:.1f}{' w' * bool(figures['epoch_is_of_warmup'])}"


def several(line: Line | None) -> str:
    """Return mean and deviation of three seeds."""
    found = None if line is None or len(line.runs) < 3 else line.spreads[RSUM]
    return "" if found is None or found.sd is None else f"{found.mean:.1f} ± {found.sd:.1f}"


def mark_best(cells: Sequence[str]) -> list[str]:
    """Return a column with its largest figure in bold; the last row, the oracle, is no method."""
    best = max((float(cell.split()[0]) for cell in cells[:-1] if cell), default=None)
    methods = [bold(cell) if cell and float(cell.split()[0]) == best else cell for cell in cells[:-1]]
    return [*methods, *(f"*{cell}*" if cell else "" for cell in cells[-1:])]


def bold(cell: str) -> str:
    """Return a cell with its figure in bold."""
    return f"**{cell.removesuffix(' w')}**{' w' * cell.endswith(' w')}"


def short_table(tables: Mapping[str, Table], groups: Sequence[str]) -> str:
    """Return rSum, differences to the baseline and the paper's own figures of several groups."""
    header = ["comparison", "row", "ensemble", "single network", "ensemble minus baseline", "single minus baseline"]
    if all(tables[name].baseline is None for name in groups if name in tables):
        header = header[:-2]
    rows = [row for name in groups if name in tables for row in short_rows(tables[name])]
    if not rows:
        return "Not measured yet."
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
            if table.baseline is not None:
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


JUDGED = {
    "matching share": "matching_share",
    "AUROC": "auroc_evidence",
    "precision": "partition_precision",
    "recall": "partition_recall",
    "noise rate, less the true one": "noise_rate_error",
    "calibration error": "calibration_error",
}
"""heading of a column → the figure of an epoch"""


def judged_table(folder: GridFolder, groups: Sequence[str]) -> str:
    """Return what corroborate says of the pairs before its first and its last round, means over seeds."""
    rows = []
    for group in folder.grid().named(groups):
        for row in group.rows:
            runs = [folder.records[name].log for name in row.cells.values() if name in folder.records]
            if row.labels[0] != "corroborate" or not runs:
                continue
            main = [[epoch for epoch in log if epoch["phase"] == "main"] for log in runs]
            for title, place in (("first", 0), ("last", -1)):
                found = {heading: [both(name)(log[place]) for log in main] for heading, name in JUDGED.items()}
                cells = [
                    f"{statistics.mean(values):.3f}" if (values := [v for v in column if v is not None]) else ""
                    for column in found.values()
                ]
                rows.append([row.labels[1] if len(row.labels) > 1 else "0 %", title, str(len(runs)), *cells])
    return markdown(["noise", "judgement", "seeds", *JUDGED], rows, 2)


def write_pages(folder: GridFolder, tables: Mapping[str, Table]) -> None:
    """Write one page per group."""
    PAGES.mkdir(exist_ok=True)
    for group in folder.grid().named(tables):
        command = f"in2r bench table {folder.path.relative_to(ROOT)} --group {group.name}"
        text = render([tables[group.name]], "md", command).replace("### ", "# ", 1)
        if group.name in WITH_EPOCHS:
            text += f"\n## The partition of {METHOD}, by epoch\n\n{epochs_table(group, folder, PARTITION, 3)}\n"
            text += f"\n## The health of {METHOD}, by epoch\n\n{epochs_table(group, folder, HEALTH, 2)}\n"
        (PAGES / f"{group.name}.md").write_text(text, encoding="utf-8")


def read_measured(folder: GridFolder) -> dict[str, Table]:
    """Return the tables of the groups with something to show: two points of the first axis, or the only one it has."""
    found = {}
    for table in read_tables(folder.path):
        lines = [line for block in table.blocks for line in block.lines]
        measured = {line.labels[0] for line in lines if line.runs}
        if measured and len(measured) >= min(2, len({line.labels[0] for line in lines})):
            found[table.group] = table
    return found


def draw(report: "Report", folder: GridFolder, tables: Mapping[str, Table]) -> None:
    """Draw the figures; a group without a page is left out."""
    for file, (kind, groups) in report.figures.items():
        shown = [part for group in groups if group in tables for part in ("--group", group)]
        if shown and in2r(["plot", kind, str(folder.path), *shown, "--out", str(DOCS / "figures" / file)]):
            raise SystemExit(f"{file} could not be drawn")


Part = Callable[[GridFolder, Mapping[str, Table]], str]


@dataclass(frozen=True)
class Report:
    """A grid, and the pages of docs that are made from it."""

    folder: str
    """under benchmarks/results"""
    pages: Mapping[str, Mapping[str, Part]]
    """page under docs → marker in it → what follows the marker"""
    figures: Mapping[str, tuple[str, list[str]]] = field(default_factory=dict)
    """file under docs/figures → kind and groups, as `in2r plot` takes them"""


RECIPE_FOLDER = GridFolder(ROOT / "benchmarks" / "results" / "recipe")
WITH_RELEASED = {
    "ncr": "NCR",
    "bicro": "BiCro",
    "l2rm": "L2RM",
    "esc": "ESC",
    "pc2": "PC²",
    "pcsr": "PCSR",
    "in2r": "IN²R",
}
"""page of a method → its label, where a preset or a key computes what the public code does"""


def released_part(*labels: str) -> Part:
    """Return the part of a page that compares methods with their public code."""
    return lambda _, tables: released_table(tables, labels)


REPORTS = (
    Report(
        "flickr8k",
        {
            "results.md": {
                "main": lambda folder, tables: main_table(tables, FIELD, guarded(folder, ["peers"])),
                "ablations": lambda _, tables: short_table(tables, ("components", "rectifier", "refiner", "memory")),
                "plainest": lambda _, tables: short_table(tables, ("plainest",)),
                "pages": lambda _, tables: listing(tables),
            },
            "results-peers.md": {
                "peers": lambda folder, tables: main_table(
                    {**tables, **read_measured(RECIPE_FOLDER)}, PEERS, guarded(folder, ["peers"])
                ),
                "start": lambda folder, tables: main_table(tables, SAME_START, guarded(folder, ["same-start"])),
                "released": released_part(*WITH_RELEASED.values()),
                "words": lambda _, tables: main_table(tables, ON_WORDS),
            },
            "results-peers-runs.md": {
                "guard": lambda folder, _: guard_table(folder, "peers", "peers-split"),
                "start guard": lambda folder, _: guard_table(folder, "same-start", "same-start-split"),
                "epochs": lambda folder, _: dev_by_epoch(folder, ("peers-split", "peers", "methods")),
                "start epochs": lambda folder, _: dev_by_epoch(folder, ("same-start-split", "same-start")),
                "division": lambda folder, _: division(folder, ("peers-split", "peers", "methods")),
                "cost": lambda _, __: cost_table(),
            },
            **{f"methods/{page}.md": {"released": released_part(label)} for page, label in WITH_RELEASED.items()},
            "methods/esc.md": {
                "released": released_part(WITH_RELEASED["esc"]),
                "margins": lambda _, tables: short_table(tables, ("esc-margins",)),
            },
        },
        {
            "flickr8k_noise.svg": ("noise", ["ratios"]),
            "flickr8k_sensitivity.svg": ("sensitivity", ["K", "M", "lambda_intra", "gamma"]),
        },
    ),
    Report(
        "interaction",
        {"results-peers.md": {"interaction": lambda folder, _: rsum_by_epoch(folder, ("sgr", "saf"))}},
    ),
    Report(
        "recipe",
        {
            "results-recipe.md": {
                "main": lambda _, tables: main_table(tables, RECIPE),
                "judged": lambda folder, _: judged_table(folder, ["recipe-clean", "recipe"]),
                "ablations": lambda _, tables: short_table(tables, ("recipe-parts",)),
                "words": lambda _, tables: short_table(tables, ("recipe-words",)),
                "field": lambda _, tables: short_table(tables, ("recipe-field",)),
                "pages": lambda _, tables: listing(tables),
            }
        },
    ),
    Report("weblike", {"results-recipe.md": {"web": lambda _, tables: short_table(tables, ("recipe-web",))}}),
)


def made_parts(report: Report, folder: GridFolder, tables: Mapping[str, Table]) -> dict[str, dict[str, str]]:
    """Return the parts of the report's pages: page under docs → marker in it → what follows the marker."""
    return {page: {name: part(folder, tables) for name, part in parts.items()} for page, parts in report.pages.items()}


def write(report: Report) -> None:
    """Draw the figures, write the pages of the groups, fill the parts of the report's pages."""
    folder = GridFolder(ROOT / "benchmarks" / "results" / report.folder)
    tables = read_measured(folder)
    draw(report, folder, tables)
    write_pages(folder, tables)
    for page, parts in made_parts(report, folder, tables).items():
        replace_parts(DOCS / page, parts)


def main() -> int:
    """Write all reports."""
    for report in REPORTS:
        write(report)
    write_audit()
    write_trained()
    write_scaling()
    write_scale()
    write_feeds()
    return 0


if __name__ == "__main__":
    sys.exit(main())
