"""Webdataset tars: members of one key are a sample; read member by member, images only by their place."""

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from in2r.data.verdicts import DUPLICATE, MISSING, TRUNCATED, Verdict
from in2r.errors import InputError
from in2r.raw.downloads import failed_downloads
from in2r.raw.finder import is_image_name
from in2r.raw.places import Item, TarPlace
from in2r.raw.samples import Found, Sample, captions_of, read_metadata, source_of
from in2r.raw.source import Source

TEXTS = ("txt", "text", "caption")
BLOCK = 512
"""bytes of a tar's block; one of zeros ends it"""


def find_tars(path: Path) -> list[Path]:
    """Return the tars that a path means: itself, or those in the folder, in the order of their names.

    Raises:
        InputError: they are packed, so that no member can be read by its place.
    """
    names = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    packed = [name for name in names if name.name.endswith((".tar.gz", ".tgz"))]
    if packed:
        raise InputError(f"{packed[0]}: packed tars are not read; unpack it with gunzip, which leaves a .tar")
    return [name for name in names if name.suffix == ".tar"]


def read_tars(where: Path, tars: list[Path]) -> Source:
    """Read the samples of tars; members of one key need not stand together.

    Raises:
        InputError: no sample is whole.
    """

    def found() -> Iterator[Found]:
        for tar in tars:
            yield from _shard(tar)
            yield from failed_downloads(tar.with_suffix(".parquet"), tar.name)

    return source_of(where, found)


@dataclass
class _Members:
    """What a key of a tar has."""

    image: TarPlace | None = None
    text: bytes | None = None
    metadata: bytes = b""
    extensions: set[str] = field(default_factory=set)


def _shard(tar: Path) -> Iterator[Found]:
    keys: dict[str, _Members] = {}
    yield from _members(tar, keys)
    for key, own in keys.items():
        name = f"{tar.name}/{key}"
        metadata = read_metadata(own.metadata)
        captions = captions_of(own.text, metadata)
        if own.image is not None:
            item = Item(f"{tar.name}/{own.image.name}", own.image)
            yield Sample(item, captions, {"key": key, **metadata})
        elif captions:
            yield Verdict(name, MISSING, "the tar has its caption and no image", file=str(tar))


def _members(tar: Path, keys: dict[str, _Members]) -> Iterator[Verdict]:
    """Sort the members of a tar into their keys; yield a verdict on each that is cut off or there twice."""
    size = os.path.getsize(tar)
    try:
        with tarfile.open(tar, "r:") as file:
            while (member := file.next()) is not None:
                file.members = []  # type: ignore[attr-defined]  # else each header of a tar stays in memory
                if not member.isfile():
                    continue
                if member.offset_data + member.size > size:
                    yield Verdict(f"{tar.name}/{member.name}", TRUNCATED, "the tar ends within it", file=str(tar))
                    return
                yield from _sort(tar, file, member, keys)
            end = file.offset
    except (tarfile.TarError, OSError) as error:
        yield Verdict(tar.name, TRUNCATED, f"not a readable tar ({error})", file=str(tar))
        return
    with tar.open("rb") as raw:
        raw.seek(end)
        if raw.read(BLOCK) != bytes(BLOCK):  # the standard library ends without a word
            yield Verdict(tar.name, TRUNCATED, f"damaged, or cut off, after {end:,} bytes", file=str(tar))


def _sort(tar: Path, file: tarfile.TarFile, member: tarfile.TarInfo, keys: dict[str, _Members]) -> Iterator[Verdict]:
    folder, slash, base = member.name.removeprefix("./").rpartition("/")
    stem, _, extension = base.partition(".")
    kind = extension.lower()
    image = is_image_name(f"x.{kind}") and "." not in kind
    if not image and kind not in (*TEXTS, "json"):
        return
    own = keys.setdefault(f"{folder}{slash}{stem}", _Members())
    if kind in own.extensions or (image and own.image is not None):
        name = f"{tar.name}/{member.name}"
        yield Verdict(name, DUPLICATE, f"at byte {member.offset:,}; the first one is used", file=str(tar))
        return
    own.extensions.add(kind)
    if image:
        own.image = TarPlace(str(tar), member.name.removeprefix("./"), member.offset_data, member.size)
        return
    opened = file.extractfile(member)
    data = b"" if opened is None else opened.read()
    if kind == "json":
        own.metadata = data
    else:
        own.text = data
