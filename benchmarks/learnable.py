"""Data that can be learnt, and a short IN²R run on it: an image shows five things of many, a caption names four."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workload import CAPTIONS, Size

from in2r.data.noise import draw_noise, save_index
from in2r.results import evaluate_run
from in2r.runs.settings import load_config
from in2r.seeds import numpy_generator
from in2r.training.train import start_run

THINGS, SHOWN, NAMED = 60, 5, 4
NOISE = 0.4
WARMUP, EPOCHS = 6, 10
IMAGES = {"train": 2000, "dev": 200, "test": 500}
FEW_IMAGES = {"train": 12, "dev": 6, "test": 6}


def train(
    folder: Path, size: Size, device: torch.device, images: Mapping[str, int] = IMAGES, precision: str = "auto"
) -> dict[str, Any]:
    """Train on generated data at 40 % noise; return test recalls, seconds per epoch and partition figures.

    Args:
        folder: an empty folder for data and run.
        size: D, shape of the features, batch.
        device: where to train.
        images: number of images of each split.
        precision: `train.precision`.
    """
    make_data(folder / "data", size, images)
    own = np.repeat(np.arange(images["train"]), CAPTIONS)
    index = save_index(folder / "noise.npy", draw_noise(own, NOISE, "caption", 0))
    settings = [
        f"data.path={folder / 'data'}",
        "data.min_count=1",
        f"noise.index={index}",
        f"model.dim={size.dim}",
        f"method.warmup_epochs={WARMUP}",
        f"train.epochs={EPOCHS}",
        f"train.batch_size={size.batch}",
        f"train.device={device}",
        f"train.precision={precision}",
        "partition.single_mode=split",  # every co-training epoch shall rectify, however little was learnt
    ]
    begun = time.monotonic()
    run = start_run(folder / "run", load_config("paper", settings))
    whole = time.monotonic() - begun
    result = evaluate_run(run.path)
    asked = ("phase", "seconds", "clean_fraction_A", "partition_precision_A", "partition_recall_A", "loss_rect_A")
    return {
        "images": dict(images),
        "seconds": whole,
        "epochs": [{name: record.get(name) for name in asked} for record in run.records()],
        "recalls": result["rows"],
        "chance": result["chance"],
    }


def make_data(folder: Path, size: Size, images: Mapping[str, int]) -> None:
    """Write a precomp folder: region r of an image shows one of its things, with noise of the same size."""
    folder.mkdir()
    rng = numpy_generator(0, "learnable")
    looks = rng.standard_normal((THINGS, size.region_dim), np.float32)
    for split, count in images.items():
        shown = rng.random((count, THINGS)).argsort(1)[:, :SHOWN]
        place = np.arange(size.regions) % SHOWN
        features = np.lib.format.open_memmap(
            folder / f"{split}_ims.npy", mode="w+", dtype=np.float16, shape=(count, size.regions, size.region_dim)
        )
        for image, things in enumerate(shown):
            features[image] = looks[things[place]] + rng.standard_normal(features.shape[1:], np.float32)
        features.flush()
        captions = [
            " ".join(f"thing{thing}" for thing in rng.permutation(things)[:NAMED])
            for things in shown
            for _ in range(CAPTIONS)
        ]
        (folder / f"{split}_caps.txt").write_text("\n".join(captions) + "\n")
