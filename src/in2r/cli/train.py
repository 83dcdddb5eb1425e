"""`in2r train`: begin a run."""

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from in2r.cli.paths import path_argument
from in2r.cli.settings import add_settings
from in2r.cli.show import Terminal, print_done

if TYPE_CHECKING:
    from in2r.engine.plan import Plan
    from in2r.engine.settings import RunConfig

LONG = 2 * 3600
"""Seconds from which the plan of a run on a CPU says what makes it shorter."""
EXAMPLES = """\
examples:
  in2r train paper data.path=f30k noise.index=noise_0.4.npy --out runs/in2r_0.4
  in2r train discard data.path=mydata model.dim=256 --out runs/discard
  in2r train my.yaml --out runs/mine

Settings: a preset or a YAML file, then key=value. `in2r config show paper`
lists every key with its reason. Afterwards: `in2r eval RUN` tests the best
validation checkpoint, `in2r score RUN` lists the worst pairs.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "train",
        help="train a model on pairs that may be mismatched",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(parser)
    parser.add_argument("--out", type=path_argument, required=True, metavar="RUN", help="the run folder to make")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then write the model folder."""
    from in2r.engine.settings import load_config
    from in2r.engine.train import reopen, start_run
    from in2r.results import export_model

    console = Console()
    config = load_config(args.settings, args.overrides)
    terminal = Terminal(console)
    console.print("reading the data, timing a few steps ...", highlight=False)

    def show(plan: "Plan") -> None:
        terminal.plan(plan)
        for line in remarks(plan, config):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        folder = start_run(args.out, config, terminal, show)
    finally:
        terminal.close()
    setup = reopen(folder)
    export_model(folder, setup)
    print_done(console, folder, setup)
    return 0


def remarks(plan: "Plan", config: "RunConfig") -> list[str]:
    """Say what makes a run on a CPU shorter, where it is long or slower than need be."""
    from in2r.engine.device import resolve_device

    if resolve_device(config.train.device).type != "cpu":
        return []
    found = []
    if config.train.precision == "bf16":
        found.append("few CPUs compute bf16, the others imitate it slowly: train.precision=float32")
    if plan.seconds > LONG:
        threads = "" if config.train.threads == 1 else "train.threads=1 on a shared machine, "
        found.append(f"what makes it shorter: {threads}a smaller model.dim, fewer train.epochs")
    return found
