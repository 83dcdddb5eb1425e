"""Text encoder of VSE++ (Faghri et al., BMVC 2018) and of its form for region features: no learnt pooling.

Its image encoder for region features is `VectorEncoder` without hidden layer: the mean of the projected regions is the
projection of their mean.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from in2r.layers.dropout import Dropout
from in2r.layers.mlp import unit_norm
from in2r.layers.recurrence import bi_gru, forward_gru, pack
from in2r.models.encoders import embed_words, fill_embedding, host_mask
from in2r.transfer import send


class PlainWordEncoder(nn.Module):
    """Text encoder over word ids: embedding → GRU → unit(mean over the words), or unit(last state).

    Args:
        vocabulary_size: number of words; id 0 is padding.
        word_dim: width of a word embedding.
        dim: width of the embedding and of the GRU per direction.
        pooling: mean = over the states of a bi-GRU, directions averaged; last = the last state of a forward GRU, as in
            VSE++.
        dropout: rate on the word embeddings, training only.
        pretrained: initial word embeddings (vocabulary_size, word_dim); uniform in ±0.1 when None.

    Raises:
        InputError: `pretrained` has another shape.
    """

    def __init__(
        self,
        vocabulary_size: int,
        word_dim: int,
        dim: int,
        pooling: Literal["mean", "last"] = "mean",
        dropout: float = 0.3,
        pretrained: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout)
        self.embed = nn.Embedding(vocabulary_size, word_dim, padding_idx=0)
        self.cap_rnn = nn.GRU(word_dim, dim, batch_first=True, bidirectional=pooling == "mean")
        fill_embedding(self.embed, pretrained)

    def forward(self, ids: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Tensor:
        """Encode word ids (B, L) int64, the valid ones leading in mask (B, L) bool on the CPU → (B, dim) unit norm.

        A caption of no word has the zero vector. `batches` has no influence: there are no batch statistics.
        """
        mask = host_mask(ids, mask)
        packing = pack(mask)
        words = embed_words(ids, packing, self.embed, self.dropout)
        run = bi_gru if self.cap_rnn.bidirectional else forward_gru
        states = run(self.cap_rnn, words, packing)
        filled = states.new_zeros(mask.numel(), self.dim).index_copy(0, send(packing.entries, ids.device), states)
        if self.cap_rnn.bidirectional:  # the unit vector of the sum is that of the mean
            return unit_norm(filled.view(*mask.shape, self.dim).sum(1))
        last = torch.arange(len(mask)) * mask.shape[1] + (mask.sum(1) - 1).clamp(min=0)
        return unit_norm(filled.index_select(0, send(last, ids.device)))
