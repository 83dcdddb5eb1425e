"""Logs and grid folders with numbers made by hand, as figures find them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from in2r.bench.grid import Cell, cell_config
from in2r.bench.grid_file import expand
from in2r.bench.protocols import Noise
from in2r.bench.records import FORMAT, write_record
from in2r.config import to_dict
from in2r.plots.sources import RunLog

ROWS = ("A", "B", "ensemble")
NOISE = {
    "file": "n.npy",
    "level": "caption",
    "nominal": 0.4,
    "realised": 0.4,
    "seed": 0,
    "sha256": "f" * 64,
    "oracle": False,
}


def mixture(**changes: Any) -> dict[str, Any]:
    """Four bins of losses from 1 to 3, the clean component at 1.5, the noisy one at 2.5."""
    fit = {
        "loss": "sce",
        "low": 1.0,
        "high": 3.0,
        "means": [0.25, 0.75],
        "variances": [0.01, 0.04],
        "weights": [0.25, 0.75],
        "boundary": 0.5,
        "counts": [3, 1, 6, 10],
        "clean_counts": [3, 1, 1, 0],
    }
    return {key: value for key, value in (fit | changes).items() if value is not ...}


def epoch(number: int, phase: str = "main", **figures: Any) -> dict[str, Any]:
    """A line of the log; the rSums of A, B and the ensemble are 10, 20 and 30 times the epoch's number."""
    rsums = {row: {"rsum": 10.0 * place * number} for place, row in enumerate(ROWS, start=1)}
    return {"epoch": number, "phase": phase, "steps": {"A": 1, "B": 1}, "dev": rsums, "seconds": 1.0, **figures}


def log(
    *epochs: dict[str, Any],
    name: str = "mine",
    fingerprint: str = "a" * 64,
    noise: Noise | None = Noise("caption", 0.4, 0.4, "f" * 64),  # noqa: B008 (it is frozen)
) -> RunLog:
    return RunLog(name, 0, "in2r", "flowers", fingerprint, noise, list(epochs))


def write_grid(
    folder: Path,
    values: dict[str, Any],
    rsum: Callable[[Cell], float | None],
    one_group: Callable[[Cell], str] = lambda cell: "",
    **protocol: dict[str, Any],
) -> Path:
    """Write grid.yaml, and the record of each cell that has an rSum; `protocol` is laid on its sections.

    `one_group` names the networks whose losses formed one group in the only epoch.
    """
    folder.mkdir(parents=True)
    (folder / "grid.yaml").write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    for cell in expand(values).cells:
        found = rsum(cell)
        if found is not None:
            made = record(cell, found, **protocol)
            for name in one_group(cell):
                made["epochs"][0] |= {f"single_mode_{name}": 1.0, f"clean_fraction_{name}": 1.0}
            write_record(folder / "records" / f"{cell.name}.json", made)
    return folder


def record(cell: Cell, rsum: float, **protocol: dict[str, Any]) -> dict[str, Any]:
    settings = json.loads(json.dumps(to_dict(cell_config(cell))))
    ratio = settings["noise"]["ratio"]
    noise = NOISE | {"nominal": ratio, "realised": ratio, "seed": cell.seed, "sha256": f"{cell.seed}{ratio}" * 16}
    described: dict[str, Any] = {
        "data": {
            "path": "flowers",
            "fingerprint": "a" * 64,
            "fingerprint_in_training": "a" * 64,
            "captions_as": "words",
            "caption_vectors": None,
            "dev_rule": "scan",
        },
        "evaluated": {"split": "test", "images": 100, "captions": 500, "folds": 1, "tie_rule": "before"},
        "selection": {"rule": "highest dev rSum", "epoch": 1, "dev_rsum": 1.0},
        "forced": {"training": [], "now": []},
        "noise": noise if ratio else None,
        "oracle": settings["noise"]["oracle"],
        "method": "in2r",
        "finished": True,
        "epochs_done": 1,
        "steps_per_network": {"A": 1, "B": 1},
        "trained": {
            "created": "2026-01-02T00:00:00+00:00", "versions": {}, "device": "cpu", "device_name": None, "threads": 1,
        },
        "date": "2026-01-03T00:00:00+00:00",
    }  # fmt: skip
    for section, changes in protocol.items():
        described[section] = {**(described[section] or {}), **changes}
    recalls = {f"{way}_r{k}": 50.0 for way in ("i2t", "t2i") for k in (1, 5, 10)}
    rows = {row: {**recalls, "rsum": rsum - 5 * (row != "ensemble")} for row in ROWS}
    return {
        "format_version": FORMAT,
        "name": cell.name,
        "seed": cell.seed,
        "settings": settings,
        "result": {"rows": rows, "protocol": described},
        "epochs": [epoch(1)],
    }
