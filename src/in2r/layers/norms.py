"""BatchNorm for rows and for regions: no row that is padding counts, and a batch of one is no error."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.transfer import at_least_float32


class RowNorm(nn.BatchNorm1d):
    """BatchNorm that uses its running statistics for a single training row, which has no variance."""

    def forward(self, rows: Tensor) -> Tensor:
        """Normalise rows (n, channels)."""
        if self.training and len(rows) == 1:
            stats = (self.running_mean, self.running_var, self.weight, self.bias)
            return functional.batch_norm(rows, *stats, eps=self.eps)
        return super().forward(rows)


class RegionNorm(nn.BatchNorm1d):
    """BatchNorm of images whose channels are the regions: channel r has one mean and variance over images and features.

    An image without region r does not count in channel r. A channel that no image of the batch has keeps its running
    statistics.

    Args:
        regions: R, the number of channels.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float

    def __init__(self, regions: int) -> None:
        super().__init__(regions)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise (B, R, D) in at least float32; `mask` (B, R) bool on their device, True = real, None = all."""
        values = at_least_float32(values)
        if not self.training:
            return super().forward(values)
        real = torch.ones_like(values[..., 0]) if mask is None else mask.to(values.dtype)
        count = real.sum(0) * values.shape[2]
        mean = (values.sum(2) * real).sum(0) / count.clamp(min=1)
        centred = values - mean[:, None]
        variance = (centred.square().sum(2) * real).sum(0) / count.clamp(min=1)
        with torch.no_grad():
            step = self.momentum * (count > 0).to(values.dtype)
            self.running_mean.lerp_(mean, step)
            self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), step)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return centred * scale[:, None] + self.bias[:, None]


def per_batch(norm: nn.Module, batches: Sequence[int] | None, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Apply a norm, in training to each of the batches that stand below each other, in order.

    Args:
        norm: called with (values,) or, where there is a mask, with (values, mask).
        batches: how many rows of `values`, in order, share statistics; None = all.
        values: (B, ...).
        mask: (B, ...), or None.
    """
    given = [values] if mask is None else [values, mask]
    if not norm.training or batches is None:
        result: Tensor = norm(*given)
        return result
    parts = zip(*(torch.split(tensor, list(batches)) for tensor in given), strict=True)
    return torch.cat([norm(*part) for part in parts])
