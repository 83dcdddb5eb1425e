"""What a run will cost, told before it starts."""

import copy
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from in2r.encode import evaluating
from in2r.engine.checkpoint import tensor_bytes
from in2r.engine.loop import NAMES, Trainer
from in2r.methods import Batch, Step
from in2r.seeds import torch_generator

TIMED = 3
"""runs of which the fastest counts, after one that does not: the first is cold"""
ENOUGH = 1.0
"""seconds after which no further run is timed"""


@dataclass(frozen=True)
class Plan:
    """Steps, time, memory and disk of a run."""

    warmup_steps: int
    cotraining_steps: int
    """of both networks, taking the declared noise ratio for the share that is noisy"""
    seconds: float
    """estimated from a few timed steps of each kind"""
    memory_bytes: int
    """weights, gradients, optimisers and memories of both networks"""
    disk_bytes: int
    """checkpoints and best weights"""
    free_disk_bytes: int

    def record(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


def make_plan(trainer: Trainer) -> Plan:
    """Estimate a run from a few timed steps on a throw-away copy of network A; the run is not touched."""
    config = trainer.config
    per_epoch = math.ceil(len(trainer.data.pairs) / config.train.batch_size) * len(NAMES)
    split = [trainer.method.needs_partition(epoch) for epoch in range(config.train.epochs)]
    noisy = config.noise.ratio
    if noisy is None:
        noisy = trainer.setup.noise.statistics()["realised"] if trainer.setup.noise else 0.0
    clean_share = 1.0 if config.noise.oracle else 1.0 - noisy
    warmup = per_epoch * split.count(False)
    cotraining = max(len(NAMES), int(per_epoch * clean_share)) * split.count(True)
    scored = len(trainer.data.pairs) * split.count(True) + len(trainer.dev.image_of_caption) * len(split)
    seconds = _seconds(trainer, warmup, cotraining, len(NAMES) * scored)
    held = tensor_bytes(
        {f"{name}.{key}": value for name, net in trainer.nets.items() for key, value in net.state_dict().items()}
    )
    weights = sum(p.numel() * p.element_size() for net in trainer.nets.values() for p in net.parameters())
    checkpoint = held + 2 * weights
    free = shutil.disk_usage(trainer.folder.path).free
    disk = checkpoint * (config.checkpoint.keep + 1) + 2 * weights
    return Plan(warmup, cotraining, seconds, held + 3 * weights, disk, free)


def _seconds(trainer: Trainer, warmup: int, cotraining: int, scored: int) -> float:
    """Estimate the time of so many steps of each kind, and of pairs that are encoded to be judged or validated."""
    with torch.random.fork_rng(devices=[trainer.device] if trainer.device.type == "cuda" else []):
        rehearsal = _Rehearsal(trainer)
        seconds = scored / rehearsal.batch_size * _fastest(rehearsal.encode, trainer.device)
        if warmup:
            seconds += warmup * _fastest(rehearsal.all_pairs_step, trainer.device)
        if cotraining:
            seconds += cotraining * _fastest(rehearsal.partition_step, trainer.device)
    return seconds


def _fastest(run: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of the fastest of a few runs."""
    times: list[float] = []
    for _ in range(1 + TIMED):
        begun = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begun)
        if sum(times[1:]) > ENOUGH:
            break
    return min(times[1:])


class _Rehearsal:
    """Steps as the loop makes them, on a copy of network A that is its own peer and has a full memory."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.net = copy.deepcopy(trainer.nets["A"])
        self.optimizer = trainer.make_optimizer(self.net)
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0  # the weights stay: settings that diverge are found by the run, at their place
        pairs = trainer.data.pairs
        drawn = torch.randperm(len(pairs), generator=torch_generator(trainer.seed, "plan"))
        self.pairs = pairs[drawn[: trainer.config.train.batch_size]]
        self.batch_size = len(self.pairs)
        if self.net.memory is not None:
            size, dim = self.net.memory.capacity, self.net.memory.dim
            entries = torch.full((1, 1), dim**-0.5, device=trainer.device).expand(size, dim)
            self.net.memory.push(entries, entries, torch.arange(size, device=trainer.device))

    def encode(self) -> None:
        """Embed a batch as partition and validation do."""
        with evaluating(self.net):
            self.net.embed(self.trainer.data.batch(self.pairs))

    def all_pairs_step(self) -> None:
        """Make a step of the warm-up."""
        self._learn(self.trainer.method.all_pairs_step(self.net, self._batch(), self.trainer.config.train.epochs))

    def partition_step(self) -> None:
        """Make a step of co-training, with all pairs of the clean batch elite."""
        noisy = None if self.net.memory is None else self._batch()
        elite = torch.ones(len(self.trainer.data.image_of_pair), dtype=torch.bool)
        self._learn(self.trainer.method.partition_step(self.net, self.net, self._batch(elite), noisy))

    def _batch(self, elite: torch.Tensor | None = None) -> Batch:
        generator = torch_generator(self.trainer.seed, "plan", device=self.trainer.device)
        return self.trainer.data.batch(self.pairs, generator, elite)

    def _learn(self, step: Step) -> None:
        self.trainer.descend(self.net, self.optimizer, step)
