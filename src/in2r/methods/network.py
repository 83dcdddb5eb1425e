"""What a method trains: a batch of pairs, a network, and the count of what it costs."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from in2r.errors import MethodError
from in2r.layers.norms import shared_out
from in2r.models.base import Backbone, Items
from in2r.processes import ALONE, Processes
from in2r.seeds import derive
from in2r.transfer import send


@dataclass(frozen=True)
class Batch:
    """B pairs, ready for a backbone: values on the device, what is known of them without it on the CPU."""

    pairs: Tensor
    """(B,) int64, which training pairs these are"""
    groups: Tensor
    """(B,) int64, the image of each pair as given (after any injected noise)"""
    images: Tensor
    """(B, regions, dim) float32; (n, regions, dim) where each of the batch's n images is there once, see `owner`; of
    `image_rows` rows that several processes share out, only those of this one"""
    image_mask: Tensor | None
    """of `images`: bool on the CPU, None = all are real"""
    texts: Tensor
    """(B, tokens) int64 word ids, or (B, 1, dim) float32 caption vectors"""
    text_mask: Tensor | None
    """(B, tokens) bool on the CPU, None = all are real"""
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """name → (B, ...) on the CPU: the pairs' rows of `Division.columns` and of `Method.fixed_columns`"""
    hidden: Mapping[str, tuple[Tensor, Tensor]] | None = None
    """"image" and "text" → groups (B,) and pairs (B, n) that such a query may not find (negative = none); only with
    `noise.hide_original`, an analysis that uses the truth"""
    owner: Tensor | None = None
    """(B,) int64, which row of `images` is each pair's image; None: there is a row for each pair"""
    first: Tensor | None = None
    """(n,) int64, a pair of each row of `images`; None where `owner` is"""
    image_rows: int | None = None
    """how many rows `images` has on all processes together; None: all of them are here"""

    def __len__(self) -> int:
        return len(self.pairs)

    def column(self, name: str) -> Tensor:
        """Return a column (B, ...) on the device, without waiting for it."""
        return send(self._column(name), self.pairs.device)

    def alike(self) -> tuple[Tensor, Tensor]:
        """Return a pair of each distinct image, (n,) int64, and which of them each pair has as its image, (B,) int64.

        Where batches are made of images, nothing waits for the device.
        """
        if self.owner is not None and self.first is not None:
            return self.first, self.owner
        _, owner, first = distinct(self.groups)
        return first, owner

    def rows(self, name: str) -> Tensor:
        """Return where a bool column is true, (n,) int64 on the device, without waiting for it."""
        return send(torch.nonzero(self._column(name)).flatten(), self.pairs.device)

    def _column(self, name: str) -> Tensor:
        if name not in self.columns:
            raise MethodError(f"a batch has no column `{name}`; it has {', '.join(self.columns) or 'none'}")
        return self.columns[name]


