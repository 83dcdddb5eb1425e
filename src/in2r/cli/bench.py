"""`in2r bench`: a whole grid of runs from one file, and tables of what it found."""

import argparse
import math
import os
from collections.abc import Collection, Container
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from in2r.bench.leases import EXPIRES
from in2r.cli import bench_table
from in2r.cli.paths import name_or_path, path_argument
from in2r.cli.show import duration
from in2r.errors import InputError, command_line

if TYPE_CHECKING:
    from in2r.bench.cell import Where
    from in2r.bench.estimate import Estimate
    from in2r.bench.folder import GridFolder

EXAMPLES = """\
examples:
  in2r bench run ablations data.path=f30k_precomp --out grids/ablations --plan
                                            what it would cost
  in2r bench run ablations data.path=f30k_precomp --out grids/ablations
  in2r bench run grids/ablations            go on, or help: from a second
                                            terminal or machine, too
  in2r bench status grids/ablations
  in2r bench table grids/ablations --format md

A grid is a YAML file (docs/bench.md) or one that comes with the package.
After ^C, cells under way save what they did.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb with run, status and table."""
    parser = subparsers.add_parser(
        "bench",
        help="run a grid of settings and seeds; tables of what it found",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="bench_verb", required=True, metavar="VERB")
    run = actions.add_parser(
        "run", help="train and test every cell of a grid, or go on with it", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    run.add_argument(
        "grid",
        type=name_or_path,
        metavar="GRID",
        help="a grid file, a grid that comes with the package, or a grid's folder",
    )
    run.add_argument(
        "overrides", nargs="*", metavar="key=value", help="settings of every cell, below those of its axes"
    )
    run.add_argument(
        "--out", type=path_argument, metavar="FOLDER", help="the grid's folder, where it is not GRID itself"
    )
    run.add_argument(
        "--data", type=path_argument, metavar="FOLDER", help="where a relative data.path begins; default: here"
    )
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="cells at the same time; default: 1")
    run.add_argument("--device", help="where the cells compute, such as cuda:1; default: as their settings say")
    run.add_argument(
        "--lease", type=float, default=EXPIRES, metavar="SECONDS",
        help=f"take over a cell whose process was not heard of for so long; default: {EXPIRES:g}",
    )  # fmt: skip
    run.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="only the cells of this group; repeatable"
    )
    run.add_argument("--seed", action="append", default=[], type=int, metavar="N", help="only this seed; repeatable")
    run.add_argument("--retry", action="store_true", help="begin broken cells again")
    run.add_argument("--plan", action="store_true", help="time a few steps, say what it would cost, and stop")
    run.set_defaults(run=run_grid)
    status = actions.add_parser("status", help="say how each cell of a grid stands")
    status.add_argument("folder", type=path_argument, metavar="GRID", help="the grid's folder")
    status.set_defaults(run=run_status)
    bench_table.register(actions)


