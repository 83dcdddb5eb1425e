"""`in2r import`: turn a checkpoint of another repository into a run folder, and test it."""

import argparse

from rich.console import Console

from in2r.cli.evaluate import RANKS, RECALLS, protocol_lines, result_table, wrong_pairs
from in2r.cli.paths import path_argument

EXAMPLE = """\
example:
  in2r import model_best.pth.tar --data data/f30k_precomp \\
      --vocabulary f30k_precomp_vocab.json --out runs/ncr

Reads checkpoints of NCR, BiCro, CREAM, PC2, L2RM, DECL and SGRAF (SGR and SAF
networks), of SCAN, VSE++ and IN2R's authors. No code of the file is run. The
weights become a run folder with its model, for `in2r eval`, `in2r score`,
`in2r encode` and in2r.load; optimisers are left out, so it is not trained on.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "import",
        help="turn a checkpoint of another repository into a run folder",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=path_argument, metavar="FILE", help="the checkpoint, such as model_best.pth.tar")
    parser.add_argument(
        "--data", type=path_argument, required=True, help="the data folder: all splits, the features of its training"
    )
    parser.add_argument(
        "--vocabulary", type=path_argument, required=True, metavar="JSON", help="the words that it was trained with"
    )
    parser.add_argument("--out", type=path_argument, required=True, metavar="RUN", help="the run folder to make")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps; default: auto")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Import, and print what was found beside the test recalls."""
    from in2r.results import import_checkpoint
    from in2r.runs.folder import RunFolder

    result = import_checkpoint(args.file, args.data, args.vocabulary, args.out, device=args.device)
    imported, model = result["protocol"]["imported"], RunFolder(args.out).config().model
    networks = [name for name in result["rows"] if name != "ensemble"]
    lines = [
        f"{imported['repository']}: {len(networks)} network{'s' * (len(networks) > 1)} ({' and '.join(networks)}), "
        f"backbone {model.backbone} of dimension {model.dim}",
        f"left out: {', '.join(imported['left_out']) or 'nothing'}",
    ]
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print("", result_table(result, RECALLS), "", result_table(result, RANKS), "")
    for line in [wrong_pairs(result), *protocol_lines(result["protocol"]), f"run folder: {args.out}"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0
