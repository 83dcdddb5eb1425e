"""`in2r search`: find images or captions in an index."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from in2r.cli.paths import name_or_path, path_argument
from in2r.errors import InputError
from in2r.files import csv_lines

if TYPE_CHECKING:
    from in2r.search.index import Index, Results

EXAMPLES = """\
examples:
  in2r search myindex "two dogs in snow"
  in2r search myindex "red shoes" --where category=shoes --top 5
  in2r search myindex --image photo.jpg
  in2r search myindex --queries queries.txt --format csv > found.csv
  in2r search myindex --vector vectors.npy --format json
  in2r search "postgresql://me@host/photos#mine" "two dogs in snow"

A longer list begins as a shorter one. Of equal scores the id that comes first
as text is first.
"""
SEPARATOR = "; "
"""between several values of a column, in csv and in the table"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "search",
        help="find images or captions in an index",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "index", type=name_or_path, metavar="INDEX",
        help="made by `in2r index`: a folder, or postgresql://USER@HOST/DATABASE#NAME",
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument("query", nargs="?", metavar="TEXT", help="what is looked for")
    what.add_argument("--queries", type=path_argument, metavar="TXT", help="many texts, one a line")
    what.add_argument("--image", type=path_argument, metavar="FILE", help="an image file")
    what.add_argument("--vector", type=path_argument, metavar="NPY", help="vectors (n, dim), as `in2r encode` writes")
    parser.add_argument("--top", type=int, default=10, metavar="K", help="items to find for each query; default: 10")
    parser.add_argument(
        "--where", action="append", default=[], metavar="COLUMN=VALUE",
        help="only items whose column has the value; may be given several times",
    )  # fmt: skip
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table", help="default: table")
    parser.add_argument("--model", type=path_argument, metavar="MODEL", help="where the model is now")
    parser.add_argument("--encoder", metavar="KIND:NAME", help="where the encoder of texts or images is now")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps; default: auto")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search and print."""
    from in2r.search.conditions import read_conditions
    from in2r.search.index import Index

    if all(one is None for one in (args.query, args.queries, args.image, args.vector)):
        raise InputError("what is looked for is missing; expected TEXT, --queries, --image or --vector")
    where = read_conditions(args.where, "--where")
    index = Index.open(args.index, model=args.model, encoder=args.encoder, device=args.device)
    names, results = _search(args, index, where)
    if args.format == "json":
        sys.stdout.write(json.dumps(_record(names, results), indent=2, ensure_ascii=False) + "\n")
    elif args.format == "csv":
        header = ["query", "rank", "id", "score", *index.config.columns]
        sys.stdout.writelines(csv_lines(header, _lines(names, results, index.config.columns)))
    else:
        _print(Console(), names, results, index.config.caption_column)
    return 0


def _search(args: argparse.Namespace, index: "Index", where: dict[str, str]) -> tuple[list[str], "Results"]:
    """Return what each query is called, and what was found."""
    if args.image is not None:
        return [str(args.image)], index.search_images([args.image], args.top, where)
    if args.vector is not None:
        from in2r.data.features import open_npy

        vectors = open_npy(args.vector)
        count = len(vectors) if vectors.ndim == 2 else 1
        try:
            return [f"{args.vector.name}:{row}" for row in range(count)], index.search(vectors, args.top, where)
        except InputError as error:
            raise InputError(f"{args.vector}: {error}") from None
    texts = [args.query] if args.queries is None else _read_queries(args)
    return texts, index.search(texts, args.top, where)


def _read_queries(args: argparse.Namespace) -> list[str]:
    from in2r.cli.encode import read_captions

    texts = read_captions(args.queries)
    empty = next((line for line, text in enumerate(texts, start=1) if not text), None)
    if not texts or empty is not None:
        raise InputError(f"{args.queries}: line {empty or 1} is empty; expected a query on every line")
    return texts


def _record(names: list[str], results: "Results") -> dict[str, Any]:
    queries = [
        {
            "query": name,
            "hits": [
                {"rank": rank, "id": hit.id, "score": hit.score, "columns": hit.columns}
                for rank, hit in enumerate(hits, start=1)
            ],
        }
        for name, hits in zip(names, results.hits, strict=True)
    ]
    return {"how": results.how, "queries": queries}


def _lines(names: list[str], results: "Results", columns: tuple[str, ...]) -> Iterator[list[Any]]:
    for name, hits in zip(names, results.hits, strict=True):
        for rank, hit in enumerate(hits, start=1):
            values = [SEPARATOR.join(hit.columns.get(column, ())) for column in columns]
            yield [name, rank, hit.id, f"{hit.score:.6f}", *values]


def _print(console: Console, names: list[str], results: "Results", caption: str | None) -> None:
    for name, hits in zip(names, results.hits, strict=True):
        table = Table(title=Text(name), title_justify="left")
        table.add_column("rank", justify="right")
        table.add_column("score", justify="right")
        table.add_column("id", overflow="fold")
        if caption is not None:
            table.add_column("caption", overflow="fold")
        for rank, hit in enumerate(hits, start=1):
            said = [] if caption is None else [Text(SEPARATOR.join(hit.columns.get(caption, ())))]
            table.add_row(str(rank), f"{hit.score:.4f}", Text(hit.id), *said)
        console.print(table)
    console.print(results.how, markup=False, highlight=False, soft_wrap=True)
