"""From a grid file to a grid: the rows of each group by its axes and their points, and the cells by the seeds.

Rows with the same settings are one cell, whatever groups they are in.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from in2r.bench.grid import Cell, Grid, Group, PaperRows, Row, cell_config, identity
from in2r.bench.paper import require_paper_rows
from in2r.errors import InputError
from in2r.methods.registry import absolute_name
from in2r.runs.settings import RunConfig
from in2r.settings_text import merge, parse_overrides, read_yaml

_GRIDS = Path(str(files("in2r").joinpath("grids")))

GRID_KEYS = ("title", "settings", "seeds", "folds", "groups")
GROUP_KEYS = ("title", "priority", "seeds", "settings", "axes", "baseline", "paper")
PAPER_KEYS = ("dataset", "noise", "rows", "quoted")


def read_grid(file: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read a grid file, or a grid of the package by its name, with `key=value` over the settings of every cell.

    Raises:
        InputError: no such file or grid, or not a mapping with `groups`.
    """
    path = Path(file)
    if not path.is_file() and path.name == str(file):
        path = _GRIDS / f"{file}.yaml" if str(file) in shipped_grids() else path
    if not path.is_file():
        raise InputError(f"{file}: neither a file nor a grid of the package ({', '.join(shipped_grids())})")
    values = read_yaml(path)
    settings = values.get("settings") or {}
    if not isinstance(settings, Mapping):
        raise InputError(f"{path}: `settings` must hold keys and values, got {settings!r}")
    return dict(_absolute_methods({**values, "settings": merge(settings, parse_overrides(overrides, RunConfig))}))


def _absolute_methods(values: Any, key: str = "") -> Any:
    """Return a grid's values with absolute paths of users' own methods: a grid is read again from any folder."""
    if isinstance(values, Mapping):
        return {name: _absolute_methods(value, f"{key}.{name}") for name, value in values.items()}
    if isinstance(values, list):
        return [_absolute_methods(value, key) for value in values]
    return absolute_name(values) if isinstance(values, str) and key.endswith("method.name") else values


def shipped_grids() -> list[str]:
    """Return the names of the grids of the package."""
    return sorted(path.stem for path in _GRIDS.glob("*.yaml"))


def expand(values: Mapping[str, Any], where: str = "grid") -> Grid:
    """Make the rows and cells of a grid.

    Args:
        values: as a grid file holds them.
        where: what messages call it.

    Raises:
        InputError: an unknown key, a group without rows, two rows or cells of one name, or settings that no run takes.
    """
    _refuse_unknown(values, GRID_KEYS, where)
    groups = values.get("groups")
    if not isinstance(groups, Mapping) or not groups:
        raise InputError(f"{where}: `groups` must name at least one group")
    cells: dict[str, Cell] = {}
    by_settings: dict[str, str] = {}
    made = []
    for name, group in groups.items():
        place = f"{where}: group {name}"
        if not isinstance(group, Mapping):
            raise InputError(f"{place}: expected keys and values, got {group!r}")
        _refuse_unknown(group, GROUP_KEYS, place)
        base = _lay(_lay({}, values.get("settings"), where), group.get("settings"), place)
        made.append(_group(str(name), group, base, _seeds(values, group, place), place, cells, by_settings))
    order = {name: number for number, name in enumerate(cells)}
    wanted = sorted(cells.values(), key=lambda cell: (cell.priority, order[cell.name]))
    folds = values.get("folds", 1)
    if type(folds) is not int or folds < 1:
        raise InputError(f"{where}: `folds` must be a whole number from 1, got {folds!r}")
    return Grid(str(values.get("title") or where), tuple(made), tuple(wanted), folds)


def _group(
    name: str,
    group: Mapping[str, Any],
    base: Mapping[str, Any],
    seeds: list[int],
    place: str,
    cells: dict[str, Cell],
    by_settings: dict[str, str],
) -> Group:
    axes = group.get("axes")
    if not isinstance(axes, Mapping) or not axes:
        raise InputError(f"{place}: `axes` must name at least one axis")
    points = [_points(str(axis), found, place) for axis, found in axes.items()]
    rows: dict[tuple[str, ...], dict[int, str]] = {}
    for seed, priority in zip(seeds, _priorities(group, len(seeds), place), strict=True):
        for chosen in itertools.product(*(found.items() for found in points)):
            labels = tuple(label for label, _ in chosen)
            settings: Mapping[str, Any] = base
            for label, point in chosen:
                settings = _lay(settings, point, f"{place}, {label}")
            settings = _with_seed(settings, seed, place)
            cell = Cell("_".join([_slug(name), *map(_slug, labels), f"s{seed}"]), seed, priority, settings)
            rows.setdefault(labels, {})[seed] = _enter(cell, cells, by_settings, place)
    baseline = None if group.get("baseline") is None else _label(group["baseline"], place)
    if baseline is not None and baseline not in points[0]:
        raise InputError(
            f"{place}: `baseline` must be a point of its first axis ({', '.join(points[0])}), got {baseline}"
        )
    made = tuple(Row(labels, found) for labels, found in rows.items())
    title = str(group.get("title") or name)
    return Group(name, title, tuple(map(str, axes)), made, baseline, _paper(group.get("paper"), points[0], place))


