"""Encoders of an interaction backbone: every region and every word as a unit vector, and one vector for the whole."""

from collections.abc import Sequence

from torch import Tensor, nn

from in2r.errors import InputError
from in2r.layers.dropout import Dropout
from in2r.layers.mlp import unit_norm, xavier_linear
from in2r.layers.norms import RegionNorm, RowNorm, per_batch
from in2r.layers.pooling import LOWEST
from in2r.layers.recurrence import bi_gru, pack
from in2r.models.base import Items
from in2r.models.encoders import embed_words, fill_embedding, host_mask
from in2r.transfer import at_least_float32, send


class SelfAttention(nn.Module):
    """Global vector of a set of parts: g = unit(Σ_k α_k x_k), α = softmax_k(w · (a_k ∘ b)) (as in SGRAF).

    a_k = dropout(tanh(norm(W1 x_k))) of each part, b = dropout(tanh(norm(W2 x̄))) of the mean of the valid parts. Both
    norms are BatchNorm of images, with one channel per region and one per feature; texts have none.

    Args:
        dim: D.
        dropout: rate, training only.
        regions: the number of channels of the regions' norm; None = texts.
    """

    def __init__(self, dim: int, dropout: float, regions: int | None = None) -> None:
        super().__init__()
        self.part = xavier_linear(dim, dim)
        self.whole = xavier_linear(dim, dim)
        self.weight = xavier_linear(dim, 1)
        self.part_norm = None if regions is None else RegionNorm(regions)
        self.whole_norm = None if regions is None else RowNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, parts: Tensor, mask: Tensor | None, batches: Sequence[int] | None) -> Tensor:
        """Pool parts (B, K, D), zero where they are padding, with a mask (B, K) bool on their device → (B, D)."""
        total = parts.sum(1)
        mean = total / parts.shape[1] if mask is None else total / mask.sum(1, keepdim=True).clamp(min=1)
        part, whole = self.part(parts), self.whole(mean)
        if self.part_norm is not None and self.whole_norm is not None:
            part = per_batch(self.part_norm, batches, part, mask)
            whole = per_batch(self.whole_norm, batches, whole)
        gated = self.dropout(part.tanh()) * self.dropout(whole.tanh())[:, None]
        score = at_least_float32(self.weight(gated).squeeze(-1))
        if mask is not None:
            score = score.masked_fill(~mask, LOWEST)
        return unit_norm((score.softmax(1)[..., None] * parts).sum(1))


class RegionParts(nn.Module):
    """Image encoder: every region projected to a unit vector; their self-attention is the image's vector.

    Args:
        input_dim: width of a region feature.
        dim: D.
        regions: R of every image. The self-attention's BatchNorm has one channel per region, so with one it cannot
            differ; an image that has fewer is given with a mask.
        input_dropout: rate on the region features, training only.
        dropout: rate inside the self-attention, training only; None = there is no self-attention, and an image's vector
            is the unit vector of the mean of its regions.
    """

    def __init__(self, input_dim: int, dim: int, regions: int, input_dropout: float, dropout: float | None) -> None:
        super().__init__()
        self.dim = dim
        self.regions = regions
        self.dropout = Dropout(input_dropout)
        self.fc = xavier_linear(input_dim, dim)
        self.attention = None if dropout is None else SelfAttention(dim, dropout, regions)

    def forward(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode regions (B, R, input_dim) with a mask (B, R) bool on the CPU; `batches` as in `Backbone`.

        Raises:
            InputError: another number of regions.
        """
        if self.attention is not None and values.shape[1] != self.regions:
            raise InputError(
                f"images: {values.shape[1]} regions per image, this model expects {self.regions}: its BatchNorm has "
                "one channel per region; pad the features to that number and give the lengths"
            )
        parts = unit_norm(self.fc(self.dropout(values)))
        mask = _mask_beside(parts, mask)
        if mask is not None:
            parts = parts.masked_fill(~mask[..., None], 0.0)
        return Items(_whole(self.attention, parts, mask, batches), parts, mask)


class WordParts(nn.Module):
    """Text encoder: every word's bi-GRU state as a unit vector; their self-attention is the caption's vector.

    Args:
        vocabulary_size: number of words; id 0 is padding.
        word_dim: width of a word embedding.
        dim: D, and the width of the GRU per direction.
        input_dropout: rate on the word embeddings, training only.
        dropout: as in `RegionParts`.
        pretrained: initial word embeddings (vocabulary_size, word_dim); uniform in ±0.1 when None.

    Raises:
        InputError: `pretrained` has another shape.
    """

    def __init__(
        self,
        vocabulary_size: int,
        word_dim: int,
        dim: int,
        input_dropout: float,
        dropout: float | None,
        pretrained: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(input_dropout)
        self.embed = nn.Embedding(vocabulary_size, word_dim, padding_idx=0)
        self.cap_rnn = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)
        self.attention = None if dropout is None else SelfAttention(dim, dropout)
        fill_embedding(self.embed, pretrained)

    def forward(self, ids: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode word ids (B, L) int64, the valid ones leading in mask (B, L) bool on the CPU."""
        valid = host_mask(ids, mask)
        packing = pack(valid)
        states = unit_norm(bi_gru(self.cap_rnn, embed_words(ids, packing, self.embed, self.dropout), packing))
        parts = states.new_zeros(valid.numel(), self.dim).index_copy(0, send(packing.entries, ids.device), states)
        parts = parts.view(*valid.shape, self.dim)
        mask = _mask_beside(parts, mask)
        return Items(_whole(self.attention, parts, mask, batches), parts, mask)


def _whole(
    attention: SelfAttention | None, parts: Tensor, mask: Tensor | None, batches: Sequence[int] | None
) -> Tensor:
    """Return one vector (B, D) for each item's parts (B, K, D), which are zero where they are padding."""
    if attention is None:
        return unit_norm(parts.sum(1))
    vector: Tensor = attention(parts, mask, batches)
    return vector


def _mask_beside(parts: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the CPU's mask on the device of the parts; None where all parts are valid."""
    return None if mask is None or bool(mask.all()) else send(mask, parts.device)
