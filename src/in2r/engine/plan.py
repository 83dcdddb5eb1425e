"""What a run will cost, told before it starts."""

import copy
import math
import shutil
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from in2r.engine.checkpoint import tensor_bytes
from in2r.engine.loop import NAMES, Trainer

PASSES = 3
"""Passes of a co-training step against one of the warm-up: two views and the noisy batch."""


@dataclass(frozen=True)
class Plan:
    """Steps, time, memory and disk of a run."""

    warmup_steps: int
    cotraining_steps: int
    """of both networks, taking the declared noise ratio for the share that is noisy"""
    seconds: float
    """estimated from two timed steps"""
    memory_bytes: int
    """weights, gradients, optimisers and memories of both networks"""
    disk_bytes: int
    """checkpoints and best weights"""
    free_disk_bytes: int

    def record(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


def make_plan(trainer: Trainer) -> Plan:
    """Estimate a run from two timed steps on a throw-away copy of network A; the run is not touched."""
    config = trainer.config
    per_epoch = math.ceil(len(trainer.data.pairs) / config.train.batch_size) * len(NAMES)
    split = [trainer.method.needs_partition(epoch) for epoch in range(config.train.epochs)]
    noisy = config.noise.ratio
    if noisy is None:
        noisy = trainer.setup.noise.statistics()["realised"] if trainer.setup.noise else 0.0
    clean_share = 1.0 if config.noise.oracle else 1.0 - noisy
    warmup = per_epoch * split.count(False)
    cotraining = max(len(NAMES), int(per_epoch * clean_share)) * split.count(True)
    seconds = _step_seconds(trainer) * (warmup + PASSES * cotraining)
    held = tensor_bytes(
        {f"{name}.{key}": value for name, net in trainer.nets.items() for key, value in net.state_dict().items()}
    )
    weights = sum(p.numel() * p.element_size() for net in trainer.nets.values() for p in net.parameters())
    checkpoint = held + 2 * weights
    free = shutil.disk_usage(trainer.folder.path).free
    disk = checkpoint * (config.checkpoint.keep + 1) + 2 * weights
    return Plan(warmup, cotraining, seconds, held + 3 * weights, disk, free)


def _step_seconds(trainer: Trainer) -> float:
    with torch.random.fork_rng(devices=[trainer.device] if trainer.device.type == "cuda" else []):
        net = copy.deepcopy(trainer.nets["A"])
        batch = trainer.data.batch(trainer.data.pairs[: trainer.config.train.batch_size])
        times = []
        for _ in range(2):
            begun = time.perf_counter()
            step = trainer.method.all_pairs_step(net, batch, trainer.config.train.epochs)
            step.losses["total"].backward()  # type: ignore[no-untyped-call]
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)
            times.append(time.perf_counter() - begun)
    return 1.15 * min(times)  # the optimiser and the gathering of the batch come on top
