"""`in2r config`: the settings, their defaults and their reasons."""

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from in2r.cli.paths import name_or_path
from in2r.cli.settings import add_settings

EXAMPLES = """\
examples:
  in2r config show                              every key, value and reason
  in2r config show in2r/released train.seed=1   a preset with changes
  in2r config show ncr/coco --changed-from ncr  what differs, with both values
  in2r config show in2r --yaml > my.yaml        a file to edit
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("config", help="show every setting with its value and reason", description=__doc__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    show = verbs.add_parser(
        "show",
        help="print the settings of a preset or a file, with their reasons",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(show, nargs="?", default="in2r")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--yaml", action="store_true", help="print YAML that `in2r train` reads")
    form.add_argument(
        "--changed-from",
        type=name_or_path,
        metavar="SETTINGS",
        help="print only what differs from this preset or YAML file, with both values",
    )
    show.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the settings, or those that differ from other ones."""
    import yaml

    from in2r.config import to_dict
    from in2r.runs.settings import load_config

    console, config = Console(), load_config(args.settings, args.overrides)
    if args.yaml:
        console.out(yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True), highlight=False, end="")
        return 0
    other = None if args.changed_from is None else load_config(args.changed_from, [])
    for section in dataclasses.fields(config):
        table = Table(title=section.name, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for heading in ("key", "value", *([] if other is None else [args.changed_from]), "meaning and reason"):
            table.add_column(Text(heading))  # Text: brackets in a path are no markup
        part, before = getattr(config, section.name), None if other is None else vars(getattr(other, section.name))
        for entry in dataclasses.fields(part):
            name, value, default = entry.name, getattr(part, entry.name), entry.default
            if before is not None and name in before and before[name] == value:
                continue
            theirs = [] if before is None else [_as_yaml(before[name]) if name in before else "(no such key)"]
            differs = "" if value == default else f"; default: {_as_yaml(default)}"
            cells = (f"{section.name}.{name}", _as_yaml(value), *theirs, entry.metadata["help"] + differs)
            table.add_row(*map(Text, cells))
        if table.row_count:
            console.print(table, "")
    return 0


def _as_yaml(value: object) -> str:
    """Write a value as one would give it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)
