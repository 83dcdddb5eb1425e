"""`in2r index`: make an index of a data folder, add to it, export its vectors."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from in2r.cli.data import add_data_options
from in2r.cli.paths import name_or_path, path_argument
from in2r.errors import InputError, command_line

if TYPE_CHECKING:
    from in2r.search.build import DataOptions

USAGE = """in2r index MODEL DATA (--out INDEX | --to URL) [options]
       in2r index add INDEX DATA [options]
       in2r index export INDEX --out FILE.npy|FILE.parquet"""
EXAMPLES = """\
examples:
  in2r index runs/mine mydata --out myindex
  in2r search myindex "two dogs in snow"
  in2r index runs/mine mydata --side captions --out mycaptions
  in2r index runs/mine mydata --kind hnsw --out myindex
                        approximate; needs in2r[search]
  in2r index add myindex newdata
  in2r index export myindex --out vectors.parquet
  in2r index runs/mine mydata --to "postgresql://me@host/photos#mine"
                        a table of PostgreSQL; needs in2r[postgres]
  in2r index add "postgresql://me@host/photos#mine" newdata

An index keeps ids and columns of your table beside the vectors. A killed
command leaves the index that was there.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "index",
        help="make an index of images or captions for `in2r search`",
        usage=USAGE,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", type=name_or_path, nargs="+", metavar="MODEL DATA",
        help="a model folder or a run folder, and a data folder; or add, or export, and what it needs (as above)",
    )  # fmt: skip
    parser.add_argument("--out", type=path_argument, metavar="INDEX", help="the index to make, or the file of export")
    parser.add_argument(
        "--to", metavar="URL", help="instead of --out, the database of the index: postgresql://USER@HOST/DATABASE#NAME"
    )
    parser.add_argument("--force", action="store_true", help="replace the index, or the file, that is there")
    make = parser.add_argument_group("a new index")
    make.add_argument("--side", choices=("images", "captions"), default="images", help="default: images")
    make.add_argument(
        "--kind", choices=("exact", "hnsw", "ivf"), default="exact",
        help="exact compares all; hnsw and ivf a part, by FAISS (in2r[search]); --to: hnsw by pgvector; default: exact",
    )  # fmt: skip
    make.add_argument(
        "--precision", choices=("float32", "float16"), default="float32",
        help="float16: half the disk, slower searches; default: float32",
    )  # fmt: skip
    make.add_argument("--network", choices=("ensemble", "A", "B"), default="ensemble", help="default: ensemble")
    data = parser.add_argument_group("the data, of a new index and of add")
    data.add_argument("--split", help="train, dev or test; default: all")
    add_data_options(data, vectors=True)
    parser.add_argument("--model", type=path_argument, metavar="MODEL", help="of add: where the model is now")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps; default: auto")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make, add or export."""
    from in2r.search.connection import is_url

    match args.words:
        case ["add", index, data]:
            return _add(args, index, Path(data))
        case ["export", index]:
            return _export(args, index)
        case [model, data] if not is_url(model) and not is_url(data):
            return _make(args, Path(model), Path(data))
    forms = ", ".join(line.strip() for line in USAGE.splitlines())
    given = command_line("in2r", "index", *map(_shown, args.words))
    raise InputError(f"`{given}`: expected {forms}")


def _make(args: argparse.Namespace, model: Path, data: Path) -> int:
    from in2r.cli.features import Bars
    from in2r.search.build import build_index

    out = _place_of_new(args)
    if args.model is not None:
        raise InputError("--model belongs to `in2r index add`; a new index takes the model as its first word")
    with Bars(Console(stderr=True)) as bars:
        config = build_index(
            model, _options(args, data), out, side=args.side, kind=args.kind, precision=args.precision,
            network=args.network, device=args.device, force=args.force,
            progress=lambda done, total: bars.update(args.side, done, total),
        )  # fmt: skip
    _say(f"{_shown(out)}: {config.count:,} {config.side}, {config.kind}, vectors of {config.dim} ({args.precision})")
    _say(f"search it: {command_line('in2r', 'search', _shown(out), 'two dogs in snow')}")
    return 0


def _place_of_new(args: argparse.Namespace) -> str:
    """Return the folder or the URL where a new index is written."""
    from in2r.search.connection import Place, is_url

    if args.out is not None and args.to is not None:
        raise InputError("--out and --to are given; expected one of them: a folder, or the URL of a database")
    if args.to is not None:
        Place.parse(args.to)
        return str(args.to)
    if args.out is None:
        raise InputError("--out is missing: the folder of the new index (or --to, the URL of a database)")
    if is_url(str(args.out)):
        raise InputError("--out names a folder; expected --to before the URL of a database")
    return str(args.out)


def _add(args: argparse.Namespace, index: str, data: Path) -> int:
    from in2r.cli.features import Bars
    from in2r.search.build import add_to_index

    if args.out is not None or args.to is not None:
        option = "--to" if args.out is None else "--out"
        raise InputError(f"{option} belongs to a new index; `in2r index add INDEX DATA` writes to INDEX")
    with Bars(Console(stderr=True)) as bars:
        config = add_to_index(
            index, _options(args, data), model=args.model, device=args.device,
            progress=lambda done, total: bars.update("items", done, total),
        )  # fmt: skip
    _say(f"{_shown(index)}: {config.count:,} {config.side} now")
    return 0


def _export(args: argparse.Namespace, index: str) -> int:
    from in2r.search.export import export_index
    from in2r.search.index import Index

    if args.out is None:
        raise InputError("--out is missing: FILE.npy or FILE.parquet")
    if args.out.exists() and not args.force:
        raise InputError(f"{args.out}: exists; choose another --out, or --force to overwrite it")
    opened = Index.open(index)
    for file in export_index(opened, args.out):
        _say(f"{file}: {len(opened):,} {opened.config.side}")
    return 0


def _options(args: argparse.Namespace, data: Path) -> "DataOptions":
    from in2r.search.build import DataOptions

    return DataOptions(data, args.split, args.layout, args.caption_vectors, args.split_seed, args.skip_missing)


def _shown(word: str) -> str:
    """Return a word of the command line as it may be printed: a URL without its password."""
    from in2r.search.connection import Place, is_url

    return Place.parse(word).shown if is_url(word) else word


def _say(line: str) -> None:
    Console().print(line, markup=False, highlight=False, soft_wrap=True)
