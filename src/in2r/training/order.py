"""Which pairs a step sees: a pure function of seed, network, epoch and step; nothing need be saved."""

import torch
from torch import Tensor

from in2r.seeds import torch_generator


class EpochOrder:
    """The batches of one network in one epoch.

    Args:
        clean: (n,) pair ids that are passed over once, in a fresh order.
        noisy: (m,) pair ids that are cycled beside them, reshuffled at each turn; what does not fill a batch is left
            out of that turn, so that no pair is twice in a batch.
        batch_size: pairs in a batch; the noisy batch is smaller where the noisy set is.
        seed: the run's seed.
        names: what tells this order from others (network, epoch).
    """

    def __init__(self, clean: Tensor, noisy: Tensor, batch_size: int, seed: int, *names: str | int) -> None:
        self.batch_size = batch_size
        self._noisy = self._shuffled = noisy
        self._turn = -1
        self._seed, self._names = seed, names
        generator = torch_generator(seed, "clean order", *names)
        self._clean = clean[torch.randperm(len(clean), generator=generator)]

    def __len__(self) -> int:
        """Count the steps; a last batch of one pair is left out: it has no negative and no statistics."""
        full, rest = divmod(len(self._clean), self.batch_size)
        return full + (rest > 1)

    @property
    def left_out(self) -> int:
        """Pairs of this epoch's clean set that no batch holds (0 or 1)."""
        return int(len(self._clean) % self.batch_size == 1)

    def clean(self, step: int) -> Tensor:
        """Return the pair ids of the step's clean batch."""
        return self._clean[step * self.batch_size : (step + 1) * self.batch_size]

    def noisy(self, step: int) -> Tensor | None:
        """Return the pair ids of the step's noisy batch; None when there are fewer than two noisy pairs."""
        size = min(self.batch_size, len(self._noisy))
        if size < 2:
            return None
        turn, index = divmod(step, len(self._noisy) // size)
        if turn != self._turn:
            generator = torch_generator(self._seed, "noisy order", *self._names, turn)
            self._shuffled = self._noisy[torch.randperm(len(self._noisy), generator=generator)]
            self._turn = turn
        return self._shuffled[index * size : (index + 1) * size]
