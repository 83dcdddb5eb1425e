"""Presets: named settings. A preset names its method: `in2r` is the method's defaults, `in2r/tuned` a variant of it."""

from collections.abc import Mapping
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any

from in2r.errors import InputError, near
from in2r.settings_text import merge, read_yaml

_FOLDER = Path(str(files("in2r").joinpath("presets")))


def presets() -> list[str]:
    """Return the names of the presets that come with the package: a method's defaults, then its variants."""
    return sorted(path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.rglob("*.yaml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return the settings of a preset.

    Args:
        name: one of `presets`, the name of a method that an installed package offers, or "file.py:Class", a method of
            the user's own; or several, "in2r/discard+recipe/softmax", of which a later one has the last word.

    Raises:
        InputError: no such preset.
    """
    from in2r.methods import find_method, method_names  # imports PyTorch, which a list of names does not need

    file, _, which = name.rpartition(":")
    if "+" in which or ("+" in file and not Path(file).is_file()):  # else it belongs to the file's name
        parts = name.split("+")
        if not all(parts):
            raise InputError(f"{name}: expected presets on both sides of each +")
        try:
            return reduce(merge, map(read_preset, parts))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    if name in presets():
        return on_preset(read_yaml(_FOLDER / f"{name}.yaml"))
    if name in method_names() or ".py:" in name:
        find_method(name)
        return {"method": {"name": name}}
    what = "a file, where a preset is expected" if Path(name).is_file() else "neither a file nor a preset"
    raise InputError(f"{name}: {what}; presets: {', '.join(presets())}{near(name, presets())}")


def on_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings laid on those of the preset that their key `preset` names, where there is one.

    Raises:
        InputError: no such preset.
    """
    rest = {key: value for key, value in settings.items() if key != "preset"}
    base = settings.get("preset")
    return rest if base is None else merge(read_preset(str(base)), rest)
