"""rSum against the ratio of injected noise, one line a method."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from in2r.bench.grid import Row
from in2r.bench.groups import GroupRecords
from in2r.bench.records import Record
from in2r.errors import InputError
from in2r.plots import style
from in2r.plots.series import (
    Series,
    describe_one_group,
    describe_results,
    describe_seeds,
    draw_series,
    make_series,
    split_name,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_noise(figure: "Figure", group: GroupRecords) -> None:
    """Draw one line per method; dashed if a run uses the truth.

    Args:
        figure: an empty one, from `style.canvas`.
        group: one of its axes sets the ratio, the others make the methods.

    Raises:
        InputError: no axis sets the ratio, too many methods, or records that cannot be compared.
    """
    records = list(group.records.values())
    lines = noise_series(group)
    style.require_lines(len(lines), "methods")
    results, level = describe_results(records, over_noise=True), _level(records)
    (axes,) = style.panels(figure, 1, 1, 3.4)
    for series, line in zip(lines, style.LINES, strict=False):
        draw_series(axes, series, line, _dashes(series), seed_lines=False)
    axes.set_xticks(sorted({x for series in lines for x in series.points}))
    axes.set_xlabel(f"injected noise (% of the training pairs{level})")
    axes.set_ylabel(f"{split_name(records)} rSum")
    _legend(figure, lines)
    points = [series.points for series in lines]
    truth = (
        " Dashed: the run uses the truth about which pairs match." if any(series.uses_truth for series in lines) else ""
    )
    opened = describe_one_group(
        (f"{series.label} at {x:g} %", course) for series in lines for x, course in sorted(series.one_group.items())
    )
    style.caption(figure, f"{results}. {describe_seeds([group], points, 'mark')}.{truth}{opened}")


def noise_series(group: GroupRecords) -> list[Series]:
    """Return the methods' results by noise ratio in percent, in the order of the group's rows."""
    axis = _noise_axis(group)
    methods: dict[str, list[Row]] = {}
    for row in group.group.rows:
        others = [label for place, label in enumerate(row.labels) if place != axis]
        methods.setdefault(", ".join(others) or group.group.title, []).append(row)
    found = []
    for name, rows in methods.items():
        noises = [group.config(row).noise for row in rows if group.of(row)]
        uses_truth = any(noise.oracle or noise.hide_original for noise in noises)
        series = make_series(name, group, rows, lambda _, record: 100 * noise_ratio(record), uses_truth)
        if series.points:
            found.append(series)
    return found


def noise_ratio(record: Record) -> float:
    """Return the declared ratio of a run, the realised one where none was declared, 0 without noise."""
    declared, noise = record.config.noise.ratio, record.result.protocol.noise
    if declared is not None:
        return declared
    return 0.0 if noise is None else noise.realised


def _noise_axis(group: GroupRecords) -> int:
    """Return the place of the axis whose label alone decides the noise, by the settings of all cells."""
    for place in range(len(group.group.axes)):
        noises: dict[str, set[float | str | None]] = {}
        for row in group.group.rows:
            noise = group.config(row).noise
            asked = noise.index if noise.ratio is None else noise.ratio  # a file may say its ratio itself
            noises.setdefault(row.labels[place], set()).add(asked)
        if all(len(found) == 1 for found in noises.values()) and len(set.union(*noises.values())) > 1:
            return place
    raise InputError(f"group {group.group.name}: none of its axes ({', '.join(group.group.axes)}) sets the noise ratio")


def _level(records: Iterable[Record]) -> str:
    """Say the level of the injected noise; nothing where only clean data are measured yet."""
    found = dict.fromkeys(
        noise.level for record in records if noise_ratio(record) and (noise := record.result.protocol.noise) is not None
    )
    if len(found) > 1:
        raise InputError(f"results that cannot be compared: noise at {' and '.join(found)} level")
    return "".join(f", {level} level" for level in found)


def _dashes(series: Series) -> Any:
    return (0, (4, 2)) if series.uses_truth else "solid"


def _legend(figure: "Figure", lines: list[Series]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=line.color, linestyle=_dashes(series), marker=line.marker, label=series.label)
        for series, line in zip(lines, style.LINES, strict=False)
    ]
    style.legend(figure, handles, 3)
