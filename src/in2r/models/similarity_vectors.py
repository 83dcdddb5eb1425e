"""Similarity vectors of SGRAF (Diao et al., AAAI 2021): one for the whole pair, one for every word and its regions."""

import torch
from torch import Tensor
from torch.nn import functional

from in2r.layers.mlp import unit_norm, xavier_linear
from in2r.models.base import Items
from in2r.models.interaction import Interaction
from in2r.models.parts import RegionParts, WordParts
from in2r.transfer import at_least_float32

RELATION_OFFSET = 1e-6
"""Added to squared differences inside one side, so that an item and itself do not give a vector of zeros (GSC)."""


class SimilarityVectors(Interaction):
    """Backbone whose similarity is read off the similarity vectors of a pair; a subclass says how (`reason`).

    s_0 = unit(W_g (g - t)²) compares the global vectors. s_l = unit(W_l (c_l - w_l)²) compares word l with c_l, the
    unit vector of what it attends to among the regions: c_l = unit(Σ_r softmax_r(λ â_rl) v_r), where â_r is the unit
    vector, over the caption's words, of leaky(v_r · w_l). The logit is w · reason(s_0, ..., s_L) + b.

    Args:
        image: encodes regions.
        text: encodes words.
        similarity_dim: s, the width of a similarity vector.
        smoothing: λ.

    Raises:
        InputError: the two encoders have different dimensions.
    """

    bounded = True

    def __init__(self, image: RegionParts, text: WordParts, similarity_dim: int, smoothing: float) -> None:
        super().__init__(image, text, smoothing)
        self.similarity_dim = similarity_dim
        self.whole = xavier_linear(self.dim, similarity_dim)
        self.local = xavier_linear(self.dim, similarity_dim)
        self.head = xavier_linear(similarity_dim, 1)

    def reason(self, nodes: Tensor, mask: Tensor | None) -> Tensor:
        """Make one vector per pair of its similarity vectors.

        Args:
            nodes: (n, m, L + 1, s) unit norm, the one of the whole pair first.
            mask: (m, L + 1) bool, True = real; None = all are.

        Returns:
            (n, m, s).
        """
        raise NotImplementedError

    def logits(self, images: Items, texts: Items) -> Tensor:
        """Return what the sigmoid of the similarity takes (n, m); a padded region or word has no influence."""
        return self._compared(images, texts, offset=0.0)

    def relate_by_attention(self, items: Items) -> Tensor:
        """Return the logit of two items of one side (n, n): row = what is attended to, column = whose parts attend."""
        return self._compared(items, items, RELATION_OFFSET)

    def relate_by_place(self, items: Items) -> Tensor:
        """Return the logit of two items of one side (n, n): s_k = unit(W_l (x_ik - x_jk)²) of each place k."""
        assert items.parts is not None
        with self.lowered(items.vector):
            differences = (items.parts[:, None] - items.parts).square() + RELATION_OFFSET
            nodes = unit_norm(self.local(differences))
            return self._read(items.vector[:, None] - items.vector, nodes, None, RELATION_OFFSET)

    def _compared(self, images: Items, texts: Items, offset: float) -> Tensor:
        with self.lowered(images.vector):
            mask = None if texts.mask is None else functional.pad(texts.mask, (1, 0), value=True)
            nodes = self._local(images, texts, offset)
            return self._read(images.vector[:, None] - texts.vector, nodes, mask, offset)

    def _read(self, difference: Tensor, nodes: Tensor, mask: Tensor | None, offset: float) -> Tensor:
        """Return the logits (n, m) of global differences (n, m, D) and similarity vectors (n, m, K, s)."""
        whole = unit_norm(self.whole(difference.square() + offset))
        return at_least_float32(self.head(self.reason(torch.cat([whole[:, :, None], nodes], dim=2), mask)).squeeze(-1))

    def pair_bytes(self, words: int) -> int:
        """Return the memory in bytes that `logits` needs per pair, without gradient, at captions of `words` words.

        Attention and similarity vectors come one after the other: the larger of both counts.
        """
        nodes = words + 1
        attention = nodes * (2 * self.dim + 3 * self.image.regions)
        return 4 * max(attention, self.reasoning(nodes))

    def reasoning(self, nodes: int) -> int:
        """Return how many numbers the similarity vectors of a pair, `nodes` in all, and `reason` need at once."""
        raise NotImplementedError

    def _local(self, images: Items, texts: Items, offset: float) -> Tensor:
        """Return the similarity vectors of all words (n, m, L, s); those of padded words mean nothing."""
        assert images.parts is not None
        assert texts.parts is not None
        regions, words = images.parts, texts.parts.flatten(0, 1)
        weights = self.attention(regions @ words.T, images, texts)
        # one chain, so that each (n, m L, D) is freed once the next is there: these are what `pair_bytes` counts
        differences = unit_norm(weights.transpose(1, 2) @ regions).sub(words).square()
        if offset:  # else nothing is copied
            differences = differences + offset
        return unit_norm(self.local(differences)).view(len(images), *texts.parts.shape[:2], -1)
