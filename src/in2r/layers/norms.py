"""BatchNorm for rows and for regions: no row that is padding counts, and a batch of one is no error.

Where several processes share out a batch, its statistics are those of all its rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.processes import ALONE, Processes
from in2r.transfer import at_least_float32


class BatchStatistics:
    """A layer whose training depends on the whole batch.

    Attributes:
        processes: the processes that share out the present batch; `ALONE` where all of it is here.
    """

    processes: Processes = ALONE

    def over_batch(self, own: Tensor) -> Tensor:
        """Return the sum over the batch of what is a sum over the rows that are here."""
        return own if self.processes.count == 1 else self.processes.sum(own)


@contextmanager
def shared_out(module: nn.Module, processes: Processes) -> Iterator[None]:
    """Take the statistics of a module's layers over the rows of all processes, within the block."""
    layers = [layer for layer in module.modules() if isinstance(layer, BatchStatistics)]
    for layer in layers:
        layer.processes = processes
    try:
        yield
    finally:
        for layer in layers:
            layer.processes = ALONE


class RowNorm(BatchStatistics, nn.BatchNorm1d):
    """BatchNorm that uses its running statistics for a single training row, which has no variance."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def forward(self, rows: Tensor) -> Tensor:
        """Normalise rows (n, channels)."""
        if self.training and self.processes.count > 1:
            return self._of_all(rows)
        if self.training and len(rows) == 1:
            stats = (self.running_mean, self.running_var, self.weight, self.bias)
            return functional.batch_norm(rows, *stats, eps=self.eps)
        return super().forward(rows)

    def _of_all(self, rows: Tensor) -> Tensor:
        """Normalise the rows that are here by the statistics of those on all processes, at least two."""
        values = at_least_float32(rows)
        here = torch.cat([values.sum(0), values.new_full((1,), len(values))])
        total, count = torch.split(self.over_batch(here), [values.shape[1], 1])
        mean = total / count
        variance = self.over_batch((values - mean).square().sum(0)) / count
        with torch.no_grad():  # `data`: as in PyTorch's own, a graph that has kept the statistics before stays valid
            self.running_mean.data.lerp_(mean, self.momentum)
            self.running_var.data.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked.add_(1)
        return ((values - mean) * (self.weight * torch.rsqrt(variance + self.eps)) + self.bias).to(rows.dtype)


class RegionNorm(BatchStatistics, nn.BatchNorm1d):
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
        count = self.over_batch(real.sum(0)) * values.shape[2]
        mean = self.over_batch((values.sum(2) * real).sum(0)) / count.clamp(min=1)
        centred = values - mean[:, None]
        variance = self.over_batch((centred.square().sum(2) * real).sum(0)) / count.clamp(min=1)
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
