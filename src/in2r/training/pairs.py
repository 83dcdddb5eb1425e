"""The training pairs as batches on the device."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from in2r.data.augment import augment_words, drop_regions
from in2r.data.features import Features, mean_regions
from in2r.data.text.tfidf import tfidf_vectors
from in2r.data.text.vocabulary import PackedTokens
from in2r.methods import Batch, Net
from in2r.methods.network import distinct
from in2r.models.base import Items
from in2r.models.encode import encode_images, encode_texts
from in2r.processes import ALONE, Processes
from in2r.transfer import send


@dataclass(frozen=True)
class TrainingData:
    """N training pairs: features, texts, and the image that each caption is given."""

    images: Features
    texts: Features | PackedTokens
    image_of_pair: Tensor
    """(N,) int64, after any injected noise"""
    pairs: Tensor
    """(n,) int64, the pairs that are trained on: all N, or the truly matching ones in an oracle run"""
    device: torch.device
    region_drop: float
    word_drop: float
    vocabulary_size: int
    mask_id: int
    by_image: bool = False
    """a batch holds each of its images once"""
    region_drop_exact: bool = False
    """exactly that share of an image's regions is left out"""
    processes: Processes = ALONE
    """the processes that train together: of a batch each gathers its share of the images"""
    _tfidf: dict[int, Tensor] = field(default_factory=dict, compare=False, repr=False)
    """of captions that are words: what `text_vectors` made, by its argument; seconds of work"""

    def batch(
        self,
        pairs: Tensor,
        generator: torch.Generator | None = None,
        columns: Mapping[str, Tensor] | None = None,
        image_of_pair: Tensor | None = None,
    ) -> Batch:
        """Gather pairs (B,) int64; with a generator, regions and words are augmented.

        All that is planned, such as masks, gaps and columns, is made on the CPU and only then sent: so nothing waits
        for the device.

        Args:
            pairs: ids of the pairs, on the CPU.
            generator: draws of the augmentation, on the CPU; None = none.
            columns: name → (N, ...) on the CPU, of which the batch has its pairs' rows.
            image_of_pair: (N,) int64, other images than the given ones.
        """
        groups = (self.image_of_pair if image_of_pair is None else image_of_pair)[pairs]
        gathered, owner, first = groups, None, None
        if self.by_image:
            gathered, owner, first = distinct(groups)
            owner, first = send(owner, self.device), send(first, self.device)
        image_rows = len(gathered) if self.processes.share(len(gathered)) else None
        own = slice(None) if image_rows is None else self.processes.rows(image_rows)
        images, image_mask = self._images(gathered, own, generator)
        texts, text_mask = self._texts(pairs, generator)
        rows = {name: values[pairs] for name, values in (columns or {}).items()}
        sent = send(pairs, self.device), send(groups, self.device)
        return Batch(*sent, images, image_mask, texts, text_mask, rows, owner=owner, first=first, image_rows=image_rows)

    def _images(self, images: Tensor, own: slice, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        """Gather the `own` rows of a batch's images; regions are left out by one draw for all of them."""
        values, mask = self.images.gather(images[own], self.device)
        if generator is not None and self.region_drop > 0 and self.images.regions > 1:
            shape = len(images), self.images.regions
            mask = drop_regions(self.images.mask(images), shape, generator, self.region_drop, self.region_drop_exact)[
                own
            ]
        return values, mask

    def _texts(self, pairs: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        if not isinstance(self.texts, PackedTokens):
            return self.texts.gather(pairs, self.device)
        ids, mask = self.texts.gather(pairs)
        if generator is not None and self.word_drop > 0:
            ids, mask = augment_words(ids, mask, generator, self.vocabulary_size, self.mask_id, self.word_drop)
        return send(ids, self.device), mask

    def encode(self, net: Net, pairs: Tensor) -> tuple[Items, Items]:
        """Return images and texts of pairs (k,) int64, encoded in eval mode without gradient; each image once."""
        own, place = torch.unique(self.image_of_pair[pairs], return_inverse=True)
        images = encode_images(net.backbone, self.images, self.device, own, self.processes)[place.to(self.device)]
        texts = encode_texts(net.backbone, self.texts, self.device, pairs, self.processes)
        with torch.no_grad():
            net.count_encoded(len(own) + len(pairs))
        return images, texts

    @property
    def in_words(self) -> bool:
        """Whether captions are words; else they are vectors."""
        return isinstance(self.texts, PackedTokens)

    def same_words(self) -> Tensor | None:
        """Return (N,) int64, equal for captions of the same words; None where captions are vectors."""
        return self.texts.distinct() if isinstance(self.texts, PackedTokens) else None

    def image_vectors(self) -> Tensor:
        """Return the images as given, (images, d) float32 on the CPU: the mean of each one's regions."""
        return mean_regions(self.images)

    def text_vectors(self, dim: int) -> Tensor:
        """Return the captions as given, (N, d) float32 on the CPU; of words TF-IDF, reduced to at most `dim`."""
        if isinstance(self.texts, PackedTokens):
            if dim not in self._tfidf:
                self._tfidf[dim] = tfidf_vectors(self.texts, dim)
            return self._tfidf[dim]
        return self.texts.gather(torch.arange(len(self.texts)))[0][:, 0]

    def embed(self, net: Net, before: bool = False) -> tuple[Tensor, Tensor]:
        """Return the embeddings of all images (images, D) and of all captions (N, D) by a network, without gradient.

        Args:
            net: a network with one vector per item.
            before: by what it was when the present round began.
        """
        backbone = net.before if before and net.before is not None else net.backbone
        images = encode_images(backbone, self.images, self.device, processes=self.processes)
        texts = encode_texts(backbone, self.texts, self.device, processes=self.processes)
        if not before:  # else it was counted when the round began
            with torch.no_grad():
                net.count_encoded(len(images) + len(texts))
        return images.vector, texts.vector
