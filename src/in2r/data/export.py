"""The image features of a data folder as Parquet, which other engines read."""

from collections.abc import Callable
from pathlib import Path

from in2r.data.convert import open_pyarrow
from in2r.data.pairs import DataSource
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space


def export_features(source: DataSource, target: Path, progress: Callable[[int, int], None] | None = None) -> int:
    """Write a row for each image, block by block; return how many there are.

    Columns: `image`, the id; `split`; `regions`, how many of its regions are real; `features`, a list of regions × dim
    numbers, region by region, 0 beyond the real ones. The file's metadata have `regions` and `dim`. Numbers are
    float32, because few engines read float16. Images stand split by split, in the order of the features; those without
    a caption are left out.

    Args:
        source: the data folder.
        target: the file to write.
        progress: called with (images written, images).

    Raises:
        InputError: the file is there, does not end in .parquet, or is too large for the disk; splits differ in regions
            or dim; pyarrow is not installed.
    """
    if target.suffix != ".parquet":
        raise InputError(f"{target}: expected a name that ends in .parquet")
    if target.exists():
        raise InputError(f"{target}: is there already; give another name")
    pyarrow, parquet = open_pyarrow()
    splits = [source.split(name) for name in source.split_names]
    shapes = {pairs.name: f"{pairs.images.regions} × {pairs.images.dim}" for pairs in splits}
    if len(set(shapes.values())) != 1:
        named = ", ".join(f"{name} has {shape}" for name, shape in shapes.items()) or "no split"
        raise InputError(f"{source.path}: {named}; one file needs the same regions × dim in all splits")
    regions, dim = splits[0].images.regions, splits[0].images.dim
    total, done = sum(len(pairs.images) for pairs in splits), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    require_free_space(target.parent, 4 * total * regions * dim)
    schema = pyarrow.schema(
        [
            ("image", pyarrow.string()),
            ("split", pyarrow.string()),
            ("regions", pyarrow.int32()),
            ("features", pyarrow.list_(pyarrow.float32(), regions * dim)),
        ],
        metadata={"regions": str(regions), "dim": str(dim)},
    )
    with atomic_path(target) as temporary, parquet.ParquetWriter(temporary, schema, use_dictionary=["split"]) as writer:
        for pairs in splits:
            lengths, start = pairs.images.lengths, 0
            for rows, values in pairs.images.blocks():
                stop = start + len(rows)
                flat = pyarrow.array(values.astype("float32").reshape(-1))
                columns = [
                    pyarrow.array(pairs.image_ids[start:stop], pyarrow.string()),
                    pyarrow.array([pairs.name] * len(rows), pyarrow.string()),
                    pyarrow.array([regions] * len(rows) if lengths is None else lengths[start:stop], pyarrow.int32()),
                    pyarrow.FixedSizeListArray.from_arrays(flat, regions * dim),
                ]
                writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
                start, done = stop, done + len(rows)
                if progress is not None:
                    progress(done, total)
    return total
