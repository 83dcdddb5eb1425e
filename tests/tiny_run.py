"""A data set of random features and a run on it, small enough for a test."""

from pathlib import Path

import numpy as np

from in2r.data.noise import draw_noise, save_index
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.training.train import start_run

IMAGES = {"train": 12, "dev": 6, "test": 10}
SETTINGS_OF_ONE_EPOCH = [
    "data.caption_vectors=vecs", "model.dim=8", "train.epochs=1", "train.batch_size=12", "train.device=cpu",
]  # fmt: skip
WORDS = ["red", "blue", "green", "dog", "cat", "horse", "runs", "sits", "sleeps", "near", "under"]


def make_data(folder: Path, seed: int = 0) -> Path:
    """Write a precomp folder: images × 3 regions × 8, five captions each as text and as vectors of 6."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for split, count in IMAGES.items():
        centres = rng.standard_normal((count, 8))
        images = centres[:, None] + 0.3 * rng.standard_normal((count, 3, 8))
        vectors = np.repeat(centres[:, :6], 5, 0) + 0.3 * rng.standard_normal((5 * count, 6))
        captions = [" ".join(rng.choice(WORDS, 4)) for _ in range(5 * count)]
        np.save(folder / f"{split}_ims.npy", images.astype(np.float32))
        np.save(folder / f"{split}_vecs.npy", vectors.astype(np.float32))
        (folder / f"{split}_caps.txt").write_text("\n".join(captions) + "\n")
    return folder


def make_noise(file: Path, ratio: float = 0.4) -> Path:
    """Draw a caption-level index for the training split."""
    own = np.repeat(np.arange(IMAGES["train"]), 5)
    return save_index(file, draw_noise(own, ratio, "caption", 0))


def train(folder: Path, data: Path, method: str, *overrides: str, words: bool = False) -> RunFolder:
    """Train two epochs on the CPU; `words` reads captions as text, else as vectors."""
    settings = [
        f"data.path={data}",
        "data.min_count=1",
        "model.dim=8",
        "model.word_dim=5",
        "train.epochs=2",
        "train.batch_size=12",
        "train.device=cpu",
        "partition.batch_size=12",
        "method.warmup_epochs=1" if method != "sce" else "train.seed=0",
    ]
    if not words:
        settings.append("data.caption_vectors=vecs")
    return start_run(folder, load_config(method, [*settings, *overrides]))
