"""Training curves: one panel a quantity, one line a run, so that runs stand beside each other however many."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from in2r.bench.records import ENSEMBLE
from in2r.errors import InputError
from in2r.plots import style
from in2r.plots.sources import QUANTITIES, Quantity, RunLog, describe_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4


def draw_curves(figure: "Figure", logs: Sequence[RunLog], labels: Sequence[str]) -> None:
    """Draw what the logs hold: validation, losses, partition, memory and neighbours, the warm-up shaded.

    Args:
        figure: an empty one, from `style.canvas`.
        logs: the runs.
        labels: their names in the legend.

    Raises:
        InputError: too many runs, or runs on different data, whose rSum cannot be compared.
    """
    style.require_lines(len(logs), "runs")
    if len({log.fingerprint for log in logs}) > 1:
        raise InputError(f"runs on different data: {'; '.join(dict.fromkeys(map(describe_data, logs)))}")
    shown = [quantity for quantity in QUANTITIES if any(_has(log, quantity) for log in logs)]
    axes = style.panels(figure, 1 + len(shown), COLUMNS, 1.35, sharex=True)
    axes[0].set_title("dev rSum (0 to 600)", loc="left")
    for panel, quantity in zip(axes[1:], shown, strict=True):
        panel.set_title(quantity.title, loc="left")
    for log, line in zip(logs, style.LINES, strict=False):
        _draw(axes[0], log, line, [[entry["dev"][row]["rsum"] for entry in log.epochs] for row in _rows(log)])
        for panel, quantity in zip(axes[1:], shown, strict=True):
            if _has(log, quantity):
                _draw(panel, log, line, _values(log, quantity))
    estimates = [panel for panel, quantity in zip(axes[1:], shown, strict=True) if quantity.key.startswith("estimated")]
    handles = _runs(labels) + _warmups(axes, logs) + _injected(estimates, logs)
    style.legend(figure, handles)
    _finish(figure, axes, logs)


def _rows(log: RunLog) -> tuple[str, ...]:
    return (*log.networks, ENSEMBLE)


def _has(log: RunLog, quantity: Quantity) -> bool:
    return any(f"{quantity.key}_A" in entry or quantity.key in entry for entry in log.epochs)


def _values(log: RunLog, quantity: Quantity) -> list[list[float]]:
    """Return the quantity of each network and their mean, epoch by epoch; NaN where there is none."""
    key, factor = quantity.key, quantity.factor
    each = [
        [_number(entry.get(f"{key}_{name}", entry.get(key)), factor) for entry in log.epochs] for name in log.networks
    ]
    return [*each, [sum(values) / len(values) for values in zip(*each, strict=True)]]


def _number(value: Any, factor: float) -> float:
    return math.nan if value is None else factor * value


def _draw(axes: "Axes", log: RunLog, line: style.Line, values: list[list[float]]) -> None:
    """Draw the networks thin, and the last one, of all of them, thick."""
    epochs = [entry["epoch"] for entry in log.epochs]
    for thin in values[:-1]:
        axes.plot(epochs, thin, color=line.color, linestyle=line.dashes, linewidth=0.5, alpha=0.7)
    marks: dict[str, Any] = {"marker": line.marker, "markevery": max(1, len(epochs) // 6), "markersize": 3}
    axes.plot(epochs, values[-1], color=line.color, linestyle=line.dashes, **marks)


def _runs(labels: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=line.color, linestyle=line.dashes, marker=line.marker, markersize=3, label=label)
        for line, label in zip(style.LINES, labels, strict=False)
    ]


def _warmups(axes: list["Axes"], logs: Sequence[RunLog]) -> list[Any]:
    """Shade each warm-up that a main phase follows; return the legend's entry, if there is one."""
    from matplotlib.patches import Patch

    phases = [[entry["phase"] for entry in log.epochs] for log in logs]
    ends = {found.index("main") for found in phases if "main" in found} - {0}
    for panel in axes:
        for end in sorted(ends):
            panel.axvspan(0.5, end + 0.5, color="0.5", alpha=0.15, linewidth=0)
    return [Patch(facecolor="0.5", alpha=0.15, label="warm-up")] if ends else []


def _injected(axes: list["Axes"], logs: Sequence[RunLog]) -> list[Any]:
    """Mark the injected ratios beside the estimated ones; return the legend's entry, if there is one."""
    from matplotlib.lines import Line2D

    ratios = sorted({log.noise.realised for log in logs if log.noise is not None})
    for panel in axes:
        for ratio in ratios:
            panel.axhline(100 * ratio, color=style.GREY, linestyle="dotted", linewidth=1)
    return [Line2D([], [], color=style.GREY, linestyle="dotted", label="injected noise")] if axes and ratios else []


def _finish(figure: "Figure", axes: list["Axes"], logs: Sequence[RunLog]) -> None:
    from matplotlib.ticker import MaxNLocator

    for panel in axes:
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for panel in style.last_row(axes, COLUMNS):
        panel.set_xlabel("epoch")
    noises = dict.fromkeys(log.describe_noise() for log in logs)
    seeds = ", ".join(str(seed) for seed in sorted({log.seed for log in logs}))
    style.caption(
        figure,
        "Thick: the ensemble (rSum), or the mean of the networks; thin: each network. Trained on "
        f"{describe_data(logs[0])}, training seed {seeds}; {'; '.join(noises)}.",
    )
