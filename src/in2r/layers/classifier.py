"""A small classifier of images and captions into pseudo-classes, one for both sides (PC², PCSR)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.errors import InputError
from in2r.transfer import at_least_float32


class PseudoClassifier(nn.Module):
    """Logits of C classes: linear → ReLU → linear, over an item's vector, or over its parts laid end to end.

    Args:
        dim: D.
        hidden: width between the two layers.
        classes: C.
        positions: K to which an item's regions or words are brought; 0: the item's vector is read in place of them.
    """

    def __init__(self, dim: int, hidden: int, classes: int, positions: int = 0) -> None:
        super().__init__()
        self.positions = positions
        self.hidden = nn.Linear(dim * max(positions, 1), hidden)
        self.classes = nn.Linear(hidden, classes)

    def forward(self, vector: Tensor, parts: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Classify n items.

        Args:
            vector: (n, D).
            parts: (n, L, D); read where `positions` is not 0.
            mask: (n, L) bool, the real parts come first; None = all are real.

        Returns:
            (n, C) float32.

        Raises:
            InputError: there are no parts to read.
        """
        rows = vector
        if self.positions:
            if parts is None:
                raise InputError(
                    "`method.positions` lets the classifier read regions and words, and this backbone makes one vector "
                    "of an item; set method.positions=0, or model.backbone=sgr"
                )
            rows = to_positions(parts, mask, self.positions).flatten(1)
        logits: Tensor = self.classes(functional.relu(self.hidden(at_least_float32(rows))))
        return logits


def to_positions(parts: Tensor, mask: Tensor | None, positions: int) -> Tensor:
    """Bring each item's real parts to one number of positions.

    More parts than positions: position p reads at (p + ½) n / K - ½ between two parts, by linear interpolation (that
    of `interpolate` without aligned corners). Fewer: the parts stand in the middle, floor((K - n) / 2) zeros before
    them. n is the item's own number, so that what becomes of an item does not depend on its batch.

    Args:
        parts: (B, L, D), of each item the first n are real.
        mask: (B, L) bool; None = all are real.
        positions: K.

    Returns:
        (B, K, D).
    """
    batch, length, dim = parts.shape
    place = torch.arange(positions, device=parts.device, dtype=torch.float32)
    real = place.new_full((batch, 1), length) if mask is None else mask.sum(1, keepdim=True).to(place.dtype)
    between = ((place + 0.5) * real / positions - 0.5).clamp(min=0)
    shifted = place - ((positions - real) / 2).floor()
    shrinks = real > positions
    at = torch.where(shrinks, between, shifted)
    there = (at >= 0) & (at <= (real - 1).clamp(min=0)) & (real > 0)
    low = at.floor()
    share = (at - low)[..., None]

    def read(index: Tensor) -> Tensor:
        rows = torch.minimum(index.clamp(min=0), (real - 1).clamp(min=0)).long()
        return parts.gather(1, rows[..., None].expand(-1, -1, dim))

    found = read(low) * (1 - share) + read(low + 1) * share
    return found.masked_fill(~(there | shrinks)[..., None], 0.0)
