"""Which cells share a warm-up, and which end within theirs."""

import json
from collections.abc import Sequence

from in2r.bench.grid import Cell, cell_config
from in2r.config import deciding
from in2r.methods import build_method, warmup_of
from in2r.runs.identity import warmup_identity
from in2r.runs.settings import RunConfig
from in2r.training.train import ends_within_warmup


def warmup_key(config: RunConfig) -> str | None:
    """Return what cells must agree in to share a warm-up, as far as settings tell; None without a warm-up.

    The training looks closer, at the data too (`in2r.training.warmup`): cells that agree here and not there wait for
    each other in vain, and train a warm-up each.
    """
    identity = warmup_identity(config, build_method(config.method, config.partition, config.loss))
    return None if identity is None else json.dumps([identity, deciding(config, "place")], sort_keys=True)


def warmup_epochs(cell: Cell) -> int:
    """Return how long the warm-up is that a cell has for others; 0 where it has none, or does not end it."""
    config = cell_config(cell)
    epochs = warmup_of(build_method(config.method, config.partition, config.loss))[0]
    return epochs if epochs < config.train.epochs else 0


def without_main_phase(cells: Sequence[Cell]) -> str:
    """Say which cells end before their method judges a pair; nothing of methods that never do."""
    found = {}
    for cell in cells:
        config = cell_config(cell)
        why = ends_within_warmup(build_method(config.method, config.partition, config.loss), config.train.epochs)
        if why:
            found[cell.name] = why
    if not found:
        return ""
    name, why = next(iter(found.items()))
    return f"{len(found)} of {len(cells)} cells end within their warm-up, such as {name}: {why}"
