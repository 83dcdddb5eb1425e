"""The training pairs as batches on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.data.augment import augment_words, drop_regions
from in2r.data.features import Features
from in2r.data.text.vocabulary import PackedTokens
from in2r.methods import Batch
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
    words_of_pair: Tensor | None = None
    """(N,) int64, equal for captions of the same words, where a method asks for it"""

    def batch(self, pairs: Tensor, generator: torch.Generator | None = None, elite: Tensor | None = None) -> Batch:
        """Gather pairs (B,) int64; with a generator, regions and words are augmented.

        All that is planned, such as masks, gaps and which pairs are elite, is made on the CPU and only then sent: so
        nothing waits for the device.

        Args:
            pairs: ids of the pairs, on the CPU.
            generator: draws of the augmentation, on the CPU; None = none.
            elite: (N,) bool, which pairs may enter the memory, on the CPU.
        """
        groups = self.image_of_pair[pairs]
        images, image_mask = self.images.gather(groups, self.device)
        if generator is not None and self.region_drop > 0 and images.shape[1] > 1:
            image_mask = drop_regions(image_mask, (images.shape[0], images.shape[1]), generator, self.region_drop)
        texts, text_mask = self._texts(pairs, generator)
        chosen = None if elite is None else send(torch.nonzero(elite[pairs]).flatten(), self.device)
        words = None if self.words_of_pair is None else send(self.words_of_pair[pairs], self.device)
        pairs, groups = send(pairs, self.device), send(groups, self.device)
        return Batch(pairs, groups, images, image_mask, texts, text_mask, chosen, words)

    def _texts(self, pairs: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        if not isinstance(self.texts, PackedTokens):
            return self.texts.gather(pairs, self.device)
        ids, mask = self.texts.gather(pairs)
        if generator is not None and self.word_drop > 0:
            ids, mask = augment_words(ids, mask, generator, self.vocabulary_size, self.mask_id, self.word_drop)
        return send(ids, self.device), mask
