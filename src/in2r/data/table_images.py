"""Which row of the feature file a table's row means, and which rows are left out because there is none."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from in2r.data.near_ids import NearIds
from in2r.data.numbered import Numbered, number_of
from in2r.data.table_layout import Layout
from in2r.data.verdicts import FILE as VERDICTS
from in2r.data.verdicts import read_verdicts
from in2r.errors import Faults, InputError

log = logging.getLogger(__name__)

SAID = 3
"""How many of the rows that are left out a log names."""


@dataclass
class Found:
    """The feature row of each table row; -1 where the row is left out.

    Attributes:
        rows: (table rows,) int64.
        skipped: rows whose image is not there: line and id of each.
        unreadable: rows whose image has no features, as image_verdicts.csv says: line, id, verdict.
    """

    rows: NDArray[np.int64]
    skipped: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def find_images(
    layout: Layout, ids: Sequence[str] | None, count: int, images: Sequence[str], lines: Sequence[int], skip: bool
) -> Found:
    """Find the image of each table row.

    Args:
        layout: the folder's files.
        ids: the id of each feature row; None: row numbers.
        count: rows of the feature file.
        images: the image that each table row names.
        lines: the line of each table row.
        skip: leave out rows whose image is not there, in place of refusing them.

    Raises:
        InputError: an image is not there, no verdict says why, and `skip` is not set; or no row is left.
    """
    names: Sequence[str] = Numbered(np.arange(count)) if ids is None else ids
    if ids is None:
        rows = (number_of(image, count) for image in images)
    else:
        row_of = {name: row for row, name in enumerate(ids)}
        rows = (row_of.get(image, -1) for image in images)
    found = Found(np.fromiter(rows, dtype=np.int64, count=len(images)))
    missing = np.flatnonzero(found.rows < 0).tolist()
    if missing:
        missing = _note_unreadable(found, layout, images, lines, missing)
    file = layout.image_ids
    expected = (
        f"a row of {layout.features.name}, 0 to {count - 1} (names need an image_ids.txt)"
        if file is None
        else f"an id of {file.name}"
    )
    near, faults = NearIds(names if missing else ()), Faults()
    for row in missing:
        hint, place = near.hint(images[row]), f"line {lines[row]}: image {images[row]!r}"
        found.skipped.append(f"{place}{hint}")
        remedy = hint or "; data.skip_missing=true (--skip-missing) leaves such rows out"
        faults.add(f"{layout.table}: {place}; expected {expected}{remedy}")
    none_left = bool((found.rows < 0).all())
    if not skip or none_left:
        faults.settle()
    if none_left:
        raise InputError(f"{layout.table}: no row has an image with features: {found.unreadable[0]}")
    return found


def _note_unreadable(
    found: Found, layout: Layout, images: Sequence[str], lines: Sequence[int], missing: list[int]
) -> list[int]:
    """Note the rows whose image has a verdict that says why it has no features; return the others."""
    path = layout.table.with_name(VERDICTS)
    verdicts = read_verdicts(path) if path.is_file() else {}
    others = []
    for row in missing:
        one = verdicts.get(images[row])
        if one is None or one.encoded:
            others.append(row)
        else:
            found.unreadable.append(f"line {lines[row]}: image {images[row]!r} is {one.verdict}")
    return others


def say_left_out(table: str, rows: int, skipped: Sequence[str], unreadable: Sequence[str]) -> None:
    """Log how many rows are left out, and the first ones."""
    if skipped:
        log.warning(
            "%s: %d of %d rows are left out, because their image is not there: %s (`in2r data check --skip-missing` "
            "lists them)", table, len(skipped), rows, _first(skipped),
        )  # fmt: skip
    if unreadable:
        log.warning(
            "%s: %d of %d rows are left out, because their image has no features: %s (%s says why)", table,
            len(unreadable), rows, _first(unreadable), VERDICTS,
        )  # fmt: skip


def _first(rows: Sequence[str]) -> str:
    return "; ".join(rows[:SAID]) + (", ..." if len(rows) > SAID else "")
