"""What encoders are built of: unit vectors, an MLP whose BatchNorm sees valid rows only, centring."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.layers.norms import BatchStatistics, RowNorm, per_batch
from in2r.transfer import at_least_float32

MOMENTUM = 0.1
"""Of `Centering`'s running mean: a mean of about the last ten batches. The released code has none (it centres by the
batch, at test too); this is PyTorch's for BatchNorm, which the encoders' MLPs have."""


def unit_norm(vectors: Tensor) -> Tensor:
    """Scale vectors (..., dim) to length 1 in at least float32; zero stays zero, with a finite gradient."""
    vectors = at_least_float32(vectors)
    squared = vectors.square().sum(-1, keepdim=True)
    return vectors * torch.rsqrt(squared.clamp(min=1e-9))  # the gradient stays below 2^15: fits float16


class MLP(nn.Module):
    """Linear → BatchNorm → ReLU → linear over rows (rows, input_dim) → (rows, dim)."""

    def __init__(self, input_dim: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(input_dim, hidden), nn.Linear(hidden, dim)])
        self.bns = nn.ModuleList([RowNorm(hidden)])

    def forward(self, rows: Tensor, batches: Sequence[int] | None = None) -> Tensor:
        """Map each row on its own; only BatchNorm sees the others, in training: those of its part.

        Args:
            rows: (rows, input_dim).
            batches: how many rows, in order, share their statistics; the running ones see part after part. None = all.
        """
        normed = per_batch(self.bns[0], batches, self.layers[0](rows))
        result: Tensor = self.layers[1](functional.relu(normed))
        return result


def xavier_linear(input_dim: int, dim: int) -> nn.Linear:
    """Return a linear layer with weights uniform in ±sqrt(6 / (in + out)) and zero bias."""
    layer = nn.Linear(input_dim, dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Centering(BatchStatistics, nn.Module):
    """Subtract the mean embedding and scale to unit norm again.

    Training subtracts the batch's mean and moves a running mean towards it by `MOMENTUM`. Evaluation subtracts the
    running mean, so that an embedding never depends on its batch. A training batch of one uses the running mean too:
    its own would leave the zero vector.

    It sits after the encoder, on unit vectors: the mean then weighs every sample alike, and the running mean
    stays comparable while the scale of the un-normalised embeddings drifts during training.
    """

    running_mean: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(dim))

    def forward(self, embeddings: Tensor, batches: Sequence[int] | None = None) -> Tensor:
        """Centre unit vectors (B, dim) → (B, dim) unit norm; in training by the mean of each of `batches`, in order."""
        if self.training and batches is not None:
            return torch.cat([self._centred(part) for part in torch.split(embeddings, list(batches))])
        return self._centred(embeddings)

    def _centred(self, embeddings: Tensor) -> Tensor:
        mean = self.running_mean
        if self.training and (self.processes.count > 1 or len(embeddings) > 1):
            mean = self._batch_mean(embeddings)
            self.running_mean.lerp_(mean.detach(), MOMENTUM)
        return unit_norm(embeddings - mean)

    def _batch_mean(self, embeddings: Tensor) -> Tensor:
        if self.processes.count == 1:
            return embeddings.mean(0)
        here = torch.cat([embeddings.sum(0), embeddings.new_full((1,), len(embeddings))])
        total, count = torch.split(self.over_batch(here), [embeddings.shape[1], 1])
        return total / count
