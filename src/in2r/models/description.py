"""What a copy of a model says of itself: of the networks that are in it, and without folders of this machine."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from in2r.models.retrieval import RetrievalModel

_FOLDERS = re.compile(r"(?<![\w./\\])(?:~\w*|[A-Za-z]:)?[/\\](?![/\\])(?:[^\s/\\]+[/\\])+")
"""an absolute path up to its last part, within a text: not the slashes of an address or of a name such as a/b"""


def description(model: "RetrievalModel") -> dict[str, Any]:
    """Return the content of config.json of a copy."""
    info: dict[str, Any] = without_folders(model.info)
    info["networks"] = list(model.networks)
    if "dev" in info:
        info["dev"] = rows_of(info["dev"], info["networks"])
    return info


def rows_of(rows: Mapping[str, Any], networks: Sequence[str]) -> dict[str, Any]:
    """Return the figures of these networks, and those of the ensemble where they are several."""
    wanted = [*networks, *(["ensemble"] if len(networks) > 1 else [])]
    return {name: rows[name] for name in wanted if name in rows}


def without_folders(value: Any) -> Any:
    """Return plain values in which an absolute path is its last part: folders may name people and projects."""
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_folders(each) for each in value]
    if not isinstance(value, str):
        return value
    return base_name(value) if re.match(r"[/\\~]|[A-Za-z]:[/\\]", value) else _FOLDERS.sub("", value)


def base_name(path: str) -> str:
    r"""Return the last part of a path with / or \."""
    return PureWindowsPath(path).name
