"""One iteration of one network: batches, losses, optimiser steps, what is kept."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from in2r.errors import MethodError
from in2r.methods import Batch, Division, Method, Net, Now, Step, warmup_of
from in2r.processes import Processes
from in2r.runs.settings import RunConfig
from in2r.seeds import derive, torch_generator
from in2r.training.health import Means, Truth, gradient_norms, record_step
from in2r.training.order import EpochOrder
from in2r.training.pairs import TrainingData
from in2r.training.returned import require_step, require_steps


@dataclass(frozen=True)
class Learner:
    """What the steps of a run have in common.

    Attributes:
        method: makes the losses.
        data: the training pairs.
        config: the run's settings.
        columns: name → (N, ...), the method's fixed columns.
        truth: of injected noise, for the record and for `noise.hide_original`; None where none was injected.
        averaged: network → what a loss is passed through, so that its backward pass takes the mean of the gradients of
            all processes; empty where there is one.
    """

    method: Method
    data: TrainingData
    config: RunConfig
    columns: Mapping[str, Tensor]
    truth: Truth | None
    averaged: Mapping[str, nn.Module] = field(default_factory=dict)

    def iterate(
        self,
        nets: tuple[Net, Net],
        optimizers: Mapping[str, torch.optim.Optimizer],
        order: EpochOrder,
        division: Division | None,
        now: Now,
        where: tuple[str, int, int],
        means: Means,
    ) -> Tensor:
        """Make all optimiser steps of one iteration.

        Args:
            nets: the network that is trained, and its peer, which is only read.
            optimizers: of the network.
            order: which pairs it sees.
            division: what it trains on; None in the warm-up.
            now: epoch, step and network, as the method gets them.
            where: network, epoch of the run and iteration: what the draws depend on.
            means: of the epoch.

        Returns:
            A scalar that is finite if all losses and gradients are.
        """
        net, peer = nets
        torch.manual_seed(derive(self.config.train.seed, "dropout", *where))
        batches = Batches(self, order, division, where)
        finite: list[Tensor] = []
        for found in self._steps(net, peer, batches, division, now):
            step = require_step(found, optimizers, self.method.config.name)
            if where[2] == 0 and step.of == "net":  # once an epoch: the size of a loss does not show its influence
                for loss, part in gradient_norms(net.backbone, step, net.processes).items():
                    means.add(f"gradient_norm_{loss}_{where[0]}", part)
            clip = self.config.train.gradient_clip
            norm = descend(net, optimizers[step.of], step, clip, self.averaged.get(where[0]))
            if norm is not None:
                means.add(f"gradient_norm_{where[0]}", norm)
            record_step(means, where[0], step, self.truth)
            # 0 * norm: a gradient that is not finite is found by the same look
            finite.append(step.losses["total"].detach() + (0 if norm is None else 0 * norm))
        if not finite:
            raise MethodError(f"method {self.method.config.name}: steps() yielded no step")
        return torch.stack(finite).sum()

    def _steps(self, net: Net, peer: Net, batches: "Batches", division: Division | None, now: Now) -> Iterator[Step]:
        """Yield the warm-up's step where the pairs are one group, else the method's steps."""
        _, warmup = warmup_of(self.method) if division is None else self.method.warmup()
        if warmup is not None and (division is None or not division.split):
            yield warmup.step(net, batches[self.method.sets[0].name])
        else:
            yield from require_steps(self.method.steps(net, peer, batches, now), self.method.config.name)


class Batches(Mapping[str, Batch]):
    """The batches of one iteration, by set; each is gathered when it is first asked for."""

    def __init__(
        self, learner: Learner, order: EpochOrder, division: Division | None, where: tuple[str, int, int]
    ) -> None:
        self._learner = learner
        found = {walk.name: order.batch(walk.name, where[2]) for walk in learner.method.sets}
        self._pairs = {name: pairs for name, pairs in found.items() if pairs is not None}
        self._images = None if division is None else division.images
        self._columns = {**learner.columns, **(division.columns if division is not None else {})}
        self._generator = torch_generator(learner.config.train.seed, "augmentation", *where)
        self._made: dict[str, Batch] = {}

    def __getitem__(self, name: str) -> Batch:
        if name not in self._made:
            self._made[name] = self._gather(self._pairs[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def _gather(self, pairs: Tensor) -> Batch:
        batch = self._learner.data.batch(pairs, self._generator, self._columns, self._images)
        if self._learner.config.noise.hide_original:
            assert self._learner.truth is not None
            batch = replace(batch, hidden=self._learner.truth.hidden(batch))
        return batch


class _Loss(nn.Module):
    """Hands a loss on; around it, DistributedDataParallel finds the weights that it depends on."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        # the weights alone: buffers, such as memories, would be sent in each step
        self.weights = nn.ParameterList([weight for weight in net.parameters() if weight.requires_grad])
        self.unused = nn.Parameter(torch.zeros(()))  # where every weight is used, it would warn that it looked in vain

    def forward(self, loss: Tensor) -> Tensor:
        """Return the loss."""
        return loss


def averaged_over(processes: Processes, nets: Mapping[str, Net]) -> dict[str, nn.Module]:
    """Return `Learner.averaged`; the networks then start with the first process's weights on all of them.

    A step may depend on some of the weights only, such as a method's own network.
    """
    if processes.count == 1:
        return {}
    return {name: DistributedDataParallel(_Loss(net), find_unused_parameters=True) for name, net in nets.items()}


def descend(
    net: Net, optimizer: torch.optim.Optimizer, step: Step, clip: float, averaged: nn.Module | None = None
) -> Tensor | None:
    """Take one step down the total loss.

    Args:
        net: the network.
        optimizer: takes it.
        step: the losses.
        clip: the largest norm of the gradient.
        averaged: of `Learner.averaged`; None = the gradient is this process's.

    Returns:
        The gradient's norm before clipping; None of an optimiser of the method's own, whose gradient is not clipped.
    """
    optimizer.zero_grad(set_to_none=True)
    total = step.losses["total"]
    (total if averaged is None else averaged(total)).backward()
    norm = None
    if step.of == "net":
        norm = torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
    optimizer.step()
    net.cost.steps += 1
    step.after()
    return norm
