"""`in2r completion`: a script by which a shell completes verbs, options, choices, presets and paths.

The script lists all of them, so that completing starts no Python.
"""

import argparse
import sys
from string import Template
from typing import Any

from in2r.cli.paths import name_or_path, path_argument
from in2r.errors import InputError
from in2r.runs.presets import presets

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
examples:
  in2r completion bash > ~/.local/share/bash-completion/completions/in2r
  in2r completion zsh > ~/.zfunc/_in2r    with `fpath+=(~/.zfunc)` before
                                          compinit in ~/.zshrc
  in2r completion fish > ~/.config/fish/completions/in2r.fish
"""
_PRESETS = {
    "bash": """
_in2r_presets() {
  local front=
  case $1 in *+*) front=${1%+*}+ ;; esac
  compgen -P "$front" -W "$names" -- "${1##*+}"
  compgen -f -- "$1"
}
""",
    "zsh": """
_in2r_presets() {
  _files
  compset -P '*+'
  compadd -- $names
}
""",
    "fish": """
function _in2r_presets
  set -l word (commandline -ct)
  set -l front (string match -r '.*\\\\+' -- $$word; or echo)
  for name in $names
    echo $$front$$name
  end
  __fish_complete_path $$word
end
""",
}
"""shell → a function that completes a preset, after each + too, or a file; $names are the presets, $$ is a dollar"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script by which your shell completes in2r's arguments",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell: bash, zsh or fish")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script of a shell."""
    from in2r.cli.main import build_parser

    try:
        import shtab
    except ImportError:
        raise InputError('shell completion needs shtab: pip install "in2r[completion]"') from None
    parser = build_parser()
    _name_completers(parser, {"file": shtab.FILE, "preset": _preset_completer()})
    sys.stdout.write(f"{shtab.complete(parser, shell=args.shell)}\n")
    return 0


def _preset_completer() -> dict[str, Any]:
    """Return shtab's description of what completes a preset: a function's name per shell, and the functions."""
    call = {"bash": "_in2r_presets", "zsh": "_in2r_presets", "fish": "(_in2r_presets)"}
    return {**call, "preamble": {shell: _with_names(text) for shell, text in _PRESETS.items()}}


def _with_names(text: str) -> str:
    return Template(text).safe_substitute(names=" ".join(presets()))


def _name_completers(parser: argparse.ArgumentParser, completers: dict[str, Any]) -> None:
    """Say of each argument that is a path or a preset how it is completed; shtab reads it off the argument."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _name_completers(verb, completers)
        elif action.dest in ("settings", "changed_from"):
            vars(action)["complete"] = completers["preset"]
            if action.dest == "settings":
                action.help = "a preset or a YAML file"  # that of the parser lists them, as the shell does
        elif action.type in (path_argument, name_or_path):
            vars(action)["complete"] = completers["file"]
