"""SGR: the similarity vectors of a pair exchange messages on a complete graph (Diao et al., AAAI 2021)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.layers.mlp import xavier_linear
from in2r.layers.pooling import LOWEST
from in2r.models.parts import RegionParts, WordParts
from in2r.models.similarity_vectors import SimilarityVectors
from in2r.transfer import at_least_float32


class GraphStep(nn.Module):
    """One exchange of messages: x_q ← relu(W (Σ_k softmax_k(Q x_q · K x_k) x_k)), without scaling and residual.

    Args:
        dim: s, the width of a node.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = xavier_linear(dim, dim)
        self.key = xavier_linear(dim, dim)
        self.graph = xavier_linear(dim, dim)

    def forward(self, receivers: Tensor, nodes: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the receivers (n, m, q, s) with the messages of the nodes (n, m, K, s), real by mask (m, K)."""
        edges = at_least_float32(self.query(receivers) @ self.key(nodes).transpose(-1, -2))
        if mask is not None:
            edges = edges.masked_fill(~mask[:, None], LOWEST)
        return functional.relu(self.graph(edges.softmax(-1) @ nodes))


class Sgr(SimilarityVectors):
    """Similarity graph reasoning: after all steps, the node of the whole pair is the vector that is scored.

    Args:
        image: encodes regions.
        text: encodes words.
        similarity_dim: s, the width of a similarity vector.
        steps: exchanges of messages, each with its own weights, at least one.
        smoothing: λ of the attention.
    """

    def __init__(
        self, image: RegionParts, text: WordParts, similarity_dim: int = 256, steps: int = 3, smoothing: float = 9.0
    ) -> None:
        super().__init__(image, text, similarity_dim, smoothing)
        self.steps = nn.ModuleList([GraphStep(similarity_dim) for _ in range(steps)])

    def reasoning(self, nodes: int) -> int:
        """Return the numbers that `reason` needs: among them an edge between every two nodes."""
        return nodes * (5 * self.similarity_dim + 2 * nodes)

    def reason(self, nodes: Tensor, mask: Tensor | None) -> Tensor:
        """Exchange messages among the nodes (n, m, L + 1, s) → (n, m, s); a padded node sends none."""
        *first, last = self.steps
        for step in first:
            nodes = step(nodes, nodes, mask)
        pair: Tensor = last(nodes[:, :, :1], nodes, mask)  # of the last step, only this node is used
        return torch.squeeze(pair, 2)
