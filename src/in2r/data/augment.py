"""Random gaps in the input, for training only: words masked, exchanged or deleted; regions left out.

Everything is drawn on the CPU, on the ids and masks of a whole batch at once, before anything is sent to a device: so
the draws are the same on every device, and nothing waits for one. No set and no caption becomes empty.
"""

import torch
from torch import Tensor

from in2r.data.text.vocabulary import Vocabulary

MASKED, EXCHANGED = 0.5, 0.1
"""Shares of the touched words that become <mask> or a random word; the rest is deleted (the released code's)."""
_STAYS = MASKED + EXCHANGED


def augment_words(
    ids: Tensor,
    mask: Tensor,
    generator: torch.Generator,
    vocabulary_size: int,
    mask_id: int,
    rate: float = 0.2,
) -> tuple[Tensor, Tensor]:
    """Touch each word with probability `rate`: `MASKED`, `EXCHANGED` by a random word, or deleted (gaps closed).

    <start> and <end> are never touched. If every word of a caption would be deleted, one of them stays.

    Args:
        ids: (B, L) int64 on the CPU, zero-padded on the right; not changed.
        mask: (B, L) bool on the CPU, True = a token.
        generator: source of all draws, on the CPU.
        vocabulary_size: number of ids, special ones included; at least one ordinary word.
        mask_id: id of <mask>; random words are drawn from all ordinary words but this one.
        rate: share of the words that is touched, in [0, 1].

    Returns:
        New ids and mask, both (B, L).
    """
    words = mask & (ids > Vocabulary.END)
    draw = torch.rand(ids.shape, generator=generator)
    exchange = torch.randint(Vocabulary.UNK + 1, vocabulary_size - 1, ids.shape, generator=generator)
    exchange = exchange + (exchange >= mask_id)
    new = torch.where(words & (draw < rate * _STAYS), exchange, ids)
    new = torch.where(words & (draw < rate * MASKED), mask_id, new)
    kept = draw.ge(rate) | draw.lt(rate * _STAYS)
    keep = (mask & ~words) | _never_empty(kept, words, draw)
    order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)
    kept_mask = keep.gather(1, order)
    return new.gather(1, order) * kept_mask, kept_mask


def drop_regions(
    mask: Tensor | None, shape: tuple[int, int], generator: torch.Generator, rate: float = 0.2, exact: bool = False
) -> Tensor:
    """Leave out each real region with probability `rate`; at least one stays, so a single one always does.

    Args:
        mask: (B, R) bool on the CPU, True = a real region; None when all are real.
        shape: (B, R).
        generator: source of all draws, on the CPU.
        rate: share of the regions left out, in [0, 1].
        exact: leave out exactly this share of each image's real regions, rounded.

    Returns:
        (B, R) bool on the CPU, True = a region that stays.
    """
    if mask is None:
        mask = torch.ones(shape, dtype=torch.bool)
    draw = torch.rand(shape, generator=generator)
    if exact:
        stays = ((1 - rate) * mask.sum(1, keepdim=True)).round().clamp(min=1)
        rank = draw.masked_fill(~mask, -1.0).argsort(1, descending=True).argsort(1)
        return (rank < stays) & mask
    return _never_empty(draw >= rate, mask, draw)


def _never_empty(kept: Tensor, valid: Tensor, draw: Tensor) -> Tensor:
    """Return `kept` among `valid`; where a row would be left with none, its valid item of largest draw."""
    kept = kept & valid
    last_one = torch.zeros_like(valid).scatter_(1, draw.masked_fill(~valid, -1.0).argmax(1, keepdim=True), True)
    return torch.where(kept.any(1, keepdim=True), kept, last_one & valid)
