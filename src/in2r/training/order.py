"""Which pairs a step sees: a pure function of seed, network, epoch and step; nothing of it must be saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.methods import Walk
from in2r.seeds import torch_generator

DRIVING = "clean order"
"""purpose of the draws that order the driving set, whatever its name"""


@dataclass(frozen=True)
class Batching:
    """What a batch is made of."""

    size: int
    """pairs in a batch, or images where it is made of images"""
    image_of_pair: Tensor | None = None
    """(N,) int64 on the CPU; None: a batch is made of pairs. Else it is made of images, each with some of its pairs"""
    captions: int = 1
    """pairs of an image in a batch, at most"""
    weights: Tensor | None = None
    """(N,) not negative: an image's pairs are drawn without replacement by these weights; None: by equal ones"""

    def draw(self, pairs: Tensor, generator: torch.Generator) -> "Drawn":
        """Put a set (n,) of pair ids into a fresh order.

        Where batches are of images, an image's pairs are those of the largest log w + G, with G of the Gumbel
        distribution: so they are drawn one after the other with chances that are proportional to w.
        """
        if self.image_of_pair is None:
            return Drawn(pairs[torch.randperm(len(pairs), generator=generator)])
        uniform = torch.rand(len(pairs), generator=generator).clamp(min=torch.finfo(torch.float32).tiny)
        chances = -torch.log(-torch.log(uniform))
        if self.weights is not None:
            chances = chances + self.weights[pairs].log()
        pairs = pairs[torch.argsort(chances, descending=True, stable=True)]
        images, place = torch.unique(self.image_of_pair[pairs], return_inverse=True)
        place = torch.randperm(len(images), generator=generator)[place]
        order = torch.argsort(place, stable=True)
        counts = torch.bincount(place, minlength=len(images))
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(pairs)) - starts.repeat_interleave(counts)
        kept = rank < self.captions
        ends = counts.clamp(max=self.captions).cumsum(0)
        return Drawn(pairs[order][kept], torch.cat([ends.new_zeros(1), ends]))


@dataclass(frozen=True)
class Drawn:
    """A set in the order in which it is passed over."""

    pairs: Tensor
    """(m,) int64"""
    starts: Tensor | None = None
    """(units + 1,) int64: where each image's pairs begin; at last m. None: every pair is a unit"""

    def __len__(self) -> int:
        return len(self.pairs) if self.starts is None else len(self.starts) - 1

    def start(self, unit: int) -> int:
        """Return where the pairs of a unit begin; m after the last one."""
        unit = min(unit, len(self))
        return unit if self.starts is None else int(self.starts[unit])

    def part(self, index: int, size: int) -> Tensor:
        """Return the pairs of the batch at `index` of batches of `size` pairs or images."""
        return self.pairs[self.start(index * size) : self.start((index + 1) * size)]


class EpochOrder:
    """The batches of one network in one epoch.

    The first set drives the epoch: it is passed over once, in a fresh order. Each other set is cycled beside it and
    reshuffled at each turn. What does not fill a batch is left out of that turn, so that no pair is twice in a batch.

    Args:
        walks: how each set is passed over.
        sets: name → (n,) pair ids.
        batching: what a batch is made of; that of a set beside the first is smaller where the set is.
        seed: the run's seed.
        names: what tells this order from others (network, epoch).
    """

    def __init__(
        self, walks: Sequence[Walk], sets: Mapping[str, Tensor], batching: Batching, seed: int, *names: str | int
    ) -> None:
        self.size = batching.size
        self.first, *others = walks
        self._others = {walk.name: _Beside(walk, sets[walk.name], batching, seed, *names) for walk in others}
        self._pairs = len(sets[self.first.name])
        self._driving = batching.draw(sets[self.first.name], torch_generator(seed, DRIVING, *names))

    def __len__(self) -> int:
        """Count the steps.

        A last batch of one pair, or of one image, is left out: it has no negative and no statistics. Where only whole
        batches are asked for and there is none, there is one smaller batch.
        """
        full, rest = divmod(len(self._driving), self.size)
        return full + (rest > 1 and (full == 0 or not self.first.whole))

    @property
    def left_out(self) -> int:
        """Pairs of this epoch's driving set that no batch holds."""
        return self._pairs - self._driving.start(len(self) * self.size)

    def batch(self, name: str, step: int) -> Tensor | None:
        """Return the pair ids of a set's batch at a step; None where it has none."""
        if name == self.first.name:
            return self._driving.part(step, self.size)
        return self._others[name].batch(step)


class _Beside:
    """A set that is passed over beside the driving one."""

    def __init__(self, walk: Walk, pairs: Tensor, batching: Batching, seed: int, *names: str | int) -> None:
        self._walk, self._pairs, self._batching = walk, pairs, batching
        self._seed, self._names = seed, names
        of = batching.image_of_pair
        self._units = len(pairs) if of is None else len(torch.unique(of[pairs]))
        self._size = min(batching.size, self._units)
        self._enough = self._size >= (batching.size if walk.whole else 2)
        self._turn: int = -1
        self._drawn: Drawn | None = None

    def batch(self, step: int) -> Tensor | None:
        if not self._enough:
            return None
        turn, index = divmod(step, self._units // self._size)
        if turn and not self._walk.again:
            return None
        if self._drawn is None or turn != self._turn:
            purpose = f"{self._walk.name} order"
            self._drawn = self._batching.draw(self._pairs, torch_generator(self._seed, purpose, *self._names, turn))
            self._turn = turn
        return self._drawn.part(index, self._size)
