"""What is computed: sizes, and random data of a size for both versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from in2r.training.training_data import TrainingData
from torch import Tensor
from torch.nn.functional import normalize

from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import SPECIALS, PackedTokens, Vocabulary
from in2r.methods.in2r import In2rConfig
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.dual import DualEncoder
from in2r.seeds import numpy_generator, torch_generator

CAPTIONS = 5
"""per image"""
DROP = 0.2
"""share of regions and words that is touched in training"""
CLEAN = 0.4
"""share of pairs that an epoch takes for clean: 60 % noise"""
ELITE = 0.9
"""share of pairs that may enter the memory"""
WORD_DIM = 300
BLOCK = 1000
"""images whose features are made at once"""


@dataclass(frozen=True)
class Size:
    """Sizes of everything; `whole` epochs are run whole, others composed of their measured parts."""

    dim: int
    regions: int
    region_dim: int
    batch: int
    memory: int
    images: int
    """training images whose features are made"""
    train: int
    """training images of an epoch"""
    scored: int
    """images whose pairs a timed partition pass scores"""
    dev: int
    ranks: tuple[int, ...]
    """images of the timed ranks"""
    searched: int
    """texts that a retrieval searches"""
    vocabulary: int = 0
    vector_dim: int = 0
    """of the captions, where they are vectors and not words"""

    @property
    def whole(self) -> bool:
        return self.train == self.images == self.scored

    @property
    def hidden(self) -> int:
        return max(1, self.dim // 2)


def _size(dim: int, regions: tuple[int, int], batch: int, memory: int, images: Sequence[int], **others: int) -> Size:
    made, train, scored, dev, *ranks, searched = images
    return Size(dim, *regions, batch, memory, made, train, scored, dev, tuple(ranks), searched, **others)


SIZES = {
    # Flickr30K in the paper: images made, of an epoch, scored, dev, ranked, texts searched
    "paper": _size(1024, (36, 2048), 128, 65536, (600, 29000, 200, 1000, 1000, 5000, 145000), vocabulary=8481),
    "flickr30k": _size(1024, (36, 2048), 128, 65536, (29000, 29000, 200, 1000, 5000, 145000), vocabulary=8481),
    # what docs/results.md trains
    "vectors": _size(512, (10, 352), 128, 13500, (6000, 6000, 6000, 1000, 1000, 30000), vector_dim=384),
    "demo": _size(128, (10, 108), 128, 1800, (800, 800, 800, 200, 200, 4000), vocabulary=120),
    "toy": _size(16, (4, 8), 8, 32, (20, 20, 20, 20, 20, 100), vocabulary=30),
}


class Workload:
    """Random features and captions of a size; image i owns the captions 5 i to 5 i + 4.

    Args:
        size: the sizes.
        device: where everything is computed.
        precision: of the toolkit's side, float32 or bf16.
        dropout: False = none anywhere, so that a step is the same on every device.
        features: take these (images, regions, region_dim) instead of making some.
    """

    def __init__(
        self,
        size: Size,
        device: torch.device,
        precision: str = "float32",
        dropout: bool = True,
        features: np.ndarray | None = None,
    ) -> None:
        self.size, self.device, self.precision = size, device, precision
        self.rates: dict[str, float] = {} if dropout else {"image_dropout": 0.0, "text_dropout": 0.0}
        self.method = In2rConfig(memory_size=size.memory, **({} if dropout else {"refiner_dropout": 0.0}))
        rng = numpy_generator(0, "benchmark")
        self.pairs = size.images * CAPTIONS
        self.owner = np.repeat(np.arange(size.images), CAPTIONS)
        self.features = _features(size, device) if features is None else features
        self._images: dict[int, Features] = {}
        self.vocabulary: Vocabulary | None = None
        self.captions: list[str] | None = None
        self.vectors: np.ndarray | None = None
        if size.vector_dim:
            self.vectors = rng.standard_normal((self.pairs, 1, size.vector_dim), np.float32)
        else:
            words = [f"w{number}" for number in range(size.vocabulary - len(SPECIALS) - 1)]
            self.vocabulary = Vocabulary([*SPECIALS, *words])
            drawn = rng.integers(len(words), size=(self.pairs, 13))
            counts = rng.integers(10, 14, self.pairs)
            self.captions = [
                " ".join(words[word] for word in row[:count]) for row, count in zip(drawn, counts, strict=True)
            ]
        self.elite = torch.as_tensor(rng.random(self.pairs) < ELITE)
        self.clean = torch.as_tensor(rng.random(self.pairs) < CLEAN)

    @cached_property
    def texts(self) -> Features | PackedTokens:
        """All captions as the toolkit takes them."""
        if self.vocabulary is not None:
            return self.vocabulary.encode(self.captions)
        return Features(self.vectors, np.arange(self.pairs))

    def training_data(self, images: int | None = None) -> TrainingData:
        """The toolkit's training data of the first images, by default of all."""
        count = self.size.images if images is None else images
        words = self.vocabulary
        return TrainingData(
            images=self._first(count),
            texts=self.texts,
            image_of_pair=torch.as_tensor(self.owner),
            pairs=torch.arange(count * CAPTIONS),
            device=self.device,
            region_drop=DROP,
            word_drop=DROP,
            vocabulary_size=0 if words is None else len(words),
            mask_id=0 if words is None else words.mask_id,
        )

    def _first(self, count: int) -> Features:
        """The first images; on CUDA they lie on the device, as `data.residency = auto` decides."""
        if count not in self._images:
            found = Features(self.features[:count], np.arange(count))
            self._images[count] = found.resident(self.device) if self.device.type == "cuda" else found
        return self._images[count]

    def dev(self) -> tuple[PairSet, Features | PackedTokens]:
        """The first images as a split, with their captions as the toolkit takes them."""
        count = min(self.size.dev, self.size.images)
        split = PairSet("dev", self._first(count), self.owner[: count * CAPTIONS], None, None, [])
        if self.vocabulary is not None:
            return split, self.vocabulary.encode(self.captions[: count * CAPTIONS])
        return split, Features(self.vectors[: count * CAPTIONS], np.arange(count * CAPTIONS))

    def encoder(self) -> DualEncoder:
        """A dual encoder, always with the same weights."""
        torch.manual_seed(0)
        vectors = self.size.vector_dim
        inputs = Inputs(self.size.region_dim, "vectors" if vectors else "words", vectors or len(self.vocabulary))
        return build_backbone(ModelConfig(dim=self.size.dim, word_dim=WORD_DIM, **self.rates), inputs).to(self.device)

    def memory(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Entries that fill a memory: images, texts, pairs, groups."""
        generator = torch_generator(0, "memory")
        entries = torch.arange(self.size.memory, device=self.device) % self.pairs
        shape = self.size.memory, self.size.dim
        images, texts = (normalize(torch.randn(shape, generator=generator)).to(self.device) for _ in range(2))
        return images, texts, entries, entries // CAPTIONS


def _features(size: Size, device: torch.device) -> np.ndarray:
    """Features (images, regions, region_dim) float16, made on the device: there gigabytes take no time."""
    generator = torch_generator(0, "features", device=device)
    made = np.empty((size.images, size.regions, size.region_dim), np.float16)
    for start in range(0, size.images, BLOCK):
        block = made[start : start + BLOCK]
        block[:] = torch.randn(block.shape, generator=generator, device=device).half().cpu().numpy()
    return made


def embeddings(images: int, dim: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Unit-norm images (N, D), and captions (N · 5, D) that scatter around their image."""
    generator = torch_generator(0, "embeddings")
    v = normalize(torch.randn(images, dim, generator=generator, dtype=dtype))
    u = torch.randn(images * CAPTIONS, dim, generator=generator, dtype=dtype).mul_(0.5)  # own cosine: 2 sigma of others
    return v, normalize(u.view(images, CAPTIONS, dim).add_(v[:, None]).flatten(0, 1))
