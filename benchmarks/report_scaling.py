"""Write the tables of docs/scaling.md from the figures of scale*.py and cold.py; benchmarks/report.py does it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages import DOCS, markdown, replace_parts

from in2r.files import read_json

RESULTS = Path(__file__).parent / "results"
BATCH = 128
"""pairs of a step in scale.py"""
TIMES = {
    "open the data": ("open",),
    "build networks, order, plan": ("build",),
    "order the pairs": ("main: order", "warm-up: order"),
    "steps of the warm-up": ("warm-up: step",),
    "steps of the main phase": ("main: step",),
    "observe all pairs": ("observe A", "observe B"),
    "divide": ("divide",),
    "write the divisions": ("divisions",),
    "write a checkpoint": ("checkpoint",),
    "validate": ("validation",),
}
"""row → its parts: the first that is there, or all that are observed"""
PEAKS = ("open", "observe A", "divide", "divisions", "main: order", "checkpoint")

# --- 10^8 pairs on paper
PAIRS, DIM, BATCH_THEN, STEP_SECONDS, DEVICES = 10**8, 512, 1024, 0.025, 8
"""pairs, numbers of a vector and D, pairs of a step, assumed seconds of a step of one network, devices"""
HOUR_COST = 2.0
"""assumed price of an hour of a device, in US dollars"""
READ_SECONDS = 1e-4
"""assumed wait for one row that is not in memory"""
DIVISION = 12
"""bytes of IN²R's two divisions, as the state table has them"""


def per_pair(run: Mapping[str, Any], pairs: int, names: tuple[str, ...]) -> float | None:
    """Return the CPU microseconds that a row takes for each pair; None where the method has no such part."""
    parts = [run["parts"][name]["seconds"] for name in names if name in run["parts"]]
    if not parts:
        return None
    if names[0].endswith("step"):
        return 1e6 * 2 * parts[0] / BATCH  # both networks pass over the pairs
    return 1e6 * (sum(parts) if names[0].startswith("observe") else parts[0]) / pairs


def time_table(found: Mapping[str, Any]) -> str:
    """Return CPU microseconds a pair by part."""
    rows = []
    for method in ("in2r", "sce"):
        for name, parts in TIMES.items():
            values = [per_pair(found[pairs][method], int(pairs), parts) for pairs in found]
            if any(values):
                rows.append([f"`{method}`", name, *("" if value is None else f"{value:.2f}" for value in values)])
    return markdown(["method", "part", *(f"{int(pairs):,} pairs" for pairs in found)], rows, 2)


def memory_table(found: Mapping[str, Any]) -> str:
    """Return megabytes of anonymous memory: at the start, held, and the most during a part."""
    rows = []
    for method in ("in2r", "sce"):
        runs = [found[pairs][method] for pairs in found]
        rows.append([f"`{method}`", "Python and PyTorch, before", *(f"{run['start'] / 1e6:,.0f}" for run in runs)])
        held = [run["parts"]["build"]["held"] for run in runs]
        rows.append([f"`{method}`", "held when the first step begins", *(f"{value / 1e6:,.0f}" for value in held)])
        for part in PEAKS:
            peaks = [run["parts"].get(part, {}).get("peak") for run in runs]
            if any(peaks):
                name = {"divisions": "write the divisions"}.get(part, part.removesuffix(" A").removeprefix("main: "))
                most = ("" if value is None else f"{value / 1e6:,.0f}" for value in peaks)
                rows.append([f"`{method}`", f"most during: {name}", *most])
        for name, what in (
            ("size of a checkpoint", "checkpoint_bytes"),
            ("size of the divisions' file", "divisions_bytes"),
        ):
            if any(run[what] for run in runs):
                rows.append([f"`{method}`", name, *(f"{run[what] / 1e6:,.1f}" for run in runs)])
    return markdown(["method", "MB", *(f"{int(pairs):,} pairs" for pairs in found)], rows, 2)


def each(found: Mapping[str, Any], part: str, what: str) -> float:
    """Return the bytes a pair of IN²R at the largest size: all that is beyond Python and PyTorch."""
    largest = max(found, key=int)
    run = found[largest]["in2r"]
    return float(run["parts"][part][what] - run["start"]) / int(largest)


def bank_table(found: Mapping[str, Any]) -> str:
    """Return what a memory of so many entries takes."""
    rows = [
        [
            precision,
            f"{int(entries):,}",
            f"{one['held_bytes'] / 1e6:,.0f}",
            f"{1000 * one['push_seconds']:.1f}",
            f"{1000 * one['nearest_seconds']:,.0f}",
            f"{one['search_bytes'] / 1e6:.0f}",
        ]
        for precision, sizes in found.items()
        for entries, one in sizes.items()
    ]
    return markdown(["kept in", "entries", "memory, MB", "push, ms", "search, ms", "search adds, MB"], rows, 1)


def state_table(found: Mapping[str, Any]) -> str:
    """Return the bytes that each method keeps for a pair."""
    rows = []
    for method, sizes in found.items():
        groups = {
            "division": sum(value for name, value in sizes.items() if name.startswith("division.")),
            "own": sum(value for name, value in sizes.items() if ".own." in name),
            "fixed": sum(value for name, value in sizes.items() if name.startswith("column.")),
        }
        rows.append([f"`{method}`", *(f"{value:.0f}" for value in [*groups.values(), sum(sizes.values())])])
    return markdown(["method", "division", "networks' own state", "fixed columns", "all"], rows, 1)


