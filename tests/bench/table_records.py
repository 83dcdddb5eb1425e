"""A grid and records made by hand."""

from collections.abc import Mapping
from typing import Any

from in2r.bench.grid import Cell, Grid, cell_config
from in2r.bench.grid_file import expand
from in2r.bench.records import FORMAT, Record, parse_record
from in2r.config import to_dict
from in2r.settings_text import merge


def grid_values(axes: Mapping[str, Any] | None = None, **group: Any) -> dict[str, Any]:
    """A grid of one group `main`, seeds 0 and 1, caption-level noise of 0.6."""
    settings = {"data": {"path": "data/birds", "caption_vectors": "vecs"}, "noise": {"ratio": 0.6}}
    axes = axes or {"rectifier": {"none": {"method": {"rectifier": "none"}}, "top1": {"method": {"rectifier": "top1"}}}}
    return {"settings": settings, "seeds": [0, 1], "groups": {"main": {"axes": axes, **group}}}


def make_grid(axes: Mapping[str, Any] | None = None, **group: Any) -> Grid:
    return expand(grid_values(axes, **group))


def make_record(cell: Cell, rsum: float, **details: Any) -> Record:
    """A record as it is read; see `record_values`."""
    return parse_record(record_values(cell, rsum, **details), f"{cell.name}.json")


def record_values(
    cell: Cell,
    rsum: float,
    *,
    single: float | None = None,
    seconds: float = 100.0,
    sha256: str = "",
    realised: float = 0.6,
    taken_over: bool = False,
    networks: str = "AB",
    last: Mapping[str, Any] | None = None,
    protocol: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the file of a record holds, of two epochs.

    The ensemble has the rSum, in equal recalls; A and B are one point to both sides of `single`.

    Args:
        last: laid on the line of the last epoch.
        protocol: laid on the protocol.
    """
    settings = to_dict(cell_config(cell))
    settings["data"]["path"] = "birds"
    single = rsum if single is None else single
    steps = dict(zip(networks, (10, 12), strict=False))
    rows = {name: make_row(single + side) for name, side in zip(networks, (-1, 1), strict=False)}
    first = {"epoch": 1, "phase": "warm-up", "seconds": 0.25 * seconds, "steps": steps}
    second = {"epoch": 2, "phase": "main", "seconds": 0.75 * seconds, "steps": steps}
    described = make_protocol(cell, sha256 or f"hash{cell.seed}", realised) | {"steps_per_network": steps}
    return {
        "format_version": FORMAT,
        "name": cell.name,
        "seed": cell.seed,
        "settings": settings,
        "result": {"rows": {**rows, "ensemble": make_row(rsum)}, "protocol": merge(described, protocol or {})},
        "epochs": [{**first, **({"taken_over": 1} if taken_over else {})}, {**second, **(last or {})}],
    }


def make_protocol(cell: Cell, sha256: str, realised: float) -> dict[str, Any]:
    noise = cell_config(cell).noise
    described = {
        "level": noise.level, "nominal": noise.ratio, "realised": realised, "sha256": sha256 + "0" * 20,
    }  # fmt: skip
    return {
        "data": {
            "path": "birds",
            "fingerprint": "f" * 64,
            "fingerprint_in_training": "f" * 64,
            "captions_as": "vectors",
            "caption_vectors": "vecs",
            "dev_rule": "scan",
        },
        "noise": described if noise.ratio else None,
        "changed_settings": [],
        "finished": True,
        "epochs_done": 2,
        "selection": {"rule": "highest dev rSum", "epoch": 2},
        "trained": {
            "created": "2026-01-02T00:00:00+00:00",
            "versions": {"torch": "2.9"},
            "device": "cpu",
            "device_name": None,
            "threads": 1,
        },
        "date": "2026-01-03T00:00:00+00:00",
        "evaluated": {"split": "test", "images": 10, "captions": 50, "folds": 1, "tie_rule": "pessimistic"},
    }


def make_row(rsum: float) -> dict[str, float]:
    return {f"{way}_r{k}": rsum / 6 for way in ("i2t", "t2i") for k in (1, 5, 10)} | {"rsum": rsum}


def records_of(grid: Grid, rsums: Mapping[str, float], **details: Any) -> dict[str, Record]:
    """Make records of the cells that are named, as far as the grid has them."""
    cells = {cell.name: cell for cell in grid.cells}
    return {name: make_record(cells[name], rsum, **details) for name, rsum in rsums.items()}
