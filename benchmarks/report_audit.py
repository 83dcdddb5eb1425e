"""Write the tables of docs/audit.md from the figures of audit*.py; benchmarks/report.py does it."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import DOCS, markdown, replace_parts

from in2r.files import read_json

RESULTS = Path(__file__).parent / "results"

KINDS = {
    "all together": "all together",
    "linear maps, one pass": "CCA",
    "LEMoN": "LEMoN",
    "own similarity": "own similarity",
    "lead over strangers": "lead over strangers",
    "image neighbours": "image neighbours",
    "text neighbours": "text neighbours",
    "other captions": "other captions",
    "look-alikes": "look-alikes do not fit",
}
"""Kind of evidence in the results file → what the table calls it."""
WORTH = {
    "worst 1 %": "worst 1 %",
    "worst 5 %": "worst 5 %",
    "worst 10 %": "worst 10 %",
    "precision": "precision",
    "recall": "recall",
    "best_f1": "best F1",
    "auprc": "AUPRC",
    "calibration_error": "calibration error",
}


READ_BY = {"caps_minilm": "", "words": ", TF-IDF"}
"""what captions are read by in the results file → what the table adds to the noise"""
LEVELS = ("caption", "image", "near", "word")


def audit_rows(found: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield what each setting is called, and the figures of all its seeds."""
    settings: dict[tuple[int, int, float], list[Any]] = {}
    for key in found:
        if not key.endswith("human"):
            kind, noise = key.split()[:2]
            level, ratio = noise.split(":")
            place = (list(READ_BY).index(kind), LEVELS.index(level), float(ratio))
            settings.setdefault(place, []).append(found[key])
    for (kind, level, ratio), runs in sorted(settings.items()):
        yield f"{LEVELS[level]}, {100 * ratio:.0f} %{list(READ_BY.values())[kind]}", runs


def mean(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the mean of a figure over seeds, with its deviation where there are several."""
    values = [run[name] for run in runs if run.get(name) is not None]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def write_audit() -> None:
    """Fill docs/audit.md from benchmarks/results/audit.json."""
    file = RESULTS / "audit.json"
    if not file.is_file():
        return
    found = read_json(file)
    auroc, scores = [], []
    for noise, runs in audit_rows(found):
        if runs[0]["auroc"]:
            auroc.append([noise, str(len(runs)), *(mean([run["auroc"] for run in runs], kind) for kind in KINDS)])
        low, high = (statistics.mean(run["interval"][end] for run in runs) for end in (0, 1))
        rate = f"{mean(runs, 'estimated')} ({low:.3f} to {high:.3f})"
        scores.append([noise, mean(runs, "noise"), rate, *(mean(runs, name) for name in WORTH)])
    people = next((value for key, value in found.items() if key.endswith("human")), {})
    rated = [
        [KINDS[kind], f"{one['rank']:.3f}", f"{one['auroc']:.3f}"] for kind, one in people.items() if kind in KINDS
    ]
    parts = {
        "auroc": markdown(["noise", "seeds", *KINDS.values()], auroc, 1),
        "scores": markdown(["noise", "truly wrong", "estimated (range)", *WORTH.values()], scores, 1),
        "human": markdown(["evidence", "rank correlation", "AUROC"], rated, 1),
    }
    replace_parts(DOCS / "audit.md", parts)


STAGES = {
    "reading": ("reading",),
    "neighbours": ("neighbours",),
    "evidence, model": ("evidence", "model"),
    "verdicts": ("verdicts",),
    "files, page": ("files", "page"),
    "all": ("",),
}
"""heading of a column → how its stages' names begin"""


def write_scale() -> None:
    """Fill docs/audit.md from benchmarks/results/audit_scale.json."""
    file = RESULTS / "audit_scale.json"
    if not file.is_file():
        return
    rows = []
    for pairs, run in sorted(read_json(file).items(), key=lambda item: int(item[0])):
        spent = [sum(s for name, s in run["seconds"].items() if name.startswith(stage)) for stage in STAGES.values()]
        peak = max(run["peak_gib"].values())
        rows.append([f"{int(pairs):,}", *(f"{seconds:.0f}" for seconds in spent), f"{peak:.1f} GiB"])
    replace_parts(DOCS / "audit.md", {"scale": markdown(["pairs", *STAGES, "peak memory"], rows, 0)})


def write_feeds() -> None:
    """Fill the part of docs/audit.md on new pairs from benchmarks/results/audit_feed.json."""
    file = RESULTS / "audit_feed.json"
    if not file.is_file():
        return
    found = read_json(file)
    people, rows = found.pop("human", {}), []
    for name, ways in found.items():
        for way, one in ways.items():
            low, high = one["interval"]
            rate = f"{one['estimated']:.3f} ({low:.3f} to {high:.3f})"
            aurocs = [f"{one['auroc'][kind]:.3f}" for kind in ("all together", "own similarity")]
            rows.append([name, way, f"{one['noise']:.3f}", rate, *aurocs, f"{one['calibration_error']:.3f}"])
    head = ["wrong new pairs", "judged", "truly", "estimated (range)", "AUROC", "own similarity", "calibration error"]
    rated = [
        [KINDS[kind], *(f"{one[name]:.3f}" for name in ("rank", "auroc", "clear_auroc"))]
        for kind, one in people.items()
    ]
    parts = {
        "feed": markdown(head, rows, 2),
        "feed human": markdown(["evidence", "rank correlation", "AUROC", "AUROC, clear"], rated, 1),
    }
    replace_parts(DOCS / "audit.md", parts)


def write_trained() -> None:
    """Fill the part of docs/audit.md on trained runs from benchmarks/results/audit_trained.json."""
    file = RESULTS / "audit_trained.json"
    if not file.is_file():
        return
    rows = []
    kinds = ("all together", "lead over strangers", "trained similarity", "trained lead")
    for noise, runs in read_json(file).items():
        level, ratio = noise.split(":")
        for preset, one in runs.items():
            values = [f"{one['auroc'][kind]:.4f}" if kind in one["auroc"] else "" for kind in kinds]
            rates = [f"{one[name]:.3f}" for name in ("noise", "estimated", "calibration_error")]
            rows.append([f"{level}, {100 * float(ratio):.0f} %", preset, *values, *rates])
    head = ["noise of train", "half runs", *kinds, "truly wrong", "estimated", "calibration error"]
    replace_parts(DOCS / "audit.md", {"trained": markdown(head, rows, 2)})
