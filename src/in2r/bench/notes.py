"""The lines under a table: where it comes from, what its figures are, on which machine they were measured."""

from collections.abc import Iterable, Sequence

from in2r.bench.compare import Line, Run
from in2r.bench.paper import PaperFigure
from in2r.bench.records import MainPhase
from in2r.bench.tables import Table


def notes(table: Table, command: str) -> list[str]:
    """Return what a reader of a table must know.

    Args:
        table: the table.
        command: what made it.
    """
    lines = [line for block in table.blocks for line in block.lines]
    if not table.is_measured:
        cells = sum(len(line.cells) for line in lines)
        return [f"None of {cells} runs is finished yet; `in2r bench run` trains them.", *_unknown(table)]
    found = [f"Made by `{command}` from {_extent(lines)}.", *_machines([run for line in lines for run in _runs(line)])]
    found.append(
        "rSum: the sum of the six recalls in percent, of the networks' ensemble; mean ± sample standard deviation over "
        "the seeds. Single network: the mean of the networks, each alone. Bold: the best of a column among the rows of "
        "a block that have all its seeds."
    )
    chance = sorted(
        {run.figures["chance_rsum"] for line in lines for run in _runs(line) if "chance_rsum" in run.figures}
    )
    if chance:
        found.append(f"A random order would have rSum {', '.join(f'{rsum:.1f}' for rsum in chance)}.")
    if table.baseline is not None:
        found += _against(table.baseline, lines)
    if any(line.uses_truth for line in lines):
        found.append("† uses the truth about the injected noise: no method, and never ranked.")
    if any(line.is_forced for line in lines):
        found.append("§ FORCED: trained or tested in spite of changed data or settings, and never ranked.")
    if any(len({frozenset(line.runs) for line in block.lines if line.runs}) > 1 for block in table.blocks):
        found.append(
            "In brackets: means over fewer seeds than other rows have; compare such rows by paired differences only."
        )
    found += [
        f"¶ {'; '.join(names)}: in {figures} epochs of the main phase the losses formed one group, and a network "
        "trained on all pairs with the warm-up loss."
        for figures, names in by_one_group((", ".join(line.labels), line.main_phase) for line in lines).items()
    ]
    if any(any(line.values("epoch_is_of_warmup").values()) for line in lines):
        found.append(
            "Epoch: the one that dev selected, by seed; w: one of the warm-up, so that no later one was better."
        )
    return found + _paper(lines) + _quoted(table) + _unknown(table)


def by_one_group(found: Iterable[tuple[str, MainPhase]]) -> dict[str, list[str]]:
    """Return the names by how many of their epochs had one group of losses, as text ("3 of 8").

    Args:
        found: name and main phase of each; those whose losses never formed one group are left out.
    """
    names: dict[str, list[str]] = {}
    for name, phase in found:
        if phase.one_group:
            names.setdefault(str(phase), []).append(name)
    return names


def _unknown(table: Table) -> list[str]:
    if not table.unknown:
        return []
    return [f"Not used, since they are of no cell of the grid: records {', '.join(table.unknown)}."]


def _runs(line: Line) -> list[Run]:
    return [run for _, run in sorted(line.runs.items())]


def _extent(lines: Sequence[Line]) -> str:
    """Say how many runs, of which seeds and data, and when; there is one at least."""
    runs = [run for line in lines for run in _runs(line)]
    wanted = sum(len(line.cells) for line in lines)
    seeds = sorted({seed for line in lines for seed in line.runs})
    data = _distinct(run.protocol.data.path for run in runs)
    days = sorted(day for run in runs for day in (run.protocol.trained.created[:10], run.protocol.date[:10]))
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    many = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
    return f"{len(runs)} of {wanted} runs, {many}, on {data}, {when}"


def _machines(runs: Sequence[Run]) -> list[str]:
    """Say where the runs were trained, as far as their records tell."""
    trained = [run.protocol.trained for run in runs]
    devices = _distinct(f"{entry.device_name or entry.device}, CPU threads: {entry.threads}" for entry in trained)
    names = list(dict.fromkeys(name for entry in trained for name in entry.versions))
    versions = (f"{name} {_distinct(entry.versions.get(name, 'unknown') for entry in trained)}" for name in names)
    return [f"Trained on: {devices}; {', '.join(versions)}."]


def _against(baseline: str, lines: Sequence[Line]) -> list[str]:
    taken = sum(run.figures["epochs_taken_over"] > 0 for line in lines for run in _runs(line))
    shared = f" {taken} runs took over warm-up epochs, which count with the seconds of the run that trained them."
    return [
        f"Minus {baseline}: rSum differences within each seed that both rows have (the same noise index), their mean, "
        "in brackets the 95 % interval of the paired t-test and the number of pairs.",
        f"Time: wall-clock seconds of all epochs over those of {baseline}, mean over seeds; rough where machines are "
        f"shared with other work.{shared if taken else ''}",
    ]


def _paper(lines: Sequence[Line]) -> list[str]:
    figures = {figure.method: figure for line in lines if (figure := line.paper)}
    if not figures:
        return []
    found = []
    own = [figure.source for figure in figures.values() if not figure.is_elsewhere]
    if own:
        found.append(
            f"The paper's own figures ({_distinct(own)}) are copied from it, not measured here: its features, noise "
            "files and schedule are its own, so compare the order of rows, not the size. Sum of the six recalls where "
            "it prints them."
        )
    found += [
        f"The figure beside {figure.method} is copied from another source: {figure.source}."
        for figure in figures.values()
        if figure.is_elsewhere
    ]
    return found + [
        f"‡ {figure.method}: the paper prints {figure.printed:.1f}, but its recalls sum to {figure.rsum:.1f}."
        for figure in figures.values()
        if figure.disagrees
    ]


def _quoted(table: Table) -> list[str]:
    """Name printed figures of methods that cannot be run here."""
    by_method: dict[str, list[PaperFigure]] = {}
    for figure in table.quoted:
        by_method.setdefault(figure.method, []).append(figure)
    return [
        f"{method} ({figures[0].source}; {figures[0].venue}), no row here and not measured: rSum "
        + ", ".join(f"{figure.rsum:.1f}{'' if figure.noise is None else f' at {figure.noise:g}'}" for figure in figures)
        + "."
        for method, figures in by_method.items()
    ]


def _distinct(values: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(values))
