"""The look: the same bytes each time, nothing global touched, one line where something is missing."""

import sys
from itertools import combinations
from pathlib import Path

import matplotlib
import pytest

from in2r.errors import InputError
from in2r.plots import style


def draw(file: Path, label: str = "loss") -> bytes:
    with style.canvas(file) as figure:
        for axes in style.panels(figure, 3, 2, 1.0):
            axes.plot([1, 2], [3, 4])
            axes.set_title(label)
        style.caption(figure, "word " * 60)
    return file.read_bytes()


@pytest.mark.parametrize(("kind", "magic"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_files_are_the_same_bytes_each_time(tmp_path: Path, kind: str, magic: bytes) -> None:
    first = draw(tmp_path / f"one.{kind}")
    assert first.startswith(magic)
    assert draw(tmp_path / f"two.{kind}") == first
    assert b"CreationDate" not in first
    assert b"dc:date" not in first


def test_look_neither_depends_on_the_users_settings_nor_changes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    plain = draw(tmp_path / "plain.svg")
    with matplotlib.rc_context({"font.size": 30, "xtick.major.size": 20}):
        before = matplotlib.rcParams.copy()  # reading each would import pyplot
        assert draw(tmp_path / "user.svg") == plain
        assert matplotlib.rcParams.copy() == before
    assert "matplotlib.pyplot" not in sys.modules


def test_a_dollar_in_a_name_is_no_formula(tmp_path: Path) -> None:
    with style.canvas(tmp_path / "dollar.svg") as figure:
        plain, dollars = (figure.text(0, y, label) for y, label in ((0, "run_a"), (0.5, "run_$a$")))
        figure.draw_without_rendering()
        assert dollars.get_window_extent().width > plain.get_window_extent().width + 5  # two more letters


def test_two_lines_differ_in_all_that_is_seen_in_grey() -> None:
    for one, other in combinations(style.LINES, 2):
        assert one.dashes != other.dashes
        assert one.marker != other.marker
        assert one.color != other.color


def test_a_panel_above_an_empty_place_keeps_its_tick_labels(tmp_path: Path) -> None:
    with style.canvas(tmp_path / "x.png") as figure:
        axes = style.panels(figure, 3, 2, 1.0, sharex=True)
        labelled = [panel.xaxis.get_tick_params()["labelbottom"] for panel in axes]
        assert labelled == [False, True, True]
        assert style.last_row(axes, 2) == [axes[2]]


def test_a_legend_of_long_names_stays_within_the_figure(tmp_path: Path) -> None:
    with style.canvas(tmp_path / "x.png") as figure:
        (axes,) = style.panels(figure, 1, 1, 1.0)
        handles = [axes.plot([1, 2], label=f"{number}_" + "a_long_name_of_a_run" * 2)[0] for number in range(6)]
        style.legend(figure, handles)
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_another_ending_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.jpg: the suffix .*expected \.svg, \.pdf or \.png"):
        draw(tmp_path / "x.jpg")
    assert list(tmp_path.iterdir()) == []


def test_missing_matplotlib_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r'pip install "in2r\[plots\]"'):
        draw(tmp_path / "x.svg")


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), style.canvas(file):
        raise ZeroDivisionError
    assert file.read_text() == "old"
