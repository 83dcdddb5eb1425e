"""What other pairs say of pairs that are asked about, in blocks: of a million pairs, all at once would be too large."""

from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.evidence import agreement, closeness, nearest_references
from in2r.evidence.vectors import Centred

BLOCK = 2**14
"""Rows that are looked at together: intermediate values of some 50 neighbours each stay within some MB."""


@dataclass(frozen=True)
class Voices:
    """Who is asked about P pairs.

    Attributes:
        pair: (P, k) int32, pairs of the witness.
        cosine: (P, k) what each says: how alike its own image or caption is to that which is judged.
        near: (P, k) cosine of both on the other side; -inf where it is not asked.
    """

    pair: Tensor
    cosine: Tensor
    near: Tensor

    @staticmethod
    def of(pair: Tensor, cosine: Tensor, near: Tensor, known: Tensor) -> "Voices":
        """Return those that are known; arguments (P, k) each."""
        return Voices(pair.int(), cosine, near.masked_fill(~known, -torch.inf))

    def agreement(self, trust: Tensor, temperature: float) -> Tensor:
        """Return how much they support each pair, (P,); each counts as far as it is near and believed."""
        return agreement(self.cosine, closeness(self.near, temperature) * trust[self.pair.long()], temperature)


def nearest(
    queries: Centred, references: Tensor, group: Tensor, group_of_reference: Tensor, neighbors: int
) -> tuple[Tensor, Tensor]:
    """Return the nearest references of all queries, (q, k) int32, and their cosines: `nearest_references` in blocks."""
    shape = (len(group), min(neighbors, len(references)))
    near, cosine = torch.empty(shape, dtype=torch.int32), torch.empty(shape)
    for start in range(0, len(group), BLOCK):
        rows = slice(start, start + BLOCK)
        near[rows], cosine[rows] = nearest_references(
            queries[rows], references, group[rows], group_of_reference, neighbors
        )
    return near, cosine
