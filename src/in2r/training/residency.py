"""Where the features lie while a run trains: decided from sizes alone, before anything is copied."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import PackedTokens
from in2r.device import free_memory
from in2r.errors import InputError
from in2r.runs.settings import RunConfig
from in2r.training.pairs import TrainingData

Place = Literal["device", "pinned", "mapped"]

DEVICE_SHARE = 0.9
"""of the free device memory that `auto` fills: the rest is for fragments, libraries and the search in a long memory"""
HOST_SHARE = 0.5
"""of the free main memory that `auto` fills: others work on the machine too"""
VIEWS = 3
"""passes whose activations are kept for one backward: the clean batch under two dropout masks, and the noisy one"""


@dataclass(frozen=True)
class Free:
    """Bytes that are free before the features are copied."""

    device: int
    """where the run computes; the same as `host` where that is not a card with memory of its own"""
    host: int


@dataclass(frozen=True)
class Residency:
    """Where the features of train and dev lie."""

    place: Place
    where: str
    """`main memory`, `file`, or the device's name"""
    bytes: int
    """of these features, in the file's precision"""
    free_bytes: int | None
    """that were free there before; None for files"""


def decide(setting: Literal["auto"] | Place, device: torch.device, features: int, run: int, free: Free) -> Residency:
    """Choose where features lie.

    Args:
        setting: `data.residency`.
        device: where the run computes.
        features: their bytes.
        run: bytes that the run itself will still take where it computes.
        free: bytes that are free.

    Raises:
        InputError: a place was asked for that is too small; with the sizes.
    """
    place = _first_that_fits(device, features, run, free) if setting == "auto" else setting
    if place == "mapped":
        return Residency(place, "file", features, None)
    if device.type == "cpu":
        place = "device"  # where it computes is main memory
    on_host = device.type == "cpu" or place == "pinned"
    where, room = ("main memory", free.host) if on_host else (str(device), free.device)
    own = 0 if on_host and device.type == "cuda" else run
    if setting != "auto" and features + own > room:
        raise InputError(
            f"configuration: `data.residency` ({setting}) needs {_gib(features)} for the features and {_gib(own)} for "
            f"the run in {where}, where {_gib(room)} are free; mapped reads the features from the file"
        )
    return Residency(place, where, features, room)


def _first_that_fits(device: torch.device, features: int, run: int, free: Free) -> Place:
    if device.type != "cuda":  # its memory is the system's, which keeps the file's pages there as long as it can
        return "mapped"
    if features + run <= DEVICE_SHARE * free.device:
        return "device"
    return "pinned" if features <= HOST_SHARE * free.host else "mapped"


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def working_bytes(config: RunConfig, data: TrainingData, weight_bytes: int) -> int:
    """Estimate what a run takes beside weights and memories: gradients, the optimiser's moments, activations.

    Counted from what the encoders keep for the backward pass, in float32: per region twice its vector and 8 D, per
    word 24 D, with batches padded to twice the mean caption.

    Args:
        config: batch size and D.
        data: sizes of images and captions.
        weight_bytes: of both networks.
    """
    dim, images, texts = config.model.dim, data.images, data.texts
    if isinstance(texts, PackedTokens):
        words = 2 * len(texts.ids) / max(1, len(texts)) * 24 * dim
    else:
        words = 2.0 * texts.dim + 8 * dim
    captions = config.train.captions_per_image if config.train.batch_of == "images" else 1
    values = images.regions * (2 * images.dim + 8 * dim) + captions * words
    return 3 * weight_bytes + int(4 * VIEWS * config.train.batch_size * values)


@dataclass(frozen=True)
class Settled:
    """The data of a run where they lie while it trains."""

    residency: Residency
    train: TrainingData
    dev: PairSet
    dev_texts: Features | PackedTokens


def settle_features(
    config: RunConfig,
    networks: Iterable[nn.Module],
    train: TrainingData,
    dev: PairSet,
    dev_texts: Features | PackedTokens,
) -> Settled:
    """Decide where the features of train and dev lie, and copy them there; the networks are on the device already.

    Raises:
        InputError: the setting asks for a place that is too small.
    """
    device = train.device
    parts = [part for part in (train.images, train.texts, dev.images, dev_texts) if isinstance(part, Features)]
    weights = sum(weight.nbytes for net in networks for weight in net.parameters())
    free = Free(free_memory(device), free_memory(torch.device("cpu")))
    run = working_bytes(config, train, weights)
    found = decide(config.data.residency, device, sum(part.nbytes for part in parts), run, free)
    if found.place == "mapped":
        return Settled(found, train, dev, dev_texts)
    to = device if found.place == "device" else torch.device("cpu")
    there = replace(train, images=train.images.resident(to), texts=_resident(train.texts, to))
    return Settled(found, there, replace(dev, images=dev.images.resident(to)), _resident(dev_texts, to))


def _resident(texts: Features | PackedTokens, device: torch.device) -> Features | PackedTokens:
    """Copy caption vectors; words are small and stay where batches are planned."""
    return texts.resident(device) if isinstance(texts, Features) else texts
