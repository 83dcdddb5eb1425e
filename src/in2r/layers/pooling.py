"""From a set of features to one: the generalised pooling operator of VSE∞ (Chen et al., CVPR 2021), or the mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.layers.recurrence import bi_gru, pack
from in2r.transfer import at_least_float32, full_precision, send

LOWEST = -1e30
"""Stands in padded entries, so that they sort to the end; finite, since zero times infinity is not zero."""

SPARE_BITS = 29
"""of a double that holds a float32: 52 bits after the point less 23"""
NOTHING = 2.0**-300
"""Changes no float32 but zero, which would hold its place as a subnormal double; some processes flush those."""


class GPO(nn.Module):
    """Pool a set by sorting each feature over the set and taking one weighted sum for all features.

    pooled_d = Σ_k θ_k · sort_desc(x_{·,d})_k with θ = softmax(linear(BiGRU(position codes)) / temperature).
    θ depends on the set's size only, so it is computed once per size that occurs in a batch.

    Args:
        position_dim: Width of the sinusoidal position code, even.
        hidden_dim: GRU width per direction; the two directions are averaged.
        temperature: Divides the scores before the softmax, > 0.

    Raises:
        ValueError: an odd width of the code, or a temperature that is not positive.
    """

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        if position_dim % 2 or temperature <= 0:
            raise ValueError(f"GPO: position_dim must be even, temperature > 0; got {position_dim}, {temperature}")
        self.position_dim = position_dim
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Pool sets whose valid entries come first.

        Args:
            features: (batch, K, dim).
            lengths: (batch,) valid entries of each set, 1..K; None when all K are valid.

        Returns:
            Pooled features (batch, dim) and the weights (batch, K), zero beyond each length.
        """
        mask = None
        if lengths is not None:
            mask = torch.arange(features.shape[1], device=features.device) < lengths[:, None]
        return self.pool(features, mask), self.set_weights(features.shape[1], mask).expand(len(features), -1)

    def pool(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool sets with any pattern of valid entries; an empty set pools to zero.

        Args:
            features: (batch, K, dim), finite; what stands in invalid entries has no influence.
            mask: (batch, K) bool, True = valid, best on the CPU; None when all are valid.

        Returns:
            (batch, dim).
        """
        if mask is not None:
            features = at_least_float32(features).masked_fill(~send(mask, features.device)[..., None], LOWEST)
        return self.pool_filled(features, mask)

    def pool_filled(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool sets as `pool` does, with `LOWEST` in all invalid entries already."""
        if features.shape[1] == 1:  # a softmax over one position is 1
            return features[:, 0] if mask is None else features[:, 0].masked_fill(~send(mask, features.device), 0.0)
        return _weighted_sort(features, mask, self.set_weights(features.shape[1], mask))

    def set_weights(self, entries: int, mask: Tensor | None = None) -> Tensor:
        """Return the weights (batch or 1, entries) of sets whose sizes are the row sums of the mask.

        Each set's weights sum to 1 over its size and are zero beyond; an empty set has those of a set of one.
        """
        if mask is None:
            return self._weights([entries])
        sizes, row = mask.cpu().sum(1).clamp(min=1).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        # only the sizes that occur: all sizes up to 577 grid cells would take a minute
        rows = self._weights(sizes.tolist())
        return functional.pad(rows, (0, entries - rows.shape[1]))[send(row, rows.device)]

    def _weights(self, sizes: Sequence[int]) -> Tensor:
        """Return the weights (len(sizes), sizes[-1]) of ascending sizes."""
        mask = torch.arange(sizes[-1]) < torch.tensor(sizes)[:, None]
        packing = pack(mask)
        device = self.linear.weight.device
        code = _position_code(sizes[-1], self.position_dim, self.linear.weight)
        with full_precision(device):  # divided by the temperature, errors are tenfold
            states = bi_gru(self.gru, code.index_select(0, send(packing.first % sizes[-1], device)), packing)
            found = at_least_float32(self.linear(states)).squeeze(1)
        score = found.new_full((mask.numel(),), -torch.inf).index_copy(0, send(packing.entries, device), found)
        return torch.softmax(score.view(mask.shape) / self.temperature, dim=-1)


def _position_code(length: int, dim: int, like: Tensor) -> Tensor:
    """Return PE[k, 2j] = sin(k ω_j), PE[k, 2j+1] = cos(k ω_j), ω_j = 10000^(-2j/dim), as (length, dim)."""
    position = torch.arange(length, dtype=torch.float32, device=like.device)
    frequency = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float32, device=like.device) / dim)
    angle = position[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(like.dtype)


class MeanPool(nn.Module):
    """Pool a set by the mean of its valid entries: what GPO is where all its weights are equal."""

    def pool_filled(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool sets (batch, K, dim) to (batch, dim); an empty set pools to zero.

        Args:
            features: finite; what stands in invalid entries has no influence.
            mask: (batch, K) bool, True = valid, best on the CPU; None when all are valid.
        """
        return masked_mean(features, mask)


def masked_mean(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean (batch, dim) of each set's valid entries; arguments as `MeanPool.pool_filled`."""
    if mask is None:
        return features.mean(1)
    mask = send(mask, features.device)
    return features.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class _SortedSum(torch.autograd.Function):
    """Σ_k weights_k · (k-th smallest of a column): one pass each way, nothing kept but the sorted columns."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, weights: Tensor) -> Tensor:
        """Sort columns (B, dim, K) and weigh them by (B, K); a weight of zero hides its entry."""
        rising, place = _sort(columns)
        ctx.save_for_backward(rising, place, weights)
        return torch.bmm(rising, weights[..., None]).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Send each entry its weight's share, and each weight what it multiplied."""
        rising, place, weights = ctx.saved_tensors
        shares = torch.empty_like(rising).scatter_(-1, place, grad[..., None] * weights[:, None])
        return shares, torch.bmm(grad[:, None], rising).squeeze(1)


def _sort(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return finite columns (B, dim, K) in rising order, and the place that each entry had."""
    if columns.device.type != "cpu" or columns.dtype != torch.float32:
        return columns.sort(dim=-1)
    # A third of the time at K = 36: NumPy sorts numbers alone, but fast. The last 29 bits of a double, which are zero
    # where it was a float32, hold the place, and are too small to change what it rounds to.
    tagged = columns.double().add_(NOTHING)
    bits = tagged.view(torch.int64)
    bits |= torch.arange(columns.shape[-1])
    tagged.numpy().sort()
    return tagged.float(), bits.bitwise_and_(2**SPARE_BITS - 1)


def _weighted_sort(features: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:
    """Return per feature Σ_k weights_k · (k-th largest valid entry), with weights (batch or 1, K); invalid = LOWEST."""
    columns = at_least_float32(features.transpose(1, 2))
    precision = torch.promote_types(columns.dtype, weights.dtype)
    columns = columns.to(precision).contiguous()  # twice as fast to sort at K = 36
    weights = weights.to(precision).expand(len(columns), -1)
    if mask is not None:
        mask = send(mask, columns.device)
        beyond = torch.arange(mask.shape[1], device=mask.device) >= mask.sum(1, keepdim=True)
        weights = weights.masked_fill(beyond, 0.0)  # for the gradient too: the fill must not reach the softmax
    weights = weights.flip(1)  # of rising values
    with full_precision(columns.device):
        if columns.device.type == "cpu" and not torch.is_grad_enabled():
            rising = torch.from_numpy(np.sort(columns.numpy()))  # the values alone: faster still
            return torch.bmm(rising, weights[..., None]).squeeze(-1)
        pooled: Tensor = _SortedSum.apply(columns, weights)  # type: ignore[no-untyped-call]
        return pooled
