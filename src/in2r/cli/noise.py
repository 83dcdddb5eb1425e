"""`in2r noise`: make a noise index, or check one against the data it is meant for."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from in2r.cli.data import add_data_options, open_folder
from in2r.cli.paths import path_argument
from in2r.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from in2r.data.noise import NoiseIndex

EXAMPLES = """\
examples:
  in2r noise make data/f30k --ratio 0.4 --level caption --out f30k_0.4.npy
  in2r noise check f30k_0.4.npy data/f30k --ratio 0.4 --level caption
"""
LEVELS = ("caption", "image")
LABELS = {
    "caption": "caption level",
    "image": "image level",
    "none": "nothing moved",
    "unknown": "unknown: only images with one caption moved",
}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb `noise` with make and check."""
    parser = subparsers.add_parser(
        "noise",
        help="make or check a file of injected mismatches",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="noise_verb", required=True, metavar="VERB")

    make = verbs.add_parser("make", help="draw a noise index for the training pairs and save it")
    make.add_argument("data", type=path_argument, help="the data folder")
    make.add_argument("--ratio", type=float, required=True, help="share of mismatched pairs, in [0, 1]")
    make.add_argument(
        "--level",
        choices=LEVELS,
        default="caption",
        help="caption: the images of single captions are permuted; image: whole images are permuted (default: caption)",
    )
    make.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    make.add_argument(
        "--out", type=path_argument, required=True, help="the npy file; a record NAME.npy.json is written beside it"
    )
    make.add_argument("--force", action="store_true", help="overwrite the file")
    make.set_defaults(run=run_make)

    check = verbs.add_parser("check", help="describe an index file and check that it fits")
    check.add_argument("file", type=path_argument, help="the index file, of in2r or of other code")
    check.add_argument("data", type=path_argument, help="the data folder")
    check.add_argument("--ratio", type=float, help="the ratio you expect; a file with another ratio is refused")
    check.add_argument("--level", choices=LEVELS, help="the level you expect; a file of the other level is refused")
    check.set_defaults(run=run_check)
    for verb in (make, check):
        add_data_options(verb, vectors=True)


def run_make(args: argparse.Namespace) -> int:
    """Draw, save and describe an index."""
    from in2r.data.noise import draw_noise, npy_path, save_index

    target = npy_path(args.out)
    if target.exists() and not args.force:
        raise InputError(f"{target}: exists; choose another --out, or --force to overwrite it")
    noise = draw_noise(_training_images(args), args.ratio, args.level, args.seed)
    save_index(target, noise)
    _print(target, noise)
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Load an index as a run would and describe it."""
    from in2r.data.noise import load_index

    noise = load_index(args.file, _training_images(args), level=args.level, ratio=args.ratio)
    _print(args.file, noise)
    return 0


def _training_images(args: argparse.Namespace) -> "NDArray[np.int64]":
    return open_folder(args.data, args).split("train").image_of_caption


def _print(path: Path, noise: "NoiseIndex") -> None:
    statistics = noise.statistics()
    captions, images = statistics["captions"], statistics["images"]
    orphans = statistics["images_without_right_caption"]
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in (
        ("protocol", LABELS[noise.level]),
        ("ratio asked for", "not recorded" if noise.nominal is None else f"{noise.nominal:g}"),
        (
            "ratio realised",
            f"{statistics['realised']:.4f} ({statistics['moved']:,} of {captions:,} captions)",
        ),
        ("images without a right caption", f"{orphans:,} of {images:,}"),
        (
            "permutation",
            "yes" if statistics["permutation"] else "no: some images are used more often than before",
        ),
        ("seed", "not recorded" if noise.seed is None else str(noise.seed)),
        ("SHA-256", noise.sha256),
    ):
        table.add_row(name, value)
    console = Console()
    console.print(str(path), markup=False, highlight=False, soft_wrap=True)
    console.print(table)
