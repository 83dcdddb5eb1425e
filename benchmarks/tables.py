"""Turn the records of `benchmarks/results.py` into the tables of docs/results.md, between their markers."""

import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import RECORDS

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
ORDER = ["hardest", "triplet", "plain", "sce", "discard", "in2r", "oracle"]
TITLES = {
    "hardest": "triplet, 1 epoch mean + 9 hardest negative",
    "triplet": "triplet, mean over negatives",
    "plain": "plain: the same warm-up, then triplet on all pairs",
    "sce": "warm-up loss only",
    "discard": "noise discarded",
    "in2r": "IN²R",
    "oracle": "*oracle: truly clean pairs only*",
}
Record = dict[str, Any]


def load() -> list[Record]:
    return [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]


def spread(values: list[float]) -> str:
    """Mean ± standard deviation, or the one value."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def by_method(records: list[Record], bench: str, ratio: int) -> dict[str, dict[int, Record]]:
    found: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in records:
        cell = record["cell"]
        if (cell["bench"], cell["ratio"]) == (bench, ratio):
            found[cell["method"]][cell["seed"]] = record
    return found


def ensemble(record: Record) -> float:
    return float(record["result"]["rows"]["ensemble"]["rsum"])


def single(record: Record) -> float:
    """The mean of both networks, each on its own."""
    return statistics.mean(record["result"]["rows"][network]["rsum"] for network in "AB")


def paired(ours: dict[int, Record], other: dict[int, Record], rsum: Callable[[Record], float]) -> str:
    """Differences seed by seed, after their mean where there are several."""
    differences = [rsum(ours[seed]) - rsum(other[seed]) for seed in sorted(ours.keys() & other.keys())]
    listed = ", ".join(f"{difference:+.1f}" for difference in differences)
    return f"{statistics.mean(differences):+.1f} ({listed})" if len(differences) > 1 else listed or "-"


def table(header: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return "(not measured yet)"
    lines = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
    return "\n".join(lines)


def recall_table(records: list[Record], bench: str) -> str:
    """Per ratio and method: every seed, mean ± deviation, single networks, steps, paired differences."""
    rows = []
    ratios = sorted({record["cell"]["ratio"] for record in records if record["cell"]["bench"] == bench})
    for ratio in ratios:
        found = by_method(records, bench, ratio)
        discarding = found.get("discard", {})
        for method in [name for name in ORDER if name in found]:
            runs = found[method]
            steps = statistics.mean(
                sum(run["result"]["protocol"]["steps_per_network"].values()) / 2 for run in runs.values()
            )
            recalls = [
                spread([run["result"]["rows"]["ensemble"][f"{way}_r1"] for run in runs.values()])
                for way in ("i2t", "t2i")
            ]
            rows.append(
                [
                    f"{ratio} %",
                    TITLES[method],
                    spread([ensemble(run) for run in runs.values()]),
                    ", ".join(f"{ensemble(runs[seed]):.1f}" for seed in sorted(runs)),
                    spread([single(run) for run in runs.values()]),
                    *recalls,
                    f"{steps:.0f}",
                    *("" if method == "discard" else paired(runs, discarding, rsum) for rsum in (ensemble, single)),
                    "" if method == "plain" else paired(runs, found.get("plain", {}), ensemble),
                ]
            )
    header = ["noise", "training", "rSum, ensemble", "by seed", "rSum, single network", "i2t R@1", "t2i R@1"]
    differences = ["minus discarding, ensemble", "minus discarding, single network", "minus plain, ensemble"]
    return table([*header, "steps per network", *differences], rows)


def epoch_table(records: list[Record], bench: str, columns: dict[str, Callable[[Record], float]], digits: int) -> str:
    """Mean over seeds and networks of IN²R's health figures, one row per ratio and co-training epoch."""
    rows = []
    ratios = sorted({record["cell"]["ratio"] for record in records if record["cell"]["bench"] == bench})
    for ratio in ratios:
        runs = list(by_method(records, bench, ratio).get("in2r", {}).values())
        if not runs:
            continue
        for number in range(len(runs[0]["epochs"])):
            epochs = [run["epochs"][number] for run in runs]
            if epochs[0]["phase"] != "co-training":
                continue
            cells = []
            for figure in columns.values():
                values = [value for epoch in epochs if (value := figure(epoch)) is not None]
                cells.append(f"{statistics.mean(values):.{digits}f}" if values else "-")
            rows.append([f"{ratio} %", str(number + 1), *cells])
    return table(["noise", "epoch", *columns], rows)


def both(name: str) -> Callable[[Record], float | None]:
    """The mean of both networks' figure."""

    def figure(epoch: Record) -> float | None:
        values = [epoch[f"{name}_{net}"] for net in "AB" if f"{name}_{net}" in epoch]
        return statistics.mean(values) if values else None

    return figure


AUROC = {
    "AUROC, sce": both("auroc_sce"),
    "AUROC, triplet-mean": both("auroc_triplet-mean"),
    "clean fraction": both("clean_fraction"),
    "precision": both("partition_precision"),
    "recall": both("partition_recall"),
    "noise rate by sce": both("estimated_noise_rate_sce"),
    "noise rate by triplet-mean": both("estimated_noise_rate_triplet-mean"),
}
HEALTH = {
    "dev rSum": lambda epoch: epoch["dev"]["ensemble"]["rsum"],
    "peers' similarity, image": lambda epoch: epoch["peer_similarity_image"],
    "text": lambda epoch: epoch["peer_similarity_text"],
    "memory fill": both("memory_fill"),
    "distinct of K, image": both("distinct_neighbors_i2t"),
    "text ": both("distinct_neighbors_t2i"),
    "same original image, image": both("neighbors_same_image_i2t"),
    "text  ": both("neighbors_same_image_t2i"),
    "loss inter": both("loss_inter"),
    "loss rect": both("loss_rect"),
}


def main() -> int:
    records = load()
    page = PAGE.read_text()
    blocks = {}
    for bench in ("vectors", "words"):
        blocks[f"recall-{bench}"] = recall_table(records, bench)
        blocks[f"auroc-{bench}"] = epoch_table(records, bench, AUROC, 3)
        blocks[f"health-{bench}"] = epoch_table(records, bench, HEALTH, 2)
    for name, block in blocks.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page = re.sub(pattern, lambda match, block=block: f"{match[1]}{block}\n{match[2]}", page, flags=re.DOTALL)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
