"""Processes that train one run together: which rows are whose, and how what one computes becomes everybody's.

All processes see the same batches and hold the same weights. Encoders, and the similarity of backbones that compare
regions with words, are computed by rows: each process has its share (`rows`), and then all have all (`gather`). What
follows, losses above all, every process computes from the same numbers. So hardest negatives and softmaxes see the
whole batch, and a method knows nothing of processes.

Gradients: where rows are shared out, each process has the gradient of its own rows, times the number of processes;
where nothing is, each has the whole gradient. The mean over the processes is the gradient of one process in both cases,
and it is what DistributedDataParallel takes. `gather`, `enter` and `sum` keep to this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from in2r.errors import InputError

T = TypeVar("T")


class EndedElsewhereError(Exception):
    """Another process of the run has said why all of them end."""


@dataclass(frozen=True)
class Processes:
    """A process among those that train one run.

    Attributes:
        number: its number, 0 to count - 1; the first one alone writes files.
        count: how many there are; with one, nothing is shared out and nothing is sent.
        local: its number on this machine, which is also that of its CUDA device.
        host: the processes' group for values on the CPU; None = the default group.
    """

    number: int = 0
    count: int = 1
    local: int = 0
    host: Any = None

    @property
    def first(self) -> bool:
        """Whether this process writes the run's files and shows its progress."""
        return self.number == 0

    # --- rows

    def rows(self, total: int, number: int | None = None) -> slice:
        """Return which of `total` rows are those of this process, or of another one; numbers differ by 1 at most."""
        number = self.number if number is None else number
        return slice(total * number // self.count, total * (number + 1) // self.count)

    def share(self, total: int) -> bool:
        """Say whether so many rows are shared out: where there are fewer than processes, each computes all of them."""
        return 1 < self.count <= total

    def gather(self, own: Tensor, totals: Sequence[int]) -> Tensor:
        """Return everybody's rows, in order, differentiably.

        Args:
            own: (n, ...) rows of this process: of each group of rows, in order, its share.
            totals: how many rows each group has.

        Returns:
            (sum of totals, ...), the same on every process.
        """
        sizes = [[_length(self.rows(total, number)) for total in totals] for number in range(self.count)]
        gathered: Tensor = _Gather.apply(own, [sum(each) for each in sizes], self)  # type: ignore[no-untyped-call]
        if len(totals) == 1:
            return gathered
        pieces = torch.split(gathered, [size for each in sizes for size in each])
        return torch.cat([piece for group in range(len(totals)) for piece in pieces[group :: len(totals)]])

    def enter(self, whole: Tensor) -> Tensor:
        """Return what every process has, for a computation whose rows are shared out."""
        entered: Tensor = _Enter.apply(whole, self)  # type: ignore[no-untyped-call]
        return entered

    def sum(self, own: Tensor) -> Tensor:
        """Return the sum over the processes, differentiably, where rows are shared out."""
        total: Tensor = _Sum.apply(own)  # type: ignore[no-untyped-call]
        return total

    def mean(self, own: Tensor) -> Tensor:
        """Return the mean over the processes, without gradient."""
        total = own.detach().clone()
        dist.all_reduce(total)
        return total / self.count

    def maximum(self, own: Tensor) -> Tensor:
        """Return the largest of each entry over the processes."""
        found = own.clone()
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    # --- what is not a tensor

    def largest(self, *numbers: int) -> list[int]:
        """Return the largest of each number over the processes."""
        if self.count == 1:
            return list(numbers)
        found = torch.tensor(numbers)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.host)
        return [int(number) for number in found]

    def send(self, value: T | None) -> T:
        """Return the first process's plain value on every process; the others give None."""
        if self.count == 1:
            assert value is not None
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.host)
        assert box[0] is not None
        return box[0]

    def send_tensor(self, tensor: Tensor) -> None:
        """Overwrite a tensor by the first process's; as bytes, because gloo does not know every type."""
        if not tensor.numel():
            return
        sent = tensor.detach().contiguous()
        dist.broadcast(sent.view(-1).view(torch.uint8), src=0, group=self.host if tensor.device.type == "cpu" else None)
        if not tensor.is_contiguous():
            tensor.detach().copy_(sent)

    def together(self, make: Callable[[], T]) -> T:
        """Return what `make` returns; where it fails on one process, all end, and one of them says why.

        Raises:
            InputError: on the first process: its own mistake, or another one's with its number.
            EndedElsewhereError: on the others.
        """
        if self.count == 1:
            return make()
        made, fault = None, None
        try:
            made = make()
        except InputError as error:
            fault = str(error)
        faults: list[str | None] = [None] * self.count
        dist.all_gather_object(faults, fault, group=self.host)
        said = [(number, text) for number, text in enumerate(faults) if text is not None]
        if said:
            number, text = said[0]
            if not self.first:
                raise EndedElsewhereError
            raise InputError(text if number == 0 else f"process {number}: {text}")
        return made  # type: ignore[return-value]


ALONE = Processes()
"""one process, which computes everything"""


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)


class _Gather(Function):
    """Rows of each process → the rows of all, each process's below those of the one before."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, sizes: list[int], processes: Processes) -> Tensor:
        """Gather rows (n, ...) of which each process has as many as `sizes` says."""
        ctx.sizes, ctx.processes = sizes, processes
        most = max(sizes)
        sent = own.detach()
        if sent.dtype == torch.bool:
            sent = sent.to(torch.uint8)
        if len(sent) < most:
            sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
        found = [torch.empty_like(sent) for _ in sizes]
        dist.all_gather(found, sent.contiguous())
        return torch.cat([rows[:size] for rows, size in zip(found, sizes, strict=True)]).to(own.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the own rows, times the number of processes."""
        start = sum(ctx.sizes[: ctx.processes.number])
        return grad[start : start + ctx.sizes[ctx.processes.number]] * ctx.processes.count, None, None


class _Enter(Function):
    """The identity; its gradient is the mean of what the processes have."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, processes: Processes) -> Tensor:
        """Return the same values."""
        ctx.processes = processes
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the mean over the processes."""
        return ctx.processes.mean(grad.contiguous()), None


class _Sum(Function):
    """The sum over the processes, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        """Sum a tensor of the same shape on every process."""
        total = own.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Sum the gradients."""
        total = grad.clone()
        dist.all_reduce(total)
        return total
