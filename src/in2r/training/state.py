"""The state of a run: everything that changes in training, and its way into a checkpoint and back.

Nothing that is drawn is part of it: draws are functions of the seed and the position (see `in2r.seeds`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in2r.device import computed_on
from in2r.errors import InputError
from in2r.methods import Cost, Division, Net
from in2r.runs.checkpoints import DIVIDED_AT, divisions_file, load_optimizer, optimizer_tensors
from in2r.runs.folder import RunFolder
from in2r.runs.identity import belonging, require_own, versions
from in2r.training.health import Means

log = logging.getLogger(__name__)

Optimizers = dict[str, dict[str, torch.optim.Optimizer]]
"""network → which → optimiser"""


@dataclass
class RunState:
    """Where a run is, and what it has learnt."""

    nets: dict[str, Net]
    optimizers: Optimizers
    divisions: dict[str, Division] = field(default_factory=dict)
    """network → what it trains on in this epoch of the main phase"""
    means: Means = field(default_factory=Means)
    """of this epoch so far"""
    epoch: int = 0
    """finished epochs"""
    position: int = 0
    """finished iterations of this epoch"""
    divided: bool = False
    """this epoch's division is made"""
    divided_at: int | None = None
    """finished iterations of the run when the divisions were made; None before the first ones"""
    step: int = 0
    """finished iterations of the run"""
    lines: int = 0
    """epochs on record"""
    started_as: str | None = None
    """identity of the warm-up; None where settings or data were changed by force, so that it is nobody else's"""
    best: dict[str, Any] = field(default_factory=lambda: {"rsum": -1.0, "epoch": None})
    """the best validation so far"""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the networks' names."""
        return tuple(self.nets)

    @property
    def device(self) -> torch.device:
        """Return where the networks are."""
        return next(self.nets["A"].parameters()).device

    def computed_on(self) -> dict[str, Any]:
        """Return what decides the roundings, beside the versions."""
        net = self.nets["A"]
        return computed_on(self.device, net.backbone.precision) | {"processes": net.processes.count}

    def cost(self) -> dict[str, dict[str, int]]:
        """Return what this epoch has cost so far, by network."""
        return {name: net.cost.record() for name, net in self.nets.items()}

    def end_epoch(self) -> None:
        """Stand before the next epoch."""
        self.epoch += 1
        self.lines += 1
        self.position, self.divided, self.means = 0, False, Means()
        for net in self.nets.values():
            net.cost = Cost()

    def network_tensors(self) -> dict[str, Tensor]:
        """Return networks and optimisers."""
        tensors: dict[str, Tensor] = {}
        for name, net in self.nets.items():
            tensors |= {f"net.{name}.{key}": value for key, value in net.state_dict().items()}
            for which, optimizer in self.optimizers[name].items():
                tensors |= optimizer_tensors(optimizer, f"optimizer.{name}.{which}")
        return tensors

    def backbone_tensors(self) -> dict[str, Tensor]:
        """Return the backbones' weights as `<network>.<name>`: what is exported."""
        states = {name: net.backbone.state_dict() for name, net in self.nets.items()}
        return {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}

    def pack(self, folder: RunFolder) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the plain values of a checkpoint, but for the divisions: `pack_divisions`."""
        meta = {
            **belonging(folder),
            "epoch": self.epoch,
            "position": self.position,
            "divided": self.divided,
            DIVIDED_AT: self.divided_at,
            "started_as": self.started_as,
            "step": self.step,
            "lines": self.lines,
            "best": self.best,
            "means": self.means.state(),
            "cost": self.cost(),
            "versions": versions(),
            "computed_on": self.computed_on(),
        }
        return self.network_tensors(), meta

    def pack_divisions(self, folder: RunFolder) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the plain values of the divisions, which change once an epoch."""
        tensors: dict[str, Tensor] = {}
        for name, division in self.divisions.items():
            tensors[f"division.{name}.sets"] = division.sets
            if division.images is not None:
                tensors[f"division.{name}.images"] = division.images
            tensors |= {f"division.{name}.column.{key}": value for key, value in division.columns.items()}
        plain = {
            name: {key: getattr(division, key) for key in ("split", "judge", "figures", "mixture")}
            for name, division in self.divisions.items()
        }
        return tensors, {"divisions_of": belonging(folder), "divisions": plain}

    def unpack(
        self, path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], folder: RunFolder, pairs: int
    ) -> None:
        """Take over the state of a checkpoint.

        Args:
            path: the checkpoint, for messages.
            tensors: as `pack` and `pack_divisions` made them.
            meta: likewise.
            folder: the run.
            pairs: N, the training pairs now.

        Raises:
            InputError: it is of another run, or its weights or pairs do not fit.
        """
        require_own(folder, path, meta)
        if meta[DIVIDED_AT] is not None:
            require_own(folder, divisions_file(path.parent, meta[DIVIDED_AT]), meta["divisions_of"])
        self.take(path, tensors, meta, pairs)

    def take(self, path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], pairs: int) -> None:
        """Take over what was packed in the same run; arguments and errors as of `unpack`."""
        try:
            self.load_networks(tensors)
        except RuntimeError:
            raise InputError(f"{path}: other weights than the settings of the run ask for") from None
        self.divided_at = meta[DIVIDED_AT]
        self.take_divisions(tensors, meta)
        if meta["divided"]:  # before an epoch it is made again, or, within a round, required to fit then
            self.require_pairs(path, pairs)
        self.epoch, self.position, self.divided = meta["epoch"], meta["position"], meta["divided"]
        self.step, self.lines, self.best = meta["step"], meta["lines"], meta["best"]
        self.started_as, self.means = meta["started_as"], Means(meta["means"])
        for name, counts in meta["cost"].items():
            self.nets[name].cost = Cost(**counts)

    def require_pairs(self, path: Path, pairs: int) -> None:
        """Refuse divisions of another number of pairs; arguments and errors as of `unpack`."""
        for division in self.divisions.values():
            if len(division.sets) != pairs:
                raise InputError(f"{path}: {len(division.sets)} training pairs, now there are {pairs}")

    def take_divisions(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Take over what `pack_divisions` made."""
        self.divisions = {
            name: Division(
                tensors[f"division.{name}.sets"],
                under(f"division.{name}.column.", tensors),
                tensors.get(f"division.{name}.images"),
                **plain,
            )
            for name, plain in meta["divisions"].items()
        }

    def load_networks(self, tensors: Mapping[str, Tensor]) -> None:
        """Give networks and optimisers the state that `network_tensors` named."""
        for name, net in self.nets.items():
            if any(key.startswith(f"net.{name}.before.") for key in tensors):
                net.keep_before()
            net.load_state_dict(under(f"net.{name}.", tensors))
            for which, optimizer in self.optimizers[name].items():
                load_optimizer(optimizer, tensors, f"optimizer.{name}.{which}")

    def warn_of_another_machine(self, path: Path, meta: Mapping[str, Any]) -> None:
        """Say which roundings of the next steps differ from those before the checkpoint."""
        now, before = versions() | self.computed_on(), {"processes": 1} | meta["versions"] | meta["computed_on"]
        if before["processes"] != now["processes"]:
            log.warning(
                "%s: resumed by %d processes, written by %d: from here on dropout masks and roundings are others",
                path, now["processes"], before["processes"],
            )  # fmt: skip
            now["processes"] = before["processes"]
        changed = [f"{key} ({before.get(key)}, now {value})" for key, value in now.items() if before.get(key) != value]
        if changed:
            log.warning(
                "%s: the next steps are computed with other versions or on another machine: %s; the run is resumed, "
                "but not bit-identically",
                path, ", ".join(changed),
            )  # fmt: skip


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
