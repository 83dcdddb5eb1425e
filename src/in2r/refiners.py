"""Refiners: K retrieved neighbours, best first → one unit-norm prototype; (batch, K, dim) → (batch, dim)."""

from torch import Tensor, nn
from torch.nn import functional

from in2r.errors import InputError


class GraphRefiner(nn.Module):
    """Self-attention over the complete graph of the neighbours, then their mean.

    Eq. 7: MHSA(H), per head softmax(Q Kᵀ / sqrt(d_k)) V, d_k = dim / heads, no mask.
    Eq. 8: H' = LayerNorm(H + Dropout(Linear(MHSA(H)))).
    Eq. 9: prototype = mean of H' over its K rows, then scaled to unit norm (the temperature needs it).
    The order of the neighbours has no influence.

    Args:
        dim: Width of the embeddings.
        heads: Attention heads; must divide `dim`.
        dropout: Rate on the attention's output, training only.

    Raises:
        InputError: `heads` does not divide `dim`.
    """

    def __init__(self, dim: int, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise InputError(f"refiner: dim {dim} cannot be split into {heads} heads; choose heads that divide it")
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.output_layer = nn.Linear(dim, dim)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, neighbors: Tensor) -> Tensor:
        """Refine neighbours (batch, K, dim) into prototypes (batch, dim) of unit norm."""
        query, key, value = (
            projection(neighbors).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        refined = self.layer_norm(neighbors + self.dropout(self.output_layer(attended)))
        return functional.normalize(refined.mean(1), dim=-1)


class MeanRefiner(nn.Module):
    """The plain mean of the neighbours (ablation `rectifier = mean`)."""

    def forward(self, neighbors: Tensor) -> Tensor:
        """Average neighbours (batch, K, dim) into prototypes (batch, dim) of unit norm."""
        return functional.normalize(neighbors.mean(1), dim=-1)


class Top1Refiner(nn.Module):
    """The nearest neighbour alone (ablation `rectifier = top1`)."""

    def forward(self, neighbors: Tensor) -> Tensor:
        """Return the first of the neighbours (batch, K, dim) at unit norm, (batch, dim)."""
        return functional.normalize(neighbors[:, 0], dim=-1)