def run_grid(args: argparse.Namespace) -> int:
    """Plan, then work until nothing is left."""
    from in2r.bench.cell import Where
    from in2r.bench.runner import Runner

    if args.jobs < 1 or not 1 <= args.lease < math.inf:
        raise InputError(f"--jobs {args.jobs}, --lease {args.lease:g}: at least one job, and one second or more")
    folder = _folder(args)
    data = str((args.data or Path.cwd()).absolute())
    threads = None if args.jobs == 1 else max(1, (os.cpu_count() or 1) // args.jobs)
    where = Where(data, args.device, threads, args.lease)
    console = Console()
    others = _others(folder, args.group, args.seed)
    if args.retry and not args.plan:
        for cell in folder.grid().cells:
            if cell.name not in others:
                folder.fault_file(cell.name).unlink(missing_ok=True)
    unable = _plan(console, folder, where, args.jobs, others)
    if args.plan:
        return 0
    with _Display(console, folder, others) as display:
        whole = Runner(folder, where, args.jobs, {*others, *unable}, display.told, display.tick).run()
    tables = command_line("in2r", "bench", "table", folder.path)
    console.print(f"tables: {tables}", markup=False, highlight=False, soft_wrap=True)
    return 0 if whole and not unable else 1


def _others(folder: "GridFolder", groups: list[str], seeds: list[int]) -> set[str]:
    """Return the cells that are not asked for by group or seed."""
    grid = folder.grid()
    chosen = {name for group in grid.named(groups) for row in group.rows for name in row.cells.values()}
    for seed in seeds:
        if seed not in {cell.seed for cell in grid.cells}:
            raise InputError(f"--seed {seed}: no cell of the grid has it")
    return {
        cell.name for cell in grid.cells if (groups and cell.name not in chosen) or (seeds and cell.seed not in seeds)
    }


def _folder(args: argparse.Namespace) -> "GridFolder":
    """Return the grid's folder, with what it asks for written into it."""
    from in2r.bench.folder import GridFolder
    from in2r.bench.grid_file import expand, read_grid

    if args.out is None:
        folder = GridFolder(args.grid, args.lease)
        if not Path(args.grid).is_dir():
            raise InputError(f"--out is missing: the folder to make for the grid {args.grid}")
        if args.overrides:
            raise InputError(f"{args.grid}: is begun already; settings go with the grid file and --out")
        folder.require_same_settings(folder.grid())
        return folder
    values = read_grid(args.grid, args.overrides)
    expand(values, args.grid)
    folder = GridFolder(args.out, args.lease)
    folder.write(values)
    return folder


def _plan(console: Console, folder: "GridFolder", where: "Where", jobs: int, others: Container[str]) -> Collection[str]:
    """Say how many cells there are and how long the open ones will take; return those that cannot be begun."""
    from in2r.bench.estimate import estimate
    from in2r.bench.warmups import without_cotraining

    grid = folder.grid()
    states = {cell.name: folder.state(cell.name) for cell in grid.cells}
    counts = {state: list(states.values()).count(state) for state in dict.fromkeys(states.values())}
    said = ", ".join(f"{number} {state}" for state, number in counts.items())
    console.print(f"{grid.title}: {len(grid.cells)} cells ({said})", markup=False, highlight=False, soft_wrap=True)
    ahead = [cell for cell in grid.cells if cell.name not in others and states[cell.name] in ("open", "interrupted")]
    if not ahead:
        return ()
    console.print("timing a few steps of each kind of cell ...", highlight=False)
    found = estimate(folder, ahead, where)
    _say(console, found, jobs)
    warning = without_cotraining(ahead)
    if warning:
        console.print(warning, markup=False, highlight=False, soft_wrap=True)
    return found.faults


def _say(console: Console, found: "Estimate", jobs: int) -> None:
    if found.seconds:
        share = f", about {duration(found.total / jobs)} with {jobs} at a time" if jobs > 1 else ""
        count = f"{len(found.seconds)} cell{'s' * (len(found.seconds) > 1)}"
        console.print(f"time: about {duration(found.total)} for {count}{share}", highlight=False)
    for fault in dict.fromkeys(found.faults.values()):
        names = [name for name, said in found.faults.items() if said == fault]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        console.print(f"cannot begin {names[0]}{more}: {fault}", markup=False, highlight=False, soft_wrap=True)


class _Display:
    """One bar over all epochs of the grid, whoever trains them, and a line for each cell that ends."""

    def __init__(self, console: Console, folder: "GridFolder", others: Container[str]) -> None:
        self.console, self.folder = console, folder
        from in2r.bench.grid import cell_config

        cells = [cell for cell in folder.grid().cells if cell.name not in others]
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
            if self.folder.record_file(name).is_file():
                done += epochs
            elif self.folder.run(name).exists():
                done += self.folder.epochs_done(name)
        return done

    def tick(self) -> None:
        """Move the bar."""
        if not self.progress.disable:
            count = len(self.running)
            under_way = f"{count} cell{'s' * (count != 1)} under way"
            self.progress.update(self.task, completed=self._done(), description=under_way)

    def told(self, name: str, state: str) -> None:
        """Print what became of a cell."""
        self.running.discard(name)
        line = f"{state:<11} {name}"
        if state == "begun":
            self.running.add(name)
        elif state == "finished":
            from in2r.bench.records import read_record

            record = read_record(self.folder.record_file(name))
            spent = sum(epoch["seconds"] for epoch in record.epochs if "taken_over" not in epoch)
            line += f"  test rSum {record.result['rows']['ensemble']['rsum']:.1f}  {duration(spent)}"
        elif state == "broken":
            line += f"  {self.folder.fault(name).error}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def run_status(args: argparse.Namespace) -> int:
    """List the cells."""
    from in2r.bench.folder import GridFolder
    from in2r.bench.grid import cell_config

    folder = GridFolder(args.folder).require()
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("cell", "state", ""):
        table.add_column(heading, overflow="fold")
    for cell in folder.grid().cells:
        state = folder.state(cell.name)
        note = folder.fault(cell.name).error if state == "broken" else ""
        if state in ("running", "interrupted"):
            note = f"{folder.epochs_done(cell.name)} of {cell_config(cell).train.epochs} epochs"
        table.add_row(cell.name, state, note)
    Console().print(table)
    return 0
