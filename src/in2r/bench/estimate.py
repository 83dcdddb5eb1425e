"""How long the cells of a grid will take: a few steps of each kind, timed once."""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from in2r.bench.cell import Where, placed_config
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell, cell_config
from in2r.bench.warmups import warmup_epochs, warmup_key
from in2r.config import to_dict
from in2r.device import resolve_device, use_threads
from in2r.errors import InputError
from in2r.methods import build_method
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig
from in2r.training.loop import Trainer
from in2r.training.plan import Rates, count_work, measure_rates, sizes
from in2r.training.setup import open_setup
from in2r.training.train import Silent

_AT_NO_COST = {
    "data": ("split_seed",),
    "method": (
        "ce_weight",
        "rce_weight",
        "epsilon",
        "warmup_temperature",
        "warmup_epochs",
        "margin",
        "intra_margin",
        "lambda_intra",
        "gamma",
        "refiner_dropout",
        "rectification_temperature",
        "memory_source",
        "memory_elite",
        "memory_prefill",
    ),
    "train": (
        "seed",
        "epochs",
        "learning_rate",
        "weight_decay",
        "schedule",
        "step_epochs",
        "step_factor",
        "gradient_clip",
        "order",
        "initial_weights",
    ),
}
"""Keys whose value decides what a step learns, or how many there are, and not how long one takes. All others count, so
that a key that is added later is timed before it is known to be one of these."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of each cell that is not finished, in its order; a warm-up counts in the first cell that trains it."""

    seconds: dict[str, float]
    faults: dict[str, str]
    """cells that cannot be begun as things are, such as for want of their data, and why"""

    @property
    def total(self) -> float:
        """Seconds of all of them, one after the other."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class _Kind:
    rates: Rates
    pairs: int
    dev: int


def estimate(folder: GridFolder, cells: Iterable[Cell], where: Where) -> Estimate:
    """Time a few steps of each kind of cell, and reckon all cells from them.

    Args:
        folder: the grid's folder.
        cells: the cells that are still to be trained; those that are begun count in full.
        where: where data and devices are.
    """
    kinds: dict[str, _Kind] = {}
    seconds, faults = {}, {}
    kept: dict[str | None, int] = {}  # warm-up → epochs of it that some cell has trained
    for cell in folder.grid().cells:
        if folder.state(cell.name) == "finished":
            _keep(kept, cell)
    for cell in cells:
        config = cell_config(cell)
        name = _kind_of(config)
        if name not in kinds:
            try:
                kinds[name] = _rehearse(placed_config(folder, cell, where))
            except InputError as error:  # of this cell: another of its kind may have other files
                faults[cell.name] = str(error)
                continue
        kind = kinds[name]
        method = build_method(config.method, kind.pairs)
        work = count_work(config, method, kind.pairs, kind.dev, config.noise.ratio or 0)
        own = min(method.warmup()[0], config.train.epochs)
        taken = min(kept.get(warmup_key(config), 0), own) / max(own, 1)
        seconds[cell.name] = kind.rates.seconds(work) - taken * kind.rates.warmup_seconds(work)
        _keep(kept, cell)
    return Estimate(seconds, faults)


def _keep(kept: dict[str | None, int], cell: Cell) -> None:
    key = warmup_key(cell_config(cell))
    kept[key] = max(kept.get(key, 0), warmup_epochs(cell))


def _kind_of(config: RunConfig) -> str:
    """Return what steps must agree in to take alike long, and to be timed in the same phases."""
    values = to_dict(config)
    kind = {
        name: {key: value for key, value in values[name].items() if key not in _AT_NO_COST.get(name, ())}
        for name in ("data", "model", "method", "train")
    }
    method = build_method(config.method, 1)
    phases = {method.needs_partition(epoch) for epoch in range(config.train.epochs)}
    noise = values["noise"]["oracle"] and values["noise"]["ratio"]  # an oracle has fewer pairs
    one_view = values["method"].get("lambda_intra") == 0  # the clean batch is not embedded a second time
    return json.dumps([kind, values["partition"]["augmented"], sorted(phases), noise, one_view], sort_keys=True)


def _rehearse(config: RunConfig) -> _Kind:
    setup = open_setup(config, resolve_device(config.train.device), first=False)
    with use_threads(config.train.threads), tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(RunFolder(scratch), setup, Silent())
        pairs, dev, noisy = sizes(trainer)
        work = count_work(trainer.config, trainer.method, pairs, dev, noisy)
        return _Kind(measure_rates(trainer, work), pairs, dev)
