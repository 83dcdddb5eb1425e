"""encoder.json: which encoders made the features of a folder, and whether two such records mean the same features."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from in2r.errors import InputError
from in2r.files import read_json, write_json

FILE = "encoder.json"
FORMAT = {"format": "in2r-encoder", "format_version": 1}
SIDES = ("image", "text")

_DECIDES = ("kind", "weights_sha256", "preprocessing", "regions", "tokenizer", "pooling", "dim")
"""Keys of a side by which features are the same; its name may be a path, and versions move roundings at most."""


def write_encoder(folder: Path, image: Mapping[str, Any], text: Mapping[str, Any] | None) -> None:
    """Write encoder.json of a data folder."""
    write_json(folder / FILE, {**FORMAT, "image": image, "text": text})


def read_encoder(folder: Path) -> dict[str, Any] | None:
    """Read encoder.json; None where a folder has none, as most have that other tools made.

    Raises:
        InputError: it is no such file.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or any(record.get(key) != value for key, value in FORMAT.items()):
        raise InputError(f"{path}: not the record of an encoder (format version {FORMAT['format_version']})")
    return {side: record.get(side) for side in SIDES}


def other_encoders(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, sides: tuple[str, ...] = SIDES
) -> list[str]:
    """Say, side by side, which encoder made the features before and which makes them now, where they differ.

    A record that is absent says nothing, so it differs from none.

    Args:
        before: the record of a run or a model.
        now: that of the data at hand.
        sides: which of `SIDES` are read.
    """
    found = []
    for side in sides:
        one, other = (before or {}).get(side), (now or {}).get(side)
        if one is None or other is None:
            continue
        differ = [key for key in _DECIDES if one.get(key) != other.get(key)]
        if differ:
            names = " and ".join(key.replace("_", " ") for key in differ)
            found.append(f"the {side} encoder ({label(one)}, now {label(other)}: other {names})")
    return found


def require_same_encoder(info: Mapping[str, Any], features: Path, sides: tuple[str, ...] = SIDES) -> None:
    """Refuse features whose folder names another encoder than that of a model's training data.

    Args:
        info: the model's config.json.
        features: a file in a data folder, or the folder.
        sides: which of `SIDES` are used.

    Raises:
        InputError: both records are there and differ; what differs, and both names.
    """
    trained = info.get("protocol", {}).get("data", {}).get("encoder")
    folder = features if features.is_dir() else features.parent
    changed = other_encoders(trained, read_encoder(folder), sides)
    if changed:
        raise InputError(f"{features}: not from the encoder that the model was trained with: {' and '.join(changed)}")


def label(side: Mapping[str, Any]) -> str:
    """Name an encoder in a message."""
    return f"{side.get('kind')}:{side.get('name')}"
