"""image_verdicts.csv: what became of each image that a pair table names, one row an image."""

import csv
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from in2r.errors import InputError
from in2r.files import write_csv

FILE = "image_verdicts.csv"

OK = "ok"
ANIMATED = "animated"
MISSING = "missing"
EMPTY = "empty file"
TRUNCATED = "truncated"
NOT_AN_IMAGE = "not an image"
TOO_LARGE = "too large"
REFUSED = "refused"
NO_CAPTION = "no caption"
DUPLICATE = "duplicate member"

VERDICTS = {
    OK: "decoded and encoded",
    ANIMATED: "several frames; the first one is encoded",
    MISSING: "no such file, or it may not be read",
    EMPTY: "zero bytes",
    TRUNCATED: "begins as an image and ends too early, or its data are damaged",
    NOT_AN_IMAGE: "a folder, or no format that is read",
    TOO_LARGE: "more pixels than the limit, or more than 50 times as long as wide",
    REFUSED: "the encoder's preprocessing failed on it",
    NO_CAPTION: "of folders and tars: no caption belongs to it",
    DUPLICATE: "of tars: a member of the same name came before",
}
"""Each verdict and what it means."""

ENCODED = (OK, ANIMATED)
"""Verdicts of images that have features."""


@dataclass(frozen=True)
class Verdict:
    """A row: the image as the table calls it, what became of it, and why."""

    image: str
    verdict: str
    detail: str = ""
    width: int | None = None
    """as stored, before it is turned upright"""
    height: int | None = None
    format: str = ""
    mode: str = ""
    pixels: str = ""
    """a hash of the decoded pixels: copies of an image agree in it"""
    file: str = ""
    """where it was found"""

    @property
    def encoded(self) -> bool:
        """Whether the image has features."""
        return self.verdict in ENCODED

    def changed(self, verdict: str, detail: str) -> "Verdict":
        """Return the same image with another verdict."""
        return replace(self, verdict=verdict, detail=detail)

    def with_pixels(self, digest: str) -> "Verdict":
        """Return the same verdict with the hash of the pixels."""
        return replace(self, pixels=digest)

    def found_in(self, file: str) -> "Verdict":
        """Return the same verdict with the place of the file."""
        return replace(self, file=file)


COLUMNS = [field.name for field in fields(Verdict)]


def write_verdicts(path: Path, verdicts: Iterable[Verdict]) -> None:
    """Write image_verdicts.csv."""
    write_csv(path, COLUMNS, map(astuple, verdicts))


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """Read image_verdicts.csv, by image.

    Raises:
        InputError: a column is missing.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        absent = [name for name in COLUMNS if name not in (rows.fieldnames or [])]
        if absent:
            raise InputError(f"{path}: no column {', '.join(absent)}; `in2r features` writes this file")
        verdicts = {}
        for row in rows:
            width, height = (int(row[name]) if row[name] else None for name in ("width", "height"))
            verdicts[row["image"]] = Verdict(
                row["image"], row["verdict"], row["detail"], width, height, row["format"], row["mode"], row["pixels"],
                row["file"],
            )  # fmt: skip
        return verdicts
