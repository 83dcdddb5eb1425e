"""What may be chosen when features are made, and who is told how far the work is."""

from dataclasses import dataclass, field
from typing import Protocol

import torch

from in2r.encoders.regions import Regions
from in2r.raw.image import MAX_PIXELS


class Display(Protocol):
    """Shows how far a part of the work is."""

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` items are done."""
        ...


@dataclass(frozen=True)
class Options:
    """How features are made.

    Attributes:
        encoder: `KIND:NAME` of the image encoder.
        text_encoder: of the text encoder; None: the image encoder's own text side, if it has one.
        regions: see `to_regions`.
        batch: images or texts in a pass.
        workers: threads that decode.
        device: where encoders compute.
        pixels: images of more pixels are refused.
        pieces: images, or captions, of a piece, which several processes share; None: one process makes single files.
    """

    encoder: str
    text_encoder: str | None = None
    regions: Regions = 3
    batch: int = 32
    workers: int = 4
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    pixels: int = MAX_PIXELS
    pieces: int | None = None
