"""One method on one backbone, with tiny data: what the common tests are run on."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from in2r.methods import Batch, Division, Net
from in2r.models.build import INTERACTION
from in2r.runs.checkpoints import load_newest
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig, load_config
from in2r.testing.tiny import make_data, make_noise
from in2r.training.loop import Trainer
from in2r.training.setup import open_setup
from in2r.training.step import Batches
from in2r.training.train import Silent, resume_run, start_run

BACKBONES = ("gpo", "vsepp", *INTERACTION)


class KilledError(Exception):
    """Stands for a kill in the middle of a run."""


class KillAt(Silent):
    """Raises `KilledError` after so many iterations; nothing is saved then."""

    def __init__(self, iterations: int) -> None:
        self.left = iterations

    def step(self) -> None:
        """Count."""
        self.left -= 1
        if self.left == 0:
            raise KilledError


@dataclass(frozen=True)
class Case:
    """A method on a backbone.

    Attributes:
        method: a method's name, or "file.py:Class".
        backbone: one of `BACKBONES`.
        folder: an empty folder to work in.
        overrides: settings that differ, such as "method.warmup_epochs=0".
    """

    method: str
    backbone: str
    folder: Path
    overrides: tuple[str, ...] = ()

    def config(self, *overrides: str) -> RunConfig:
        """Return settings of a run of a few epochs on the CPU, one of them of the warm-up where there is one."""
        data, noise = self.folder / "data", self.folder / "noise.npy"
        if not data.is_dir():
            make_data(data)
            make_noise(noise)
        base = [
            f"data.path={data}", f"noise.index={noise}", "data.min_count=1", f"model.backbone={self.backbone}",
            "model.dim=8", "model.word_dim=4", "train.epochs=3", "train.batch_size=10", "train.learning_rate=0.01",
            "train.device=cpu", "train.threads=1", "partition.batch_size=30", "partition.single_mode=split",
            "checkpoint.every_steps=4",
        ]  # fmt: skip
        if self.backbone in INTERACTION:
            base += ["train.region_drop=0", "model.sgr_dim=8"]
        else:
            base.append("data.caption_vectors=vecs")
        config = load_config(self.method, [*base, *self.overrides, *overrides])
        if "warmup_epochs" in vars(config.method):
            config = load_config(self.method, ["method.warmup_epochs=1", *base, *self.overrides, *overrides])
        return config

    def trainer(self, *overrides: str, name: str = "run") -> Trainer:
        """Return a run that stands before its first step of the main phase, in a folder of this name."""
        config = self.config(*overrides)
        return Trainer(RunFolder(self.folder / name), open_setup(config, torch.device("cpu")), Silent())

    def ready(self, *overrides: str) -> "Ready":
        """Return a run in its main phase, without dropout, with its pairs divided."""
        trainer = self.trainer(*overrides)
        trainer.state.epoch = trainer.method.warmup()[0]
        for net in trainer.state.nets.values():
            for module in net.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
        trainer._begin()
        return Ready(trainer)

    def run(self, name: str, *overrides: str) -> Path:
        """Train to the end."""
        return start_run(self.folder / name, self.config(*overrides)).path

    def run_with_kill(self, name: str, iterations: int, *overrides: str) -> Path:
        """Train, be killed, resume."""
        path = self.folder / name
        try:
            start_run(path, self.config(*overrides), KillAt(iterations))
        except KilledError:
            resume_run(path)
        return path


@dataclass(frozen=True)
class Ready:
    """A run in its main phase."""

    trainer: Trainer

    @property
    def nets(self) -> tuple[Net, Net]:
        """Return network A and its peer: B, or A itself where it is the only one."""
        nets = list(self.trainer.state.nets.values())
        return nets[0], nets[-1]

    def batches(self, division: Division | None = None, index: int = 0) -> dict[str, Batch]:
        """Return network A's batches of one iteration, all gathered."""
        trainer = self.trainer
        if division is not None:
            trainer.state.divisions["A"] = division
        where = ("A", trainer.state.epoch, index)
        made = Batches(trainer.learner, trainer._order("A"), trainer.state.divisions["A"], where)
        return {name: made[name] for name in made}

    def losses(self, batches: dict[str, Batch]) -> list[dict[str, Tensor]]:
        """Return the losses of each of the method's steps on the network itself; no step is taken, nothing changes."""
        net, peer = self.nets
        before = [copy.deepcopy(each.state_dict()) for each in self.nets]  # running statistics among it
        steps = self.trainer.method.steps(net, peer, batches, self.trainer._now("A", 0))
        found = [step.losses for step in steps if step.of == "net"]
        for each, state in zip(self.nets, before, strict=True):
            each.load_state_dict(state)
        return [{name: loss.detach() for name, loss in losses.items()} for losses in found]


def outcome(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], bytes, list[dict[str, Any]]]:
    """Return what a run ends with: last checkpoint's tensors and position, best weights, record without times."""
    found = load_newest(path / "checkpoints")
    assert found is not None
    _, tensors, meta = found
    records = [
        {key: value for key, value in record.items() if key != "seconds"} for record in RunFolder(path).records()
    ]
    return tensors, meta, (path / "best.safetensors").read_bytes(), records
