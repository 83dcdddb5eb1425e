"""`in2r train`: start a run."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from in2r.cli.paths import name_or_path, path_argument
from in2r.cli.settings import add_settings
from in2r.cli.show import Terminal, print_done
from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.runs.settings import RunConfig
    from in2r.training.plan import Plan

FEW_STEPS = 10
"""of a network in an epoch, below which a smaller batch is proposed"""
SMALL_BATCH = 32
EXAMPLES = """\
examples:
  in2r train in2r data.path=f30k noise.index=noise_0.4.npy --out runs/in2r_0.4
  in2r train in2r/discard data.path=mydata model.dim=256 --out runs/discard
  in2r train my.yaml --out runs/mine
  in2r train in2r data.path=f30k --plan --processes 8
  torchrun --nproc-per-node 8 -m in2r train in2r data.path=f30k --out runs/in2r

Settings: a preset or a YAML file, then key=value. Presets are put together
with +, such as in2r+recipe/softmax; the last one wins. `in2r config show
in2r` lists every key with its reason. Afterwards `in2r eval RUN` tests the
best epoch, and `in2r score RUN` lists the worst pairs.
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
    parser.add_argument(
        "--method",
        type=name_or_path,
        metavar="METHOD",
        help="another method: a name, or file.py:Class for one of your own",
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--out", type=path_argument, metavar="RUN", help="the run folder to make")
    to.add_argument("--plan", action="store_true", help="say what the run would cost, and do not start it")
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="with --plan: how many processes would train it together (default: as many as a launcher has started)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then write the model folder."""
    from in2r.results import export_model
    from in2r.runs.settings import load_config
    from in2r.training.launch import is_first_process, process_count
    from in2r.training.train import plan_run, reopen, start_run

    if args.processes is not None and (not args.plan or args.processes < 1):
        raise InputError(
            f"--processes {args.processes}: expected a number from 1 on, together with --plan; a launcher starts "
            "processes: torchrun --nproc-per-node 2 -m in2r train ..."
        )
    if args.plan and not is_first_process():
        return 0
    console = Console(quiet=not is_first_process())
    chosen = [] if args.method is None else [f"method.name={args.method}"]
    config = load_config(args.settings, [*args.overrides, *chosen])
    terminal = Terminal(console)
    console.print("reading the data ...", highlight=False)
    if args.plan:
        terminal.plan(plan_run(config, Path.cwd(), args.processes or process_count()))
        return 0

    def show(plan: "Plan") -> None:
        terminal.plan(plan)
        for line in remarks(config, plan):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        folder = start_run(args.out, config, terminal, show)
    finally:
        terminal.close()
    if not is_first_process():
        return 0
    setup = reopen(folder)
    export_model(folder, setup)
    print_done(console, folder, setup)
    return 0


def remarks(config: "RunConfig", plan: "Plan") -> list[str]:
    """Name the settings by which a run learns little, or is slower on a CPU."""
    from in2r.device import resolve_device

    found, steps = [], plan.steps_per_epoch // plan.networks
    if steps < FEW_STEPS and config.train.batch_size > SMALL_BATCH:
        found.append(
            f"an epoch has {steps} step{'s' * (steps != 1)} a network; from few pairs, smaller batches learn more: "
            f"train.batch_size={SMALL_BATCH}"
        )
    if resolve_device(config.train.device).type == "cpu" and config.train.precision == "bf16":
        found.append("few CPUs compute bf16, the others imitate it slowly: train.precision=float32")
    return found
