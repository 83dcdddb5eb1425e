"""made_from.json: from what, and with which settings, `in2r features` made a data folder."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from in2r.errors import InputError
from in2r.files import read_json, write_json
from in2r.form import read

FILE = "made_from.json"
FORMAT = {"format": "in2r-made-from", "format_version": 1}


@dataclass(frozen=True)
class MadeFrom:
    """What a data folder was made from.

    Attributes:
        name: of the table, such as shop.csv, or of the folder that held images and captions.
        settings: what decides the features, as plain values.
    """

    name: str
    settings: dict[str, object]


def write_made_from(folder: Path, name: str, settings: Mapping[str, object]) -> None:
    """Write made_from.json of a data folder."""
    write_json(folder / FILE, {**FORMAT, **asdict(MadeFrom(name, dict(settings)))})


def read_made_from(folder: Path) -> MadeFrom | None:
    """Read made_from.json; None where a folder has none.

    Raises:
        InputError: it is no such file.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or any(record.get(key) != value for key, value in FORMAT.items()):
        raise InputError(f"{path}: not written by `in2r features` (format version {FORMAT['format_version']})")
    return read(MadeFrom, {key: value for key, value in record.items() if key not in FORMAT}, str(path))
