"""Which pairs a step sees: a pure function of seed, network, epoch and step; nothing of it must be saved."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from in2r.methods import Walk
from in2r.seeds import torch_generator

DRIVING = "clean order"
"""purpose of the draws that order the driving set, whatever its name"""


class EpochOrder:
    """The batches of one network in one epoch.

    The first set drives the epoch: it is passed over once, in a fresh order. Each other set is cycled beside it and
    reshuffled at each turn. What does not fill a batch is left out of that turn, so that no pair is twice in a batch.

    Args:
        walks: how each set is passed over.
        sets: name → (n,) pair ids.
        batch_size: pairs in a batch; that of a set beside the first is smaller where the set is.
        seed: the run's seed.
        names: what tells this order from others (network, epoch).
    """

    def __init__(
        self, walks: Sequence[Walk], sets: Mapping[str, Tensor], batch_size: int, seed: int, *names: str | int
    ) -> None:
        self.batch_size = batch_size
        self.first, *others = walks
        self._others = {walk.name: _Beside(walk, sets[walk.name], batch_size, seed, *names) for walk in others}
        driving = sets[self.first.name]
        self._driving = driving[torch.randperm(len(driving), generator=torch_generator(seed, DRIVING, *names))]

    def __len__(self) -> int:
        """Count the steps.

        A last batch of one pair is left out: it has no negative and no statistics. Where only whole batches are asked
        for and there is none, there is one smaller batch.
        """
        full, rest = divmod(len(self._driving), self.batch_size)
        return full + (rest > 1 and (full == 0 or not self.first.whole))

    @property
    def left_out(self) -> int:
        """Pairs of this epoch's driving set that no batch holds."""
        return max(0, len(self._driving) - len(self) * self.batch_size)

    def batch(self, name: str, step: int) -> Tensor | None:
        """Return the pair ids of a set's batch at a step; None where it has none."""
        if name == self.first.name:
            return self._driving[step * self.batch_size : (step + 1) * self.batch_size]
        return self._others[name].batch(step)


class _Beside:
    """A set that is passed over beside the driving one."""

    def __init__(self, walk: Walk, pairs: Tensor, batch_size: int, seed: int, *names: str | int) -> None:
        self._walk, self._pairs = walk, pairs
        self._seed, self._names = seed, names
        self._size = min(batch_size, len(pairs))
        self._enough = self._size >= (batch_size if walk.whole else 2)
        self._turn, self._shuffled = -1, pairs

    def batch(self, step: int) -> Tensor | None:
        if not self._enough:
            return None
        turn, index = divmod(step, len(self._pairs) // self._size)
        if turn and not self._walk.again:
            return None
        if turn != self._turn:
            purpose = f"{self._walk.name} order"
            generator = torch_generator(self._seed, purpose, *self._names, turn)
            self._shuffled = self._pairs[torch.randperm(len(self._pairs), generator=generator)]
            self._turn = turn
        return self._shuffled[index * self._size : (index + 1) * self._size]
