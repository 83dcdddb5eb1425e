"""Which files of a folder hold the pair table and its parts, and the small ones of them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import open_npy
from in2r.data.pieces import has_pieces
from in2r.data.rows import read_ids
from in2r.errors import Faults, InputError
from in2r.files import read_json

FILES = {
    "features": "images.npy",
    "lengths": "image_lengths.npy",
    "image_ids": "image_ids.txt",
    "caption_vectors": "captions.npy",
}
TABLES = ("pairs.parquet", *(f"pairs.{kind}{gz}" for kind in ("csv", "tsv", "jsonl") for gz in ("", ".gz")))


@dataclass(frozen=True)
class Layout:
    """Where the parts of a folder lie; optional ones are None when absent."""

    table: Path
    features: Path
    lengths: Path | None
    image_ids: Path | None
    caption_vectors: Path
    encoding: str | None  # of the text files that have no byte-order mark; None means UTF-8
    columns: dict[str, str]  # image, caption, split → the table's own names


def find_layout(folder: Path) -> Layout:
    """Find the parts of a folder, by data.json or by their usual names."""
    path = folder / "data.json"
    named = read_json(path) if path.is_file() else {}
    _require_keys(path, named, ("table", "columns", "encoding", *FILES))
    _require_encoding(path, named.get("encoding"))
    columns = named.get("columns", {})
    _require_keys(path, columns, ("image", "caption", "split"), "columns.")
    tables = [named["table"]] if "table" in named else [name for name in TABLES if (folder / name).is_file()]
    if len(tables) != 1:
        found = " and ".join(tables) or "none of them"
        raise InputError(f"{folder}: found {found}; expected one of {', '.join(TABLES)}, or its name in data.json")
    files = {key: folder / named[key] if key in named else file_or_pieces(folder / name) for key, name in FILES.items()}
    for key in ("lengths", "image_ids"):
        if key in named and not files[key].is_file():
            raise InputError(f"{path}: {key}: no file {files[key].name} in the folder")
    return Layout(
        table=folder / tables[0],
        features=files["features"],
        # lexists: a link that leads nowhere is a fault to be named, not a part that is absent
        lengths=files["lengths"] if os.path.lexists(files["lengths"]) else None,
        image_ids=files["image_ids"] if os.path.lexists(files["image_ids"]) else None,
        caption_vectors=files["caption_vectors"],
        encoding=named.get("encoding"),
        columns={name: columns.get(name, name) for name in ("image", "caption", "split")},
    )


def file_or_pieces(file: Path) -> Path:
    """Return an npy file, or the folder of pieces of its name where there is one, such as images/ for images.npy.

    Raises:
        InputError: both are there.
    """
    pieces = file.with_suffix("")
    if file.suffix != ".npy" or not has_pieces(pieces):
        return file
    if os.path.lexists(file):
        raise InputError(f"{pieces}: a folder of npy files beside {file.name}; remove the one that is not meant")
    return pieces


def _require_keys(path: Path, value: Any, known: tuple[str, ...], prefix: str = "") -> None:
    if not isinstance(value, dict):
        what = prefix.rstrip(".") or "the file"
        raise InputError(f"{path}: {what} is not an object; expected the keys {', '.join(known)}")
    for key, name in value.items():
        if key not in known:
            raise InputError(f"{path}: unknown key {prefix}{key}; expected {', '.join(known)}")
        if not isinstance(name, str) and key != "columns":
            raise InputError(f"{path}: {prefix}{key} is {name!r}; expected a name")


def _require_encoding(path: Path, name: str | None) -> None:
    try:
        "a".encode(name or "utf-8")
    except (LookupError, UnicodeError):  # unknown, or no encoding of text
        raise InputError(
            f"{path}: encoding {name!r} is not known; expected a name such as cp1252, utf-16-le or gb18030"
        ) from None


def read_image_ids(layout: Layout, images: int) -> list[str] | None:
    """Read the ids of the images, one a line; None when the folder has none."""
    if layout.image_ids is None:
        return None
    ids = read_ids(layout.image_ids, layout.encoding)
    faults = Faults()
    if len(ids) != images:
        faults.add(f"{layout.image_ids}: {len(ids)} ids but {images} rows in {layout.features.name}")
    seen: dict[str, int] = {}
    for line, name in enumerate(ids, start=1):
        if seen.setdefault(name, line) != line:
            faults.add(f"{layout.image_ids}: line {line} repeats {name!r} of line {seen[name]}")
    faults.settle()
    return ids


def read_lengths(layout: Layout, images: int, regions: int) -> NDArray[np.int64] | None:
    """Read how many regions each image has, (images,) in 1..regions; None when every image has all."""
    path = layout.lengths
    if path is None:
        return None
    lengths = open_npy(path)
    if lengths.shape != (images,) or lengths.dtype.kind not in "iu":
        found = f"{lengths.dtype} {lengths.shape}"
        raise InputError(f"{path}: {found}; expected one integer for each of the {images} images")
    faults = Faults()
    for row in np.flatnonzero((lengths < 1) | (lengths > regions)).tolist():
        faults.add(f"{path}: row {row} (from 0) is {lengths[row]}; lengths are 1 to {regions}")
    faults.settle()
    return lengths.astype(np.int64)
