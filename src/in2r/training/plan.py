"""What a run will cost, told before it starts."""

import copy
import logging
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from in2r.files import shortage
from in2r.methods import Batch, Method, Step
from in2r.models.encode import evaluating
from in2r.runs.settings import RunConfig
from in2r.seeds import torch_generator
from in2r.tensors import tensor_bytes
from in2r.training.loop import Trainer
from in2r.training.networks import NAMES, make_optimizer
from in2r.training.residency import Residency, working_bytes

log = logging.getLogger(__name__)

TIMED = 3
"""runs of which the fastest counts, after one that does not: the first is cold"""
ENOUGH = 1.0
"""seconds after which no further run is timed"""


@dataclass(frozen=True)
class Work:
    """What a run has to do, of both networks together."""

    warmup_steps: int
    """on all pairs"""
    cotraining_steps: int
    """taking the declared noise ratio for the share that is noisy"""
    scored: int
    """batches that are encoded to be judged or validated"""
    warmup_scored: int
    """of these, those of epochs on all pairs"""


@dataclass(frozen=True)
class Rates:
    """Seconds of one step of each kind; 0 where a run has none."""

    warmup_step: float
    cotraining_step: float
    scored: float

    def seconds(self, work: Work) -> float:
        """Return the time of a run."""
        steps = work.warmup_steps * self.warmup_step + work.cotraining_steps * self.cotraining_step
        return steps + work.scored * self.scored

    def warmup_seconds(self, work: Work) -> float:
        """Return the time of its epochs on all pairs."""
        return work.warmup_steps * self.warmup_step + work.warmup_scored * self.scored


@dataclass(frozen=True)
class Plan:
    """Steps, time, memory and disk of a run."""

    warmup_steps: int
    cotraining_steps: int
    """of both networks, taking the declared noise ratio for the share that is noisy"""
    seconds: float
    """estimated from a few timed steps of each kind"""
    epoch_seconds: tuple[float, ...]
    """of these, each epoch's"""
    memory_bytes: int
    """weights, gradients, optimisers and memories of both networks"""
    step_bytes: int
    """what else a training step needs for a while, estimated"""
    computes: str
    """device and precision of the encoders' products"""
    features: Residency
    """where the features of train and dev lie"""
    disk_bytes: int
    """checkpoints and best weights"""
    free_disk_bytes: int

    def record(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


def make_plan(trainer: Trainer) -> Plan:
    """Estimate a run from a few timed steps on a throw-away copy of network A; the run is not touched."""
    work = count_work(trainer.config, trainer.method, *sizes(trainer))
    rates = measure_rates(trainer, work)
    held = tensor_bytes(
        {f"{name}.{key}": value for name, net in trainer.nets.items() for key, value in net.state_dict().items()}
    )
    weights = sum(p.numel() * p.element_size() for net in trainer.nets.values() for p in net.parameters())
    checkpoint = held + 2 * weights
    free = shutil.disk_usage(trainer.folder.path).free
    disk = checkpoint * (trainer.config.checkpoint.keep + 1) + 2 * weights
    memory = held + 3 * weights
    return Plan(
        warmup_steps=work.warmup_steps,
        cotraining_steps=work.cotraining_steps,
        seconds=rates.seconds(work),
        epoch_seconds=_by_epoch(trainer, rates, work),
        memory_bytes=memory,
        step_bytes=working_bytes(trainer.config, trainer.data, weight_bytes=0),
        computes=f"{trainer.device}, {'float32' if trainer.nets['A'].encoder.precision is None else 'bf16'}",
        features=trainer.residency,
        disk_bytes=disk,
        free_disk_bytes=free,
    )


def warn_of_full_disk(plan: Plan, folder: Path) -> None:
    """Say that a run will stop for want of room, unless some is made meanwhile."""
    if plan.free_disk_bytes < plan.disk_bytes:
        log.warning(
            "%s: %s for checkpoints and best weights; the run may stop for want of room",
            folder, shortage(plan.disk_bytes, plan.free_disk_bytes),
        )  # fmt: skip


def _by_epoch(trainer: Trainer, rates: Rates, work: Work) -> tuple[float, ...]:
    """Share the time of a run out to its epochs: those on all pairs take alike, and so do those of co-training."""
    later = [trainer.method.needs_partition(epoch) for epoch in range(trainer.config.train.epochs)]
    warmup = rates.warmup_seconds(work)
    each = {
        False: warmup / max(1, later.count(False)),
        True: (rates.seconds(work) - warmup) / max(1, later.count(True)),
    }
    return tuple(round(each[split], 3) for split in later)


def sizes(trainer: Trainer) -> tuple[int, int, float]:
    """Return the pairs that are trained on, those of dev, and the share of noisy ones, where it is known."""
    noise = trainer.config.noise.ratio
    if noise is None:
        noise = trainer.setup.noise.statistics()["realised"] if trainer.setup.noise else 0.0
    return len(trainer.data.pairs), len(trainer.dev.image_of_caption), noise


def count_work(config: RunConfig, method: Method, pairs: int, dev: int, noisy: float) -> Work:
    """Count the steps of a run.

    Args:
        config: its settings.
        method: its method, made for so many pairs.
        pairs: training pairs.
        dev: pairs of the dev split.
        noisy: share of noisy pairs, in [0, 1].
    """
    size = min(config.train.batch_size, pairs)
    per_epoch = math.ceil(pairs / config.train.batch_size) * len(NAMES)
    split = [method.needs_partition(epoch) for epoch in range(config.train.epochs)]
    clean_share = 1.0 if config.noise.oracle else 1.0 - noisy
    later, first = split.count(True), split.count(False)
    return Work(
        warmup_steps=per_epoch * first,
        cotraining_steps=max(len(NAMES), int(per_epoch * clean_share)) * later,
        scored=len(NAMES) * (pairs * later + dev * len(split)) // size,
        warmup_scored=len(NAMES) * dev * first // size,
    )


def measure_rates(trainer: Trainer, work: Work) -> Rates:
    """Time a few steps of each kind that a run has."""
    with torch.random.fork_rng(devices=[trainer.device] if trainer.device.type == "cuda" else []):
        rehearsal = _Rehearsal(trainer)
        return Rates(
            _fastest(rehearsal.all_pairs_step, trainer.device) if work.warmup_steps else 0.0,
            _fastest(rehearsal.partition_step, trainer.device) if work.cotraining_steps else 0.0,
            _fastest(rehearsal.encode, trainer.device),
        )


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
        for module in self.net.modules():
            if isinstance(module, torch.nn.GRU):
                module.flatten_parameters()  # a copy has them in pieces, which cuDNN warns of and pays for
        self.optimizer = make_optimizer(self.net, trainer.config.train)
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
        generator = torch_generator(self.trainer.seed, "plan")
        return self.trainer.data.batch(self.pairs, generator, elite)

    def _learn(self, step: Step) -> None:
        self.trainer.descend(self.net, self.optimizer, step)
