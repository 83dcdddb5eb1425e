"""Look through a data folder, block by block, and say what is there and what is wrong with it."""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from in2r.data.features import UNUSABLE, Features, unusable
from in2r.data.pairs import DataSource, PairSet, require_usable
from in2r.data.sources import open_data
from in2r.data.table import TableSource
from in2r.errors import InputError

Progress = Callable[[str, int, int], None]
Place = tuple[str, str]

SHOWN = 3
"""How many places of one kind of fault a report names."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault: how often, and the first few places (file and row or line)."""

    level: str  # "error": training or its results would be wrong; "warning": handled, but worth a look
    message: str
    count: int = 1
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.places:
            return self.message
        more = ", ..." if self.count > len(self.places) else ""
        return f"{self.message}: {self.count} ({', '.join(self.places)}{more})"


@dataclass(frozen=True)
class SplitSummary:
    """Counts and shapes of one split; `captions_per_image` is (min, mean, max)."""

    name: str
    images: int
    captions: int
    regions: int
    dim: int
    dtype: str
    mean_length: float
    vector_dim: int | None
    captions_per_image: tuple[int, float, int]


@dataclass
class CheckReport:
    """What `check_data` found."""

    path: Path
    splits: list[SplitSummary] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether no fault is an error."""
        return not any(fault.level == "error" for fault in self.faults)

    def refuse(self, error: InputError) -> None:
        """Note what made reading stop."""
        self.faults += [Fault("error", line) for line in error.faults]

    def add(self, level: str, message: str, count: int, places: Iterable[str]) -> None:
        """Note a fault with its first places, unless it occurs 0 times."""
        if count:
            self.faults.append(Fault(level, message, count, tuple(places)))


def check_data(data: DataSource | str | os.PathLike[str], *, progress: Progress | None = None) -> CheckReport:
    """Check every split of a data source or folder; faults are gathered, not raised.

    Every feature is read once, in blocks; beside a block, memory holds a hash and a place for each image and
    the captions of one split.

    Args:
        data: a source, or a folder (then the whole dev split is looked at).
        progress: called with (file, items read, items).

    Returns:
        A report; `report.usable` is False when something must be mended before training.
    """
    report = CheckReport(Path(data if isinstance(data, str | os.PathLike) else data.path))
    try:
        source = open_data(data, dev_rule="full") if isinstance(data, str | os.PathLike) else data
    except InputError as error:
        report.refuse(error)
        return report
    seen: dict[bytes, Place] = {}
    split_of_id: dict[str, str] = {}
    for name in source.split_names:
        try:
            pairs = source.split(name)
            require_usable(pairs)
        except InputError as error:
            report.refuse(error)
            continue
        report.splits.append(_summary(pairs))
        _check_captions(report, source, pairs)
        hashes = _check_features(report, pairs.images, progress)
        _check_twins(report, pairs, hashes, seen)
        if not isinstance(source, TableSource):
            _check_ids(report, pairs, split_of_id)
        if pairs.caption_vectors is not None:
            _check_features(report, pairs.caption_vectors, progress)
    for name in ("train", "dev"):
        if name not in source.split_names:
            report.faults.append(Fault("error", f"{source.path}: no {name} split; training needs one"))
    if "test" not in source.split_names:
        report.faults.append(Fault("warning", f"{source.path}: no test split; `in2r eval --split dev` goes without"))
    _check_dims(report)
    if isinstance(source, TableSource):
        _check_table(report, source)
    return report


def _summary(pairs: PairSet) -> SplitSummary:
    images, vectors = pairs.images, pairs.caption_vectors
    counts = np.bincount(pairs.image_of_caption, minlength=len(images))
    return SplitSummary(
        name=pairs.name,
        images=len(images),
        captions=len(pairs.image_of_caption),
        regions=images.regions,
        dim=images.dim,
        dtype=str(images.array.dtype),
        mean_length=float(images.regions if images.lengths is None else images.lengths.mean()),
        vector_dim=None if vectors is None else vectors.dim,
        captions_per_image=(int(counts.min()), float(counts.mean()), int(counts.max())),
    )


def _check_dims(report: CheckReport) -> None:
    """One encoder reads all splits: their features need one dimension (the number of regions may differ)."""
    for what, dims in (
        ("features", {split.name: split.dim for split in report.splits}),
        ("caption vectors", {split.name: split.vector_dim for split in report.splits}),
    ):
        if len(set(dims.values())) > 1:
            named = ", ".join(f"{name} {dim}" for name, dim in dims.items())
            report.faults.append(Fault("error", f"{report.path}: the dimension of the {what} differs: {named}"))


def _check_captions(report: CheckReport, source: DataSource, pairs: PairSet) -> None:
    if pairs.captions is None:
        return
    name, captions = pairs.name, pairs.captions

    def places(rows: list[int]) -> list[str]:
        return source.caption_places(name, rows[:SHOWN])

    empty: list[int] = []
    again: list[int] = []
    seen: set[str] = set()
    for row, caption in enumerate(captions):
        if not caption.strip():
            empty.append(row)
        elif caption in seen:
            again.append(row)
        seen.add(caption)
    report.add("warning", f"{name}: empty captions", len(empty), places(empty))
    report.add("warning", f"{name}: captions that repeat an earlier one", len(again), places(again))


def _check_features(report: CheckReport, features: Features, progress: Progress | None) -> list[bytes]:
    """Scan an array once; return a hash of each item's values."""
    bad: list[int] = []
    zero: list[int] = []
    hashes: list[bytes] = []
    for rows, values in features.blocks():
        bad += rows[unusable(values)].tolist()
        zero += rows[~values.reshape(len(values), -1).any(axis=1)].tolist()
        hashes += [hashlib.blake2b(item, digest_size=16).digest() for item in values]
        if progress is not None:
            progress(features.source, len(hashes), len(features))
    for level, what, faulty in (("error", UNUSABLE, bad), ("warning", "nothing but zeros", zero)):
        places = [f"{features.source} row {row}" for row in faulty[:SHOWN]]
        report.add(level, f"{features.source}: rows (from 0) with {what}", len(faulty), places)
    return hashes