def _enter(cell: Cell, cells: dict[str, Cell], by_settings: dict[str, str], place: str) -> str:
    """Add a cell, unless its settings are there already; return the name under which they are."""
    try:
        key = identity(cell_config(cell))
    except InputError as error:
        raise InputError(f"{place}, cell {cell.name}: {error}") from None
    if key in by_settings:
        known = by_settings[key]
        if cell.priority < cells[known].priority:
            cells[known] = Cell(known, cell.seed, cell.priority, cells[known].settings)
        return known
    if cell.name in cells:
        raise InputError(f"{place}: two cells would be named {cell.name}; give the group or the points other names")
    cells[cell.name] = cell
    by_settings[key] = cell.name
    return cell.name


def _points(axis: str, found: Any, place: str) -> dict[str, Mapping[str, Any]]:
    """Return label → settings: a list of values of the key that the axis is named after, or labelled settings."""
    place = f"{place}, axis {axis}"
    if isinstance(found, list) and found:
        named = []
        for value in found:
            text = json.dumps(value, ensure_ascii=False, default=str)
            label = text if value is None or isinstance(value, bool) else _label(value, place)
            named.append((label, parse_overrides([f"{axis}={text}"], RunConfig)))
    elif isinstance(found, Mapping) and found:
        named = [(_label(label, place), _lay({}, point, f"{place}, {label}")) for label, point in found.items()]
    else:
        raise InputError(f"{place}: must hold a list of values or labelled settings, got {found!r}")
    points: dict[str, Mapping[str, Any]] = dict(named)
    if len(points) < len(named):
        labels = [label for label, _ in named]
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{place}: {twice} is there twice")
    return points


def _label(value: Any, place: str) -> str:
    """Write a value as the file has it.

    Raises:
        InputError: YAML reads the value as something else than text or a number.
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, int | str | list | dict) and not isinstance(value, bool):
        return value if isinstance(value, str) else json.dumps(value, default=str)
    raise InputError(f"{place}: YAML reads a label as {value!r}; put it in quotes")


def _lay(below: Mapping[str, Any], above: Any, place: str) -> dict[str, Any]:
    if above is None:
        return dict(below)
    if not isinstance(above, Mapping):
        raise InputError(f"{place}: settings must be keys and values, got {above!r}")
    try:
        return merge(below, above)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _with_seed(settings: Mapping[str, Any], seed: int, place: str) -> dict[str, Any]:
    train = settings.get("train")
    if isinstance(train, Mapping) and "seed" in train:
        raise InputError(f"{place}: train.seed cannot be a setting of a grid; give `seeds`")
    return _lay(settings, {"train": {"seed": seed}}, place)


def _seeds(values: Mapping[str, Any], group: Mapping[str, Any], place: str) -> list[int]:
    seeds = group.get("seeds", values.get("seeds", [0]))
    whole = isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not whole or len(set(seeds)) != len(seeds):
        raise InputError(f"{place}: `seeds` must be distinct whole numbers, such as [0, 1, 2], got {seeds!r}")
    return list(seeds)


def _priorities(group: Mapping[str, Any], seeds: int, place: str) -> list[int]:
    """Return a priority for each seed: one number for all, or one each."""
    found = group.get("priority", 1)
    priorities = found if isinstance(found, list) else [found] * seeds
    if len(priorities) != seeds or any(type(priority) is not int for priority in priorities):
        raise InputError(f"{place}: `priority` must be a whole number, or one per seed, got {found!r}")
    return list(priorities)


def _paper(found: Any, labels: Iterable[str], place: str) -> PaperRows | None:
    if found is None:
        return None
    if (
        not isinstance(found, Mapping)
        or not {"dataset", "rows"} <= found.keys()
        or not isinstance(found["rows"], Mapping)
    ):
        raise InputError(f"{place}: `paper` must hold dataset and rows (label: method), got {found!r}")
    _refuse_unknown(found, PAPER_KEYS, f"{place}, paper")
    rows = {_label(label, place): str(method) for label, method in found["rows"].items()}
    unknown = [label for label in rows if label not in set(labels)]
    if unknown:
        raise InputError(f"{place}: `paper` names {unknown[0]}, which is no point of the first axis")
    quoted = found.get("quoted", [])
    if not isinstance(quoted, list) or not all(isinstance(method, str) for method in quoted):
        raise InputError(f"{place}: `quoted` of `paper` must be a list of methods, got {quoted!r}")
    noise = found.get("noise")
    if noise is not None and (isinstance(noise, bool) or not isinstance(noise, int | float)):
        raise InputError(f"{place}: `noise` of `paper` must be a ratio, got {noise!r}")
    try:
        require_paper_rows(str(found["dataset"]), [*rows.values(), *quoted])
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return PaperRows(str(found["dataset"]), None if noise is None else float(noise), rows, tuple(quoted))


def _refuse_unknown(values: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    for key in values:
        if key not in known:
            raise InputError(f"{place}: unknown key `{key}`; keys: {', '.join(known)}")


def _slug(label: str) -> str:
    """Return a part of a folder's name; letters that it cannot have become a hash, so that labels stay apart."""
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", label.replace("²", "2")).strip("-")
    return plain if re.search("[A-Za-z0-9]", plain) else hashlib.sha256(label.encode()).hexdigest()[:6]
