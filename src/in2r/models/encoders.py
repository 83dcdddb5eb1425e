"""Encoders: regions, words or ready-made vectors → unit-norm embeddings of one dimension."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from in2r.errors import InputError
from in2r.layers.dropout import Dropout
from in2r.layers.mlp import MLP, unit_norm, xavier_linear
from in2r.layers.pooling import GPO, LOWEST, MeanPool, masked_mean
from in2r.layers.recurrence import Packing, bi_gru, pack
from in2r.transfer import at_least_float32, send


def _embed_set(
    rows: Tensor,
    mask: Tensor,
    entries: Tensor | None,
    batches: Sequence[int],
    fc: nn.Linear,
    mlp: MLP,
    gpool: GPO | MeanPool,
) -> Tensor:
    """Return unit(pool(fc(x) + mlp(x))) of sets that are given by their valid rows.

    Args:
        rows: (n, d), set after set.
        mask: (B, K) bool on the CPU, which places of the sets they take.
        entries: (n,) int64, b * K + k of each row on its device; None = all places are taken.
        batches: how many sets, in order, share BatchNorm's statistics.
        fc: the projection.
        mlp: what is added to it.
        gpool: pools a set.

    Returns:
        (B, dim); nothing was computed for padded places.
    """
    projected: Tensor = fc(rows) + mlp(rows, [int(part.sum()) for part in torch.split(mask, list(batches))])
    projected = at_least_float32(projected)
    if entries is None:
        return unit_norm(gpool.pool_filled(projected.view(*mask.shape, -1)))
    padded = projected.new_full((mask.numel(), projected.shape[-1]), LOWEST).index_copy_(0, entries, projected)
    return unit_norm(gpool.pool_filled(padded.view(*mask.shape, -1), mask))


def host_mask(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask (B, K) on the CPU, where sizes and places are known without waiting for the device."""
    return torch.ones(values.shape[:2], dtype=torch.bool) if mask is None else mask.cpu()


@torch.no_grad()
def fill_embedding(embed: nn.Embedding, pretrained: Tensor | None) -> None:
    """Draw word embeddings uniform in ±0.1, that of padding zero; or copy the given ones.

    Raises:
        InputError: `pretrained` has another shape than `embed.weight`.
    """
    if pretrained is None:
        embed.weight.uniform_(-0.1, 0.1)[0] = 0.0
        return
    if pretrained.shape != embed.weight.shape:
        expected = "×".join(map(str, embed.weight.shape))
        found = "×".join(map(str, pretrained.shape))
        raise InputError(f"word vectors: expected words × dim = {expected}, found {found}")
    embed.weight.copy_(pretrained)


def embed_words(ids: Tensor, packing: Packing, embed: nn.Embedding, dropout: nn.Module) -> Tensor:
    """Return the embeddings (n, word_dim) of the valid words of ids (B, L), in the order of `packing.first`."""
    words: Tensor = dropout(embed(ids.flatten().index_select(0, send(packing.first, ids.device))))
    return words


class RegionEncoder(nn.Module):
    """Image encoder over region features: unit(pool(fc(x) + mlp(x))).

    Args:
        input_dim: Width of a region feature.
        dim: Width of the embedding.
        hidden: Width of the MLP's hidden layer.
        dropout: Rate on the region features, training only: the two views of a batch differ by it.
        pool: Makes what pools a set, drawn after all other weights.
    """

    def __init__(
        self,
        input_dim: int,
        dim: int,
        hidden: int,
        dropout: float = 0.3,
        pool: Callable[[], GPO | MeanPool] = GPO,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout)
        self.fc = xavier_linear(input_dim, dim)
        self.mlp = MLP(input_dim, hidden, dim)
        self.gpool = pool()

    def forward(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Tensor:
        """Encode regions (B, R, input_dim) with a mask (B, R) bool of any pattern → (B, dim) unit norm.

        `batches`: how many images, in order, share batch statistics in training; None = all.
        """
        rows, entries = values.flatten(0, 1), None
        mask = host_mask(values, mask)
        if not mask.all():  # by place: selecting and scattering by the mask itself is an order of magnitude slower
            entries = send(mask.flatten().nonzero().squeeze(1), values.device)
            rows = rows.index_select(0, entries)
        return _embed_set(self.dropout(rows), mask, entries, batches or [len(mask)], self.fc, self.mlp, self.gpool)


class WordEncoder(nn.Module):
    """Text encoder over word ids: embedding → bi-GRU, directions averaged → unit(pool(fc(x) + mlp(x))).

    Args:
        vocabulary_size: Number of words; id 0 is padding.
        word_dim: Width of a word embedding.
        dim: Width of the embedding and of the GRU per direction.
        hidden: Width of the MLP's hidden layer.
        dropout: Rate on the word embeddings, training only.
        pretrained: Initial word embeddings (vocabulary_size, word_dim); uniform in ±0.1 when None.
        pool: Makes what pools a set, drawn after all other weights.

    Raises:
        InputError: `pretrained` has another shape.
    """

    def __init__(
        self,
        vocabulary_size: int,
        word_dim: int,
        dim: int,
        hidden: int,
        dropout: float = 0.3,
        pretrained: Tensor | None = None,
        pool: Callable[[], GPO | MeanPool] = GPO,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout)
        self.embed = nn.Embedding(vocabulary_size, word_dim, padding_idx=0)
        self.cap_rnn = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)
        self.fc = xavier_linear(dim, dim)
        self.mlp = MLP(dim, hidden, dim)
        self.gpool = pool()
        fill_embedding(self.embed, pretrained)

    def forward(self, ids: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Tensor:
        """Encode word ids (B, L) int64, the valid ones leading in mask (B, L) bool → (B, dim) unit norm.

        `batches`: how many captions, in order, share batch statistics in training; None = all.
        """
        mask = host_mask(ids, mask)
        packing = pack(mask)
        states = bi_gru(self.cap_rnn, embed_words(ids, packing, self.embed, self.dropout), packing)
        entries = send(packing.entries, ids.device)
        return _embed_set(states, mask, entries, batches or [len(mask)], self.fc, self.mlp, self.gpool)


class VectorEncoder(nn.Module):
    """Encoder of one given vector per item: unit(fc(x)); with a hidden layer unit(mlp(x)), or unit(fc(x) + mlp(x)).

    Args:
        input_dim: Width of the given vectors.
        dim: Width of the embedding.
        hidden: Width of the hidden layer; None for a linear projection.
        dropout: Rate on the given vectors, training only.
        residual: Adds a linear projection to the MLP.
    """

    def __init__(
        self, input_dim: int, dim: int, hidden: int | None = None, dropout: float = 0.3, residual: bool = False
    ) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout)
        self.projection = xavier_linear(input_dim, dim) if hidden is None else MLP(input_dim, hidden, dim)
        self.residual = xavier_linear(input_dim, dim) if residual and hidden is not None else None

    def forward(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Tensor:
        """Encode the mean over the valid entries of (B, R, input_dim) → (B, dim) unit norm.

        `batches`: how many items, in order, share batch statistics in training; None = all.
        """
        rows = self.dropout(masked_mean(values, mask))
        if not isinstance(self.projection, MLP):
            return unit_norm(self.projection(rows))
        projected = self.projection(rows, batches or [len(rows)])
        return unit_norm(projected if self.residual is None else projected + self.residual(rows))
