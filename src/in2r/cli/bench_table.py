"""`in2r bench table`: tables of a grid's results, which compare only what may be compared."""

import argparse
import io
import sys
import textwrap
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text as RichText

from in2r.cli.paths import path_argument
from in2r.errors import InputError, command_line

if TYPE_CHECKING:
    from in2r.bench.sheets import Sheet, Text
    from in2r.bench.tables import Table

SUFFIXES = {".md": "md", ".csv": "csv", ".tex": "latex", ".json": "json"}
EXAMPLES = """\
examples:
  in2r bench table grids/ablations             every group, on the terminal
  in2r bench table grids/ablations --group rectifier --minus top1
                                               differences to the row top1
  in2r bench table grids/ablations --out ablations.csv
                                               every figure of every seed

Reads grid.yaml and records/ of the grid's folder, nothing else. Rows are
ranked and subtracted only if they agree in their protocol: noise and its index
by seed, split, folds, selection, data. md and latex have the terminal's tables,
csv has a line per row and seed, json has everything.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `table` to the verbs of `in2r bench`."""
    parser = subparsers.add_parser(
        "table",
        help="make tables of a grid's results",
        description="Make tables of a grid's results; only what may be compared is compared.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("grid", metavar="GRID", type=path_argument, help="the grid's folder")
    parser.add_argument(
        "--group", metavar="NAME", action="append", default=[], help="only this group; repeatable; default: all"
    )
    parser.add_argument(
        "--minus",
        metavar="LABEL",
        help="take differences to the row with this label on the first axis; default: the group's baseline",
    )
    parser.add_argument(
        "--format",
        choices=SUFFIXES.values(),
        help="print this format; default: that of the suffix of --out, or the terminal's",
    )
    parser.add_argument("--out", metavar="FILE", type=path_argument, help=f"write to a file ({', '.join(SUFFIXES)})")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the tables, then print or write them."""
    from in2r.bench.render import render
    from in2r.bench.tables import read_tables
    from in2r.files import write_text

    wanted = _format(args)
    tables = read_tables(args.grid, args.group, args.minus)
    command = _command(args)
    if wanted is None and any(table.is_measured or table.unknown for table in tables):
        _show(tables, command)
        return 0
    if wanted is None:
        train = command_line("in2r", "bench", "run", args.grid)
        said = f"{args.grid}: no run is finished yet; `{train}` trains them"
        Console().print(said, markup=False, highlight=False, soft_wrap=True)
        return 0
    text = render(tables, wanted, command)
    if args.out is None:
        _print(text)
    else:
        write_text(args.out, text)
        Console().print(f"{args.out}: written", markup=False, highlight=False, soft_wrap=True)
    return 0


def _print(text: str) -> None:
    """Print a file's text: as UTF-8, like a file, whatever the terminal's encoding; nothing where output is closed."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="replace"))
    elif sys.stdout is not None:
        sys.stdout.write(text)


def _format(args: argparse.Namespace) -> str | None:
    """Return the format that was asked for, None for the terminal."""
    if args.format is not None or args.out is None:
        return str(args.format) if args.format else None
    if args.out.suffix not in SUFFIXES:
        raise InputError(f"{args.out}: the suffix must be one of {', '.join(SUFFIXES)}; or give --format")
    return SUFFIXES[args.out.suffix]


def _command(args: argparse.Namespace) -> str:
    """Return the command that makes the same tables."""
    options = [word for name in args.group for word in ("--group", name)]
    if args.minus is not None:
        options += ["--minus", args.minus]
    return command_line("in2r", "bench", "table", args.grid, *options)


def _show(tables: "list[Table]", command: str) -> None:
    from in2r.bench.notes import notes
    from in2r.bench.sheets import sheets

    console = Console()
    for table in tables:
        console.print(RichText(table.title, style="bold"), highlight=False)
        for block in table.shown:
            console.print(RichText(f"\n{block.heading}"), highlight=False)
            for sheet in sheets(table, block):
                shown = _rich(sheet)
                needed = Measurement.get(console, console.options.update(width=1000), shown).maximum
                Console(width=max(needed, console.width)).print(
                    shown
                )  # a narrow terminal breaks lines, and loses nothing
        for note in notes(table, command):
            console.print(RichText(note, style="dim"), highlight=False)
        console.print()


def _rich(sheet: "Sheet") -> RichTable:
    from in2r.bench.sheets import heading_lines

    shown = RichTable(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for number, heading in enumerate(sheet.header):
        justify: Literal["left", "right"] = "left" if number < sheet.labels else "right"
        shown.add_column(RichText("\n".join(heading_lines(heading))), justify=justify, no_wrap=True)
    for row in sheet.rows:
        shown.add_row(*(RichText("\n".join(textwrap.wrap(cell.text, 28)), style=_style(cell)) for cell in row))
    return shown


def _style(cell: "Text") -> str:
    return "bold" if cell.best else "italic" if cell.unrankable else ""
