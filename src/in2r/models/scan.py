"""SCAN: every part of one side is compared with what it attends to on the other (Lee et al., ECCV 2018)."""

from typing import Literal

import torch
from torch import Tensor

from in2r.layers.pooling import LOWEST
from in2r.models.base import Items
from in2r.models.interaction import Interaction
from in2r.models.parts import RegionParts, WordParts

LEAST_SQUARE = 1e-9
"""Of the length of what is attended to: its direction has a finite gradient below, as in `unit_norm`."""


class Scan(Interaction):
    """Stacked cross attention: S pools how near each query part y_k is to what it attends to, c_k = Σ_r α_rk x_r.

    R_k = cos(y_k, c_k). S = (1 / λ_lse) log Σ_k exp(λ_lse R_k), which exceeds 1 by at most log(K) / λ_lse; or the mean
    of R_k over the real parts. t2i: queries are the words of a caption, contexts the regions of an image; i2t: the
    reverse. There is no global vector: `Items.vector` is the mean of the parts.

    c_k is never made: y_k · c_k = Σ_r α_rk (x_r · y_k), and |c_k|² = α_k · G α_k with G = (x_r · x_s) of one context.

    Args:
        image: encodes regions, without self-attention.
        text: encodes words, likewise.
        direction: which side asks.
        pooling: lse or mean.
        smoothing: λ of the attention.
        lse: λ_lse.
    """

    embeds = False

    def __init__(
        self,
        image: RegionParts,
        text: WordParts,
        direction: Literal["t2i", "i2t"] = "t2i",
        pooling: Literal["lse", "mean"] = "lse",
        smoothing: float = 9.0,
        lse: float = 6.0,
    ) -> None:
        super().__init__(image, text, smoothing)
        self.direction, self.pooling, self.lse = direction, pooling, lse

    def logits(self, images: Items, texts: Items) -> Tensor:
        """Return S (n, m); a padded region or word has no influence. Nothing to attend to gives a cosine of 0."""
        if self.direction == "t2i":
            return self._compared(images, texts)
        return self._compared(texts, images).T

    def relate_by_attention(self, items: Items) -> Tensor:
        """Return S of two items of one side (n, n): row = what is attended to, column = whose parts attend."""
        return self._compared(items, items)

    def relate_by_place(self, items: Items) -> Tensor:
        """Return the pooled cosines of two items of one side (n, n), part by part."""
        assert items.parts is not None
        return self._pooled(torch.einsum("ikd,jkd->ijk", items.parts, items.parts), None)

    def pair_bytes(self, words: int) -> int:
        """Return the memory in bytes that `logits` needs per pair, without gradient, at captions of `words` words."""
        return 4 * 6 * words * self.image.regions

    def _compared(self, contexts: Items, queries: Items) -> Tensor:
        """Return S (contexts, queries)."""
        assert contexts.parts is not None
        assert queries.parts is not None
        x, y = contexts.parts, queries.parts.flatten(0, 1)
        cosines = x @ y.T  # (n, R, m K)
        weights = self.attention(cosines, contexts, queries)
        inner = (weights * cosines).sum(1)  # (n, m K)
        squared = (weights * ((x @ x.transpose(1, 2)) @ weights)).sum(1)
        relevance = inner * torch.rsqrt(squared.clamp(min=LEAST_SQUARE))
        return self._pooled(relevance.view(len(contexts), *queries.parts.shape[:2]), queries.mask)

    def _pooled(self, relevance: Tensor, mask: Tensor | None) -> Tensor:
        """Pool R (n, m, K) → (n, m); `mask` (m, K) bool, None = all are real."""
        if self.pooling == "mean":
            if mask is None:
                return relevance.mean(-1)
            return relevance.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)
        if mask is None:
            return (self.lse * relevance).logsumexp(-1) / self.lse
        pooled = (self.lse * relevance).masked_fill(~mask, LOWEST).logsumexp(-1) / self.lse
        return pooled.masked_fill(~mask.any(-1), 0.0)
