"""What is computed on: sizes, and data of a size that can be learnt."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from in2r.seeds import numpy_generator, torch_generator

CAPTIONS = 5
"""per image"""
THINGS, SHOWN, NAMED = 60, 5, 4
"""things that there are; that an image shows; that a caption names"""


@dataclass(frozen=True)
class Size:
    """Sizes of everything."""

    dim: int
    regions: int
    region_dim: int
    memory: int
    images: int
    """of the training split"""
    dev: int
    """images of the dev and of the test split"""
    ranked: int
    """images whose embeddings are ranked"""
    searched: int
    """texts that a retrieval searches"""
    words: int = THINGS + 1
    """that captions are made of: the things' names, and others"""
    vector_dim: int = 0
    """of caption vectors; 0: captions are read as words"""
    batch: int = 128

    @property
    def settings(self) -> list[str]:
        """Settings of a run at this size."""
        own = [f"model.dim={self.dim}", f"train.batch_size={self.batch}", f"method.memory_size={self.memory}"]
        vectors = ["data.caption_vectors=vecs"] if self.vector_dim else []
        return [*own, *vectors, "data.min_count=1", "partition.single_mode=split"]


SIZES = {
    # a part of Flickr30K with the features and the settings of the paper; for a CPU, and for a card
    "paper": Size(1024, 36, 2048, 65536, images=600, dev=100, ranked=1000, searched=145000, words=8480),
    "card": Size(1024, 36, 2048, 65536, images=6000, dev=1000, ranked=5000, searched=145000, words=8480),
    "vectors": Size(512, 10, 352, 13500, images=1500, dev=500, ranked=1000, searched=30000, vector_dim=384),
    "demo": Size(128, 10, 108, 1800, images=800, dev=200, ranked=1000, searched=4000, words=120),
    "toy": Size(16, 4, 8, 32, images=20, dev=8, ranked=20, searched=100, words=80, batch=8),
    "toy-vectors": Size(16, 4, 8, 32, images=20, dev=8, ranked=20, searched=100, vector_dim=6, batch=8),
}


def make_data(folder: Path, size: Size) -> Path:
    """Write a precomp folder: a region shows a thing under noise of the same size, a caption names four of the five."""
    folder.mkdir(parents=True)
    rng = numpy_generator(0, "benchmark")
    looks = rng.standard_normal((THINGS, size.region_dim), np.float32)
    meanings = rng.standard_normal((THINGS, size.vector_dim), np.float32)
    for split, count in {"train": size.images, "dev": size.dev, "test": size.dev}.items():
        shown = rng.random((count, THINGS)).argsort(1)[:, :SHOWN]
        features = np.empty((count, size.regions, size.region_dim), np.float16)
        for image, things in zip(features, shown, strict=True):
            image[:] = looks[np.resize(things, size.regions)] + rng.standard_normal(image.shape, np.float32)
        np.save(folder / f"{split}_ims.npy", features)
        named = np.stack([rng.permutation(things)[:NAMED] for things in shown for _ in range(CAPTIONS)])
        vectors = meanings[named].mean(1)
        np.save(folder / f"{split}_vecs.npy", vectors + 0.5 * rng.standard_normal(vectors.shape, np.float32))
        others = (rng.integers(THINGS, size.words, rng.integers(6, 10)) for _ in named)
        words = (rng.permutation([*things, *more]) for things, more in zip(named, others, strict=True))
        captions = [" ".join(f"w{word}" for word in caption) for caption in words]
        (folder / f"{split}_caps.txt").write_text("\n".join(captions) + "\n")
    return folder


def embeddings(images: int, dim: int) -> tuple[Tensor, Tensor]:
    """Unit-norm images (N, D), and captions (N · 5, D) that scatter around their image."""
    generator = torch_generator(0, "embeddings")
    v = normalize(torch.randn(images, dim, generator=generator))
    u = torch.randn(images * CAPTIONS, dim, generator=generator).mul_(0.5)  # own cosine: 2 sigma of others
    return v, normalize(u.view(images, CAPTIONS, dim).add_(v[:, None]).flatten(0, 1))
