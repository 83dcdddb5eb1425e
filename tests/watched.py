"""A run whose steps are looked at: which batches a network gets, what it finds, keeps, and how far it may step."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from in2r.methods import Batch, Division, LookUp, Net, Now, Seen, Step
from in2r.methods.in2r import In2r
from in2r.methods.warmup import SceWarmup
from in2r.models.base import Backbone
from in2r.runs.settings import RunConfig
from in2r.training import train
from in2r.training.loop import Trainer

Entries = tuple[Tensor, Tensor, Tensor, Tensor]
"""images, texts, pairs and groups of a memory, oldest first"""


@dataclass
class Look:
    """One iteration of a network."""

    name: str
    peer: str
    epoch: int
    """of the run"""
    batches: dict[str, Batch]
    rates: dict[str, float]
    """optimiser → learning rate"""
    seed: int
    """of what dropout draws"""
    now: Now | None = None
    """None in the warm-up"""
    division: Division | None = None
    encoded: tuple[Tensor, Tensor] | None = None
    """the clean batch as images and texts (B, D), by the network as it was before the step"""
    memories: dict[str, Entries] = field(default_factory=dict)
    """network → its memory before the step"""
    found: LookUp | None = None
    losses: dict[str, float] = field(default_factory=dict)


@dataclass
class Watch:
    """What was seen of a run."""

    trainer: Trainer = field(init=False)
    start: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """network → its state before training"""
    divided: dict[str, Backbone] = field(default_factory=dict)
    """network → its backbone when the pairs were first divided"""
    looks: list[Look] = field(default_factory=list)
    gradients: list[tuple[str, dict[str, Tensor]]] = field(default_factory=list)
    """network, and the gradients by which it steps"""

    def of(self, name: str, epoch: int | None = None) -> list[Look]:
        """Return the looks at a network in its main phase, or in an epoch."""
        return [
            look
            for look in self.looks
            if look.name == name and (look.now is not None if epoch is None else look.epoch == epoch)
        ]

    def pairs(self, name: str, which: str, epoch: int | None = None) -> list[int]:
        """Return the pairs of a network's batches, in the order in which they came."""
        looks = self.of(name, epoch)
        return [pair for look in looks if which in look.batches for pair in look.batches[which].pairs.tolist()]

    def state(self, name: str) -> dict[str, Tensor]:
        """Return a network's state at the end."""
        return dict(self.trainer.state.nets[name].state_dict())

    def look(self, net: Net, peer: Net, batches: Mapping[str, Batch]) -> Look:
        state = self.trainer.state
        names = {id(each): name for name, each in state.nets.items()}
        rates = {which: o.param_groups[0]["lr"] for which, o in state.optimizers[names[id(net)]].items()}
        made = Look(names[id(net)], names[id(peer)], state.epoch, dict(batches), rates, torch.initial_seed())
        self.looks.append(made)
        return made


def watched(config: RunConfig, folder: Path, verdicts: Callable[..., Seen] | None = None) -> Watch:
    """Train; `verdicts` stands for what the networks observe of the pairs, as `observe_pairs` is called."""
    watch = Watch()

    class Watched(Trainer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            watch.trainer = self
            watch.start = {name: copy.deepcopy(net.state_dict()) for name, net in self.state.nets.items()}
            for name, optimizers in self.state.optimizers.items():
                optimizers["net"].register_step_pre_hook(lambda *_, name=name: watch.gradients.append((name, of(name))))

    def of(name: str) -> dict[str, Tensor]:
        named = watch.trainer.state.nets[name].named_parameters()
        return {key: weight.grad.clone() for key, weight in named if weight.grad is not None}

    steps, warm = In2r.steps, SceWarmup.step

    def main(self: In2r, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        look = watch.look(net, peer, batches)
        look.now, look.division = now, watch.trainer.state.divisions[look.name]
        look.memories = {name: each.own.memory.entries() for name, each in watch.trainer.state.nets.items()}
        if not watch.divided:
            nets = watch.trainer.state.nets.items()
            watch.divided = {name: copy.deepcopy(each.backbone).eval() for name, each in nets}
        with torch.no_grad():  # a copy in training mode: by the statistics of the batch
            clean, backbone = look.batches["clean"], copy.deepcopy(net.backbone)
            images = backbone.encode_images(clean.images, clean.image_mask)
            look.encoded = images.vector, backbone.encode_texts(clean.texts, clean.text_mask).vector
        for step in steps(self, net, peer, batches, now):
            look.found = step.found
            look.losses = {name: float(loss.detach()) for name, loss in step.losses.items()}
            yield step

    def warmup(self: SceWarmup, net: Net, batch: Batch) -> Step:
        watch.look(net, net, {"all": batch})
        return warm(self, net, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "Trainer", Watched)
        patch.setattr(In2r, "steps", main)
        patch.setattr(SceWarmup, "step", warmup)
        if verdicts is not None:
            patch.setattr("in2r.training.division.observe_pairs", verdicts)
        train.start_run(folder, config)
    return watch
