"""The vectors of an index for other tools: npy with a list of ids, or Parquet with all columns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import create_npy
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space, write_csv
from in2r.search.base import Item, View
from in2r.search.index import Index


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
    with index.reading() as view:
        require_free_space(target.parent, view.config.count * view.config.dim * view.dtype.itemsize)
        return _write_parquet(view, target) if target.suffix == ".parquet" else _write_npy(view, target)


def _names(view: View) -> list[str]:
    return ["item", *(name if name not in ("item", "vector") else f"{name}_" for name in view.config.columns)]


def _row(view: View, item: Item) -> list[str]:
    return [item["id"], *("\n".join(item["columns"].get(column, ())) for column in view.config.columns)]


def _write_npy(view: View, target: Path) -> list[Path]:
    table = target.with_suffix(".csv")
    with atomic_path(target) as temporary:
        out = create_npy(temporary, view.dtype, (view.config.count, view.config.dim))
        write_csv(table, _names(view), _copied(view, out))
        out.flush()
    return [target, table]


def _copied(view: View, out: NDArray[Any]) -> Iterator[list[str]]:
    """Yield the row of each item, once its vector is in `out`."""
    done = 0
    for items, vectors in view.blocks():
        out[done : done + len(items)] = vectors
        done += len(items)
        yield from (_row(view, item) for item in items)


def _write_parquet(view: View, target: Path) -> list[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(f'{target}: writing Parquet needs pyarrow: pip install "in2r[parquet]"') from None
    kind, dim = pyarrow.float16() if view.dtype.itemsize == 2 else pyarrow.float32(), view.config.dim
    item, *text = [pyarrow.field(name, pyarrow.string()) for name in _names(view)]
    schema = pyarrow.schema([item, pyarrow.field("vector", pyarrow.list_(kind, dim)), *text])
    with atomic_path(target) as temporary, pyarrow.parquet.ParquetWriter(temporary, schema) as writer:
        for items, values in view.blocks():
            rows = [_row(view, item) for item in items]
            columns = [pyarrow.array(list(column), pyarrow.string()) for column in zip(*rows, strict=True)]
            flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1), kind)
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, dim)
            writer.write_table(pyarrow.Table.from_arrays([columns[0], vectors, *columns[1:]], schema=schema))
    return [target]
