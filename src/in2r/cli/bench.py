"""`in2r bench`: a whole grid of runs from one file, and tables of their results."""

import argparse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from in2r.cli import bench_run, bench_table
from in2r.cli.paths import path_argument

if TYPE_CHECKING:
    from in2r.bench.folder import GridFolder
    from in2r.bench.grid import Cell


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb with run, status and table."""
    parser = subparsers.add_parser(
        "bench",
        help="run a grid of settings and seeds; make tables of its results",
        description=__doc__,
        epilog=bench_run.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="bench_verb", required=True, metavar="VERB")
    bench_run.register(actions)
    status = actions.add_parser("status", help="list the cells of a grid and how far each is")
    status.add_argument("folder", type=path_argument, metavar="GRID", help="the grid's folder")
    status.set_defaults(run=run_status)
    bench_table.register(actions)


def run_status(args: argparse.Namespace) -> int:
    """List the cells."""
    from in2r.bench.folder import GridFolder

    folder = GridFolder(args.folder).require()
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("cell", "state", ""):
        table.add_column(heading, overflow="fold")
    for cell in folder.grid().cells:
        state = folder.state(cell.name)
        table.add_row(cell.name, state, _note(folder, cell, state))
    Console().print(table)
    return 0


def _note(folder: "GridFolder", cell: "Cell", state: str) -> str:
    from in2r.bench.grid import cell_config

    if state == "failed":
        return folder.failure(cell.name)
    if state not in ("running", "interrupted"):
        return ""
    note = f"{folder.epochs_done(cell.name)} of {cell_config(cell).train.epochs} epochs"
    return f"{note}, {folder.holder_note(cell.name)}" if state == "running" else note