def _check_twins(report: CheckReport, pairs: PairSet, hashes: list[bytes], seen: dict[bytes, Place]) -> None:
    """Look for images with the very same features, in the split and in those looked at before."""
    twins: dict[str, list[str]] = {}
    for row, item in zip(pairs.images.rows.tolist(), hashes, strict=True):
        here = f"{pairs.images.source} row {row}"
        split, place = seen.setdefault(item, (pairs.name, here))
        if place != here:
            twins.setdefault(split, []).append(f"{here} = {place}")
    for split, places in twins.items():
        message = f"{pairs.name}: images with the very features of another one of {split}"
        report.add("warning", message, len(places), places[:SHOWN])


def _check_ids(report: CheckReport, pairs: PairSet, split_of_id: dict[str, str]) -> None:
    """Look for images named as one of another split; the field's ids need not be names of images, so it is no error."""
    shared: dict[str, list[str]] = {}
    for image in pairs.image_ids:
        split = split_of_id.setdefault(image, pairs.name)
        if split != pairs.name:
            shared.setdefault(split, []).append(repr(image))
    for split, images in shared.items():
        report.add("warning", f"{pairs.name}: image ids that {split} has too", len(images), images[:SHOWN])


def _check_table(report: CheckReport, source: TableSource) -> None:
    shared = source.images_in_several_splits()
    places = [f"image {image} in line {line}" for image, line in shared[:SHOWN]]
    report.add("error", f"{source.path}: images that lie in several splits", len(shared), places)
    report.add(
        "warning", f"{source.path}: rows left out, their image is not there", len(source.skipped), source.skipped
    )
    report.add(
        "warning", f"{source.path}: rows left out, their image has no features", len(source.unreadable),
        source.unreadable[:SHOWN],
    )  # fmt: skip
    unused = source.images_without_caption()
    if unused:
        report.faults.append(
            Fault("warning", f"{source.path}: left out, without caption: {unused} image{'s' * (unused > 1)}", unused)
        )