def paper_table(found: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return what 10^8 pairs need, each with how it follows."""
    largest = max(found, key=int)
    held = each(found, "build", "held")
    peaks = {part: each(found, part, "peak") for part in PEAKS}
    most = max(peaks, key=lambda part: peaks[part])
    micro = {name: per_pair(found[largest]["in2r"], int(largest), TIMES[name]) or 0.0 for name in TIMES}
    observed = micro["observe all pairs"]
    steps, row, reads = 2 * PAIRS / BATCH_THEN, 2 * DIM * 2, 2 * 2 * PAIRS
    hours, pace = steps * STEP_SECONDS / 3600, f"{1000 * STEP_SECONDS:.0f} ms"
    kept, sent = plan["disk_bytes"] / 3e9, plan["sent_bytes"]  # two checkpoints are kept while a third is written
    divisions = DIVISION * PAIRS / 1e9
    rows: list[tuple[str, str, str]] = [
        ("vectors on disk", f"2 sides × {DIM} × 2 bytes = {row:,} bytes a pair", f"{row * PAIRS / 1e9:,.0f} GB"),
        ("memory held by a process", f"{held:.0f} bytes a pair at 10^7", gigabytes(held)),
        (f"most memory, during: {most}", f"{peaks[most]:.0f} bytes a pair at 10^7", gigabytes(peaks[most])),
        ("opening, each process", f"{micro['open the data']:.2f} µs a pair", minutes(micro["open the data"])),
        ("observing, shared out", f"{observed:.0f} µs a pair and epoch", minutes(observed)),
        ("dividing, first process", f"{micro['divide']:.2f} µs a pair and epoch", minutes(micro["divide"])),
        ("the divisions' file of an epoch", f"{DIVISION} bytes a pair", f"{divisions:.1f} GB"),
        ("a checkpoint", "weights, optimisers and memories", f"{kept:.1f} GB"),
        ("steps of an epoch", f"2 networks × 10^8 / {BATCH_THEN:,}", f"{steps:,.0f}"),
        (
            "checkpoints of an epoch",
            f"{steps:,.0f} / 1,000 × {kept:.1f} GB",
            f"{steps / 1e3 * kept:,.0f} GB",
        ),
        ("an epoch on one device", f"{steps:,.0f} × {pace} (assumed)", f"{hours:.2f} hours"),
        (f"an epoch on {DEVICES}, at best", f"{hours:.2f} hours / {DEVICES}", f"{60 * hours / DEVICES:.0f} minutes"),
        ("sent by a process in a step", f"`--plan --processes {DEVICES}`", f"{sent / 1e6:.0f} MB"),
        (
            "sent in a second",
            f"{sent / 1e6:.0f} MB × {DEVICES} / {pace}",
            f"{sent * DEVICES / STEP_SECONDS / 1e9:.1f} GB",
        ),
        ("20 epochs", f"20 × {hours:.2f} hours × {HOUR_COST:.0f} $ (assumed)", f"{20 * hours * HOUR_COST:.0f} $"),
        (
            "rows from a disk",
            f"2 sides × 2 networks × 10^8 an epoch × {1e6 * READ_SECONDS:.0f} µs (assumed)",
            f"{reads * READ_SECONDS / 3600:.0f} hours",
        ),
    ]
    return markdown(["what", "how it follows", "10^8 pairs"], rows, 2)


def cold_table(found: Mapping[str, Any]) -> str:
    """Return milliseconds of a batch by each way of reading, and how many times as quick as plain reading."""
    rows = []
    for name, one in found.items():
        cells = [f"{one[way]:.2f}" if way in one else "" for way in ("plain", "called", "next")]
        ratio, least, most = one["called_ratio"]
        rows.append([name, *cells, f"{ratio:.2f} ({least:.2f} to {most:.2f})"])
    return markdown(["batches", "plain, ms", "called, ms", "next batch too, ms", "plain / called"], rows, 1)


def gigabytes(size: float) -> str:
    """Return so many bytes a pair for all pairs."""
    return f"{size * PAIRS / 1e9:.1f} GB"


def minutes(micro: float) -> str:
    """Return so many microseconds a pair for all pairs."""
    return f"{micro * PAIRS / 60e6:.0f} minutes"


def write_scaling() -> None:
    """Fill docs/scaling.md from benchmarks/results/scale*.json and cold.json."""
    files = [RESULTS / f"{name}.json" for name in ("scale", "scale_memory", "scale_state", "cold")]
    if not all(file.is_file() for file in files):
        return
    found, banks, state, cold = (read_json(file) for file in files)
    found = {pairs: found[pairs] for pairs in sorted(found, key=int)}
    parts = {
        "time": time_table(found),
        "memory": memory_table(found),
        "bank": bank_table(banks),
        "cold": cold_table(cold),
        "state": state_table(state["bytes_per_pair"]),
        "paper": paper_table(found, state["plan"]),
    }
    replace_parts(DOCS / "scaling.md", parts)
