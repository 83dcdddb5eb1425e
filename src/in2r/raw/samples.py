"""Pairs that come without a table: samples of an image, its captions and its fields become a pairs.jsonl."""

import codecs
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from in2r.data.verdicts import NO_CAPTION, Verdict
from in2r.errors import InputError
from in2r.files import atomic_path
from in2r.raw.places import Item
from in2r.raw.source import Source

TABLE = "pairs.jsonl"


@dataclass(frozen=True)
class Sample:
    """An image with its captions and what else is known of it; each caption becomes a row."""

    item: Item
    captions: Sequence[str]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table, image and caption first."""
        more = {name: value for name, value in self.fields.items() if name not in ("image", "caption")}
        for caption in self.captions:
            yield {"image": self.item.name, "caption": caption, **more}


Found = Sample | Verdict
"""A sample, or the verdict on something that is no whole one."""


def source_of(where: Path, found: Callable[[], Iterator[Found]], notes: Sequence[str] = ()) -> Source:
    """Make a source of samples; they are read twice, so that their fields are never in memory together.

    Args:
        where: the place of all, for messages.
        found: yields the samples and the verdicts on the rest, each time the same.
        notes: see `Source`.

    Raises:
        InputError: there is no whole sample.
    """
    items: list[Item] = []
    captions: list[str] = []
    left_out: list[Verdict] = []
    digest = sha256()
    split = False
    for one in found():
        if isinstance(one, Verdict):
            left_out.append(one)
        elif not one.captions:
            left_out.append(Verdict(one.item.name, NO_CAPTION, "no caption belongs to it", file=str(one.item.place)))
        else:
            items.append(one.item)
            captions += one.captions
            split = split or "split" in one.fields
            digest.update(json.dumps([one.item.name, list(one.captions)]).encode())
    if not items:
        said = f": {left_out[0].image} ({left_out[0].verdict}: {left_out[0].detail})" if left_out else ""
        raise InputError(f"{where}: no image with a caption{said}; expected a table of captions as PAIRS, or photo.txt "
                         "beside photo.jpg, or tars that hold both, or a folder of `datasets`")  # fmt: skip

    def write(path: Path) -> None:
        samples = (one for one in found() if isinstance(one, Sample))
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            for sample in samples:
                file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in sample.rows())

    columns = {name: name for name in ("image", "caption", *(["split"] * split))}
    identity = {"images": str(where.absolute()), "captions": digest.hexdigest()}
    return Source(where.name, TABLE, write, columns, None, items, captions, identity, left_out, notes)


def caption_lines(data: bytes) -> list[str]:
    """Return the captions of a txt, one a line: of UTF-8, of what a byte-order mark says, else of Windows."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def captions_of(text: bytes | None, metadata: Mapping[str, Any]) -> list[str]:
    """Return a sample's captions: that of its metadata, which may have several lines, else the lines of its text."""
    known = metadata.get("caption")
    if isinstance(known, str) and known.strip():
        return [" ".join(known.split())]
    return [] if text is None else caption_lines(text)


def read_metadata(data: bytes) -> dict[str, Any]:
    """Return what a json says of a sample; nothing where it is no object."""
    try:
        found = json.loads(data)
    except ValueError:  # not JSON, not text
        return {}
    return found if isinstance(found, dict) else {}