def distinct(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct numbers (n,) of (B,) int64, which of them each row has (B,), and the first row of each (n,).

    Where the values are not on the CPU, this waits for the device.
    """
    found, owner = torch.unique(groups, return_inverse=True)
    first = torch.full_like(found, len(groups))
    return found, owner, first.scatter_reduce_(0, owner, torch.arange(len(groups), device=owner.device), "amin")


@dataclass
class Cost:
    """What a network's training has cost in an epoch; validation is left out: it is the same for every method."""

    encoded: int = 0
    """images and texts that went through an encoder with a gradient; a batch under two dropout masks counts twice"""
    encoded_without_gradient: int = 0
    scored: int = 0
    """image-text similarities with a gradient"""
    scored_without_gradient: int = 0
    steps: int = 0
    """optimiser steps, of all optimisers"""
    passes: int = 0
    """passes over all training pairs outside the steps"""

    def record(self) -> dict[str, int]:
        """Return the counts as plain values."""
        return asdict(self)


class Net(nn.Module):
    """One network of a run.

    Attributes:
        backbone: encoders and similarity; the part that is exported.
        own: what the method keeps beside it, such as heads, a memory, or buffers per pair; saved, never exported.
        before: the backbone as it was when the present round began, frozen; None where no round has begun.
        cost: what its training has cost in this epoch, on all processes.
        processes: the processes that train it together.
    """

    def __init__(self, backbone: Backbone, own: nn.Module, processes: Processes = ALONE) -> None:
        super().__init__()
        self.processes = processes
        self.backbone = backbone
        self.own = own
        self.before: Backbone | None = None
        self.cost = Cost()

    def keep_before(self) -> None:
        """Keep a frozen copy of the backbone as `before`."""
        self.before = copy.deepcopy(self.backbone).requires_grad_(False).eval()

    def encode(self, *batches: Batch) -> list[tuple[Items, Items]]:
        """Return images and texts of each batch, one of each for each pair, by one pass through each encoder.

        A batch that is given twice is encoded under two dropout masks. In training each batch has its own batch
        statistics, as if they were encoded one after the other.
        """
        if len({batch.image_rows is None for batch in batches}) > 1:  # one of them has too few images to share out
            return [self.encode(batch)[0] for batch in batches]
        images, texts = self._encode_images(batches), self._encode_texts(batches)
        of_pairs = [
            items if batch.owner is None else items[batch.owner] for items, batch in zip(images, batches, strict=True)
        ]
        self.count_encoded(sum(map(len, images)) + sum(map(len, texts)))
        return list(zip(of_pairs, texts, strict=True))

    def _encode_images(self, batches: Sequence[Batch]) -> list[Items]:
        """Return the images of each batch, each of them once."""
        values = _joined([(batch.images, batch.image_mask) for batch in batches])
        here = [len(batch.images) for batch in batches]
        rows = [batch.image_rows for batch in batches if batch.image_rows is not None]
        if not rows:
            return self.backbone.encode_images(*values, here).split(here)
        with self._shared_out():
            own = self.backbone.encode_images(*values, here)
        return own.over(self.processes, rows).split(rows)

    def _encode_texts(self, batches: Sequence[Batch]) -> list[Items]:
        """Return the captions of each batch; where they are shared out, this process encodes its rows."""
        sizes = [len(batch) for batch in batches]
        if not all(map(self.processes.share, sizes)):
            values = _joined([(batch.texts, batch.text_mask) for batch in batches])
            return self.backbone.encode_texts(*values, sizes).split(sizes)
        rows = [self.processes.rows(size) for size in sizes]
        values = _joined(
            [
                (batch.texts[own], None if batch.text_mask is None else batch.text_mask[own])
                for batch, own in zip(batches, rows, strict=True)
            ]
        )
        with self._shared_out():
            found = self.backbone.encode_texts(*values, [own.stop - own.start for own in rows])
        return found.over(self.processes, sizes).split(sizes)

    @contextmanager
    def _shared_out(self) -> Iterator[None]:
        """Compute some rows of a batch here: statistics are those of all rows, dropout draws for these alone."""
        device = next(self.backbone.parameters()).device
        drawn = int(torch.randint(2**62, ())) if self.training else 0  # on every process: their draws stay the same
        with (
            shared_out(self.backbone, self.processes),
            torch.random.fork_rng([device] if device.type == "cuda" else []),
        ):
            if self.training:
                torch.manual_seed(derive(drawn, "rows of process", self.processes.number))
            yield

    def score(self, images: Items, texts: Items) -> Tensor:
        """Return S (n, m), images × texts: cosines, or a bounded backbone's values in (0, 1)."""
        return self.backbone.squash(self.logits(images, texts))

    def logits(self, images: Items, texts: Items) -> Tensor:
        """Return (n, m): S, or the value before the sigmoid where the backbone is bounded.

        What IN²R divides by a temperature: a softmax of values in (0, 1) could not tell one caption from many.
        """
        self.count_scored(len(images) * len(texts))
        if not (self.backbone.interacts and self.processes.share(len(images))):
            return self.backbone.logits(images, texts)
        own, total = self.processes.rows(len(images)), len(images)
        with self._shared_out():
            found = self.backbone.logits(images.entered(self.processes)[own], texts.entered(self.processes))
        return self.processes.gather(found, [total])

    def count_encoded(self, items: int) -> None:
        """Count items that were encoded."""
        if torch.is_grad_enabled():
            self.cost.encoded += items
        else:
            self.cost.encoded_without_gradient += items

    def count_scored(self, pairs: int) -> None:
        """Count similarities that were computed."""
        if torch.is_grad_enabled():
            self.cost.scored += pairs
        else:
            self.cost.scored_without_gradient += pairs


def _joined(sets: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """Put sets (B, K, ...) of several batches below each other, padded to the largest K."""
    if len(sets) == 1:
        return sets[0]
    longest = max(values.shape[1] for values, _ in sets)
    masked = any(mask is not None or values.shape[1] < longest for values, mask in sets)
    masks = [torch.ones(values.shape[:2], dtype=torch.bool) if mask is None else mask for values, mask in sets]
    joined = torch.cat([_padded(values, longest) for values, _ in sets])
    return joined, torch.cat([_padded(mask, longest) for mask in masks]) if masked else None


def _padded(values: Tensor, length: int) -> Tensor:
    """Fill up the second dimension with zeros."""
    missing = length - values.shape[1]
    return values if missing == 0 else torch.cat([values, values.new_zeros(len(values), missing, *values.shape[2:])], 1)
