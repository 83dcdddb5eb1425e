"""`in2r score`: list the training pairs that do not belong together."""

import argparse
import csv
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from in2r.cli.evaluate import reservations
from in2r.cli.paths import path_argument
from in2r.errors import InputError
from in2r.files import read_json

BEST = 600
WEAK = 0.25
FEW = 1000
"""share of the way from chance to the best rSum below which a model is too weak to judge pairs by"""
EXAMPLES = """\
examples:
  in2r score runs/mine --top 50
  in2r score runs/mine --keep product_id,url --bom

Writes RUN/scores.csv (every training pair with its rank, the row of your
table and both networks' clean probability, the worst first) and
RUN/scores.json (the estimated noise rate).
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "score",
        help="list the training pairs that do not belong together, the worst first",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="pairs to print; default: 20")
    parser.add_argument("--keep", metavar="COLUMNS", help="columns of your pair table to copy, such as id,url")
    parser.add_argument(
        "--bom", action="store_true", help="start scores.csv with a mark by which spreadsheets read UTF-8"
    )
    parser.add_argument("--device", help="auto, cpu, cuda, mps; default: the run's")
    parser.add_argument(
        "--force", action="store_true", help="use the data although they or the noise index have changed"
    )
    parser.add_argument("--unfinished", action="store_true", help="use the best epoch so far of an unfinished run")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Score, then print the worst pairs and the estimated noise rate."""
    if args.top < 0:
        raise InputError(f"--top must be at least 0, got {args.top}")
    from in2r.results import score_run

    keep = [name.strip() for name in args.keep.split(",")] if args.keep else []
    file = score_run(
        args.folder, keep=keep, bom=args.bom, device=args.device, force=args.force, unfinished=args.unfinished
    )
    console = Console()
    summary = read_json(file.with_suffix(".json"))
    for line in doubts(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if args.top:
        console.print(worst_pairs(file, args.top))
    vague = ["a caption that is right but fits many images comes early too: look at pairs before you drop them"]
    lines = [*noise_rate(summary), *vague[: args.top], f"all training pairs: {file}"]
    for line in lines + reservations(summary["protocol"]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def doubts(summary: dict[str, Any]) -> list[str]:
    """Say why the order of the pairs may mean little."""
    dev, chance, found = summary["dev_rsum"], summary["dev_rsum_by_chance"], []
    if dev - chance < WEAK * (BEST - chance):
        found.append(
            f"WEAK MODEL: dev rSum {dev:.1f} (by chance {chance:.1f}, at most {BEST}): the order is a hint at most"
        )
    if summary["pairs"] < FEW:
        found.append(f"FEW PAIRS: {summary['pairs']:,}; with fewer than {FEW:,}, the order is a hint at most")
    return found


def noise_rate(summary: dict[str, Any]) -> list[str]:
    """Say the estimated noise rate, what it and the probabilities are worth, and what is known of injected noise."""
    rate, networks = summary["estimated_noise_rate"], summary["networks"]
    if rate["mean"] is None:
        lines = [
            "noise rate: not known: the losses do not show a group of mismatched pairs (there are few of them, or the "
            "model cannot tell them apart, or has learnt them by heart)"
        ]
    else:
        shown = ", ".join(
            f"{name} {'not known' if rate[name] is None else f'{100 * rate[name]:.1f} %'}" for name in networks
        )
        mean = 100 * rate["mean"]
        lines = [f"estimated noise rate: {mean:.1f} % of {summary['pairs']:,} pairs (network {shown})"]
    unsure = " and ".join(name for name, network in networks.items() if network["single_mode"])
    if unsure:
        lines.append(f"clean probabilities of network {unsure}: not known; the pairs' order is that of their losses")
    measured = summary["measurement_only"]
    if measured is not None and "auroc_order" in measured:
        lines.append(f"order of the pairs against the injected noise: AUROC {measured['auroc_order']:.3f} (chance 0.5)")
    return lines


def worst_pairs(file: Path, top: int) -> Table:
    """Return the first rows of scores.csv as a table."""
    table = Table()
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = list(islice(csv.DictReader(lines), top))
    probabilities = {"clean_prob": "clean\nprob.", "clean_prob_A": "A", "clean_prob_B": "B"}
    known = [name for name in probabilities if any(row.get(name) for row in rows)]
    widest = {"place": 14, "image": 16, "caption": None}  # what a terminal of 80 columns has room for
    for heading in ("place", "image", *(probabilities[name] for name in known), "caption"):
        table.add_column(heading, overflow="fold", no_wrap=heading not in widest, max_width=widest.get(heading))
    for row in rows:
        shown = [probability(row[name]) for name in known]
        table.add_row(Text(row["place"]), Text(row["image_id"]), *shown, Text(row["caption"]))  # Text: no markup
    return table


def probability(text: str) -> str:
    """Return a clean probability of scores.csv as a column of a table shows it."""
    if text == "":
        return "not known"
    value = float(text)
    return "<0.001" if value < 0.001 else ">0.999" if value > 0.999 else f"{value:.3f}"
