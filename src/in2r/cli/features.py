"""`in2r features`: raw images and captions → a data folder for all other verbs."""

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from in2r.cli.paths import path_argument
from in2r.cli.show import Rate
from in2r.errors import command_line

if TYPE_CHECKING:
    from in2r.encoders.regions import Regions
    from in2r.extract.make import Made

EXAMPLES = """\
examples:
  in2r features photos captions.csv --out mydata \\
      --encoder transformers:openai/clip-vit-base-patch32
                        a folder of images and a table
  in2r features photos captions.csv --out mydata --encoder timm:resnet50 \\
      --text-encoder transformers:sentence-transformers/all-MiniLM-L6-v2
                        texts by another model
  in2r features photos --out mydata --encoder onnx:model.onnx
                        no table: photo.txt beside photo.jpg
  in2r features shards --out mydata --encoder python:mine.py:Encoder
                        webdataset tars, as img2dataset writes them

  in2r features photos captions.csv --out mydata --pieces 100000 \\
      --encoder transformers:openai/clip-vit-base-patch32
                        started as often as you have devices or machines

After ^C or a crash, the same command continues. DATA/image_verdicts.csv says of
each image whether it could be read. No row of your table is dropped: a row
number is your own everywhere.
"""

ENCODERS = "transformers:NAME or FOLDER, timm:NAME, open_clip:NAME/PRETRAINED, onnx:FILE or python:FILE.py:NAME"
"""what --encoder takes"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "features",
        help="turn raw images and captions into a data folder",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "images", type=path_argument, metavar="IMAGES",
        help="the folder of images; without PAIRS also tars or a folder of `datasets`",
    )  # fmt: skip
    parser.add_argument(
        "pairs", type=path_argument, nargs="?", metavar="PAIRS",
        help="the table of captions: csv, tsv, jsonl (also .gz) or parquet; without it, name.txt beside name.jpg",
    )  # fmt: skip
    parser.add_argument("--out", type=path_argument, required=True, metavar="DATA", help="the new data folder")
    parser.add_argument("--encoder", required=True, metavar="KIND:NAME", help=ENCODERS)
    add_options(parser)
    parser.add_argument(
        "--pieces", type=_count, metavar="N",
        help="write files of N images, or captions, each; several processes may then run the same command at once",
    )  # fmt: skip
    parser.set_defaults(run=run)


def add_options(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add what may be said beside the encoder; `make` reads it."""
    parser.add_argument(
        "--text-encoder", metavar="KIND:NAME",
        help="for captions as vectors; default: the encoder's own text side, if it has one",
    )  # fmt: skip
    parser.add_argument(
        "--regions", type=_regions, default=3, metavar="K|all",
        help="vectors per image: the whole image and a K × K grid; 0 = the whole image alone; default: 3",
    )  # fmt: skip
    _add_columns(parser)
    parser.add_argument("--batch", type=_count, default=32, metavar="N", help="images in a pass; default: 32")
    parser.add_argument(
        "--workers", type=_count, default=min(8, os.cpu_count() or 1), metavar="N",
        help="threads that read images; default: one per core, at most 8",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps; default: auto")
    parser.add_argument(
        "--max-pixels", type=_count, metavar="N",
        help="refuse larger images, which a small file may hold; default: 100,000,000",
    )  # fmt: skip


def _add_columns(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add what says how a table is read."""
    for name in ("image", "caption", "split"):
        usual = "split" if name == "split" else "the usual names are tried"
        parser.add_argument(f"--{name}-column", metavar="NAME", help=f"the {name}s' column; default: {usual}")
    parser.add_argument("--encoding", help="of a table that is not UTF-8, such as cp1252; default: it is found")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1")
    return int(text)


def _regions(text: str) -> "Regions":
    if text == "all":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number such as 3, 0, or all")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Encode, then print the verdicts and the next commands."""
    console, out = Console(), Path(args.out)
    made = make(args, console, args.images, args.pairs, out, args.pieces)
    vectors = ["data.caption_vectors=auto"] if made.caption_shape is not None else []
    train = command_line("in2r", "train", "corroborate", f"data.path={out}", *vectors, "--out", "runs/mine")
    _say(console, f"check it: {command_line('in2r', 'data', 'check', out)}")
    _say(console, f"list the wrong pairs: {command_line('in2r', 'audit', out, '--out', f'{out}_audit')}")
    _say(console, f"train on it: {train}")
    return 0


def make(
    args: argparse.Namespace, console: Console, images: Path, pairs: Path | None, out: Path, pieces: int | None = None
) -> "Made":
    """Encode images and captions into a data folder, as the options say, and print what was made.

    Args:
        args: `encoder` and what `add_options` adds.
        console: to print on.
        images: the folder of images; without `pairs` also tars or what `datasets` saved.
        pairs: the table of captions.
        out: the data folder.
        pieces: images, or captions, of a piece; None: single files.
    """
    from in2r.data.table_layout import file_or_pieces
    from in2r.device import resolve_device
    from in2r.encoders.registry import split_name
    from in2r.extract.make import make_features
    from in2r.extract.options import Options
    from in2r.raw.image import MAX_PIXELS
    from in2r.raw.opened import open_source

    for name in filter(None, (args.encoder, args.text_encoder)):
        split_name(name)  # before the table is read
    options = Options(
        encoder=args.encoder,
        text_encoder=args.text_encoder,
        regions=args.regions,
        batch=args.batch,
        workers=args.workers,
        device=resolve_device(args.device),
        pixels=args.max_pixels or MAX_PIXELS,
        pieces=pieces,
    )
    source = open_source(
        images,
        pairs,
        image=args.image_column,
        caption=args.caption_column,
        split=args.split_column,
        encoding=args.encoding,
    )
    for note in source.notes:
        _say(console, note)
    with Bars(Console(stderr=True)) as bars:
        made = make_features(source, out, options, bars)
    if made.again:
        note = "" if pieces is None else "; --pieces does not cut them anew, a new folder does"
        _say(console, f"{out}: the features are there; they were made by these settings{note}")
    console.print(verdict_table(made.verdicts))
    count, *rest = made.image_shape
    _say(console, f"{file_or_pieces(out / 'images.npy')}: {count:,} images × {' × '.join(map(str, rest))} float16")
    if made.caption_shape is not None:
        rows, width = made.caption_shape
        _say(console, f"{file_or_pieces(out / 'captions.npy')}: {rows:,} captions × {width} float16")
    return made


class Bars:
    """A progress bar for each part of the work, on a terminal only, with rate and time left."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(),
        )  # fmt: skip
        shown = console.is_terminal
        self._progress = Progress(
            *columns, console=console, transient=True, disable=not shown, redirect_stderr=sys.stderr.isatty()
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Bars":
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take them away."""
        self._progress.stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Move a bar; what an earlier command did does not count into the rate."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total, completed=done)
        self._progress.update(self._tasks[what], completed=done)


def verdict_table(verdicts: Counter[str]) -> Table:
    """Return how many images have which verdict, and what that means."""
    from in2r.data.verdicts import VERDICTS

    table = Table("verdict", "images", "meaning")
    for verdict, meaning in VERDICTS.items():
        if verdicts[verdict]:
            table.add_row(verdict, f"{verdicts[verdict]:,}", meaning)
    return table


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
