"""What the engine sees of the data: one split as a `PairSet`, a folder as a `DataSource`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import Features
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

    def fingerprint(self, full: bool = False) -> dict[str, Any]:
        """Return {"hash": hex, "full": bool, "splits": {name: {"hash": hex, "files": {...}}}}."""
        ...


class DataSettings(Protocol):
    """What the section `data` of a run's settings says of a folder."""

    @property
    def path(self) -> str:
        """The folder."""
        ...

    @property
    def layout(self) -> str:
        """As `open_data` takes it."""
        ...

    @property
    def dev_rule(self) -> str:
        """As `open_data` takes it."""
        ...

    @property
    def caption_vectors(self) -> str | None:
        """The suffix or file name, "auto" for a table's own file, None for captions as text."""
        ...

    @property
    def split_seed(self) -> int:
        """As `open_data` takes it."""
        ...

    @property
    def skip_missing(self) -> bool:
        """As `open_data` takes it."""
        ...


def open_configured(data: DataSettings, *, announce: bool = True) -> DataSource:
    """Open the folder that settings name, as they say; see `open_data`."""
    return open_data(
        data.path,
        layout=data.layout,
        dev_rule=data.dev_rule,
        caption_vectors=True if data.caption_vectors == "auto" else data.caption_vectors,
        split_seed=data.split_seed,
        skip_missing=data.skip_missing,
        announce=announce,
    )


def open_data(
    path: str | os.PathLike[str],
    *,
    layout: str = "auto",
    dev_rule: str = "scan",
    caption_vectors: str | bool | None = None,
    split_seed: int = 0,
    skip_missing: bool = False,
    announce: bool = True,
) -> DataSource:
    """Recognise a data folder and return its source.

    Args:
        path: the folder.
        layout: "precomp" (the field's `{split}_ims.npy`, `{split}_caps.txt`), "table" (a pair table beside a
            feature file) or "auto".
        dev_rule: which part of a precomp folder's dev split counts: "scan" the first 1000 images with their
            captions, "ncr" the first 1000 caption rows where images are stored once per caption (5000 where
            not), "full" all. A pair table's dev split is always taken whole.
        caption_vectors: precomp: the suffix of `{split}_{suffix}.npy`; table: True or a file name. A table
            without captions uses its vectors unasked.
        split_seed: draws the split of a pair table without a split column.
        skip_missing: leave out the rows of a pair table whose image is not there, in place of refusing the table.
        announce: say so when a split is drawn or rows are left out; not where the same was announced before.

    Raises:
        InputError: no such folder, no layout recognised, or settings out of range.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder that holds the features and the captions")
    if dev_rule not in DEV_RULES:
        raise InputError(f"dev_rule {dev_rule!r}: expected one of {', '.join(DEV_RULES)}")
    if layout == "auto":
        layout = _recognise(folder)
    if layout == "precomp":
        from in2r.data.precomp import PrecompSource

        return PrecompSource(folder, dev_rule=dev_rule, caption_vectors=caption_vectors)
    if layout == "table":
        from in2r.data.table import TableSource

        return TableSource(
            folder,
            dev_rule=dev_rule,
            caption_vectors=caption_vectors,
            split_seed=split_seed,
            skip_missing=skip_missing,
            announce=announce,
        )
    raise InputError(f"layout {layout!r}: expected one of auto, precomp, table")


def _recognise(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    precomp = any(name.endswith("_ims.npy") for name in names)
    table = "data.json" in names or any(name.startswith("pairs.") for name in names)
    if precomp and table:
        raise InputError(
            f"{folder}: holds both *_ims.npy and a pair table; say which by data.layout=precomp or "
            "data.layout=table (--layout where a verb takes no settings)"
        )
    if precomp or table:
        return "precomp" if precomp else "table"
    found = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") or "nothing"
    raise InputError(
        f"{folder}: found {found}; expected train_ims.npy with train_caps.txt (precomp), "
        "or pairs.csv|tsv|jsonl|parquet with images.npy (table)"
    )


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
