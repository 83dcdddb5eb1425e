"""What docs/results-peers.md shows beside its main tables: dev rSum by epoch, how pairs are divided, what it costs."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import markdown

from in2r.bench.folder import GridFolder
from in2r.files import read_json

COST = Path(__file__).parent / "results" / "peers_cost.json"
NOISE = "60 %"
"""of the runs that are shown epoch by epoch"""
WARMUP = ("warm-up", "all pairs")
"""what records call it; the second one those of the first checkouts, which do not count the cost either"""
OWN_LOSS = {
    "IN²R": "sce",
    "discard": "sce",
    "NCR": "triplet-mean",
    "DECL": "evidence-gap",
    "BiCro": "triplet-mean",
    "L2RM": "triplet-mean",
    "CREAM": "infonce",
    "GSC": "correspondence",
    "GSC+": "correspondence",
    "ESC": "hinge-and-equivariance",
    "PC²": "triplet-mean",
    "SPS": "info-nce",
    "PCSR": "triplet-mean",
}
"""Row → what the method divides or weighs the pairs by, as its records name it."""


def runs_of(folder: GridFolder, groups: Sequence[str]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield each row's label and the epochs of its run with seed 0 at 60 %; a row of several groups once."""
    seen: set[str] = set()
    for group in folder.grid().named(list(groups)):
        for row in group.rows:
            file = folder.path / "records" / f"{row.cells.get(0)}.json"
            if row.labels[0] in OWN_LOSS and NOISE in row.labels and row.labels[0] not in seen and file.is_file():
                seen.add(row.labels[0])
                yield row.labels[0], read_json(file)["epochs"]


def guarded(folder: GridFolder, groups: Sequence[str]) -> dict[tuple[str, str, str], tuple[float, Mapping[str, Any]]]:
    """Return the runs with seed 0 in which the guard acted: (group, row, noise) → share of main epochs, and the record.

    The guard: where the losses form one group, a network trains on all pairs with the warm-up loss.
    """
    found = {}
    for group in folder.grid().named(list(groups)):
        for row in group.rows:
            file = folder.path / "records" / f"{row.cells.get(0)}.json"
            if not file.is_file():
                continue
            record = read_json(file)
            main = [epoch for epoch in record["epochs"] if epoch["phase"] not in WARMUP]
            acted = [value for epoch in main for net in "AB" if (value := epoch.get(f"single_mode_{net}")) is not None]
            if any(acted):
                found[group.name, row.labels[0], row.labels[-1]] = statistics.mean(acted), record
    return found


def guard_table(folder: GridFolder, guard: str, published: str) -> str:
    """Return test rSum where the guard acted, with it and as published."""
    rows = []
    other = {row.labels: row.cells.get(0) for group in folder.grid().named([published]) for row in group.rows}
    for (_, label, noise), (share, record) in guarded(folder, [guard]).items():
        file = folder.path / "records" / f"{other.get((label, noise))}.json"
        without = rsum(read_json(file)) if file.is_file() else ""
        rows.append([label, noise, f"{100 * share:.0f} %", rsum(record), without])
    return markdown(["training", "noise", "epochs in which it acts", "with the guard", "as published"], rows, 2)


def cost_table() -> str:
    """Return what peers_cost.py measured: an epoch's time in units of its first row's, and the most memory."""
    rounds = read_json(COST)["rounds"] if COST.is_file() else []
    rows = []
    for preset in rounds[0] if rounds else []:
        ratios = sorted(one[preset]["seconds"] / one[next(iter(one))]["seconds"] for one in rounds)
        peak = statistics.median(one[preset]["peak_mb"] for one in rounds)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rows.append([f"`{preset}`", spread, f"{peak:,.0f}"])
    return markdown(["method", "CPU time of an epoch", "most memory, MB"], rows)


def rsum(record: Mapping[str, Any]) -> str:
    """Return a run's test rSum, of the ensemble."""
    return f"{record['result']['rows']['ensemble']['rsum']:.1f}"


def dev_by_epoch(folder: GridFolder, groups: Sequence[str]) -> str:
    """Return dev rSum of the ensemble by epoch; w: an epoch of the warm-up."""
    found = list(runs_of(folder, groups))
    count = max((len(epochs) for _, epochs in found), default=0)
    rows = [[label, *dev_figures(epochs)] for label, epochs in found]
    return markdown(["training", *map(str, range(1, count + 1))], rows)


def rsum_by_epoch(folder: GridFolder, groups: Sequence[str]) -> str:
    """Return test rSum of the runs with seed 0, and dev rSum by epoch; a group's title stands in its first row."""
    rows = []
    for group in folder.grid().named(groups):
        title = group.title
        for row in group.rows:
            file = folder.path / "records" / f"{row.cells.get(0)}.json"
            if file.is_file():
                record = read_json(file)
                rows.append([title, ", ".join(row.labels), rsum(record), *dev_figures(record["epochs"])])
                title = ""
    count = max((len(row) - 3 for row in rows), default=0)
    return markdown(["comparison", "training", "test", *(f"dev, {one}" for one in range(1, count + 1))], rows, 2)


def dev_figures(epochs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return dev rSum of the ensemble by epoch, the largest in bold; w: an epoch of the warm-up."""
    figures = [epoch["dev"]["ensemble"]["rsum"] for epoch in epochs]
    best = max(figures)
    return [
        f"{'**' * (value == best)}{value:.1f}{'**' * (value == best)}{' w' * (epoch['phase'] in WARMUP)}"
        for value, epoch in zip(figures, epochs, strict=True)
    ]


def division(folder: GridFolder, groups: Sequence[str]) -> str:
    """Return how pairs are divided in the last epoch, and what an epoch of the main phase costs, all networks together.

    AUROC is that of what the method divides by; precision and recall are of its clean set.
    """
    rows = []
    for label, epochs in runs_of(folder, groups):
        main = [epoch for epoch in epochs if epoch["phase"] not in WARMUP]
        last = main[-1]
        nets = [net for net in "AB" if f"auroc_{OWN_LOSS[label]}_{net}" in last]

        def mean(name: str, last: Mapping[str, Any] = last, nets: Sequence[str] = nets) -> str:
            values = [last[f"{name}_{net}"] for net in nets if last.get(f"{name}_{net}") is not None]
            return f"{statistics.mean(values):.3f}" if values else ""

        def cost(name: str, scale: float, main: Sequence[Mapping[str, Any]] = main) -> str:
            if "cost" not in main[0]:
                return ""
            counts = [sum(one[name] for one in epoch["cost"].values()) for epoch in main]
            return f"{statistics.mean(counts) / scale:,.{int(scale > 1)}f}"

        divides = last.get(f"clean_fraction_{nets[0]}") is not None
        of_set = ("clean_fraction", "partition_precision", "partition_recall")
        judged = [mean(name) if divides else "" for name in of_set]
        rows.append([
            label, str(len(nets)), mean(f"auroc_{OWN_LOSS[label]}"), *judged, cost("encoded", 1e3),
            cost("encoded_without_gradient", 1e3), cost("scored", 1e6), cost("scored_without_gradient", 1e6),
            cost("steps", 1),
        ])  # fmt: skip
    head = ["training", "networks", "AUROC", "clean fraction", "precision", "recall", "encoded, thousands",
            "without gradient", "similarities, millions", "without gradient", "steps"]  # fmt: skip
    return markdown(head, rows)
