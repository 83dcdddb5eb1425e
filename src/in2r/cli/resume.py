"""`in2r resume`: resume an interrupted run."""

import argparse

from rich.console import Console

from in2r.cli.paths import path_argument
from in2r.cli.show import Terminal, print_done


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "resume",
        help="resume an interrupted run, bit-identically",
        epilog="example: in2r resume runs/mine. The settings are those of RUN/config.yaml. A setting that has changed "
        "since the start is refused; with --force it is used.",
    )
    parser.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    parser.add_argument(
        "--force", action="store_true", help="resume although settings, data or the noise index have changed"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Resume, then write the model folder."""
    from in2r.results import export_model
    from in2r.runs.folder import RunFolder
    from in2r.training.launch import is_first_process
    from in2r.training.train import reopen, resume_run

    console = Console(quiet=not is_first_process())
    terminal = Terminal(console, RunFolder(args.folder).require().warmup_epochs())
    try:
        folder = resume_run(args.folder, terminal, force=args.force)
    finally:
        terminal.close()
    if not is_first_process():
        return 0
    if not terminal.started:
        console.print("the run is finished already: nothing is trained", highlight=False)
    setup = reopen(folder, force=args.force)
    export_model(folder, setup)
    print_done(console, folder, setup)
    return 0
