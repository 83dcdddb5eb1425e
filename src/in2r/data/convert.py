"""From a precomp folder to a pair table with one feature file."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from in2r.data.features import Features, create_npy
from in2r.data.pairs import PairSet, require_usable
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space, write_csv, write_text

KINDS = ("tsv", "csv", "jsonl", "parquet")


def convert_precomp(
    source: Path | str,
    target: Path | str,
    *,
    kind: str = "tsv",
    dev_rule: str = "scan",
    caption_vectors: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a precomp folder as a pair table: pairs, images.npy, image_ids.txt and, if asked, captions.npy.

    `open_data(target)` gives the pairs, captions and features that `open_data(source, dev_rule=...)` gives;
    images stored once per caption are then stored once. The table comes last, so that a conversion cut
    short is no data folder.

    Args:
        source: the precomp folder.
        target: the new folder, absent or empty.
        kind: the table's format: tsv, csv, jsonl or parquet.
        dev_rule: which part of the dev split to take, as in `open_data`.
        caption_vectors: the suffix of `{split}_{suffix}.npy` to take along as captions.npy.
        progress: called with (images written, images).

    Raises:
        InputError: the source is unusable, the target is not empty, or its disk too small.
    """
    folder = Path(target)
    if kind not in KINDS:
        raise InputError(f"kind {kind!r}: expected one of {', '.join(KINDS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is not empty; give a new folder")
    data = open_data(source, layout="precomp", dev_rule=dev_rule, caption_vectors=caption_vectors)
    splits = [data.split(name) for name in data.split_names]
    if not splits:
        raise InputError(f"{source}: no train_ims.npy, dev_ims.npy or test_ims.npy; expected a precomp folder")
    for pairs in splits:
        require_usable(pairs)
    if kind == "parquet":
        open_pyarrow()  # before the long part
    folder.mkdir(parents=True, exist_ok=True)
    vectors = [pairs.caption_vectors for pairs in splits if pairs.caption_vectors is not None]
    images = [pairs.images for pairs in splits]
    require_free_space(folder, sum(part.nbytes for part in [*images, *vectors]))
    _write_features(folder / "images.npy", images, progress)
    if vectors:
        _write_features(folder / "captions.npy", vectors, None)
    ids = _image_ids(splits)
    if ids is not None:
        write_text(folder / "image_ids.txt", "".join(f"{name}\n" for name in ids))
    _write_table(folder / f"pairs.{kind}", kind, _columns(splits, ids))


def _write_features(path: Path, parts: Sequence[Features], progress: Callable[[int, int], None] | None) -> None:
    """Write parts one after another, block by block; single regions as (rows, dim)."""
    shapes = {part.array.shape[1:] for part in parts}
    if len(shapes) > 1:
        named = ", ".join(f"{part.source} {part.array.shape}" for part in parts)
        raise InputError(f"{named}: regions and dim differ; one feature file needs them equal")
    regions, dim = shapes.pop()
    total = sum(map(len, parts))
    shape = (total, dim) if regions == 1 else (total, regions, dim)
    done = 0
    with atomic_path(path) as temporary:
        out = create_npy(temporary, np.result_type(*(part.dtype for part in parts)), shape)
        for part in parts:
            for rows, values in part.blocks():
                out[done : done + len(rows)] = values.reshape(len(rows), *shape[1:])
                done += len(rows)
                if progress is not None:
                    progress(done, total)
        out.flush()
        del out


def _image_ids(splits: Sequence[PairSet]) -> list[str] | None:
    """Return the names of all images when they can serve as keys, else None: the table then names rows."""
    ids = [name for pairs in splits for name in pairs.image_ids]
    return ids if len(set(ids)) == len(ids) and "" not in ids else None


def _columns(splits: Sequence[PairSet], ids: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the table by columns; `caption` is left out when the source has vectors only."""
    columns: dict[str, list[str]] = {"image": [], "caption": [], "split": []}
    start = 0
    for pairs in splits:
        rows = (pairs.image_of_caption + start).tolist()
        columns["image"] += [str(row) if ids is None else ids[row] for row in rows]
        columns["caption"] += pairs.captions or []
        columns["split"] += [pairs.name] * len(rows)
        start += len(pairs.images)
    return {name: column for name, column in columns.items() if column}


def _write_table(path: Path, kind: str, columns: Mapping[str, Sequence[str]]) -> None:
    records = zip(*columns.values(), strict=True)
    if kind == "parquet":
        pyarrow, parquet = open_pyarrow()
        with atomic_path(path) as temporary:
            parquet.write_table(pyarrow.table(columns), temporary)
    elif kind == "jsonl":
        objects = (dict(zip(columns, record, strict=True)) for record in records)
        write_text(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in objects))
    else:
        write_csv(path, columns, records, delimiter="\t" if kind == "tsv" else ",")


def open_pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet; `InputError` says how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError('writing Parquet needs pyarrow: pip install "in2r[parquet]"') from None
    return pyarrow, pyarrow.parquet
