"""The one look of all figures: sizes, fonts, lines that differ in grey too, and files that are the same each time."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from in2r.errors import InputError
from in2r.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("svg", "pdf", "png")
WIDTH = 7.2
"""inches: a figure over both columns of a paper"""
SMALL = 6.5
"""points: the smallest letters"""
GREY = "0.45"
_RC: Any = {  # Any: matplotlib names each key in its types, and differs from version to version
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters everywhere
    "font.size": 8,
    "axes.titlesize": 7.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # letters stay letters: journals refuse matplotlib's default
    "svg.hashsalt": "in2r",
    "text.parse_math": False,  # a $ in a name is a $
}
_UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


@dataclass(frozen=True)
class Line:
    """How one of several things is drawn; two of them differ in colour, in dashes and in marker."""

    color: str
    dashes: Any
    marker: str


LINES = (
    Line("#000000", "solid", "o"),
    Line("#D55E00", (0, (5, 1.5)), "s"),
    Line("#0072B2", (0, (1, 1)), "^"),
    Line("#E69F00", (0, (5, 1, 1, 1)), "D"),
    Line("#009E73", (0, (3, 1, 1, 1, 1, 1)), "v"),
    Line("#CC79A7", (0, (8, 2)), "P"),
    Line("#56B4E9", (0, (2, 2)), "X"),
    Line("#7F7F7F", (0, (9, 1, 2, 1)), "*"),
)
"""Okabe and Ito's colours, which the colour-blind can tell apart."""


@contextmanager
def canvas(file: Path) -> Iterator["Figure"]:
    """Yield an empty figure in our look; write it when the block succeeds, the same bytes for the same content.

    Neither a display nor matplotlib's global state is used: its settings are ours within the block, whatever the
    user's are, and are put back afterwards.

    Raises:
        InputError: matplotlib is missing, or the file's name has another ending than .svg, .pdf, .png.
    """
    kind = file.suffix[1:].lower()
    if kind not in KINDS:
        raise InputError(f"{file}: the suffix chooses the format; expected .svg, .pdf or .png")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError('figures need matplotlib: pip install "in2r[plots]"') from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        figure = Figure(figsize=(WIDTH, WIDTH / 2), layout="constrained")
        yield figure
        with atomic_path(file) as temporary:
            figure.savefig(temporary, format=kind, metadata=_UNDATED[kind])


def panels(
    figure: "Figure", count: int, columns: int, height: float, *, sharex: bool = False, sharey: bool = False
) -> list["Axes"]:
    """Return `count` panels, row by row, each `height` inches high; the figure is as wide as its panels need."""
    columns = min(count, columns)
    rows = -(-count // columns)
    width = WIDTH if columns > 1 else 0.65 * WIDTH
    figure.set_size_inches(width, rows * height + 0.9)  # 0.9: legend and caption
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for empty in axes[count:]:
        empty.remove()
    for lowest in axes[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)
    return axes[:count]


def last_row(axes: list["Axes"], columns: int) -> list["Axes"]:
    """Return the panels of the last row."""
    return axes[(len(axes) - 1) // columns * columns :]


def caption(figure: "Figure", text: str) -> None:
    """Say below the panels what they show and for which data, noise and seeds."""
    letters = int(figure.get_size_inches()[0] * 72 / (0.53 * SMALL))  # a letter is about half as wide as high
    lines = "\n".join(textwrap.wrap(text, letters))
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=SMALL, color="0.25")


def legend(figure: "Figure", handles: list[Any], columns: int = 4) -> None:
    """Put the legend above all panels, where it covers nothing, in as many columns as its longest entry allows."""
    widest = 45 + 0.6 * 7 * max(len(handle.get_label()) for handle in handles)  # points: the sample, then letters
    fitting = max(1, int(figure.get_size_inches()[0] * 72 // widest))
    ncols = min(columns, fitting, len(handles))
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, handlelength=3)


def require_lines(count: int, what: str) -> None:
    """Refuse more lines than can be told apart."""
    if count > len(LINES):
        raise InputError(f"{count} {what}; at most {len(LINES)} can be told apart in one figure")
