"""`in2r resume`: go on with an interrupted run."""

import argparse

from rich.console import Console

from in2r.cli.show import Terminal


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "resume",
        help="go on with an interrupted run, as if it had never stopped",
        epilog="example: in2r resume runs/mine. The settings are those of RUN/config.yaml; one that has changed since "
        "the run began is refused, or with --force taken.",
    )
    parser.add_argument("folder", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--force", action="store_true", help="go on although settings, data or the noise index have changed"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Resume, then write the model folder."""
    from in2r.engine.run import RunFolder
    from in2r.engine.train import reopen, resume_run
    from in2r.results import export_model

    console = Console()
    terminal = Terminal(console, RunFolder(args.folder).require().foretold())
    try:
        folder = resume_run(args.folder, terminal, force=args.force)
    finally:
        terminal.close()
    export_model(folder, reopen(folder, force=args.force))
    done = f"model: {folder.model}   test it: in2r eval {folder.path}"
    console.print(done, markup=False, highlight=False, soft_wrap=True)
    return 0
