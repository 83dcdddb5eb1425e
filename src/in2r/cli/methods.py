"""`in2r methods`: list the methods, or run the common tests on one of your own."""

import argparse

from rich.console import Console
from rich.table import Table
from rich.text import Text

from in2r.cli.paths import name_or_path
from in2r.errors import InputError, own_line

EXAMPLES = """\
examples:
  in2r methods
  in2r methods --check mymethod.py:MyMethod
  in2r train mymethod.py:MyMethod data.path=mydata --out runs/mine

docs/own-method.md shows a complete method in one file.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "methods",
        help="list the methods, or test one of your own",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check",
        type=name_or_path,
        metavar="METHOD",
        help="run the common tests on a method: a name, or file.py:Class",
    )
    parser.add_argument(
        "--backbone", default="gpo", help="the backbone of the tests: gpo (default), vsepp, sgr, saf or scan"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List, or test."""
    console = Console()
    if args.check is None:
        console.print(_table())
        return 0
    return _check(console, args.check, args.backbone, args.debug)


def _table() -> Table:
    from in2r.methods import find_method, method_names
    from in2r.runs.presets import presets

    table = Table.grid(padding=(0, 2, 0, 0))
    for name in method_names():
        try:
            method = find_method(name)
        except InputError as error:  # an installed package's: the others are shown
            table.add_row(name, Text(str(error)))
            continue
        own = ", ".join(preset for preset in presets() if preset.split("/")[0] == name)
        line = (method.__doc__ or "").strip().partition("\n")[0]
        sets = ", ".join(walk.name for walk in method.sets)
        table.add_row(Text(name, "bold"), line)
        table.add_row("", Text(f"{method.networks} network{'s' * (method.networks > 1)}; sets of pairs: {sets}", "dim"))
        table.add_row("", Text(f"presets: {own}" if own else "no preset", "dim"))
    return table


def _place(error: BaseException) -> str:
    """Say which line of a method's own file an error comes from; nothing where it comes from none."""
    line = own_line(error)
    return f" ({line}; --debug shows the traceback)" if line else ""


def _check(console: Console, method: str, backbone: str, debug: bool) -> int:
    from in2r.methods import find_method
    from in2r.testing import BACKBONES, CHECKS, check_method

    find_method(method)
    if backbone not in BACKBONES:
        raise InputError(f"--backbone {backbone}: expected {', '.join(BACKBONES)}")
    try:
        check_method(
            method, backbone, on_passed=lambda name: console.print(f"passed  {name.replace('_', ' ')}", highlight=False)
        )
    except Exception as error:  # whatever a method raises, its test has failed
        if debug:
            raise
        text = str(error) if isinstance(error, (AssertionError, InputError)) else f"{type(error).__name__}: {error}"
        console.print(f"failed  {text}{_place(error)}", markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(f"all {len(CHECKS)} tests passed", highlight=False)
    return 0
