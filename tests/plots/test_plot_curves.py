"""Training curves: what is in the log, of whom, and where the warm-up ends."""

import math
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from plot_records import epoch, log

from in2r.errors import InputError
from in2r.plots.curves import QUANTITIES, draw_curves
from in2r.plots.sources import RunLog
from in2r.plots.style import canvas

WARM = epoch(1, "warm-up", loss_sce_A=2.0, loss_sce_B=4.0)
RUN = log(
    WARM,
    epoch(2, clean_fraction_A=0.25, clean_fraction_B=0.75, loss_rect_A=None, loss_rect_B=1.0),
    epoch(
        3, clean_fraction_A=0.5, clean_fraction_B=0.5, estimated_noise_rate_sce_A=0.1, estimated_noise_rate_sce_B=0.3
    ),
)


def drawn(*logs: RunLog) -> Figure:
    figure = Figure(layout="constrained")
    draw_curves(figure, logs, [entry.name for entry in logs])
    figure.draw_without_rendering()
    return figure


def lines(figure: Figure, title: str) -> list[list[float]]:
    (axes,) = (panel for panel in figure.axes if panel.get_title("left") == title)
    return [list(line.get_ydata()) for line in axes.lines]


def test_panels_are_what_the_log_holds() -> None:
    titles = [axes.get_title("left") for axes in drawn(RUN).axes]
    assert titles == [
        "dev rSum (0 to 600)", "SCE loss, mean", "rectification loss, mean", "clean set (% of pairs)",
        "estimated noise, sce (%)",
    ]  # fmt: skip
    assert len(drawn(log(WARM)).axes) == 2


def test_networks_are_thin_and_the_ensemble_is_thick() -> None:
    figure = drawn(RUN)
    assert lines(figure, "dev rSum (0 to 600)") == [[10, 20, 30], [20, 40, 60], [30, 60, 90]]
    a, b, ensemble = figure.axes[0].lines
    assert a.get_linewidth() == b.get_linewidth() < ensemble.get_linewidth()


def test_a_run_of_one_network_has_its_line_and_the_mean() -> None:
    alone = epoch(1, clean_fraction_A=0.25)
    del alone["dev"]["B"]
    figure = drawn(log(alone))
    assert lines(figure, "dev rSum (0 to 600)") == [[10], [30]]
    assert lines(figure, "clean set (% of pairs)") == [[25], [25]]


def test_shares_are_percent_with_the_mean_of_both_and_gaps_where_nothing_was_recorded() -> None:
    a, b, both = lines(drawn(RUN), "clean set (% of pairs)")
    assert (a[1:], b[1:], both[1:]) == ([25, 50], [75, 50], [50, 50])
    assert math.isnan(both[0])
    rect, *_ = lines(drawn(RUN), "rectification loss, mean")
    assert all(map(math.isnan, rect))  # null in the log: a figure that was not finite


def test_warmup_is_shaded_and_the_injected_noise_marked() -> None:
    figure = drawn(RUN)
    (shade,) = figure.axes[0].patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == (0.5, 1.5)
    assert lines(figure, "estimated noise, sce (%)")[3] == [40, 40]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["mine", "warm-up", "injected noise"]


def test_a_run_without_main_phase_has_no_warmup() -> None:
    assert list(drawn(log(WARM, noise=None)).axes[0].patches) == []


def test_runs_on_different_data_are_refused() -> None:
    with pytest.raises(InputError, match=r"different data: data flowers \(aaaaaaaaaaaa\); data flowers \(bbbb"):
        drawn(RUN, log(WARM, fingerprint="b" * 64))


def test_more_runs_than_lines_are_refused() -> None:
    with pytest.raises(InputError, match="9 runs; at most 8"):
        drawn(*[RUN] * 9)


def test_nothing_covers_anything_with_every_panel(tmp_path: Path) -> None:
    figures = {f"{quantity.key}_{name}": 0.98765 for quantity in QUANTITIES for name in "AB"}
    run = log(epoch(1, "all pairs", **figures), epoch(2, **{key: 2 * value for key, value in figures.items()}))
    with canvas(tmp_path / "all.png") as figure:
        draw_curves(figure, [run], ["mine"])
        figure.draw_without_rendering()
        boxes = [axes.get_tightbbox() for axes in figure.axes]
        assert len(boxes) == 1 + len(QUANTITIES)
        assert all(box is not None and box.x1 <= figure.bbox.x1 for box in boxes)
        boxes.append(figure.legends[0].get_window_extent())
        assert [pair for pair in combinations(boxes, 2) if Bbox.intersection(*pair) is not None] == []
