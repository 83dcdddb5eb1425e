"""The vectors of an index for other tools: npy with a list of ids, or Parquet with all columns."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from in2r.data.features import create_npy, require_whole
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space, write_csv
from in2r.search.index import Index

ROWS = 4096
"""Items that are written at a time; a row group of the Parquet file."""


def export_index(index: Index, target: Path) -> list[Path]:
    """Write all vectors with their ids; return the files.

    Args:
        index: the index.
        target: `NAME.npy`: the vectors (N, D), and `NAME.csv` beside it, whose row i is item i: `item`, the id, and all
            columns. `NAME.parquet`: `item`, `vector` (a list of D numbers) and all columns. Several values of a column
            stand in one text, a line each.

    Raises:
        InputError: another ending; pyarrow is not installed.
    """
    if target.suffix not in (".npy", ".parquet"):
        raise InputError(f"{target}: expected a name that ends in .npy or .parquet")
    target.parent.mkdir(parents=True, exist_ok=True)
    require_free_space(target.parent, index.vectors.nbytes)
    names = [name if name not in ("item", "vector") else f"{name}_" for name in index.config.columns]
    if target.suffix == ".parquet":
        _write_parquet(index, target, names)
        return [target]
    with atomic_path(target) as temporary:
        out = create_npy(temporary, index.vectors.dtype, index.vectors.shape)
        for start in range(0, len(index), ROWS):
            require_whole(index.vectors)
            some = slice(start, min(start + ROWS, len(index)))
            out[some] = index.vectors[some]
        out.flush()
    table = target.with_suffix(".csv")
    write_csv(table, ["item", *names], (_row(index, name, columns) for name, columns in index))
    return [target, table]


def _row(index: Index, name: str, columns: dict[str, list[str]]) -> list[str]:
    return [name, *("\n".join(columns.get(column, ())) for column in index.config.columns)]


def _write_parquet(index: Index, target: Path, names: list[str]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(f'{target}: writing Parquet needs pyarrow: pip install "in2r[parquet]"') from None
    kind = pyarrow.float16() if index.vectors.itemsize == 2 else pyarrow.float32()
    text = [pyarrow.field(name, pyarrow.string()) for name in names]
    vector = pyarrow.field("vector", pyarrow.list_(kind, index.config.dim))
    schema = pyarrow.schema([pyarrow.field("item", pyarrow.string()), vector, *text])
    items = iter(index)
    with atomic_path(target) as temporary, pyarrow.parquet.ParquetWriter(temporary, schema) as writer:
        for start in range(0, len(index), ROWS):
            require_whole(index.vectors)
            flat: Any = np.ascontiguousarray(index.vectors[start : start + ROWS]).reshape(-1)
            rows = [_row(index, name, columns) for name, columns in islice(items, ROWS)]
            columns = [pyarrow.array(list(column), pyarrow.string()) for column in zip(*rows, strict=True)]
            vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat, kind), index.config.dim)
            writer.write_table(pyarrow.Table.from_arrays([columns[0], vectors, *columns[1:]], schema=schema))
