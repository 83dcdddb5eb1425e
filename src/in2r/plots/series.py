"""Results of a grid as lines: a value on the x axis, one rSum per seed, and what all of them must agree in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from in2r.bench.grid import Row
from in2r.bench.groups import GroupRecords
from in2r.bench.notes import by_one_group
from in2r.bench.records import ENSEMBLE, MainPhase, Record, main_phase
from in2r.errors import InputError
from in2r.plots.style import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPEN: dict[str, Any] = {"markerfacecolor": "white", "markersize": 5}
"""a marker that stands for runs without, or with less of, what their method is about"""
Points = dict[float, dict[int, float]]
"""x → seed → rSum of the ensemble"""


@dataclass(frozen=True)
class Series:
    """One line of a figure."""

    label: str
    points: Points
    uses_truth: bool = False
    """an oracle, or another run that uses the truth"""
    one_group: Mapping[float, MainPhase] = field(default_factory=dict)
    """x → the main phase of the runs there, where the losses formed one group in some epochs"""

    def means(self) -> tuple[list[float], list[float], list[float]]:
        """Return x in ascending order, the mean over seeds, and the standard deviation (0 for one seed)."""
        values = sorted(self.points.items())
        spread = [stdev(seeds.values()) if len(seeds) > 1 else 0.0 for _, seeds in values]
        return [x for x, _ in values], [mean(seeds.values()) for _, seeds in values], spread


def rsum(record: Record) -> float:
    """Return the rSum of the ensemble on the split that was evaluated."""
    return record.result.rows[ENSEMBLE]["rsum"]


def draw_series(axes: "Axes", series: Series, line: Line, dashes: Any, *, seed_lines: bool) -> None:
    """Draw the mean as a thick line with markers, a band of one standard deviation, and each seed thinly.

    A marker is open where the losses formed one group in some epochs.
    """
    x, means, spread = series.means()
    low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
    if any(spread):
        axes.fill_between(x, low, high, color=line.color, alpha=0.15, linewidth=0)
    for seed in sorted({seed for seeds in series.points.values() for seed in seeds}):
        own = [at for at in x if seed in series.points[at]]
        style: dict[str, Any] = {"linewidth": 0.6} if seed_lines else {"linestyle": "none", "marker": "_"}
        axes.plot(own, [series.points[at][seed] for at in own], color=line.color, alpha=0.6, **style)
    axes.plot(x, means, color=line.color, linestyle=dashes, marker=line.marker)
    opened = [(at, m) for at, m in zip(x, means, strict=True) if at in series.one_group]
    if opened:
        axes.plot(*zip(*opened, strict=True), color=line.color, linestyle="none", marker=line.marker, **OPEN)


def describe_results(records: Sequence[Record], *, over_noise: bool = False) -> str:
    """Say what was evaluated on which data.

    Args:
        records: all that one figure shows.
        over_noise: they may differ in the level and the ratio of the injected noise.

    Raises:
        InputError: the records do not agree in their protocol; such figures cannot be compared.
    """
    protocols = [record.result.protocol for record in records]
    shared = [protocol.shared() for protocol in protocols]
    for key in shared[0].keys() - ({"noise_level", "noise_ratio"} if over_noise else set()):
        _require_one(key.replace("_", " "), (entry[key] for entry in shared))
    for what in {(record.seed, entry["noise_ratio"]) for record, entry in zip(records, shared, strict=True)}:
        same = [p for r, p, s in zip(records, protocols, shared, strict=True) if (r.seed, s["noise_ratio"]) == what]
        _require_one(f"noise index of seed {what[0]}", (protocol.seed_noise for protocol in same))
    data, evaluated = protocols[0].data, protocols[0].evaluated
    folds = "" if evaluated.folds == 1 else f", mean of {evaluated.folds} folds"
    forced = any(protocol.was_forced for protocol in protocols)
    return (
        f"rSum (0 to 600) of the ensemble, {evaluated.split} split of {data.path} ({data.fingerprint[:12]}, "
        f"{evaluated.images:,} images, {evaluated.captions:,} captions{folds})"
        f"{'; some were FORCED in spite of changed data or settings' if forced else ''}"
    )


def _require_one(what: str, values: Iterable[Any]) -> None:
    found = sorted({str(value) for value in values})
    if len(found) > 1:
        raise InputError(f"results that cannot be compared: {what} {' and '.join(found)}")


def split_name(records: Iterable[Record]) -> str:
    """Return the split that the records were evaluated on."""
    return next(iter(records)).result.protocol.evaluated.split


def describe_seeds(groups: Sequence[GroupRecords], points: Iterable[Points], seed: str) -> str:
    """Say how many seeds stand behind a point, how each `seed` is drawn, and how many cells are not there yet."""
    counts = [len(seeds) for each in points for seeds in each.values()]
    low, high = min(counts), max(counts)
    n = f"n = {high}" if low == high else f"n = {low} to {high}"
    shown = f"{n} {'seed' if high == 1 else 'seeds'} a point"
    if high > 1:
        shown += f": mean, band of one standard deviation, each seed a thin {seed}"
    missing = sum(group.missing for group in groups)
    return shown + (f"; not finished and not shown: {missing} of the runs" if missing else "")


def describe_one_group(found: Iterable[tuple[str, MainPhase]]) -> str:
    """Explain open markers, as the table explains ¶; nothing where there are none.

    Args:
        found: name of a point and the main phase of its runs.
    """
    points = [f"{', '.join(names)}: {figures}" for figures, names in by_one_group(found).items()]
    if not points:
        return ""
    return (
        f" Open: in some epochs of the main phase ({'; '.join(points)}) the losses formed one group, and a network "
        "trained on all pairs with the warm-up loss, whatever the settings of the main phase."
    )


def make_series(
    label: str,
    group: GroupRecords,
    rows: Iterable[Row],
    place: Callable[[Row, Record], float],
    uses_truth: bool = False,
) -> Series:
    """Put the results of a line's rows where they belong on the x axis.

    Raises:
        InputError: two rows of different settings at one place.
    """
    points: dict[float, dict[int, Record]] = {}
    owners: dict[float, Row] = {}
    for row in rows:
        for seed, record in group.of(row).items():
            x = place(row, record)
            owner = owners.setdefault(x, row)
            if owner.cells != row.cells:
                both = " and ".join(", ".join(found.labels) for found in (owner, row))
                raise InputError(f"group {group.group.name}: rows {both} both have {x:g}; make two groups of them")
            points.setdefault(x, {})[seed] = record
    courses = {x: main_phase(runs.values()) for x, runs in points.items()}
    return Series(
        label,
        {x: {seed: rsum(record) for seed, record in runs.items()} for x, runs in points.items()},
        uses_truth,
        {x: course for x, course in courses.items() if course.one_group},
    )
