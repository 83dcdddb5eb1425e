"""What a run will need, known before it starts: steps, memory, disk. Its time is measured by its first steps."""

import logging
import math
import shutil
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from in2r.data.text.vocabulary import PackedTokens
from in2r.files import shortage
from in2r.methods import warmup_of
from in2r.metrics import chance_recalls
from in2r.tensors import tensor_bytes
from in2r.training.loop import Trainer
from in2r.training.residency import VIEWS, Residency, working_bytes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """Steps, memory and disk of a run."""

    method: str
    networks: int
    pairs: int
    """training pairs"""
    dev_images: int
    dev_rsum_by_chance: float
    """the rSum of a random order on dev, out of 600"""
    epochs: int
    warmup_epochs: int
    round_epochs: tuple[int, ...]
    """epochs of each round, of a method that has rounds"""
    fresh_weights: bool
    """whether the first round starts from fresh weights"""
    steps_per_epoch: int
    """iterations of all networks in an epoch on all pairs"""
    memory_bytes: int
    """weights, gradients, optimisers and memories of all networks"""
    step_bytes: int
    """what else a training step needs for a while, estimated"""
    processes: int
    """that share out each batch; `memory_bytes` and `step_bytes` are those of one"""
    batch_rows: int
    """images of a batch of which a process encodes its share"""
    sent_bytes: int
    """what a process sends in a step, estimated"""
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
    """Add up what a run needs; nothing is trained."""
    config, nets, pairs = trainer.config, trainer.state.nets, len(trainer.data.pairs)
    held = tensor_bytes(
        {f"{name}.{key}": value for name, net in nets.items() for key, value in net.state_dict().items()}
    )
    weights = sum(p.numel() * p.element_size() for net in nets.values() for p in net.parameters())
    held += weights if trainer.rounds else 0  # the networks of the round before
    checkpoint = held + 2 * weights
    by_image = config.train.batch_of == "images"
    units = len(torch.unique(trainer.data.image_of_pair[trainer.data.pairs])) if by_image else pairs
    return Plan(
        method=trainer.method.label,
        networks=len(nets),
        pairs=pairs,
        dev_images=len(trainer.dev.images),
        dev_rsum_by_chance=chance_recalls(trainer.dev.image_of_caption, len(trainer.dev.images))["rsum"],
        epochs=config.train.epochs,
        warmup_epochs=min(warmup_of(trainer.method)[0], config.train.epochs),
        round_epochs=tuple(
            end - start for start, end in pairwise((*trainer.rounds, config.train.epochs)) if start < end
        ),
        fresh_weights=trainer.method.fresh_weights,
        steps_per_epoch=math.ceil(units / config.train.batch_size) * len(nets),
        memory_bytes=held + (3 + (trainer.processes.count > 1)) * weights,  # several keep gradients to send, too
        step_bytes=working_bytes(config, trainer.data, weight_bytes=0) // trainer.processes.count,
        processes=trainer.processes.count,
        batch_rows=config.train.batch_size,
        sent_bytes=_sent(trainer, weights // len(nets)),
        computes=f"{trainer.device}, {trainer.state.computed_on()['precision'].replace('bfloat16', 'bf16')}",
        features=trainer.residency,
        disk_bytes=checkpoint * (config.checkpoint.keep + 1) + 2 * weights,
        free_disk_bytes=shutil.disk_usage(trainer.folder.path).free,
    )


def _sent(trainer: Trainer, weight_bytes: int) -> int:
    """Estimate what a process sends in a step: the gradient by a ring, and its share of what is encoded to all others.

    Of backbones that compare regions with words, these and their gradients go to all, too.
    """
    config, data, count = trainer.config, trainer.data, trainer.processes.count
    if count == 1:
        return 0
    captions = config.train.captions_per_image if config.train.batch_of == "images" else 1
    images, texts = 1.0, float(captions)
    if trainer.state.nets["A"].backbone.interacts:
        words = len(data.texts.ids) / len(data.texts) if isinstance(data.texts, PackedTokens) else 1
        images, texts = 3.0 * (1 + data.images.regions), 3.0 * captions * (1 + words)
    items = VIEWS * config.train.batch_size * (images + texts) * 4 * config.model.dim
    return int(2 * weight_bytes * (count - 1) / count + items * (count - 1) / count)


def warn_of_full_disk(plan: Plan, folder: Path) -> None:
    """Warn that the disk may be full before a run ends."""
    if plan.free_disk_bytes < plan.disk_bytes:
        log.warning(
            "%s: %s for checkpoints and best weights; the run may stop when the disk is full",
            folder, shortage(plan.disk_bytes, plan.free_disk_bytes),
        )  # fmt: skip
