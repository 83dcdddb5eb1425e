"""From a folder to its source: recognise the layout, open it."""

import os
from pathlib import Path
from typing import Protocol

from in2r.data.left_out import LeftOut, read_row_numbers
from in2r.data.pairs import DEV_RULES, DataSource
from in2r.data.precomp import PrecompSource
from in2r.data.table import TableSource
from in2r.errors import InputError


class DataSettings(Protocol):
    """What the section `data` of a run's settings says of a folder."""

    @property
    def path(self) -> str:
        """The folder."""
        ...

    @property
    def layout(self) -> str:
        """As `open_data` takes it."""
        ...

    @property
    def dev_rule(self) -> str:
        """As `open_data` takes it."""
        ...

    @property
    def caption_vectors(self) -> str | None:
        """The suffix or file name, "auto" for a table's own file, None for captions as text."""
        ...

    @property
    def split_seed(self) -> int:
        """As `open_data` takes it."""
        ...

    @property
    def skip_missing(self) -> bool:
        """As `open_data` takes it."""
        ...

    @property
    def leave_out(self) -> str | None:
        """A file of the rows that are left out of the train split."""
        ...


def open_configured(data: DataSettings, *, announce: bool = True) -> DataSource:
    """Open the folder that settings name, as they say; see `open_data`."""
    source = open_data(
        data.path,
        layout=data.layout,
        dev_rule=data.dev_rule,
        caption_vectors=True if data.caption_vectors == "auto" else data.caption_vectors,
        split_seed=data.split_seed,
        skip_missing=data.skip_missing,
        announce=announce,
    )
    if data.leave_out is None:
        return source
    return LeftOut(source, read_row_numbers(Path(data.leave_out)), data.leave_out)


def open_data(
    path: str | os.PathLike[str],
    *,
    layout: str = "auto",
    dev_rule: str = "scan",
    caption_vectors: str | bool | None = None,
    split_seed: int | None = 0,
    skip_missing: bool = False,
    announce: bool = True,
) -> DataSource:
    """Recognise a data folder and return its source.

    Args:
        path: the folder.
        layout: "precomp" (the field's `{split}_ims.npy`, `{split}_caps.txt`), "table" (a pair table beside a
            feature file) or "auto".
        dev_rule: which part of a precomp folder's dev split counts: "scan" the first 1000 images with their
            captions, "ncr" the first 1000 caption rows where images are stored once per caption (5000 where
            not), "full" all. A pair table's dev split is always taken whole.
        caption_vectors: precomp: the suffix of `{split}_{suffix}.npy`; table: True or a file name. A table
            without captions uses its vectors unasked.
        split_seed: draws the split of a pair table without a split column; None: all of it is train.
        skip_missing: leave out the rows of a pair table whose image is not there, in place of refusing the table.
        announce: say so when a split is drawn or rows are left out; not where the same was announced before.

    Raises:
        InputError: no such folder, no layout recognised, or settings out of range.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder that holds the features and the captions")
    if (folder / "judge.safetensors").is_file():
        raise InputError(
            f"{folder}: an audit; expected the folder of the data that it judged, such as {folder / 'data'}"
        )
    if dev_rule not in DEV_RULES:
        raise InputError(f"dev_rule {dev_rule!r}: expected one of {', '.join(DEV_RULES)}")
    if layout == "auto":
        layout = _recognise(folder)
    if layout == "precomp":
        return PrecompSource(folder, dev_rule=dev_rule, caption_vectors=caption_vectors)
    if layout == "table":
        return TableSource(
            folder,
            dev_rule=dev_rule,
            caption_vectors=caption_vectors,
            split_seed=split_seed,
            skip_missing=skip_missing,
            announce=announce,
        )
    raise InputError(f"layout {layout!r}: expected one of auto, precomp, table")


LAYOUTS = "train_ims.npy with train_caps.txt (precomp), or pairs.csv|tsv|jsonl|parquet with images.npy (table)"
"""the files by which a data folder is known"""


def holds_data(folder: Path) -> bool:
    """Say whether a folder has files of any layout."""
    return folder.is_dir() and any(_held(sorted(entry.name for entry in folder.iterdir())))


def _held(names: list[str]) -> tuple[bool, bool]:
    """Return whether files are those of precomp, and whether they are those of a pair table."""
    precomp = any(name.endswith("_ims.npy") for name in names)
    return precomp, "data.json" in names or any(name.startswith("pairs.") for name in names)


def _recognise(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    precomp, table = _held(names)
    if precomp and table:
        raise InputError(
            f"{folder}: holds both *_ims.npy and a pair table; say which by data.layout=precomp or "
            "data.layout=table (--layout where a verb takes no settings)"
        )
    if precomp or table:
        return "precomp" if precomp else "table"
    found = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") or "nothing"
    raise InputError(f"{folder}: found {found}; expected {LAYOUTS}")
