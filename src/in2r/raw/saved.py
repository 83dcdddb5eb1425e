"""A folder that the package `datasets` wrote with `save_to_disk`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from in2r.errors import InputError
from in2r.raw.columns import choose_caption
from in2r.raw.places import Item, RowPlace
from in2r.raw.samples import Found, Sample, source_of
from in2r.raw.source import Source


def is_saved(folder: Path) -> bool:
    """Say whether a folder is one of a data set, or of its splits."""
    return (folder / "dataset_dict.json").is_file() or (folder / "dataset_info.json").is_file()


def read_saved(folder: Path, image: str | None, caption: str | None) -> Source:
    """Read the samples of a saved data set; its splits become the column `split`.

    Args:
        folder: what `save_to_disk` wrote.
        image: the column of images; None: the one that is declared as images.
        caption: the column of captions; None: the usual names are tried.

    Raises:
        InputError: the package is absent, the folder is broken, or there is no such column.
    """
    try:
        import datasets
    except ImportError:
        raise InputError(f'{folder}: reading it needs datasets: pip install "in2r[datasets]"') from None
    try:
        loaded: Any = datasets.load_from_disk(str(folder))
    except Exception as error:  # of files, schemas, versions: the package raises what it met
        raise InputError(f"{folder}: cannot be read ({' '.join(str(error).split())[:300]})") from error
    splits: dict[str, Any] = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"": loaded}
    features = next(iter(splits.values())).features
    image = image or _image_column(folder, features)
    if image not in features:
        raise InputError(f"{folder}: no column {image!r} (--image-column); found {', '.join(map(repr, features))}")
    caption = choose_caption(folder, [name for name in features if name != image], caption)
    pictures = {
        name: rows.select_columns([image]).cast_column(image, datasets.Image(decode=False))
        for name, rows in splits.items()
    }
    others = {name: rows.remove_columns([image]) for name, rows in splits.items()}

    def found() -> Iterator[Found]:
        for name, rows in others.items():
            for row, fields in enumerate(rows):
                place = RowPlace(pictures[name], image, row, f"{folder}:{name}" if name else str(folder))
                own = {"split": name} if name else {}
                yield Sample(
                    Item(f"{name}/{row}" if name else str(row), place), _captions(fields[caption]), {**fields, **own}
                )

    return source_of(folder, found)


def _image_column(folder: Path, features: Any) -> str:
    declared = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
    if len(declared) == 1:
        return str(declared[0])
    said = f"{', '.join(map(repr, declared))} may all be it" if declared else "none is declared as images"
    raise InputError(
        f"{folder}: which column holds the image? {said}; found {', '.join(map(repr, features))}; name it with "
        "--image-column"
    )


def _captions(value: Any) -> list[str]:
    """Return the captions of a cell: a text, or a list of texts."""
    texts = value if isinstance(value, list) else [value]
    return [" ".join(str(text).split()) for text in texts if text is not None and str(text).strip()]
