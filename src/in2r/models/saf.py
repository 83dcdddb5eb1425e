"""SAF: the similarity vectors of a pair are weighed, each by a gate of its own (Diao et al., AAAI 2021)."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.nn import functional

from in2r.layers.mlp import unit_norm, xavier_linear
from in2r.layers.norms import RegionNorm
from in2r.layers.pooling import LOWEST
from in2r.models.base import Items
from in2r.models.parts import RegionParts, WordParts
from in2r.models.similarity_vectors import SimilarityVectors


class Saf(SimilarityVectors):
    """Similarity attention filtration: z = unit(Σ_k α_k s_k), α_k = σ(BN(w · s_k + b)) / Σ_j σ(BN(w · s_j + b)).

    BN is BatchNorm with one channel. Its statistics are over all real similarity vectors of all image-text pairs that
    are scored together, n × Σ_m (L_m + 1) numbers: a padded word does not count, and the running ones move once.

    Departs from the original, which scores caption by caption: there each caption's n × (L + 1) numbers are normalised
    by themselves, the running statistics move once per caption, 128 times a step, and are those of the last few
    captions. Here the weight of a similarity vector does not depend on which captions stand at a batch's end.

    Relations inside a side (`relate_by_place`, `relate_by_attention`) are read with the running statistics, which stay
    those of image-text pairs: S would else be read in evaluation by another distribution than it was trained with.

    Args:
        image: encodes regions.
        text: encodes words.
        similarity_dim: s, the width of a similarity vector.
        smoothing: λ of the attention.
    """

    def __init__(self, image: RegionParts, text: WordParts, similarity_dim: int = 256, smoothing: float = 9.0) -> None:
        super().__init__(image, text, similarity_dim, smoothing)
        self.gate = xavier_linear(similarity_dim, 1)
        self.norm = RegionNorm(1)

    def reasoning(self, nodes: int) -> int:
        """Return the numbers that `reason` needs."""
        return nodes * 3 * self.similarity_dim

    def reason(self, nodes: Tensor, mask: Tensor | None) -> Tensor:
        """Weigh the nodes (n, m, L + 1, s) → (n, m, s); a padded node has no weight."""
        gates = self.gate(nodes).squeeze(-1)
        real = None if mask is None else mask.expand_as(gates)
        gates = self.norm(gates.reshape(-1, 1, 1), None if real is None else real.reshape(-1, 1)).view_as(gates)
        scores = functional.logsigmoid(gates)  # the softmax of log σ is σ over its sum
        if real is not None:
            scores = scores.masked_fill(~real, LOWEST)
        return unit_norm((scores.softmax(-1)[..., None, :] @ nodes).squeeze(-2))

    def relate_by_attention(self, items: Items) -> Tensor:
        """Return the logit of two items of one side (n, n), as SGR does; the running statistics stay."""
        with self._held():
            return super().relate_by_attention(items)

    def relate_by_place(self, items: Items) -> Tensor:
        """Return the logit of two items of one side (n, n), place by place; the running statistics stay."""
        with self._held():
            return super().relate_by_place(items)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Normalise by the running statistics, without moving them."""
        training = self.norm.training
        self.norm.eval()
        try:
            yield
        finally:
            self.norm.train(training)
