"""`in2r data`: check a data folder, convert, export or copy one, draw a data set of pictures with captions."""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from in2r.cli import data_copy
from in2r.cli.paths import path_argument
from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.data.check import CheckReport
    from in2r.data.pairs import DataSource


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb `data` with check, convert, export, copy and scenes."""
    parser = subparsers.add_parser("data", help="check, convert, export, copy or make data", description=__doc__)
    verbs = parser.add_subparsers(dest="data_verb", required=True, metavar="VERB")
    check = _add(verbs, "check", run_check, "say what a data folder holds and what is wrong with it", "data/mine")
    check.add_argument("path", type=path_argument, help="the data folder")
    check.add_argument("--full-hash", action="store_true", help="fingerprint every byte in place of sampled blocks")
    add_data_options(check, vectors=True)

    convert = _add(
        verbs,
        "convert",
        run_convert,
        "turn a precomp folder into a pair table",
        "data/f30k_precomp data/f30k",
    )
    convert.add_argument("source", type=path_argument, help="the precomp folder")
    convert.add_argument("target", type=path_argument, help="the new folder")
    convert.add_argument("--kind", choices=("tsv", "csv", "jsonl", "parquet"), default="tsv", help="table format")
    convert.add_argument(
        "--dev-rule", choices=("scan", "ncr", "full"), default="scan",
        help="dev images to take: the first 1000, NCR's first 1000 rows, or all (default: scan)",
    )  # fmt: skip
    convert.add_argument("--caption-vectors", metavar="SUFFIX", help="take {split}_SUFFIX.npy along")

    export = _add(
        verbs, "export", run_export, "write the image features as Parquet, a row for each image",
        "data/mine images.parquet",
    )  # fmt: skip
    export.add_argument("path", type=path_argument, help="the data folder")
    export.add_argument("target", type=path_argument, metavar="FILE.parquet", help="the new file")
    add_data_options(export, vectors=False)

    data_copy.register(verbs)

    scenes = _add(
        verbs, "scenes", run_scenes, "draw pictures with captions and region features",
        "data/scenes --train 2000 --captions-per-image 1-7",
    )  # fmt: skip
    scenes.add_argument("folder", type=path_argument, help="the new folder")
    for name, images in (("train", 2000), ("dev", 200), ("test", 500)):
        scenes.add_argument(f"--{name}", type=int, default=images, help=f"images (default: {images})")
    scenes.add_argument(
        "--captions-per-image", type=_count_or_range, default=5, metavar="N|LOW-HIGH", help="default: 5"
    )
    scenes.add_argument("--seed", type=int, default=0, help="of the drawing; the same one draws the same (default: 0)")


LAYOUTS = ("auto", "precomp", "table")
LAYOUT_HELP = (
    "which files to expect in the folder, as `data.layout`: the field's precomp files or a pair table (default: auto, "
    "by what lies there)"
)
VECTORS_HELP = (
    "captions as vectors, as `data.caption_vectors`: the suffix of {split}_NAME.npy (precomp), the file NAME.npy or "
    "auto (pair table)"
)


def add_data_options(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", *, vectors: bool) -> None:
    """Add the options that say how a folder is read, each named after its key of section `data`.

    Args:
        parser: of a verb that takes no settings.
        vectors: whether captions may be vectors.
    """
    parser.add_argument("--layout", choices=LAYOUTS, default="auto", help=LAYOUT_HELP)
    if vectors:
        parser.add_argument("--caption-vectors", metavar="NAME", help=VECTORS_HELP)
    parser.add_argument(
        "--split-seed",
        type=int,
        default=0,
        help="draws the split of a table that has none, as `data.split_seed` (default: 0)",
    )
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out the rows of a pair table whose image is not there, as `data.skip_missing`",
    )


def open_folder(path: Path, args: argparse.Namespace, **more: Any) -> "DataSource":
    """Open a data folder as the options of `add_data_options` say; `more` are other keys of section `data`."""
    from in2r.data.sources import open_configured
    from in2r.runs.settings import DataConfig

    vectors = getattr(args, "caption_vectors", None)
    data = DataConfig(
        str(path),
        args.layout,
        caption_vectors=vectors,
        split_seed=args.split_seed,
        skip_missing=args.skip_missing,
        **more,
    )
    return open_configured(data)


def _add(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text, epilog=f"example: in2r data {name} {example}")
    parser.set_defaults(run=run)
    return parser


def _count_or_range(text: str) -> int | tuple[int, int]:
    """Read "5" or "1-7"."""
    if re.fullmatch(r"\d+(-\d+)?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number such as 5, or a range such as 1-7")
    low, dash, high = text.partition("-")
    return (int(low), int(high)) if dash else int(low)


def run_check(args: argparse.Namespace) -> int:
    """Print the report of a folder; 0 when it is usable, else 2."""
    from in2r.data.check import CheckReport, check_data

    console = Console()
    try:
        source = open_folder(args.path, args, dev_rule="full")
    except InputError as error:
        if len(error.faults) == 1:
            raise
        report = CheckReport(args.path)
        report.refuse(error)
        _print_report(report, console)
        return 2
    with _progress() as update:
        report = check_data(source, progress=update)
    _print_report(report, console)
    _say_unread_vectors(source, console)
    found = source.fingerprint(full=args.full_hash)
    kind = "every byte" if args.full_hash else "headers and sampled blocks"
    console.print(f"fingerprint: {found['hash']} ({kind})", highlight=False, soft_wrap=True)
    return 0 if report.usable else 2


def _say_unread_vectors(source: "DataSource", console: Console) -> None:
    """Say that the caption vectors of a table were not looked at: nobody asked for them, and there are captions."""
    file = source.unread_vectors()
    if file is not None:
        said = f"{file.name}: not looked at; --caption-vectors auto looks"
        console.print(said, markup=False, highlight=False, soft_wrap=True)


def _print_report(report: "CheckReport", console: Console) -> None:
    table = Table("split", "images", "captions", "captions per image", "features", "regions", "caption\nvectors")
    for split in report.splits:
        low, mean, high = split.captions_per_image
        table.add_row(
            split.name,
            f"{split.images:,}",
            f"{split.captions:,}",
            str(low) if low == high else f"{low} to {high}, mean {mean:.2f}",
            f"{split.regions} × {split.dim} {split.dtype}",
            "all" if split.mean_length == split.regions else f"mean {split.mean_length:.1f}",
            "none" if split.vector_dim is None else str(split.vector_dim),
        )
    if report.splits:
        console.print(table)
    for fault in report.faults:
        console.print(f"{fault.level}: {fault}", markup=False, highlight=False, soft_wrap=True)
    verdict = "usable" if report.usable else "not usable: fix the errors above"
    console.print(f"{report.path}: {verdict}", markup=False, highlight=False, soft_wrap=True)


def run_convert(args: argparse.Namespace) -> int:
    """Convert a precomp folder."""
    from in2r.data.convert import convert_precomp

    with _progress() as update:
        convert_precomp(
            args.source,
            args.target,
            kind=args.kind,
            dev_rule=args.dev_rule,
            caption_vectors=args.caption_vectors,
            progress=lambda done, total: update("images", done, total),
        )
    Console().print(f"{args.target}: written", markup=False, highlight=False, soft_wrap=True)
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Write the features of a folder as Parquet."""
    from in2r.data.export import export_features

    source = open_folder(args.path, args, dev_rule="full")
    with _progress() as update:
        images = export_features(source, args.target, lambda done, total: update("images", done, total))
    Console().print(f"{args.target}: {images:,} images", markup=False, highlight=False, soft_wrap=True)
    return 0


def run_scenes(args: argparse.Namespace) -> int:
    """Draw pictures with captions and features."""
    from in2r.demo import make_scenes

    with _progress() as update:
        make_scenes(
            args.folder,
            train=args.train,
            dev=args.dev,
            test=args.test,
            captions_per_image=args.captions_per_image,
            seed=args.seed,
            progress=lambda done, total: update("scenes", done, total),
        )
    Console().print(f"{args.folder}: written", markup=False, highlight=False, soft_wrap=True)
    return 0


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function (what, done, total) that draws bars on stderr, on a terminal only."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bars = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        yield update
