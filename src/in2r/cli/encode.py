"""`in2r encode`: turn images or captions into vectors for an index."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from in2r.cli.paths import path_argument
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space

if TYPE_CHECKING:
    from in2r.models.retrieval import RetrievalModel

EXAMPLES = """\
examples:
  in2r encode runs/mine/model --images features.npy --out images.npy
  in2r encode runs/mine/model --captions captions.txt --out captions.npy
                                      one caption a line
  in2r encode runs/mine/model --captions vectors.npy --out captions.npy
                                      a model trained on caption vectors

The vectors are float32 with unit norm: images @ captions.T are the
similarities. A warning says when many words are not in the model's vocabulary.
Large files are read and written in blocks. The result is whole or absent.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "encode",
        help="turn images or captions into vectors",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=path_argument, metavar="MODEL", help="a model or run folder, or owner/name")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--images", type=path_argument, metavar="NPY", help="features (N, regions, dim); or (N, dim), if so in training"
    )
    what.add_argument(
        "--captions", type=path_argument, metavar="TXT|NPY", help="captions, one a line, or their vectors (N, dim)"
    )
    parser.add_argument(
        "--lengths", type=path_argument, metavar="NPY", help="(N,) how many regions of each image are real"
    )
    parser.add_argument("--out", type=path_argument, required=True, metavar="NPY", help="the file to write")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument("--network", choices=("ensemble", "A", "B"), default="ensemble", help="default: ensemble")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps; default: auto")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Encode one file."""
    from in2r.data.encoder_record import require_same_encoder
    from in2r.data.features import open_npy
    from in2r.models.folder import load

    if args.out.suffix != ".npy":
        raise InputError(f"{args.out}: the result is an npy array; name it {args.out.name}.npy")
    if args.out.exists() and not args.force:
        raise InputError(f"{args.out}: exists; choose another --out, or --force to overwrite it")
    if args.captions is not None and args.captions.suffix not in (".txt", ".npy"):
        raise InputError(f"{args.captions}: captions are a .txt, one a line, or their vectors as .npy")
    if args.lengths is not None and args.images is None:
        raise InputError("--lengths belongs to --images")
    model = load(args.model, args.device, args.network)
    source = args.images or args.captions
    require_same_encoder(model.info, source, ("text" if args.images is None else "image",))
    values = read_captions(source) if source.suffix == ".txt" else open_npy(source)
    lengths = None if args.lengths is None else open_npy(args.lengths)
    encode = model.encode_captions if args.images is None else _with_lengths(model, lengths)
    write_vectors(source, args.out, values, model.dim, encode)
    console = Console()
    console.print(f"{args.out}: {len(values):,} × {model.dim} float32", markup=False, highlight=False, soft_wrap=True)
    return 0


def read_captions(file: Path) -> list[str]:
    r"""Read one caption a line. Lines end with "\n" or "\r\n"; in a file without any "\n" they end with "\r".

    Raises:
        InputError: both a "\n" and a "\r" of its own: no count of images says whether that one ends a caption.
    """
    from in2r.data.rows import read_text

    text = read_text(file)
    alone = re.search(r"\r(?!\r*\n)", text)
    if alone and "\n" in text:
        line = text.count("\n", 0, alone.start()) + 1
        raise InputError(
            f"{file}: line {line} holds a carriage return, while lines end with a line feed; put a space in its place "
            "where it is within a caption, a line feed where it ends one"
        )
    lines = (text.replace("\r", "\n") if alone else text).removesuffix("\n").split("\n") if text else []
    return [line.strip() for line in lines]


def _with_lengths(model: "RetrievalModel", lengths: Any) -> Callable[..., Any]:
    def encode(values: Any, *, out: Any) -> Any:
        return model.encode_images(values, lengths, out=out)

    return encode


def write_vectors(source: Path, target: Path, values: Any, dim: int, encode: Callable[..., Any]) -> None:
    """Encode into a memory-mapped npy file, which gets its name when it is whole."""
    import numpy as np

    from in2r.data.features import create_npy

    count = len(values) if np.ndim(values) else 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target.parent}: cannot be made a folder ({error.strerror})") from None
    require_free_space(target.parent, 4 * count * dim + 2**20)
    try:
        with atomic_path(target) as temporary:
            out = create_npy(temporary, np.float32, (max(count, 1), dim))
            encode(values, out=out[:count])
            out.flush()
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
