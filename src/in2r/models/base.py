"""What a backbone is: one side of a batch encoded to `Items`, and the similarity of images and texts in blocks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from in2r.processes import Processes


@dataclass(frozen=True)
class Items:
    """n images or n texts, encoded.

    Attributes:
        vector: (n, D) unit norm. A dual encoder's embedding; of an interaction backbone the global vector, which
            memories, indexes and comparisons inside one modality use.
        parts: (n, K, D) unit norm, the regions or words that an interaction backbone compares; None for a dual encoder.
        mask: (n, K) bool on the device of `parts`, True = a real part; None = all are real.
    """

    vector: Tensor
    parts: Tensor | None = None
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vector)

    def __getitem__(self, rows: Tensor | slice) -> "Items":
        """Return the items at `rows`, (k,) int64 on the device or a slice; without waiting for the device."""
        return self._each(lambda tensor: tensor[rows])

    def put(self, rows: Tensor, other: "Items") -> "Items":
        """Return a copy in which the items at `rows` (k,) are those of `other`, padded to one number of parts."""
        one, two = _to_one_length([self, other])
        return Items(*(_put(mine, rows, its) for mine, its in zip(one, two, strict=True)))  # type: ignore[arg-type]

    def detach(self) -> "Items":
        """Return the same items without gradient."""
        return self._each(Tensor.detach)

    def to(self, device: torch.device) -> "Items":
        """Return the same items on another device."""
        return self._each(lambda tensor: tensor.to(device))

    def split(self, sizes: Sequence[int]) -> list["Items"]:
        """Cut the items, in order, into groups of these sizes."""
        columns = [[None] * len(sizes) if part is None else torch.split(part, list(sizes)) for part in self._tensors]
        return [Items(*group) for group in zip(*columns, strict=True)]

    @staticmethod
    def cat(items: Sequence["Items"]) -> "Items":
        """Put items below each other, padded to one number of parts."""
        columns = zip(*_to_one_length(items), strict=True)
        return Items(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]

    def over(self, processes: Processes, totals: Sequence[int]) -> "Items":
        """Return everybody's items, of rows that are shared out among processes in groups of `totals`."""
        parts, mask = self.parts, self.mask
        if parts is not None:
            longest, shortest, masked = processes.largest(parts.shape[1], -parts.shape[1], mask is not None)
            missing = longest - parts.shape[1]
            if masked or longest > -shortest:
                mask = parts.new_ones(parts.shape[:2], dtype=torch.bool) if mask is None else mask
                mask = processes.gather(nn.functional.pad(mask, (0, missing)), totals)
            parts = processes.gather(nn.functional.pad(parts, (0, 0, 0, missing)), totals)
        return Items(processes.gather(self.vector, totals), parts, mask)

    def entered(self, processes: Processes) -> "Items":
        """Return the same items, for a computation whose rows are shared out among processes."""
        parts = None if self.parts is None else processes.enter(self.parts)
        return Items(processes.enter(self.vector), parts, self.mask)

    @property
    def _tensors(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return self.vector, self.parts, self.mask

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Items":
        return Items(*(None if tensor is None else change(tensor) for tensor in self._tensors))  # type: ignore[arg-type]


def _put(mine: Tensor | None, rows: Tensor, its: Tensor | None) -> Tensor | None:
    return None if mine is None or its is None else mine.index_copy(0, rows, its)


def _to_one_length(items: Sequence[Items]) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Return vector, parts, mask of each; all parts padded with zeros to the largest K, all masks there or none."""
    if items[0].parts is None:
        return [(one.vector, None, None) for one in items]
    parts = [one.parts for one in items if one.parts is not None]
    longest = max(part.shape[1] for part in parts)
    masked = any(one.mask is not None or part.shape[1] < longest for one, part in zip(items, parts, strict=True))
    found: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
    for one, part in zip(items, parts, strict=True):
        missing = longest - part.shape[1]
        mask = part.new_ones(part.shape[:2], dtype=torch.bool) if one.mask is None else one.mask
        padded = nn.functional.pad(part, (0, 0, 0, missing)), nn.functional.pad(mask, (0, missing))
        found.append((one.vector, padded[0], padded[1] if masked else None))
    return found


class Backbone(nn.Module):
    """Encodes both sides and scores blocks of them; the part of a network that is exported.

    Attributes:
        interacts: False: S is the inner product of two vectors (a dual encoder), so that one index serves a search.
            True: S is a function of regions and words, computed for every block.
        bounded: True: S = sigmoid(logits) in (0, 1); False: S = logits, a cosine in [-1, 1], or what SCAN pools of
            cosines.
        embeds: False: `Items.vector` is the mean of the parts, and no similarity is learnt by it.
        dim: D, of `Items.vector`.
        precision: of the encoders' products in training; None = float32. What leaves the encoders is float32 always.
    """

    interacts: ClassVar[bool] = False
    bounded: ClassVar[bool] = False
    embeds: ClassVar[bool] = True
    dim: int
    precision: torch.dtype | None = None

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode images as `Features.gather` gives them.

        Args:
            values: (B, R, d) float32 on the device.
            mask: (B, R) bool on the CPU, True = a real region; None = all are real.
            batches: how many of the images, in order, share batch statistics in training; None = all.
        """
        raise NotImplementedError

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode texts as `gather` gives them: word ids (B, L) int64 or caption vectors (B, 1, d); otherwise alike."""
        raise NotImplementedError

    def logits(self, images: Items, texts: Items) -> Tensor:
        """Return (n, m): the cosine, what SCAN pools of cosines, or the value before the sigmoid where `bounded`."""
        raise NotImplementedError

    def relate_by_place(self, items: Items) -> Tensor:
        """Return how alike items of one side are, (n, n), on the scale of `logits`: parts compared place by place.

        Padded places count as parts of zeros. Without parts: the cosine of the vectors.
        """
        return items.vector @ items.vector.T

    def relate_by_attention(self, items: Items) -> Tensor:
        """Return the same with each part of a column's item compared with what it attends to among the row's parts."""
        return items.vector @ items.vector.T

    def pair_bytes(self, words: int) -> int:
        """Return the memory in bytes that `logits` needs per image-caption pair, without gradient.

        Args:
            words: K of the texts' parts; 0 where they have none.
        """
        return 4

    def score(self, images: Items, texts: Items) -> Tensor:
        """Return S (n, m), images × texts, in float32."""
        return self.squash(self.logits(images, texts))

    def squash(self, logits: Tensor) -> Tensor:
        """Return S of logits of any shape."""
        return logits.sigmoid() if self.bounded else logits

    def lowered(self, values: Tensor) -> AbstractContextManager[object]:
        """Return the context in which the encoders' products have the precision of training."""
        return nullcontext() if self.precision is None else torch.autocast(values.device.type, self.precision)
