"""Loss histograms: bars, components and split stand where the log says."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from plot_records import epoch, log, mixture

from in2r.errors import InputError
from in2r.plots.losses import components, draw_losses

LATER = mixture(means=[0.2, 0.8])
TWO = log(epoch(1, "warm-up"), epoch(2, mixture={"A": mixture(), "B": {}}), epoch(3, mixture={"A": LATER}))


def drawn(*args: object, **options: object) -> Figure:
    figure = Figure(layout="constrained")
    draw_losses(figure, *args, **options)  # type: ignore[arg-type]
    figure.draw_without_rendering()
    return figure


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_component_is_the_weighted_normal_density_over_a_bin() -> None:
    at_mean, one_sigma = components(mixture(), np.array([0.25, 0.35]))[0]
    # weight 0.25, sigma 0.1, four bins: 100 * 0.25 / (0.1 sqrt(2 pi)) / 4
    assert at_mean == pytest.approx(100 * 0.25 / (0.1 * math.sqrt(2 * math.pi)) / 4)
    assert one_sigma == pytest.approx(at_mean * math.exp(-0.5))


def test_components_hold_all_pairs_together() -> None:
    at = np.linspace(-3, 4, 70001)
    areas = 4 * np.trapezoid(components(mixture(), at), at, axis=1)
    assert areas == pytest.approx([25, 75])


def test_bars_and_split_are_in_units_of_the_loss() -> None:
    (axes,) = drawn(TWO, "A", 2).axes
    really, mismatched, outline = (patch for patch in axes.patches if isinstance(patch, StepPatch))
    np.testing.assert_allclose(really.get_data().edges, [1, 1.5, 2, 2.5, 3])
    np.testing.assert_allclose(really.get_data().values, [15, 5, 5, 0])
    np.testing.assert_allclose(mismatched.get_data().values, [15, 5, 30, 50])
    np.testing.assert_allclose(mismatched.get_data().baseline, [15, 5, 5, 0])
    assert mismatched.get_hatch()
    assert not really.get_hatch()
    np.testing.assert_allclose(outline.get_data().values, [15, 5, 30, 50])
    clean, noisy, split = axes.lines
    assert split.get_xdata() == [2, 2]
    assert clean.get_xdata()[np.argmax(clean.get_ydata())] == pytest.approx(1.5, abs=0.01)
    assert noisy.get_xdata()[np.argmax(noisy.get_ydata())] == pytest.approx(2.5, abs=0.01)
    assert clean.get_linestyle() != noisy.get_linestyle()
    assert axes.get_title("right") == "weight 0.75"


def test_every_epoch_with_a_partition_has_a_panel() -> None:
    figure = drawn(TWO)
    assert [axes.get_title("left") for axes in figure.axes] == ["epoch 2", "epoch 3"]
    assert "20 pairs" in figure.get_supxlabel()
    assert "caption-level noise 0.4" in figure.get_supxlabel().replace("\n", " ")


def test_the_epochs_of_a_round_have_one_panel() -> None:
    fits = [mixture(), mixture(), LATER, LATER, LATER]
    run = log(*(epoch(number, mixture={"A": fit}) for number, fit in enumerate(fits, start=7)))
    assert [axes.get_title("left") for axes in drawn(run).axes] == ["epochs 7 to 8", "epochs 9 to 11"]
    assert [axes.get_title("left") for axes in drawn(run, "A", 10).axes] == ["epoch 10"]


def test_without_known_truth_all_pairs_are_one_histogram() -> None:
    figure = drawn(log(epoch(1, mixture={"A": mixture(clean_counts=...)}), noise=None))
    assert len(figure.axes[0].patches) == 2
    assert "no injected noise" in figure.get_supxlabel()
    assert figure.legends[0].get_texts()[0].get_text() == "all pairs"


def test_no_split_line_where_the_pairs_were_not_split() -> None:
    one = log(epoch(1, mixture={"A": mixture(boundary=None)}), epoch(2, mixture={"A": mixture()}))
    figure = drawn(one, "A", 1)
    (axes,) = figure.axes
    assert len(axes.lines) == 2
    assert axes.get_title("right") == "no split"
    assert legend(figure) == ["pairs that match", "mismatched pairs", "clean component", "noisy component"]
    assert "eight" not in figure.get_supxlabel()  # no figure of it is shown
    assert legend(drawn(one))[-1] == "split: noisy to the right"
    assert "Weight: that of the noisy component, not the share" in drawn(one).get_supxlabel().replace("\n", " ")


def test_equal_losses_are_said() -> None:
    run = log(epoch(1, mixture={"A": {}}), epoch(2, mixture={"A": mixture()}))
    assert [text.get_text() for text in drawn(run).axes[0].texts] == ["all losses equal"]
    with pytest.raises(InputError, match="all losses of network A were equal"):
        drawn(run, "A", 1)


def test_a_network_that_judged_nothing_is_not_said_to_have_equal_losses() -> None:
    run = log(epoch(1, mixture={"B": mixture()}), epoch(2, mixture={"A": mixture(), "B": mixture()}))
    assert [axes.get_title("left") for axes in drawn(run, "A").axes] == ["epoch 2"]
    with pytest.raises(InputError, match="no partition in epoch 1; there is one in epoch 2"):
        drawn(run, "A", 1)
    with pytest.raises(InputError, match="no epoch's log line holds a `mixture` of network A"):
        drawn(log(epoch(1, mixture={"B": mixture()})), "A")


def test_an_old_log_is_refused() -> None:
    with pytest.raises(InputError, match=r"mine: no epoch's log line holds a `mixture`.*older in2r"):
        drawn(log(epoch(1), epoch(2)))


def test_an_epoch_without_partition_is_refused() -> None:
    with pytest.raises(InputError, match="no partition in epoch 1; there is one in epochs 2 to 3"):
        drawn(TWO, "A", 1)


def test_forty_epochs_fit() -> None:
    figure = Figure()
    fits = {number: mixture(means=[0.2, 0.7 + number / 1000]) for number in range(6, 46)}
    draw_losses(figure, log(*(epoch(number, mixture={"A": fit}) for number, fit in fits.items())))
    assert len(figure.axes) == 40
    assert figure.get_size_inches()[0] == pytest.approx(7.2)
    assert [axes.get_xlabel() for axes in figure.axes].count("per-sample loss (sce)") == 5


def test_losses_of_two_kinds_have_axes_of_their_own() -> None:
    """The preset `in2r/tuned` changes its loss within a run: about 20, then about 0.3."""
    fits = [mixture(), {**mixture(), "loss": "triplet-mean", "low": 0.1, "high": 0.4}]
    figure = drawn(log(*(epoch(number, mixture={"A": fit}) for number, fit in enumerate(fits, start=6))))
    assert [axes.get_xlabel() for axes in figure.axes] == ["loss (sce)", "loss (triplet-mean)"]
    assert figure.axes[1].get_xlim()[1] < 1
