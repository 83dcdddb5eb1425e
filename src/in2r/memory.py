"""Memory bank: a FIFO of paired image and text embeddings, searched by cosine (Eq. 6)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from in2r.errors import InputError

NUMBERS = 2**23
"""Scores that a search holds at a time, and numbers of keys that it widens: 32 MB each. On a CPU larger ones take twice
the time, as malloc asks the system for them; 128 queries of the default 65,536 entries are one block."""


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The k nearest entries of each query, best first: `scores, images, texts, ids = bank.nearest(query, k)`."""

    scores: Tensor  # (B, k) cosine; -inf marks a place left empty by exclusion
    images: Tensor  # (B, k, dim)
    texts: Tensor  # (B, k, dim)
    ids: Tensor  # (B, k) int64
    groups: Tensor  # (B, k) int64

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.scores, self.images, self.texts, self.ids))

    def distinct(self) -> Tensor:
        """Return the mean number of distinct pairs among the k (0..k); places left empty are none."""
        found = self.scores.isfinite()
        ids = self.ids.masked_fill(~found, -1).sort(dim=1).values
        distinct = 1 + (ids[:, 1:] != ids[:, :-1]).sum(1) - (~found).any(1).long()
        return distinct.float().mean()


class MemoryBank(nn.Module):
    """First-in first-out bank of (image, text) embeddings of unit norm; all of its state are saved buffers.

    It starts empty. A new entry takes an empty slot, else the slot that was written longest ago, so that
    the filled slots are always the leading ones.

    Args:
        capacity: Most entries it holds, M.
        dim: Width of the embeddings.
        precision: What embeddings are kept in. float16 takes half the memory and moves a score by at most 2⁻¹¹ =
            5e-4 of unit vectors (by 1e-5 as a rule); what a search returns is float32 in either case.
        unique: A pair's newest entry removes its older one and counts as just pushed: ids are distinct. How many
            entries are left depends on the ids, so on a GPU `push` and `len` then wait for it.

    Raises:
        InputError: Capacity or dimension below 1.
    """

    images: Tensor
    texts: Tensor
    ids: Tensor
    groups: Tensor
    stamps: Tensor  # (M,) running number of the write, from 1; 0 marks an empty slot

    def __init__(self, capacity: int, dim: int, unique: bool = False, precision: torch.dtype = torch.float32) -> None:
        super().__init__()
        if capacity < 1 or dim < 1:
            raise InputError(f"memory: capacity and dim must be at least 1, got {capacity} and {dim}")
        self.capacity = capacity
        self.dim = dim
        self.unique = unique
        self.register_buffer("images", torch.zeros(capacity, dim, dtype=precision))
        self.register_buffer("texts", torch.zeros(capacity, dim, dtype=precision))
        self.register_buffer("ids", torch.full((capacity,), -1))
        self.register_buffer("groups", torch.full((capacity,), -1))
        self.register_buffer("stamps", torch.zeros(capacity, dtype=torch.int64))
        self._known_writes: int | None = 0
        self._gaps = unique  # entries may have been removed: the oldest ones need not follow each other

    def __len__(self) -> int:
        if self._gaps:
            return int(self.stamps.count_nonzero())
        return min(self._writes(), self.capacity)

    def _writes(self) -> int:
        """Return the entries written so far, without asking the device but after a state was loaded."""
        if self._known_writes is None:
            self._known_writes = int(self.stamps.max())
        return self._known_writes

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._known_writes = None
        filled = self.stamps.nonzero().squeeze(1)
        self._gaps = self.unique or not torch.equal((self.stamps[filled] - 1) % self.capacity, filled)

    def _oldest_first(self) -> Tensor:
        return self.stamps.argsort(stable=True)

    @torch.no_grad()
    def push(self, images: Tensor, texts: Tensor, ids: Tensor, groups: Tensor | None = None) -> None:
        """Append detached pairs in order; of more than `capacity` pairs the last ones stay.

        Args:
            images: (B, dim) unit-norm keys.
            texts: (B, dim) unit-norm values, row i belongs to image i.
            ids: (B,) integers, ids of the pairs.
            groups: (B,) integers, what several pairs share (their image); -1 = none.

        Raises:
            InputError: A shape does not fit or, on the CPU, an embedding is not finite.
        """
        self._check("images", images)
        self._check("texts", texts)
        ids = ids.to(torch.int64)
        groups = torch.full_like(ids, -1) if groups is None else groups.to(torch.int64)
        if not len(images) == len(texts) == len(ids) == len(groups):
            sizes = f"{len(images)} images, {len(texts)} texts, {len(ids)} ids, {len(groups)} groups"
            raise InputError(f"memory: one id and group per pair expected, got {sizes}")
        written = self._writes()
        kept = self._forget_older(ids) if self.unique else torch.arange(len(ids), device=ids.device)
        kept = kept[-self.capacity :]
        places = torch.arange(len(kept), device=ids.device)
        slots = self._oldest_first()[: len(kept)] if self._gaps else (written + places) % self.capacity
        self.images[slots] = images[kept].to(self.images.dtype)
        self.texts[slots] = texts[kept].to(self.texts.dtype)
        self.ids[slots] = ids[kept]
        self.groups[slots] = groups[kept]
        self.stamps[slots] = written + 1 + places
        self._known_writes = written + len(kept)

    def _forget_older(self, ids: Tensor) -> Tensor:
        """Empty the slots of these pairs; return the positions of each id's last appearance, in order."""
        self.stamps[torch.isin(self.ids, ids)] = 0
        distinct, inverse = torch.unique(ids, return_inverse=True)
        position = torch.arange(len(ids), device=ids.device)
        return torch.zeros_like(distinct).scatter_reduce(0, inverse, position, "amax").sort().values

    @torch.no_grad()
    def nearest(
        self,
        query: Tensor,
        k: int,
        by: Literal["image", "text"] = "image",
        exclude_groups: Tensor | None = None,
        exclude_ids: Tensor | None = None,
    ) -> Neighbors:
        """Return the k entries whose image (or text) embedding is nearest to each query by cosine (Eq. 6).

        Args:
            query: (B, dim) unit norm; the score is the inner product, the cosine of what has unit norm.
            k: Neighbours per query, 1..len(self).
            by: The side that is compared.
            exclude_groups: (B,) or (B, n) int64: groups that may not appear for that query; negative = none.
            exclude_ids: The same for ids.

        Returns:
            Neighbours, detached, best first. Where too few entries remain, scores are -inf.

        Raises:
            InputError: k < 1, fewer than k entries, an unknown side, a query of another width or, on the
                CPU, not finite.
        """
        if by not in ("image", "text"):
            raise InputError(f"memory: by must be 'image' or 'text', got {by!r}")
        self._check("query", query)
        count = len(self)
        if not 1 <= k <= count:
            raise InputError(f"memory: k must be between 1 and the {count} entries held, got {k}")
        keys = self.images if by == "image" else self.texts
        widened = self.dim if keys.dtype == torch.float16 else 1
        step, query, found = max(1, NUMBERS // max(len(query), widened)), query.float(), []
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            scores = query @ keys[rows].float().T
            _exclude(scores, self.groups[rows], exclude_groups)
            _exclude(scores, self.ids[rows], exclude_ids)
            near = scores.topk(min(k, scores.shape[1]))
            found.append((near.values, near.indices + start))
        best, slots = _best(found, k)
        images, texts = self.images[slots].float(), self.texts[slots].float()
        return Neighbors(best, images, texts, self.ids[slots], self.groups[slots])

    def entries(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (images, texts, ids, groups), oldest first; copies, of embeddings in the precision that is kept."""
        order = self._oldest_first()[self.capacity - len(self) :]
        return self.images[order], self.texts[order], self.ids[order], self.groups[order]

    def _check(self, name: str, embeddings: Tensor) -> None:
        if embeddings.ndim != 2 or embeddings.shape[1] != self.dim:
            found = "×".join(map(str, embeddings.shape))
            raise InputError(f"memory: {name} must be batch × {self.dim}, got {found}")
        # elsewhere a look would wait for the device: there the loop finds what is not finite by the losses
        if embeddings.device.type == "cpu" and not embeddings.isfinite().all():
            row = int((~embeddings.isfinite()).any(1).nonzero()[0])
            raise InputError(f"memory: {name} row {row} has a NaN or infinite value")


def _best(found: list[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """Return the k best scores (B, k), best first, and their slots, out of those of each block."""
    if len(found) == 1:
        return found[0]
    scores, slots = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
    best, places = scores.topk(k)
    return best, slots.gather(1, places)


def _exclude(scores: Tensor, labels: Tensor, excluded: Tensor | None) -> None:
    """Set the scores (B, count) of entries with an excluded label to -inf, in place."""
    if excluded is None:
        return
    columns = excluded[:, None] if excluded.ndim == 1 else excluded
    for column in columns.T:  # few columns; all at once would need B × n × count bytes
        scores.masked_fill_((labels == column[:, None]) & (column[:, None] >= 0), -torch.inf)
