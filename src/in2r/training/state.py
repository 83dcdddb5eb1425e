"""What a checkpoint holds, and how a run goes back to it: the one list of everything that changes in training."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from in2r.device import computed_on
from in2r.errors import InputError
from in2r.runs.checkpoints import load_optimizer, optimizer_tensors
from in2r.runs.folder import versions
from in2r.runs.identity import belonging, require_own
from in2r.training.health import Means
from in2r.training.scoring import Partition

if TYPE_CHECKING:
    from in2r.training.loop import Trainer

log = logging.getLogger(__name__)


def state_of(trainer: "Trainer") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the plain values of the present position."""
    tensors: dict[str, Tensor] = {}
    for name, net in trainer.nets.items():
        tensors |= {f"net.{name}.{key}": value for key, value in net.state_dict().items()}
        tensors |= optimizer_tensors(trainer.optimizers[name], f"optimizer.{name}")
    for name, partition in trainer.partitions.items():
        tensors[f"partition.{name}.clean_prob"] = partition.clean_prob
        tensors[f"partition.{name}.clean"] = partition.clean
        tensors[f"partition.{name}.elite"] = partition.elite
    meta = {
        **belonging(trainer.folder),
        "epoch": trainer.epoch,
        "position": trainer.position,
        "begun": trainer.begun,
        "began_as": trainer.began_as,
        "step": trainer.step,
        "lines": trainer.lines,
        "best": trainer.best,
        "means": trainer.means.state(),
        "partitions": {name: partition.split for name, partition in trainer.partitions.items()},
        "mixtures": {name: partition.mixture for name, partition in trainer.partitions.items()},
        "versions": versions(),
        "computed_on": computed_on(trainer.device, trainer.nets["A"].encoder.precision),
    }
    return tensors, meta


def restore(trainer: "Trainer", path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Take over the state of a checkpoint.

    Raises:
        InputError: it is of another run, or its weights or pairs do not fit.
    """
    require_own(trainer.folder, path, meta)
    for name, net in trainer.nets.items():
        prefix = f"net.{name}."
        state = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
        try:
            net.load_state_dict(state)
        except RuntimeError:
            raise InputError(f"{path}: other weights than {trainer.folder.config_file} asks for") from None
        load_optimizer(trainer.optimizers[name], tensors, f"optimizer.{name}")
    for name, split in meta["partitions"].items():
        prob, clean, elite = (tensors[f"partition.{name}.{part}"] for part in ("clean_prob", "clean", "elite"))
        trainer.partitions[name] = Partition(prob, clean, split, elite, {}, meta["mixtures"][name])
        if meta["begun"] and len(prob) != len(trainer.data.image_of_pair):  # between epochs it is made anew
            raise InputError(f"{path}: {len(prob)} training pairs, now there are {len(trainer.data.image_of_pair)}")
    trainer.epoch, trainer.position, trainer.begun = meta["epoch"], meta["position"], meta["begun"]
    trainer.step, trainer.lines, trainer.best = meta["step"], meta["lines"], meta["best"]
    trainer.began_as = meta["began_as"]
    trainer.means = Means(meta["means"])
    now = versions() | computed_on(trainer.device, trainer.nets["A"].encoder.precision)
    before = meta["versions"] | meta["computed_on"]
    if trainer.epoch < trainer.config.train.epochs:
        _warn_of_another_machine(path, before, now)


def _warn_of_another_machine(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Say what the next steps round otherwise by than those before the checkpoint."""
    changed = [f"{name} ({before.get(name)}, now {value})" for name, value in now.items() if before.get(name) != value]
    if changed:
        log.warning(
            "%s: computed otherwise now: %s; the run goes on, but not bit-identically", path, ", ".join(changed)
        )
