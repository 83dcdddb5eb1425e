"""From what a user names to a source: a table, tars, a saved data set, or texts beside images."""

from pathlib import Path

from in2r.errors import InputError
from in2r.raw.beside import read_beside
from in2r.raw.saved import is_saved, read_saved
from in2r.raw.source import Source
from in2r.raw.table import read_pairs
from in2r.raw.tars import find_tars, read_tars


def open_source(
    images: Path,
    pairs: Path | None = None,
    *,
    image: str | None = None,
    caption: str | None = None,
    split: str | None = None,
    encoding: str | None = None,
) -> Source:
    """Recognise what holds images and captions.

    Args:
        images: a folder of images; without `pairs` also tars, or what `datasets` saved.
        pairs: a table of captions.
        image: see `read_pairs`, as the others.
        caption: of a table or a saved data set.
        split: of a table.
        encoding: of a table.

    Raises:
        InputError: nothing is there, nothing fits, or a name of a column is given where there are no columns.
    """
    if pairs is not None:
        return read_pairs(images, pairs, image=image, caption=caption, split=split, encoding=encoding)
    if not images.exists():
        raise InputError(f"{images}: no such file or folder; give the folder that holds the images")
    if images.is_dir() and is_saved(images):
        return read_saved(images, image, caption)
    if image or caption or split or encoding:
        raise InputError(f"{images}: columns and encodings are those of a table; give the table of captions as PAIRS")
    tars = find_tars(images)
    return read_tars(images, tars) if tars else read_beside(images)
