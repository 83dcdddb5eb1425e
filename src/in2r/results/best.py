"""The selected model of a run: the networks at the best validation."""

from dataclasses import dataclass
from typing import Any

from in2r.errors import InputError, command_line
from in2r.form import read
from in2r.models.base import Backbone
from in2r.models.folder import restore_backbones
from in2r.runs.checkpoints import load_newest
from in2r.runs.folder import RunFolder
from in2r.runs.identity import require_own
from in2r.tensors import load_tensors
from in2r.training.evaluation import Rows
from in2r.training.setup import Setup

SELECTION_RULE = "highest dev rSum of the ensemble; of equal ones the first"


@dataclass(frozen=True)
class Best:
    """The networks at the selected epoch."""

    backbones: dict[str, Backbone]
    epoch: int
    """counted from 1"""
    dev: Rows
    """recalls on the dev split, by row"""

    def record(self) -> dict[str, Any]:
        """Return the selection as plain values."""
        return {"rule": SELECTION_RULE, "epoch": self.epoch, "dev_rsum": self.dev["ensemble"]["rsum"]}


@dataclass(frozen=True)
class _Selected:
    """What the best weights say of themselves."""

    epoch: int
    dev: dict[str, dict[str, float]]
    networks: tuple[str, ...]


def load_best(folder: RunFolder, setup: Setup) -> Best:
    """Read the weights of the best validation onto the set-up's device, in eval mode.

    Raises:
        InputError: no epoch has ended yet, or the weights are another run's or do not fit the data.
    """
    if not folder.best_file.is_file():
        done = epochs_done(folder)
        if done:
            raise InputError(f"{folder.best_file}: no such file, but {done} epochs have ended; put it back")
        raise InputError(f"{folder.path}: no epoch has ended yet; `{_resume(folder)}` resumes it")
    tensors, meta = load_tensors(folder.best_file)
    require_own(folder, folder.best_file, meta)
    selected = read(_Selected, meta, str(folder.best_file))
    backbones = restore_backbones(tensors, list(selected.networks), setup.config.model, setup.inputs, folder.best_file)
    ready = {name: backbone.to(setup.device).eval() for name, backbone in backbones.items()}
    return Best(ready, selected.epoch, selected.dev)


def _resume(folder: RunFolder) -> str:
    return command_line("in2r", "resume", folder.path)


def epochs_done(folder: RunFolder) -> int:
    """Return how many epochs of the run have ended."""
    records = folder.records()
    return int(records[-1]["epoch"]) if records else 0


def require_finished(folder: RunFolder, epochs: int) -> None:
    """Refuse a run that has not reached its last epoch, or whose record has lost what its checkpoint knows of."""
    done = epochs_done(folder)
    if done >= epochs:
        return
    newest = load_newest(folder.checkpoints)
    if newest is not None:
        folder.require_records(newest[2].get("lines", 0))
    raise InputError(
        f"{folder.path}: unfinished ({done} of {epochs} epochs); `{_resume(folder)}` resumes it, "
        "--unfinished takes the best epoch so far"
    )
