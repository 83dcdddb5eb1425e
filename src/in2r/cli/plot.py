"""`in2r plot`: figures from saved records alone."""

import argparse
from collections import Counter
from collections.abc import Callable

from rich.console import Console

from in2r.cli.paths import path_argument

EXAMPLES = """\
examples:
  in2r plot losses runs/mine --out losses.svg              every epoch
  in2r plot losses runs/mine --epoch 6 --out losses_6.pdf  one epoch, larger
  in2r plot curves runs/mine runs/other --out curves.png
  in2r plot sensitivity grids/sensitivity --group M --group K --out M_K.pdf
  in2r plot noise grids/table1 --group table1 --out noise.pdf
  in2r plot embeddings runs/mine runs/other --out spaces.png

The suffix of --out chooses the format: .svg, .pdf or .png. A file of that
name is replaced. Only embeddings need the data, and only the first time.
grids/sensitivity and grids/table1 are made by `in2r bench run` from the grids
`sensitivity` and `table1_flickr30k` of the package.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb `plot` with its kinds of figures."""
    parser = subparsers.add_parser(
        "plot",
        help="draw figures from saved records",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="plot_kind", required=True, metavar="KIND")
    source = "a run folder, or the record of a run (.json)"

    losses = _add(kinds, "losses", run_losses, "per-sample losses, the fitted components and the split")
    losses.add_argument("source", type=path_argument, metavar="RUN", help=source)
    losses.add_argument("--epoch", type=int, metavar="N", help="one epoch, from 1; default: all, as small panels")
    losses.add_argument("--network", choices=("A", "B"), default="A", help="whose losses; default: A")

    curves = _add(kinds, "curves", run_curves, "training curves of one or several runs")
    curves.add_argument("sources", type=path_argument, metavar="RUN", nargs="+", help=source)

    sensitivity = _add(kinds, "sensitivity", run_sensitivity, "rSum against the value of a setting")
    sensitivity.add_argument("grid", type=path_argument, metavar="GRID", help="the grid folder")
    sensitivity.add_argument(
        "--group", action="append", required=True, metavar="NAME", help="a group with one axis of numbers; repeatable"
    )

    noise = _add(kinds, "noise", run_noise, "rSum against the noise ratio, one line per method")
    noise.add_argument("grid", type=path_argument, metavar="GRID", help="the grid folder")
    noise.add_argument("--group", required=True, metavar="NAME", help="a group with an axis that sets the ratio")

    embeddings = _add(kinds, "embeddings", run_embeddings, "t-SNE maps of two runs, with figures")
    embeddings.add_argument("first", type=path_argument, metavar="RUN_A", help="a run folder")
    embeddings.add_argument("second", type=path_argument, metavar="RUN_B", help="another one, on the same data")
    embeddings.add_argument("--split", default="dev", choices=("dev", "test"), help="default: dev")
    embeddings.add_argument("--device", help="auto, cpu, cuda, mps; default: the run's")
    embeddings.add_argument("--force", action="store_true", help="use the data although they have changed")


def _add(
    kinds: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], None],
    summary: str,
) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=summary, description=f"Draw {summary}.")
    parser.add_argument(
        "--out", type=path_argument, required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png"
    )
    parser.set_defaults(run=_then_name(run))
    return parser


def _then_name(draw: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], int]:
    """Return a command that draws, then prints where the figure is."""

    def run(args: argparse.Namespace) -> int:
        draw(args)
        Console().print(args.out, markup=False, highlight=False, soft_wrap=True)
        return 0

    return run


def run_losses(args: argparse.Namespace) -> None:
    """Draw the mixtures of a run."""
    from in2r.plots.losses import draw_losses
    from in2r.plots.sources import read_log
    from in2r.plots.style import canvas

    with canvas(args.out) as figure:
        draw_losses(figure, read_log(args.source), args.network, args.epoch)


def run_curves(args: argparse.Namespace) -> None:
    """Draw the logs of runs; those of one name by the path that was given."""
    from in2r.plots.curves import draw_curves
    from in2r.plots.sources import read_log
    from in2r.plots.style import canvas

    with canvas(args.out) as figure:
        logs = [read_log(source) for source in args.sources]
        names = Counter(log.name for log in logs)
        labels = [log.name if names[log.name] == 1 else str(path) for log, path in zip(logs, args.sources, strict=True)]
        draw_curves(figure, logs, labels)


def run_sensitivity(args: argparse.Namespace) -> None:
    """Draw groups of a grid, one panel each."""
    from in2r.plots.sensitivity import draw_sensitivity
    from in2r.plots.sources import read_groups
    from in2r.plots.style import canvas

    with canvas(args.out) as figure:
        draw_sensitivity(figure, read_groups(args.grid, args.group))


def run_noise(args: argparse.Namespace) -> None:
    """Draw a group of a grid."""
    from in2r.plots.noise import draw_noise
    from in2r.plots.sources import read_groups
    from in2r.plots.style import canvas

    with canvas(args.out) as figure:
        draw_noise(figure, *read_groups(args.grid, [args.group]))


def run_embeddings(args: argparse.Namespace) -> None:
    """Draw two runs side by side; their samples are made where they are missing."""
    from in2r.plots.embeddings import draw_embeddings
    from in2r.plots.style import canvas
    from in2r.results.embeddings import sample_embeddings

    with canvas(args.out) as figure:
        first, second = (
            sample_embeddings(run, args.split, device=args.device, force=args.force)
            for run in (args.first, args.second)
        )
        draw_embeddings(figure, first, second)
