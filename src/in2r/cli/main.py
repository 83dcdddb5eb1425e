"""The command line: parse, call, turn a user's mistake into one line and exit status 2."""

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

from rich.console import Console
from rich.logging import RichHandler

import in2r
from in2r.errors import InputError

VERBS = ("demo", "train", "resume", "evaluate", "score", "encode", "data", "noise", "vocabulary", "config")
"""The modules of this package that hold one verb each, in the order of `in2r --help`."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all verbs."""
    parser = argparse.ArgumentParser(
        prog="in2r",
        description="Learn image-text retrieval in spite of mismatched pairs, and find those pairs.",
        epilog="Begin with `in2r demo`; `in2r VERB --help` shows examples.",
    )
    parser.add_argument("--version", action="version", version=f"in2r {in2r.__version__}")
    parser.add_argument("--debug", action="store_true", help="show a traceback where one line would be shown")
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        import_module(f"in2r.cli.{verb}").register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status: 0 done, 2 a mistake that the user can mend, 130 interrupted."""
    _show_what_can_be_shown()
    args = build_parser().parse_args(argv)
    console = Console(stderr=True)
    handler = RichHandler(console=console, show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler], force=True)
    try:
        return int(args.run(args))
    except InputError as error:
        if args.debug:
            raise
        sys.stderr.write(f"in2r: {error}\n")
        return 2
    except BrokenPipeError:
        return 0
    except OSError as error:
        if args.debug:
            raise
        sys.stderr.write(f"in2r: {error.filename or 'file system'}: {error.strerror or error}\n")
        return 2
    except (MemoryError, RuntimeError) as error:
        if args.debug or not _is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:200]
        sys.stderr.write(f"in2r: out of memory ({reason}); lower train.batch_size, model.dim or method.memory_size\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("in2r: interrupted; a run goes on with `in2r resume RUN`\n")
        return 130


def _show_what_can_be_shown() -> None:
    """Print a question mark where the terminal cannot show a character, and go on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _is_out_of_memory(error: Exception) -> bool:
    """Recognise PyTorch's own errors too, on the CPU a plain RuntimeError."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in said or "allocate memory" in said


if __name__ == "__main__":
    sys.exit(main())
