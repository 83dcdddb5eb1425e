"""Which cells begin alike, and train one warm-up between them; which do not get beyond it."""

import json
from collections.abc import Sequence

from in2r.bench.grid import Cell, cell_config
from in2r.methods import build_method
from in2r.runs.identity import deciding
from in2r.runs.settings import RunConfig
from in2r.training.train import ends_within_warmup


def warmup_key(config: RunConfig) -> str | None:
    """Return what cells must agree in to share a warm-up, as far as settings tell; None without a warm-up.

    The engine looks closer, at the data too (`in2r.training.warmup`): to agree here and not there costs time only.
    """
    epochs, loss = build_method(config.method, 1).warmup()
    if not epochs:
        return None
    return json.dumps([loss, deciding(config, "learning", "place")], sort_keys=True)


def without_cotraining(cells: Sequence[Cell]) -> str:
    """Say which cells are over before their method tells pairs apart; nothing of methods that never do."""
    found = {}
    for cell in cells:
        config = cell_config(cell)
        why = ends_within_warmup(build_method(config.method, 1), config.train.epochs)
        if why:
            found[cell.name] = why
    if not found:
        return ""
    name, why = next(iter(found.items()))
    count = f"{len(found)} of {len(cells)} cells"
    return f"no co-training in {count}, such as {name}: {why}"


def warmup_epochs(cell: Cell) -> int:
    """Return after how many epochs a cell has a warm-up for others; 0 where it has none, or one that never ends."""
    config = cell_config(cell)
    epochs = build_method(config.method, 1).warmup()[0]
    return epochs if epochs < config.train.epochs else 0
