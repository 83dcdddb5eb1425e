"""Fill the tables of docs/results.md, between their markers, from the committed records: `make results` does.

A marker names what follows it: `<!-- table GROUP -->` a group's table as `in2r bench table` makes it, `<!-- partition
GROUP -->` and `<!-- health GROUP -->` figures of IN²R's main epochs; each ends at `<!-- end -->`.
"""

import re
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from in2r.bench.folder import GridFolder
from in2r.bench.grid import Group
from in2r.bench.records import Record
from in2r.bench.render import render
from in2r.bench.tables import read_tables
from in2r.cli.main import main as in2r

ROOT = Path(__file__).parents[1]
FOLDER = Path("benchmarks/results/flickr8k")
PAGE = ROOT / "docs" / "results.md"
METHOD = "IN²R"
"""the row whose epochs are shown"""
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
    "text": lambda epoch: float(epoch["peer_similarity_text"]),
    "memory fill": both("memory_fill"),
    "distinct of K, image": both("distinct_neighbors_i2t"),
    "text ": both("distinct_neighbors_t2i"),
    "same original image, image": both("neighbors_same_image_i2t"),
    "text  ": both("neighbors_same_image_t2i"),
    "loss inter": both("loss_inter"),
    "loss rect": both("loss_rect"),
}


def epochs_table(group: Group, records: Mapping[str, Record], columns: Mapping[str, Figure], digits: int) -> str:
    """Return means over seeds and networks, one row per setting of the other axes and epoch of the main phase."""
    lines = [
        "| " + " | ".join([*group.axes[1:], "epoch", *columns]) + " |",
        "| --- " * (len(group.axes) + len(columns)) + "|",
    ]
    for row in group.rows:
        runs = [records[name] for name in row.cells.values() if name in records]
        if row.labels[0] != METHOD or not runs:
            continue
        for number, first in enumerate(runs[0].log):
            if first["phase"] != "main":
                continue
            cells = [*row.labels[1:], str(number + 1)]
            for figure in columns.values():
                values = [value for run in runs if (value := figure(run.log[number])) is not None]
                cells.append(f"{statistics.mean(values):.{digits}f}" if values else "-")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else "(not measured yet)"


def block(kind: str, name: str) -> str:
    """Return what belongs after a marker."""
    folder = GridFolder(ROOT / FOLDER)
    if kind == "table":
        command = f"in2r bench table {FOLDER} --group {name}"
        return render(read_tables(folder.path, [name]), "md", command).strip()
    [group] = [group for group in folder.grid().groups if group.name == name]
    columns, digits = {"partition": (PARTITION, 3), "health": (HEALTH, 2)}[kind]
    return epochs_table(group, folder.records, columns, digits)


FIGURES = {
    "flickr8k_noise.svg": ("noise", ["ratios"]),
    "flickr8k_sensitivity.svg": ("sensitivity", ["K", "M", "lambda_intra", "gamma"]),
}
"""file under docs/figures → kind and groups, as `in2r plot` takes them"""


def draw() -> None:
    """Draw the page's figures from the same records; a group of which nothing is measured yet is left out."""
    folder = GridFolder(ROOT / FOLDER)
    measured = {
        group.name
        for group in folder.grid().groups
        if sum(name in folder.records for row in group.rows for name in row.cells.values()) > 1
    }
    for file, (kind, groups) in FIGURES.items():
        shown = [part for group in groups if group in measured for part in ("--group", group)]
        if shown and in2r(["plot", kind, str(folder.path), *shown, "--out", str(PAGE.parent / "figures" / file)]):
            raise SystemExit(f"{file} could not be drawn")


def main() -> int:
    """Fill the page."""
    draw()
    pattern = re.compile(r"(<!-- (table|partition|health) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        pattern.sub(lambda found: f"{found[1]}{block(found[2], found[3])}\n{found[4]}", page), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
