"""`in2r push`: send a model to a hub, or show what would be sent."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from in2r.cli.paths import path_argument
from in2r.errors import InputError

EXAMPLES = """\
examples:
  in2r push runs/mine you/flickr30k-in2r --plan --licence apache-2.0
                                      print the files and the card; no network
  in2r push runs/mine you/flickr30k-in2r --licence apache-2.0
  in2r push runs/mine you/flickr30k-in2r --private

Of a run, the card has the test recalls too, if `in2r eval` was run. Paths of
this machine are left out. `hf auth login` or HF_TOKEN says who you are; others
then load the model with in2r.load("you/flickr30k-in2r").
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "push",
        help="send a model to a hub, with a model card",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=path_argument, metavar="RUN-OR-MODEL", help="a run folder or a model folder")
    parser.add_argument("repo", metavar="OWNER/NAME", help="the model on the hub; made if it is not there")
    parser.add_argument("--private", action="store_true", help="nobody else may read it")
    parser.add_argument("--licence", metavar="ID", help="the licence it is given under, such as apache-2.0")
    parser.add_argument(
        "--card", type=path_argument, metavar="MD", help="a text of your own for the card, in place of the one made"
    )
    parser.add_argument("--plan", action="store_true", help="print what would be sent, and send nothing")
    parser.add_argument("--network", choices=("ensemble", "A", "B"), default="ensemble", help="default: ensemble")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Send one model, or print what would be sent."""
    from tempfile import TemporaryDirectory

    from in2r.data.rows import read_text
    from in2r.models.folder import load
    from in2r.models.hub import send
    from in2r.models.sharing import save_for_hub

    if not args.model.exists():
        raise InputError(f"{args.model}: no such folder")
    model = load(args.model, "cpu", args.network)
    text = None if args.card is None else read_text(args.card)
    console = Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    with TemporaryDirectory(prefix="in2r-push-") as place:
        folder = save_for_hub(model, Path(place) / "model", args.repo, args.licence, _test_result(args.model), text)
        for file in sorted(folder.iterdir()):
            say(f"{file.name}  {file.stat().st_size:,} bytes")
        if args.licence is None and text is None:
            say("no licence: nobody else may use the model; --licence names one")
        if args.plan:
            say("\n" + (folder / "README.md").read_text(encoding="utf-8"))
            say(f"nothing was sent; without --plan, this becomes {args.repo}")
        else:
            say(send(folder, args.repo, args.private))
    return 0


def _test_result(folder: Path) -> Any:
    """Read the test recalls of a run, if there are any."""
    from in2r.files import read_json

    file = folder / "result_test.json"
    return read_json(file) if file.is_file() else None
