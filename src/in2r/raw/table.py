"""A user's table beside a folder of images: copied as it is, its image values found as files."""

import shutil
from pathlib import Path

from in2r.data.table_rows import read_table
from in2r.errors import InputError
from in2r.files import atomic_path, sha256_file
from in2r.raw.columns import choose_columns, find_encoding
from in2r.raw.finder import WAYS, Finder
from in2r.raw.source import Source, distinct


def read_pairs(
    images: Path,
    table: Path,
    *,
    image: str | None = None,
    caption: str | None = None,
    split: str | None = None,
    encoding: str | None = None,
) -> Source:
    """Read a pair table whose image values name files.

    Args:
        images: the folder that relative values start from.
        table: csv, tsv, txt, jsonl (each also .gz) or parquet.
        image: the column of images; None: the usual names are tried.
        caption: likewise, of captions.
        split: the column of splits; None: `split`, if there is one.
        encoding: of a text table; None: it is found.

    Raises:
        InputError: no such file, folder or column; broken lines; no row.
    """
    if not table.is_file():
        raise InputError(f"{table}: no such file; give the table of captions")
    encoding = encoding or find_encoding(table)
    columns = choose_columns(table, encoding, image, caption, split)
    rows = read_table(table, [columns["image"], columns["caption"]], [], encoding)
    if not rows.lines:
        raise InputError(f"{table}: no row below the header")
    finder = Finder(images)
    items = [finder.find(value) for value in distinct(rows.columns[columns["image"]])]

    def write(path: Path) -> None:
        with atomic_path(path) as temporary:
            shutil.copyfile(table, temporary)

    return Source(
        name=table.name,
        table=f"pairs{_endings(table)}",
        write_table=write,
        columns=columns,
        encoding=encoding,
        items=items,
        captions=rows.columns[columns["caption"]],
        identity={"images": str(images.absolute()), "table": sha256_file(table)},
        notes=[f"{count:,} images found {WAYS[way]}" for way, count in finder.ways.items()],
    )


def _endings(table: Path) -> str:
    """Return the ending of the copy's name, by which its kind is known: .csv, .tsv.gz, ...; a txt is a csv."""
    name = table.name.lower()
    packed = ".gz" if name.endswith(".gz") else ""
    kind = Path(name.removesuffix(".gz")).suffix
    return f"{'.csv' if kind == '.txt' else kind}{packed}"
