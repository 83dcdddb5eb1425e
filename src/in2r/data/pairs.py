"""What all others see of the data: one split as a `PairSet`, a folder as a `DataSource`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import Features
from in2r.data.user_table import UserTable
from in2r.errors import InputError

SPLITS = ("train", "dev", "test")
DEV_RULES = ("scan", "ncr", "full")


@dataclass(frozen=True, eq=False)
class PairSet:
    """One split; pair k is (image `image_of_caption[k]`, caption k).

    Attributes:
        name: the split's name.
        images: features of the images, each once.
        image_of_caption: (captions,) int64, as the files say, before any injected noise; sorted ascending.
        captions: texts, or None when only vectors are given.
        caption_vectors: features with regions = 1, or None.
        image_ids: (images,) names for reports.
    """

    name: str
    images: Features
    image_of_caption: NDArray[np.int64]
    captions: Sequence[str] | None
    caption_vectors: Features | None
    image_ids: Sequence[str]

    def first(self, captions: int) -> "PairSet":
        """Return the first `captions` pairs and the images up to the last one they use."""
        if captions >= len(self.image_of_caption):
            return self
        image_of_caption = self.image_of_caption[:captions]
        images = int(image_of_caption[-1]) + 1 if captions else 0
        vectors = self.caption_vectors
        return replace(
            self,
            images=self.images.select(slice(0, images)),
            image_of_caption=image_of_caption,
            captions=None if self.captions is None else self.captions[:captions],
            caption_vectors=None if vectors is None else vectors.select(slice(0, captions)),
            image_ids=self.image_ids[:images],
        )


class DataSource(Protocol):
    """A data folder that has been recognised; nothing but the split asked for is opened."""

    path: Path

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that are there, out of train, dev and test."""
        ...

    def split(self, name: str) -> PairSet:
        """Open one split: "train", "dev" or "test" ("testall" means test)."""
        ...

    def caption_places(self, name: str, captions: Sequence[int]) -> list[str]:
        """Return the file and line of some captions of a split, for messages and lists."""
        ...

    def caption_rows(self, name: str) -> list[int]:
        """Return the row of each caption of a split in the table or caption file, from 0, without a header."""
        ...

    def caption_columns(self, name: str, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Return other columns of the table as text, a value for each caption of a split."""
        ...

    def user_table(self) -> UserTable | None:
        """Return the whole pair table as it stands; None for a precomp folder."""
        ...

    def images_in_several_splits(self) -> list[tuple[str, int]]:
        """Return (image, a row of the table) of images whose captions lie in several splits; none without ids."""
        ...

    def unread_vectors(self) -> Path | None:
        """Return the file of caption vectors that lies in the folder and is not read; None where there is none."""
        ...

    def encoder(self) -> dict[str, Any] | None:
        """Return what made the features that are read, image and text; None where nothing says."""
        ...

    def fingerprint(self, full: bool = False) -> dict[str, Any]:
        """Return {"hash": hex, "full": bool, "splits": {name: {"hash": hex, "files": {...}}}}."""
        ...


def canonical_split(name: str) -> str:
    """Return "train", "dev" or "test"; "testall" means test."""
    split = "test" if name == "testall" else name
    if split not in SPLITS:
        raise InputError(f"split {name!r}: expected one of {', '.join(SPLITS)}")
    return split


def require_usable(pairs: PairSet) -> None:
    """Raise `InputError` unless the split has two images or more and as many caption vectors as captions."""
    images, captions = len(pairs.images), len(pairs.image_of_caption)
    if captions == 0:
        raise InputError(f"{pairs.images.source}: 0 pairs in {pairs.name}: {images} images without caption")
    if images < 2:
        raise InputError(f"{pairs.images.source}: {images} image in {pairs.name}; at least 2 are needed")
    counts = {
        "captions": captions if pairs.captions is None else len(pairs.captions),
        "caption vectors": captions if pairs.caption_vectors is None else len(pairs.caption_vectors),
    }
    for what, count in counts.items():
        if count != captions:
            raise InputError(f"{pairs.images.source}: {count} {what} but {captions} pairs in {pairs.name}")
    low, high = int(pairs.image_of_caption.min()), int(pairs.image_of_caption.max())
    if low < 0 or high >= images:
        raise InputError(f"{pairs.images.source}: {pairs.name} has {images} images, but its pairs name {low} to {high}")
