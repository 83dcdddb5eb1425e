"""The command line: parse, call, turn a user's mistake into one line and exit status 2.

Verbs import PyTorch and all that needs it when they run, so that help and wrong arguments are answered at once.
"""

import argparse
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import in2r
from in2r.errors import InputError, command_line, own_line
from in2r.files import describe

VERBS = (
    "demo", "features", "audit", "train", "resume", "evaluate", "score", "encode", "index", "search", "serve", "push",
    "export", "released", "bench", "plot", "data", "noise", "vocabulary", "methods", "config", "completion",
)  # fmt: skip
"""The modules of this package that hold one verb each, in the order of `in2r --help`."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all verbs."""
    parser = argparse.ArgumentParser(
        prog="in2r",
        description="Train image-text retrieval on pairs of which many are mismatched, and list the mismatched pairs.",
        epilog="Start with `in2r demo`. `in2r VERB --help` shows examples.",
    )
    parser.add_argument("--version", action="version", version=f"in2r {in2r.__version__}")
    parser.add_argument("--debug", action="store_true", help="show a traceback in place of one line")
    subparsers = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        import_module(f"in2r.cli.{verb}").register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status: 0 done, 2 a mistake that the user can fix, 130 interrupted.

    If nobody reads the standard output any more, as behind `| head`, the verb continues and its status stays.
    """
    args = argparse.Namespace(debug=False, verb=None)
    try:
        with _output_that_may_lose_its_reader():
            return _run(argv, args)
    except InputError as error:
        return _mistake(error, str(error), args)
    except OSError as error:
        return _mistake(error, "; ".join([describe(error), *_resuming(args)]), args)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            return _own_fault(error, args)
        reason = " ".join(str(error).split())[:200]
        lower = "lower train.batch_size, model.dim or method.memory_size"
        return _mistake(error, f"out of memory ({reason}); {lower}", args)
    except Exception as error:
        return _own_fault(error, args)
    except KeyboardInterrupt:
        sys.stderr.write("; ".join(["in2r: interrupted", *_resuming(args)]) + "\n")
        return 130


def _run(argv: Sequence[str] | None, args: argparse.Namespace) -> int:
    """Parse into `args`, call the verb."""
    _show_what_can_be_shown()
    _parse(argv, args)
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("in2r").setLevel(logging.INFO)  # of other packages only what is wrong
    several = os.environ.get("WORLD_SIZE", "1") != "1"  # as launch.py says; it would import PyTorch
    if several and args.verb not in ("train", "resume") and os.environ.get("RANK", "0") != "0":
        return 0  # of processes that a launcher started, one is enough
    return int(args.run(args))


def _parse(argv: Sequence[str] | None, args: argparse.Namespace) -> None:
    """Parse into `args`; settings, or the text of a search, may come after an option too.

    There argparse expects no positional any more.
    """
    parser = build_parser()
    _, rest = parser.parse_known_args(argv, args)
    if getattr(args, "query", "") is None and len(rest) == 1 and not rest[0].startswith("-"):
        args.query = rest.pop()
    unknown = [text for text in rest if "overrides" not in args or text.startswith("-") or "=" not in text]
    if unknown:
        settings = args.verb == "resume" and any("=" in text for text in unknown)
        hint = "; a run is resumed with the settings of its config.yaml (`in2r resume --help`)" if settings else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if rest:
        args.overrides = [*args.overrides, *rest]


class _StandardError(logging.Handler):
    """A message is one line, however long, on what standard error is at that time: a progress bar takes its place.

    A warning is written once a command, however often the file that it is about is read.
    """

    def __init__(self) -> None:
        super().__init__()
        self._warned: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if record.levelno == logging.WARNING:
            if line in self._warned:
                return
            self._warned.add(line)
        try:
            sys.stderr.write(f"{line}\n")
        except OSError:
            self.handleError(record)


def _mistake(error: Exception, line: str, args: argparse.Namespace) -> int:
    """Say it in one line, or raise it again for the traceback."""
    if args.debug:
        raise error
    sys.stderr.write(f"in2r: {line}\n")
    return 2


def _own_fault(error: Exception, args: argparse.Namespace) -> int:
    """Say an error of a user's own method in one line; any other one is a fault of this package."""
    line = own_line(error)
    if not line:
        raise error
    text = " ".join(str(error).split())
    return _mistake(error, f"{line}: {type(error).__name__}: {text} (--debug shows the traceback)", args)


def _resuming(args: argparse.Namespace) -> list[str]:
    """Name the command that resumes the interrupted work, if there is one."""
    if args.verb == "demo":
        return ["`in2r demo` (the same command) resumes it"]
    made = {"features": Path(args.out), "audit": Path(args.out) / "data"} if args.verb in ("features", "audit") else {}
    if args.verb in made and (made[args.verb] / "unfinished").is_dir():
        return ["the same command continues"]
    if vars(args).get("data_verb") == "copy":
        return ["the same command continues"]
    if vars(args).get("bench_verb") == "run":
        return [f"`{command_line('in2r', 'bench', 'run', args.out or args.grid)}` resumes it"]
    folder = {"train": "out", "resume": "folder"}.get(args.verb)
    if folder is None or not (Path(vars(args)[folder]) / "config.yaml").is_file():  # RunFolder would import PyTorch
        return []
    launcher = "torchrun ... -m " if os.environ.get("WORLD_SIZE", "1") != "1" else ""
    return [f"`{launcher}{command_line('in2r', 'resume', vars(args)[folder])}` resumes it"]


class _Output(io.FileIO):
    """A file whose reader may go away: what nobody reads is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)
        except OSError as error:
            error.filename = "standard output"
            raise


@contextmanager
def _output_that_may_lose_its_reader() -> Iterator[None]:
    """Continue when that happens: rich would end the process, at the first line of a training of hours."""
    given = sys.stdout
    binary = getattr(given, "buffer", None)
    file = getattr(binary, "raw", binary)  # python -u has no buffer in between
    if not isinstance(given, io.TextIOWrapper) or not isinstance(file, io.FileIO):  # closed, or not the system's
        yield
        return
    given.flush()
    binary = io.BufferedWriter(_Output(file.fileno(), "w", closefd=False))
    lines = given.line_buffering
    with io.TextIOWrapper(binary, given.encoding, line_buffering=lines) as output, redirect_stdout(output):
        yield


def _show_what_can_be_shown() -> None:
    """Print a question mark where the terminal cannot show a character, nothing where standard error is closed."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open to the end; takes number 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _is_out_of_memory(error: Exception) -> bool:
    """Recognise PyTorch's own errors too, on the CPU a plain RuntimeError."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in said or "allocate memory" in said


if __name__ == "__main__":
    sys.exit(main())
