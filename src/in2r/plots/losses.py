"""The losses by which a network tells clean from noisy pairs, with the mixture that was fitted to them."""

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from in2r.errors import InputError
from in2r.plots import style
from in2r.plots.sources import RunLog

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLEAN, NOISY = style.LINES[2].color, style.LINES[1].color
TRUE, FALSE = "0.72", "1.0"
"""greys of the pairs that match and of those that do not"""


def draw_losses(figure: "Figure", log: RunLog, network: str = "A", epoch: int | None = None) -> None:
    """Draw the histogram of a network's per-sample losses with the two components and the split.

    Args:
        figure: an empty one, from `style.canvas`.
        log: the run.
        network: A or B; its judgement trains its peer.
        epoch: this one alone, counted from 1; None = one panel for each judgement: an epoch, or a round.

    Raises:
        InputError: the log holds no mixture, or none of that epoch.
    """
    fits = _fits(log, network)
    if epoch is not None:
        if epoch not in fits:
            raise InputError(f"{log.name}: no partition in epoch {epoch}; there is one in {_ranges(list(fits))}")
        fits = {epoch: fits[epoch]}
    shown = {_ranges(epochs): fits[epochs[0]] for epochs in _judged_alike(fits)}
    columns = 4 if len(shown) <= 16 else 5
    drawn = [fit for fit in shown.values() if fit]
    losses = list(dict.fromkeys(fit["loss"] for fit in drawn))
    one_loss = len(losses) < 2  # losses of two kinds have no common scale
    height = 2.6 if len(shown) == 1 else 1.25 if one_loss else 1.6
    axes = style.panels(figure, len(shown), columns, height, sharex=one_loss, sharey=True)
    for panel, (title, fit) in zip(axes, shown.items(), strict=True):
        _panel(panel, title, fit)
    if not drawn:
        raise InputError(f"{log.name}: all losses of network {network} were equal; there is nothing to draw")
    figure.supylabel("share of the pairs (%)", fontsize=8)
    if one_loss:
        for panel in style.last_row(axes, columns):
            panel.set_xlabel(f"per-sample loss ({losses[0]})")
    else:
        for panel, fit in zip(axes, shown.values(), strict=True):
            panel.set_xlabel(f"loss ({fit['loss']})" if fit else "")
    style.legend(figure, _handles(drawn), 3)
    what = f"{sum(drawn[0]['counts']):,} pairs."
    if _split(drawn):
        what += " Weight: that of the noisy component, not the share of the pairs to the right of the split."
    if _known(drawn):
        what += " Which pairs match is known because the noise was injected; training does not see it."
    style.caption(figure, f"Network {network} of {log.describe()}. {what}")


def _fits(log: RunLog, network: str) -> dict[int, dict[str, Any]]:
    """Return epoch → mixture, {} where all losses were equal."""
    fits = {line["epoch"]: line["mixture"][network] for line in log.epochs if network in line.get("mixture", {})}
    if not fits:
        raise InputError(
            f"{log.name}: no epoch's log line holds a `mixture` of network {network}: no pair was judged (warm-up, a "
            "method without a partition, an oracle run), or the run was trained with an older in2r"
        )
    return fits


def _judged_alike(fits: Mapping[int, dict[str, Any]]) -> list[list[int]]:
    """Return the epochs of each judgement: it stays from epoch to epoch in a round."""
    return [[number for number, _ in alike] for _, alike in groupby(fits.items(), key=lambda entry: entry[1])]


def _panel(axes: "Axes", title: str, fit: dict[str, Any]) -> None:
    axes.set_title(title, loc="left")
    if not fit:
        axes.text(0.5, 0.5, "all losses equal", transform=axes.transAxes, ha="center", fontsize=7)
        return
    low, width = fit["low"], fit["high"] - fit["low"]
    all_pairs = _percent(fit["counts"], fit["counts"])
    edges = low + width * np.linspace(0, 1, len(all_pairs) + 1)
    really = _percent(fit["clean_counts"], fit["counts"]) if "clean_counts" in fit else all_pairs
    axes.stairs(really, edges, fill=True, facecolor=TRUE)
    if "clean_counts" in fit:
        axes.stairs(all_pairs, edges, baseline=really, fill=True, facecolor=FALSE, hatch="/////", edgecolor="0.35")
    axes.stairs(all_pairs, edges, color="0.35", linewidth=0.6)
    at = np.linspace(0, 1, 400)
    for curve, color, dashes in zip(components(fit, at), (CLEAN, NOISY), ("solid", "dashed"), strict=True):
        axes.plot(low + width * at, curve, color=color, linestyle=dashes)
    note = "no split"
    if fit["boundary"] is not None:
        note = f"weight {fit['weights'][1]:.2f}"
        axes.axvline(low + width * fit["boundary"], color="black", linestyle="dotted", linewidth=1.2)
    axes.set_title(note, loc="right", fontsize=style.SMALL, color="0.25")


def components(fit: dict[str, Any], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return both components (2, n), clean first, as the percentage of pairs that they expect in a bin.

    Args:
        fit: a `mixture` of the log.
        at: (n,) losses scaled to [0, 1].
    """
    means, variances, weights = (np.array(fit[key])[:, None] for key in ("means", "variances", "weights"))
    density = np.exp(-((at - means) ** 2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)
    return np.asarray(100 * weights * density / len(fit["counts"]))


def _percent(counts: list[int], all_counts: list[int]) -> NDArray[np.float64]:
    return np.asarray(100 * np.array(counts) / max(1, sum(all_counts)))


def _known(fits: list[dict[str, Any]]) -> bool:
    return any("clean_counts" in fit for fit in fits)


def _split(fits: list[dict[str, Any]]) -> bool:
    return any(fit["boundary"] is not None for fit in fits)


def _handles(fits: list[dict[str, Any]]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    pairs = [Patch(facecolor=TRUE, edgecolor="0.35", label="all pairs")]
    if _known(fits):
        pairs = [
            Patch(facecolor=TRUE, edgecolor="0.35", label="pairs that match"),
            Patch(facecolor=FALSE, edgecolor="0.35", hatch="/////", label="mismatched pairs"),
        ]
    split = Line2D([], [], color="black", linestyle="dotted", linewidth=1.2, label="split: noisy to the right")
    return [
        *pairs,
        Line2D([], [], color=CLEAN, label="clean component"),
        Line2D([], [], color=NOISY, linestyle="dashed", label="noisy component"),
        *([split] if _split(fits) else []),
    ]


def _ranges(numbers: list[int]) -> str:
    """Say which epochs: "epoch 5" or "epochs 5 to 10"."""
    return f"epoch {numbers[0]}" if len(numbers) == 1 else f"epochs {numbers[0]} to {numbers[-1]}"
