"""`in2r bench run`: train and test every cell of a grid, or resume it."""

import argparse
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from in2r.cli.paths import name_or_path, path_argument
from in2r.cli.show import duration
from in2r.errors import InputError, command_line, near

if TYPE_CHECKING:
    from in2r.bench.folder import GridFolder
    from in2r.bench.grid import Cell, Grid

EXAMPLES = """\
examples:
  in2r bench run ablations data.path=f30k_precomp --out grids/ablations --plan
                                            list what is to be done
  in2r bench run ablations data.path=f30k_precomp --out grids/ablations
  in2r bench run grids/ablations            resume it, or work along from a
                                            second terminal
  in2r bench run grids/ablations --share 3/8
                                            third of eight jobs of an array
  in2r bench run grids/ablations --only refiner --seed 0
                                            one row, one seed
  in2r bench status grids/ablations
  in2r bench table grids/ablations --format md

A grid is a YAML file (docs/bench.md) or one of the package.
After ^C, running cells save their work; the same command resumes them.
"""


def register(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `run` to the verbs of `in2r bench`."""
    run = actions.add_parser(
        "run", help="train and test every cell of a grid; resume what is not finished", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    run.add_argument(
        "grid", type=name_or_path, metavar="GRID", help="a grid file, a grid of the package, or a grid's folder"
    )
    run.add_argument(
        "overrides", nargs="*", metavar="key=value", help="settings of every cell, below those of its axes"
    )
    run.add_argument("--out", type=path_argument, metavar="FOLDER", help="the grid's folder, unless GRID is one")
    run.add_argument(
        "--data",
        type=path_argument,
        metavar="FOLDER",
        help="the folder that a relative data.path begins in; default: this one",
    )
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="cells at the same time; default: 1")
    run.add_argument(
        "--share", type=_share, default=(1, 1), metavar="K/N",
        help="only the K-th of N equal shares of the cells; cells that share a warm-up stay together where possible",
    )  # fmt: skip
    run.add_argument("--device", help="where the cells compute, such as cuda:1; default: as their settings say")
    run.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="only the cells of this group; repeatable"
    )
    run.add_argument(
        "--only", action="append", default=[], metavar="LABEL",
        help="only the rows with this label on an axis, such as 60 %%; given again: with all of these",
    )  # fmt: skip
    run.add_argument("--seed", action="append", default=[], type=int, metavar="N", help="only this seed; repeatable")
    run.add_argument("--retry", action="store_true", help="start failed cells again")
    run.add_argument(
        "--plan", action="store_true", help="list what is left to do and the time by the finished cells, and stop"
    )
    run.set_defaults(run=run_grid)


def _share(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, such as 3/8, got {text}")
    return int(found[1]), int(found[2])


def run_grid(args: argparse.Namespace) -> int:
    """Say what is left to do, then work until nothing is left."""
    from in2r.bench.cell import Placement
    from in2r.bench.plan import faults, share_of
    from in2r.bench.runner import Runner

    if args.jobs < 1:
        raise InputError(f"--jobs must be at least 1, got {args.jobs}")
    folder = _folder(args)
    data = str((args.data or Path.cwd()).absolute())
    threads = None if args.jobs == 1 else max(1, (os.cpu_count() or 1) // args.jobs)
    place = Placement(data, args.device, threads)
    console = Console()
    cells = share_of(chosen(folder.grid(), args.group, args.only, args.seed), *args.share)
    if args.retry and not args.plan:
        for cell in cells:
            folder.failure_file(cell.name).unlink(missing_ok=True)
    ahead = _say_plan(console, folder, cells, args.jobs)
    found = faults(folder, ahead, place)
    _say_faults(console, found)
    if args.plan:
        _list(console, folder, [cell for cell in ahead if cell.name not in found])
        return 0
    able = [cell for cell in cells if cell.name not in found]
    with _Display(console, folder, cells) as display:
        whole = Runner(folder, able, place, args.jobs, display.report, display.tick).run()
    _say_held(console, folder, able)
    _print(console, f"tables: {command_line('in2r', 'bench', 'table', folder.path)}")
    return 0 if whole and not found else 1


def chosen(grid: "Grid", groups: list[str], labels: list[str], seeds: list[int]) -> "list[Cell]":
    """Return the cells of these groups and seeds, none = of all, in rows that have all these labels."""
    rows = [row for group in (grid.named(groups) if groups else grid.groups) for row in group.rows]
    known = list(dict.fromkeys(label for row in rows for label in row.labels))
    for label in labels:
        if label not in known:
            raise InputError(f"--only {label}: no row has this label; labels: {', '.join(known)}{near(label, known)}")
    named = {name for row in rows if set(labels) <= set(row.labels) for name in row.cells.values()}
    if not named:
        raise InputError(f"--only {' --only '.join(labels)}: no row has all these labels")
    for seed in seeds:
        if seed not in {cell.seed for cell in grid.cells}:
            raise InputError(f"--seed {seed}: no cell of the grid has it")
    return [cell for cell in grid.cells if cell.name in named and (not seeds or cell.seed in seeds)]


def _folder(args: argparse.Namespace) -> "GridFolder":
    """Return the grid's folder, with what it asks for written into it."""
    from in2r.bench.folder import GridFolder
    from in2r.bench.grid_file import expand, read_grid

    if args.out is None:
        folder = GridFolder(args.grid)
        if not Path(args.grid).is_dir():
            raise InputError(f"--out is missing: the folder to make for the grid {args.grid}")
        if args.overrides:
            raise InputError(f"{args.grid}: is a grid's folder; its settings are given with the grid file and --out")
        folder.require_same_settings(folder.grid())
        return folder
    values = read_grid(args.grid, args.overrides)
    expand(values, args.grid)
    folder = GridFolder(args.out)
    folder.write(values)
    return folder


def _say_plan(console: Console, folder: "GridFolder", cells: "Sequence[Cell]", jobs: int) -> "list[Cell]":
    """Say how far the cells are and how long those that are left will take; return these."""
    from in2r.bench.plan import seconds_left
    from in2r.bench.warmups import without_main_phase

    states = {cell.name: folder.state(cell.name) for cell in cells}
    said = ", ".join(f"{number} {state}" for state, number in Counter(states.values()).items())
    _print(console, f"{folder.grid().title}: {_count(len(cells))} ({said})")
    ahead = [cell for cell in cells if states[cell.name] in ("open", "interrupted")]
    if not ahead:
        return []
    seconds = seconds_left(folder, ahead)
    time = "not known before the first cell has ended"
    if seconds is not None:
        time = f"about {duration(seconds)} by the cells that are finished"
        time += f", about {duration(seconds / jobs)} with {jobs} at a time" if jobs > 1 else ""
    _print(console, f"left: {_count(len(ahead))}; time: {time}")
    warning = without_main_phase(ahead)
    if warning:
        _print(console, warning)
    return ahead


def _say_faults(console: Console, found: Mapping[str, str]) -> None:
    for fault in dict.fromkeys(found.values()):
        names = [name for name, said in found.items() if said == fault]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        _print(console, f"cannot start {names[0]}{more}: {fault}")


def _list(console: Console, folder: "GridFolder", cells: "Sequence[Cell]") -> None:
    from in2r.bench.plan import epochs_left

    for cell in cells:
        _print(console, f"{folder.state(cell.name):<11} {cell.name}  {epochs_left(folder, cell)} epochs")


def _say_held(console: Console, folder: "GridFolder", cells: "Sequence[Cell]") -> None:
    """Name the cells that other machines claimed, so that the user can release what nobody works on any more."""
    for cell in cells:
        if folder.holder(cell.name) is not None:
            _print(console, f"not finished: {cell.name}, {folder.holder_note(cell.name)}")


def _count(cells: int) -> str:
    return f"{cells} cell{'s' * (cells != 1)}"


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Display:
    """One bar over all epochs of the cells, whichever process trains them, and a line for each cell that ends."""

    def __init__(self, console: Console, folder: "GridFolder", cells: "Sequence[Cell]") -> None:
        self.console, self.folder = console, folder
        from in2r.bench.grid import cell_config

        self.epochs = {cell.name: cell_config(cell).train.epochs for cell in cells}
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
            TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self.task = self.progress.add_task("cells", total=sum(self.epochs.values()), completed=self._done())
        self.running: set[str] = set()

    def __enter__(self) -> "_Display":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def _done(self) -> int:
        done = 0
        for name, epochs in self.epochs.items():
            if name in self.folder.records:
                done += epochs
            elif self.folder.run(name).exists():
                done += self.folder.epochs_done(name)
        return done

    def tick(self) -> None:
        """Move the bar."""
        if not self.progress.disable:
            description = f"{_count(len(self.running))} running"
            self.progress.update(self.task, completed=self._done(), description=description)

    def report(self, name: str, state: str) -> None:
        """Print what became of a cell."""
        self.running.discard(name)
        line = f"{state:<11} {name}"
        if state == "started":
            self.running.add(name)
        elif state == "finished":
            record = self.folder.records[name]
            spent = sum(epoch.seconds for epoch in record.epochs if not epoch.taken_over)
            line += f"  test rSum {record.result.rows['ensemble']['rsum']:.1f}  {duration(spent)}"
        elif state == "failed":
            line += f"  {self.folder.failure(name)}"
        _print(self.console, line)
