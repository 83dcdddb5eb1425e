"""rSum against the value of one setting: memory size, neighbours, loss weights."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from in2r.bench.grid import Row
from in2r.bench.groups import GroupRecords
from in2r.bench.records import Record
from in2r.config import to_dict
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "method.memory_size": "memory size M (pairs)",
    "method.memory_share": "memory size M (share of the training pairs)",
    "method.num_neighbors": "neighbours K",
    "method.lambda_intra": "weight of the intra-modal losses λ",
    "method.gamma": "weight of the rectification loss γ",
    "method.warmup_temperature": "temperature of the warm-up loss",
    "method.rectification_temperature": "temperature of the rectification loss",
    "partition.threshold": "threshold on the clean probability",
}
"""What an axis of a grid is called in a figure; any other one by its own name."""
DECADE = 10.0
LEAST_SPAN = 20.0
"""rSum that the axis covers at least: differences of two seeds are not drawn as slopes"""


def draw_sensitivity(figure: "Figure", groups: Sequence[GroupRecords]) -> None:
    """Draw one panel per group: each seed, their mean and band, and the baseline's value.

    Args:
        figure: an empty one, from `style.canvas`.
        groups: each with a single axis of numbers.

    Raises:
        InputError: a group has several axes or a point that is no number, or the groups' protocols differ.
    """
    found = [numeric_series(group) for group in groups]
    records = [record for group in groups for record in group.records.values()]
    results, noise = describe_results(records), noise_words(records[0])
    axes = style.panels(figure, len(groups), 2, 2.1, sharey=True)
    for number, (panel, group, series) in enumerate(zip(axes, groups, found, strict=True)):
        draw_series(panel, series, style.LINES[2], "solid", seed_lines=True)
        axis = group.group.axes[0]
        panel.set_xlabel(NAMES.get(axis, axis))
        if number % 2 == 0:
            panel.set_ylabel(f"{split_name(records)} rSum")
        scale_values(panel, sorted(series.points))
        _mark_baseline(panel, group)
    low, high = axes[0].get_ylim()  # shared by all
    if high - low < LEAST_SPAN:
        middle = (low + high) / 2
        axes[0].set_ylim(middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2)
    seeds = describe_seeds(groups, [series.points for series in found], "line")
    opened = describe_one_group(
        (f"{group.group.name} {_shown(x)}", course)
        for group, series in zip(groups, found, strict=True)
        for x, course in sorted(series.one_group.items())
    )
    style.caption(figure, f"{results}; {noise}. {seeds}.{opened}")


def numeric_series(group: GroupRecords) -> Series:
    """Return the results of a group with one axis, by value.

    The value is the setting that the axis is named after, as the run had it, else the label.
    """
    axes = group.group.axes
    if len(axes) != 1:
        raise InputError(f"group {group.group.name}: axes {', '.join(axes)}; a sensitivity curve needs a single one")
    return make_series(group.group.title, group, group.group.rows, lambda row, _: _value(group, row))


def _value(group: GroupRecords, row: Row) -> float:
    axis, label = group.group.axes[0], row.labels[0]
    section, _, name = axis.partition(".")
    value = to_dict(group.config(row)).get(section, {}).get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    number = _as_number(label)
    if number is None:
        raise InputError(
            f"group {group.group.name}: {label} on axis {axis} is no number, so it has no place on a curve"
        )
    return number


def _as_number(label: str) -> float | None:
    return float(label) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", label, re.IGNORECASE) else None


def scale_values(axes: "Axes", values: list[float]) -> None:
    """Put a tick at each value; logarithmic where positive values span more than a decade, with a place for 0."""
    positive = [value for value in values if value > 0]
    if values[0] >= 0 and positive and positive[-1] > DECADE * positive[0]:
        if values[0] == 0:
            axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        else:
            axes.set_xscale("log")
    axes.set_xticks(values, [_shown(value) for value in values])
    axes.set_xticks([], minor=True)
    if len(values) > 6:
        axes.tick_params(axis="x", rotation=45)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _mark_baseline(axes: "Axes", group: GroupRecords) -> None:
    baseline = next((row for row in group.group.rows if row.labels[0] == group.group.baseline and group.of(row)), None)
    if baseline is None:
        return
    value = _value(group, baseline)
    axes.axvline(value, color=style.GREY, linestyle="dotted", linewidth=1.2, zorder=0)
    axes.set_title(f"dotted: baseline, {_shown(value)}", loc="right", fontsize=7, color="0.3")


def noise_words(record: Record) -> str:
    """Say level and ratio of a run's injected noise: each seed has an index of its own."""
    shared = record.result.protocol.shared()
    if shared["noise_level"] is None:
        return "no injected noise"
    return f"{shared['noise_level']}-level noise {100 * shared['noise_ratio']:g} %"
