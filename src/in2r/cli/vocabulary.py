"""`in2r vocab`: build a vocabulary file from the captions of a data folder."""

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from in2r.cli.data import add_data_options, open_folder
from in2r.cli.paths import path_argument
from in2r.errors import InputError

EXAMPLE = "example: in2r vocab build data/f30k --out f30k_vocab.json --splits train,dev"


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb `vocab` with build."""
    parser = subparsers.add_parser("vocab", help="build a vocabulary file", description=__doc__, epilog=EXAMPLE)
    verbs = parser.add_subparsers(dest="vocab_verb", required=True, metavar="VERB")
    build = verbs.add_parser("build", help="count the words of the captions and save the frequent ones", epilog=EXAMPLE)
    build.add_argument("data", type=path_argument, help="the data folder")
    build.add_argument("--out", type=path_argument, required=True, help="the JSON file")
    build.add_argument("--min-count", type=int, default=4, help="rarer words become <unk> (default: 4)")
    build.add_argument(
        "--splits",
        type=lambda text: text.split(","),
        default=["train"],
        metavar="A,B",
        help="captions to count (default: train; the field's own files: train,dev)",
    )
    add_data_options(build, vectors=False)
    build.add_argument("--force", action="store_true", help="overwrite the file")
    build.set_defaults(run=run_build)


def run_build(args: argparse.Namespace) -> int:
    """Build, save and describe a vocabulary."""
    from in2r.data.text.tokenizer import tokenize
    from in2r.data.text.vocabulary import Vocabulary

    if args.out.exists() and not args.force:
        raise InputError(f"{args.out}: exists; choose another --out, or --force to overwrite it")
    tokens = {name: [tokenize(caption) for caption in _captions(args, name)] for name in args.splits}
    vocabulary = Vocabulary.build([words for split in tokens.values() for words in split], args.min_count)
    vocabulary.save(args.out)
    table = Table("split", "captions", "words", "unknown")
    for name, split in tokens.items():
        share = vocabulary.encode(split).unknown_share
        table.add_row(name, f"{len(split):,}", f"{sum(map(len, split)):,}", f"{share:.2%}")
    console = Console()
    size = f"{len(vocabulary):,} words, special ones included"
    console.print(f"{args.out}: {size}", markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    return 0


def _captions(args: argparse.Namespace, split: str) -> Sequence[str]:
    captions = open_folder(args.data, args, dev_rule="full").split(split).captions
    if captions is None:
        raise InputError(f"{args.data}: split {split} has caption vectors only; a vocabulary needs caption texts")
    return captions
