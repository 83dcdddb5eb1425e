"""`in2r train`: begin a run."""

import argparse

from rich.console import Console

from in2r.cli.show import Terminal
from in2r.engine.settings import load_config, presets
from in2r.engine.train import reopen, start_run
from in2r.results import export_model

EXAMPLES = """\
examples:
  in2r train paper data.path=f30k_precomp noise.index=noise_0.4.npy --out runs/in2r_0.4
  in2r train discard data.path=mydata model.dim=256 train.epochs=20 train.device=cpu --out runs/mine
  in2r train my.yaml --out runs/mine

Settings: a preset or a YAML file, then key=value. `in2r config show paper` lists every key with its reason.
Afterwards: `in2r eval RUN` tests the best validation checkpoint, `in2r score RUN` lists the worst pairs.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "train",
        help="train a model on pairs that may be mismatched",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", help=f"a preset ({', '.join(presets())}) or a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that differ")
    parser.add_argument("--out", required=True, metavar="RUN", help="the run folder to make")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then write the model folder."""
    console = Console()
    config = load_config(args.settings, args.overrides)
    terminal = Terminal(console)
    try:
        folder = start_run(args.out, config, terminal, terminal.plan)
    finally:
        terminal.close()
    export_model(folder, reopen(folder))
    done = f"model: {folder.model}   test it: in2r eval {folder.path}"
    console.print(done, markup=False, highlight=False, soft_wrap=True)
    return 0
