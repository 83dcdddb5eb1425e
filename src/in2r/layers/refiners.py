"""Refiners: K retrieved neighbours, best first → one unit-norm prototype; (batch, K, dim) → (batch, dim).

The three graph refiners differ in the message M(H) that each neighbour receives from all of them; the rest is Eqs. 8
and 9: H' = LayerNorm(H + Dropout(M(H))), prototype = mean of H' over its K rows, at unit norm (for the temperature).
The order of the neighbours has no influence. The paper compares them (its Table 5) without saying which GCN or GAT it
takes: these are the textbook forms, one layer each.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.errors import InputError
from in2r.layers.dropout import Dropout


class GraphRefiner(nn.Module):
    """Self-attention over the complete graph of the neighbours (the paper's refiner).

    Eq. 7: MHSA(H), per head softmax(Q Kᵀ / sqrt(d_k)) V, d_k = dim / heads, no mask.
    Eq. 8: H' = LayerNorm(H + Dropout(Linear(MHSA(H)))).
    Eq. 9: prototype = mean of H' over its K rows, then scaled to unit norm.

    Args:
        dim: Width of the embeddings.
        heads: Attention heads; must divide `dim`.
        dropout: Rate on the attention's output, training only.

    Raises:
        InputError: `heads` does not divide `dim`.
    """

    def __init__(self, dim: int, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = _checked_heads(dim, heads)
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.output_layer = nn.Linear(dim, dim)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, neighbors: Tensor) -> Tensor:
        """Refine neighbours (batch, K, dim) into prototypes (batch, dim) of unit norm."""
        query, key, value = (
            projection(neighbors).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        # written out: PyTorch's fused attention is made for long sequences, at K = 5 it takes twice as long on the CPU
        attention = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1)
        attended = (attention @ value).transpose(1, 2).flatten(2)
        return _prototype(self.layer_norm(neighbors + self.dropout(self.output_layer(attended))))


class GcnRefiner(nn.Module):
    """Graph convolution over a fixed graph of the neighbours (ablation `refiner = gcn`).

    M(H) = ReLU(Â H W), Â = D^(-1/2) A D^(-1/2), A_ij = max(0, cos(h_i, h_j)), so that the diagonal (1) is the
    self-loop, and D the diagonal of A's row sums (T. Kipf, M. Welling, ICLR 2017).

    Args:
        dim: Width of the embeddings.
        dropout: Rate on the message, training only.
    """

    def __init__(self, dim: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Linear(dim, dim, bias=False)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, neighbors: Tensor) -> Tensor:
        """Refine neighbours (batch, K, dim) into prototypes (batch, dim) of unit norm."""
        unit = functional.normalize(neighbors, dim=-1)
        graph = (unit @ unit.mT).clamp(min=0)
        scale = graph.sum(-1).clamp(min=1e-6).rsqrt()
        message = functional.relu(scale[..., None] * graph * scale[..., None, :] @ self.weight(neighbors))
        return _prototype(self.layer_norm(neighbors + self.dropout(message)))


class GatRefiner(nn.Module):
    """Additive attention over the complete graph of the neighbours (ablation `refiner = gat`).

    Per head M(H)_i = ELU(Σ_j α_ij W h_j), α_i = softmax_j(LeakyReLU(aᵀ [W h_i ‖ W h_j])), slope 0.2; heads side by side
    (P. Veličković and others, ICLR 2018).

    Args:
        dim: Width of the embeddings.
        heads: Attention heads; must divide `dim`.
        dropout: Rate on the message, training only.

    Raises:
        InputError: `heads` does not divide `dim`.
    """

    def __init__(self, dim: int, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = _checked_heads(dim, heads)
        self.weight = nn.Linear(dim, dim, bias=False)
        self.receiver = nn.Parameter(torch.empty(heads, dim // heads))
        self.sender = nn.Parameter(torch.empty(heads, dim // heads))
        nn.init.xavier_uniform_(self.receiver)
        nn.init.xavier_uniform_(self.sender)
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, neighbors: Tensor) -> Tensor:
        """Refine neighbours (batch, K, dim) into prototypes (batch, dim) of unit norm."""
        nodes = self.weight(neighbors).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (batch, heads, K, d)
        receiver = nodes @ self.receiver[..., None]
        sender = nodes @ self.sender[..., None]
        attention = functional.leaky_relu(receiver + sender.mT, 0.2).softmax(-1)  # row i: what node i hears
        message = functional.elu(attention @ nodes).transpose(1, 2).flatten(2)
        return _prototype(self.layer_norm(neighbors + self.dropout(message)))


def _checked_heads(dim: int, heads: int) -> int:
    if heads < 1 or dim % heads:
        raise InputError(f"refiner: dim {dim} cannot be split into {heads} heads; choose heads that divide it")
    return heads


def _prototype(refined: Tensor) -> Tensor:
    """Eq. 9: (batch, K, dim) → (batch, dim) of unit norm."""
    return functional.normalize(refined.mean(1), dim=-1)


class MeanRefiner(nn.Module):
    """The plain mean of the neighbours (ablation `rectifier = mean`)."""

    def forward(self, neighbors: Tensor) -> Tensor:
        """Average neighbours (batch, K, dim) into prototypes (batch, dim) of unit norm."""
        return _prototype(neighbors)


class Top1Refiner(nn.Module):
    """The nearest neighbour alone (ablation `rectifier = top1`)."""

    def forward(self, neighbors: Tensor) -> Tensor:
        """Return the first of the neighbours (batch, K, dim) at unit norm, (batch, dim)."""
        return functional.normalize(neighbors[:, 0], dim=-1)
