"""Which columns of a table hold image, caption and split, and how its text is encoded."""

import codecs
import logging
from pathlib import Path

from in2r.data.rows import read_bytes
from in2r.data.table_rows import read_names
from in2r.errors import InputError, near

log = logging.getLogger(__name__)

IMAGE_NAMES = (
    "image", "images", "image_path", "image_file", "image_name", "image_id", "image_filename", "img", "img_path",
    "file", "file_name", "filename", "file_path", "filepath", "path", "photo", "picture", "key",
)  # fmt: skip
CAPTION_NAMES = (
    "caption", "captions", "text", "title", "description", "sentence", "alt", "alt_text", "prompt",
)  # fmt: skip
"""Usual names, tried in lower case with _ for blanks and dashes; used only where one column of the table has one."""


def choose_columns(
    path: Path, encoding: str | None, image: str | None, caption: str | None, split: str | None
) -> dict[str, str]:
    """Return image, caption and split → the table's own names; split is left out where there is none.

    Args:
        path: the table.
        encoding: as `read_table` takes it.
        image: the name that the user gave, or None: the usual ones are tried.
        caption: likewise.
        split: likewise; without a name only `split` itself is one.

    Raises:
        InputError: no such column, or several that may be meant; with the columns found.
    """
    found = read_names(path, encoding)
    columns = {
        "image": _choose(path, found, image, IMAGE_NAMES, "image"),
        "caption": choose_caption(path, found, caption),
    }
    if split is not None:
        columns["split"] = _given(path, found, split, "split")
    else:
        own = [name for name in found if name.casefold() == "split"]
        columns |= {"split": own[0]} if len(own) == 1 else {}
    return columns


def choose_caption(path: Path, found: list[str], given: str | None) -> str:
    """Return the column of captions among the columns found; see `choose_columns`."""
    return _choose(path, found, given, CAPTION_NAMES, "caption")


def _choose(path: Path, found: list[str], given: str | None, usual: tuple[str, ...], what: str) -> str:
    if given is not None:
        return _given(path, found, given, what)
    matching = [name for name in found if name.casefold().replace(" ", "_").replace("-", "_") in usual]
    exact = [name for name in matching if name.casefold() == what]
    if len(exact) == 1:
        return exact[0]
    if len(matching) == 1:
        return matching[0]
    said = f"{', '.join(map(repr, matching))} may all be it" if matching else "none has a usual name"
    raise InputError(
        f"{path}: which column holds the {what}? {said}; found {_listed(found)}; name it with --{what}-column"
    )


def _given(path: Path, found: list[str], given: str, what: str) -> str:
    same = [own for own in found if own == given] or [own for own in found if own.casefold() == given.casefold()]
    if len(same) > 1:
        raise InputError(
            f"{path}: several columns are named {given!r} (--{what}-column); rename those that are not meant"
        )
    if not same:
        raise InputError(f"{path}: no column {given!r} (--{what}-column); found {_listed(found)}{near(given, found)}")
    return same[0]


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


_SAMPLE = 2**20
"""bytes that are looked at for zero bytes, which UTF-16 without a mark has"""
MOST_ZEROS = 0.02
"""share of zero bytes, at odd or at even places, above which a table is UTF-16: its digits alone make more"""


def find_encoding(path: Path) -> str | None:
    """Return the encoding of a text table: None for UTF-8 and for what a byte-order mark says.

    Text that is no UTF-8 is taken as that of Windows in western Europe, with a warning: nothing in it tells.

    Raises:
        InputError: it is neither.
    """
    if path.name.lower().endswith(".parquet"):
        return None
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    head = data[:_SAMPLE]
    zeros = head[1::2].count(0), head[::2].count(0)
    if max(zeros) > MOST_ZEROS * len(head):
        return "utf-16-le" if zeros[0] > zeros[1] else "utf-16-be"
    if b"\0" in head:
        raise InputError(f"{path}: byte {head.index(0)} is zero, which no text has; save the table anew as UTF-8")
    return None if _is(data, "utf-8") else _windows(path, data)


def _windows(path: Path, data: bytes) -> str:
    if not _is(data, "cp1252"):
        raise InputError(f"{path}: neither UTF-8 nor cp1252; name the encoding with --encoding, such as gb18030")
    log.warning(
        "%s: not UTF-8; read as cp1252 (Windows, western Europe). If captions look wrong, name the encoding: "
        "--encoding, such as --encoding gb18030", path,
    )  # fmt: skip
    return "cp1252"


def _is(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
