"""`in2r export`: write both encoders of a model in a form that other programs run."""

import argparse

from rich.console import Console

from in2r.cli.paths import path_argument

EXAMPLE = """\
example:
  in2r export runs/mine --onnx --out mine-onnx

Writes image.onnx and text.onnx for onnxruntime. Batch, regions and words may be
of any number; a mask says which are real. The ensemble is one file per side.
docs/sharing.md shows how the files are run. A model that compares words with
regions (backbones sgr, saf, scan) has no such vectors, and is refused.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "export",
        help="write a model's encoders as ONNX files",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", type=path_argument, metavar="RUN-OR-MODEL", help="a run or model folder, or owner/name"
    )
    parser.add_argument("--onnx", action="store_true", required=True, help="as ONNX files: the only form so far")
    parser.add_argument("--out", type=path_argument, required=True, metavar="FOLDER", help="the folder to make")
    parser.add_argument("--network", choices=("ensemble", "A", "B"), default="ensemble", help="default: ensemble")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export one model."""
    from in2r.models.folder import load
    from in2r.models.onnx_folder import export_onnx

    model = load(args.model, "cpu", args.network)
    folder = export_onnx(model, args.out)
    console = Console()
    for file in sorted(folder.iterdir()):
        line = f"{file}  {file.stat().st_size:,} bytes"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0
