"""The cost of matching an image and a text, learnt from the similarities of a batch (L2RM)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.transfer import at_least_float32, full_precision


class CostNetwork(nn.Module):
    """C = ReLU(S Wᵀ + b): C_ij = [Σ_k W_jk S_ik + b_j]_+, W over the texts of a batch.

    It starts at W = -I, b = 1, that is C = 1 - S, and draws no random number. A cost at zero has no gradient.

    Args:
        size: B, texts in a batch.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.utils.skip_init(nn.Linear, size, size)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self.linear.weight.copy_(-torch.eye(size))
            self.linear.bias.fill_(1)

    def forward(self, similarity: Tensor) -> Tensor:
        """Map similarities (Q, B), images × texts, to costs (Q, B) >= 0 in float32.

        Raises:
            ValueError: for another number of texts than B, which the weights are made for.
        """
        size = self.linear.in_features
        if similarity.shape[-1:] != (size,):
            raise ValueError(
                f"similarity must be (Q, {size}) for a cost network of {size} texts, got shape "
                f"{tuple(similarity.shape)}"
            )
        with full_precision(similarity.device):
            return functional.relu(self.linear(at_least_float32(similarity)))
