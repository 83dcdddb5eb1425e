"""A folder in which photo.txt lies beside photo.jpg, as img2dataset writes files: text, JSON and image of one name."""

import os
from collections.abc import Iterator
from pathlib import Path

from in2r.data.verdicts import DUPLICATE, MISSING, Verdict
from in2r.raw.downloads import failed_downloads
from in2r.raw.finder import is_image_name
from in2r.raw.places import FilePlace, Item
from in2r.raw.samples import Found, Sample, captions_of, read_metadata, source_of
from in2r.raw.source import Source


def read_beside(folder: Path) -> Source:
    """Read all images below a folder with the txt of the same name, a caption a line; a json's fields are kept.

    Raises:
        InputError: no image has a txt beside it.
    """
    return source_of(folder, lambda: _found(folder))


def _found(folder: Path) -> Iterator[Found]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        inside = Path(parent)
        by_stem: dict[str, list[str]] = {}
        for name in sorted(names):
            by_stem.setdefault(os.path.splitext(name)[0], []).append(name)
        for stem, own in by_stem.items():
            yield from _sample(folder, inside, stem, own)
        for name in folders:
            yield from failed_downloads(inside / f"{name}.parquet", (inside / name).relative_to(folder).as_posix())


def _sample(folder: Path, inside: Path, stem: str, names: list[str]) -> Iterator[Found]:
    """Yield what the files of one stem make."""
    images = [name for name in names if is_image_name(name)]
    relative = inside.relative_to(folder)
    text = _read(inside / f"{stem}.txt") if f"{stem}.txt" in names else None
    if not images:
        if text is not None:
            name = (relative / f"{stem}.txt").as_posix()
            yield Verdict(name, MISSING, "no image of this name beside it", file=str(inside / f"{stem}.txt"))
        return
    metadata = read_metadata(_read(inside / f"{stem}.json")) if f"{stem}.json" in names else {}
    first, *more = images
    name = (relative / first).as_posix()
    yield Sample(Item(name, FilePlace(str(inside / first))), captions_of(text, metadata), metadata)
    for other in more:
        name = (relative / other).as_posix()
        yield Verdict(name, DUPLICATE, f"{first} of the same name is used", file=str(inside / other))


def _read(file: Path) -> bytes:
    """Return a small file's content, or nothing where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return b""
