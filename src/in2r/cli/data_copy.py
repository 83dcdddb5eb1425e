"""`in2r data copy`: a folder to or from an object store."""

import argparse

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from in2r.cli.paths import name_or_path
from in2r.errors import command_line

EXAMPLES = """\
examples:
  in2r data copy s3://bucket/f30k f30k      from a store, to train on
  in2r data copy f30k gs://bucket/f30k      to a store
  in2r data copy s3://bucket/runs/a runs/a  a run folder
  in2r data copy /nfs/f30k /scratch/f30k    both on this machine

After ^C or an error, the same command continues. A file that TO has is copied
again unless both sides agree in its size and bytes; of a large array 16 blocks
are compared. What else lies in TO stays.

fsspec must be installed, and its package for the store: s3fs, gcsfs, adlfs,
aiohttp for https. They say how you log in and set addresses.
"""


def register(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    text = "copy a folder to or from an object store, such as s3://bucket/f30k"
    parser = verbs.add_parser(
        "copy", help=text, description=text, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=name_or_path, metavar="FROM", help="a folder, or a URL that fsspec knows")
    parser.add_argument("target", type=name_or_path, metavar="TO", help="likewise; one of both is on this machine")
    parser.add_argument("--workers", type=_count, default=8, metavar="N", help="files at a time; default: 8")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Copy, then print how much, and the next command."""
    from in2r.data.copy import copy_folder
    from in2r.data.sources import holds_data
    from in2r.data.store import Folder, place

    with _Bars() as bars:
        done = copy_folder(args.source, args.target, workers=args.workers, progress=bars.update)
    target = place(args.target)
    lines = [
        f"{target.shown()}: {done.files:,} files copied ({decimal(done.size)}), {done.kept:,} were there",
    ]
    if isinstance(target, Folder) and holds_data(target.path):
        lines.append(f"check it: {command_line('in2r', 'data', 'check', target.path)}")
    for line in lines:
        Console().print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


class _Bars:
    """A bar for the files that are compared, then one for the bytes that are copied; on a terminal only."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        text, bar, left = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        columns = {
            "compare": (text, bar, MofNCompleteColumn(), left),
            "copy": (text, bar, DownloadColumn(), TransferSpeedColumn(), left),
        }
        self._shown = console.is_terminal
        self._progress = {
            what: Progress(*columns[what], console=console, transient=True) for what in columns
        }  # fmt: skip
        self._now = ""

    def __enter__(self) -> "_Bars":
        """Wait for the first update."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._now:
            self._progress[self._now].stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Move the bar of `what`, in place of the one before."""
        if not self._shown:
            return
        if what != self._now:
            self.__exit__()
            self._now = what
            self._progress[what].add_task(what, total=total)
            self._progress[what].start()
        self._progress[what].update(self._progress[what].task_ids[0], completed=done)
