"""A tiny data set with something to learn: 12 images of 7 kinds, five captions each, as words and as vectors."""

from pathlib import Path

import numpy as np

from in2r.data.noise import draw_noise, save_index

IMAGES = {"train": 12, "dev": 4, "test": 4}
COLOURS, THINGS = ["red", "blue", "green", "black"], ["dog", "cat", "horse"]


def make_data(folder: Path) -> Path:
    """Write a precomp folder: images × 3 regions × 8 and five captions each, as words and as vectors of 6."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    codes = rng.standard_normal((len(COLOURS) + len(THINGS), 8))
    for split, count in IMAGES.items():
        colour, thing = np.arange(count) % len(COLOURS), np.arange(count) % len(THINGS)
        centre = codes[colour] + codes[len(COLOURS) + thing]
        images = centre[:, None] + 0.3 * rng.standard_normal((count, 3, 8))
        vectors = np.repeat(centre[:, :6], 5, 0) + 0.3 * rng.standard_normal((5 * count, 6))
        captions = [f"{COLOURS[c]} {THINGS[t]} {i}" for c, t in zip(colour, thing, strict=True) for i in range(5)]
        np.save(folder / f"{split}_ims.npy", images.astype(np.float32))
        np.save(folder / f"{split}_vecs.npy", vectors.astype(np.float32))
        (folder / f"{split}_caps.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
    return folder


def make_noise(file: Path, ratio: float = 0.4) -> Path:
    """Draw a caption-level index for the training split."""
    own = np.repeat(np.arange(IMAGES["train"]), 5)
    return save_index(file, draw_noise(own, ratio, "caption", 0))
