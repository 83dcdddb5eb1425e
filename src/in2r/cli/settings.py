"""The arguments that name a run's settings: a preset or a YAML file, then what differs."""

import argparse
from pathlib import Path
from typing import Any

from in2r.cli.paths import name_or_path
from in2r.errors import command_line
from in2r.runs.presets import presets


def add_settings(parser: argparse.ArgumentParser, **how: Any) -> None:
    """Add `settings` and `overrides` to a verb.

    Args:
        parser: the verb's parser.
        how: what differs for `settings`, such as a default.
    """
    names = ", ".join(presets())

    def source(text: str) -> str:
        file = name_or_path(text)
        if "=" in text and not Path(file).is_file():
            right = command_line(*parser.prog.split(), "in2r", text)
            raise argparse.ArgumentTypeError(
                f"{text!r} is a setting; the first argument must be a preset ({names}) or a YAML file, as in "
                f"`{right} ...`"
            )
        return file

    what = f"a preset ({names}), several put together with +, or a YAML file"
    parser.add_argument("settings", type=source, help=what, **how)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that differ")
