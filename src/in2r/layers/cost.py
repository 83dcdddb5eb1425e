"""The cost of matching an image and a caption, learnt from the similarities of a whole batch (L2RM)."""

import torch
from torch import Tensor, nn


class CostNetwork(nn.Module):
    """C = ReLU(S Wᵀ + b), with W (size × size) over the captions of a batch; at first C = 1 - S.

    Args:
        size: captions in a batch.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        with torch.no_grad():
            self.linear.weight.copy_(-torch.eye(size))
            self.linear.bias.fill_(1.0)

    def forward(self, similarity: Tensor) -> Tensor:
        """Map S (Q, size) to costs (Q, size) ≥ 0."""
        cost: Tensor = torch.relu(self.linear(similarity))
        return cost
