"""`in2r audit`: which pairs of a table are wrong."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from in2r.cli.paths import path_argument
from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.audit.result import Audit
    from in2r.report import Decisions

EXAMPLES = """\
examples:
  in2r audit mydata --out audit
  in2r audit mydata --out audit --source shop --cut 0.3
  in2r audit mydata --out audit --decisions decisions.json
  in2r audit tomorrow --against audit --out tomorrow_audit

mydata is a data folder: `in2r features photos table.csv ...` makes one of
photos and a table. Nothing is trained. AUDIT gets report.html to look at,
pairs.csv (every row of your table with score and verdict), cleaned.* (your
table without the rows to drop), keep.txt, drop.txt, weights.csv,
evidence.jsonl, summary.json and judge.safetensors, by which --against judges
new pairs.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "audit",
        help="list the wrong pairs of a data folder, without training",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=path_argument, metavar="DATA", help="the data folder")
    parser.add_argument("--out", type=path_argument, required=True, metavar="AUDIT", help="the folder to write")
    parser.add_argument(
        "--against",
        type=path_argument,
        metavar="AUDIT",
        help="folder of an earlier audit that judges these pairs; from one pair on",
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="worst pairs to print; default: 10")
    parser.add_argument("--source", metavar="COLUMN", help="count suspects by a column of your table, such as shop")
    parser.add_argument("--cut", type=float, metavar="SCORE", help="a pair below it is a suspect; default: 0.5")
    parser.add_argument(
        "--decisions",
        type=path_argument,
        metavar="FILE",
        help="decisions.json exported from report.html: what they say",
    )
    parser.add_argument("--images", type=path_argument, metavar="FOLDER", help="pictures for the report, by image id")
    parser.add_argument(
        "--caption-vectors", metavar="NAME", help="file of caption vectors; default: captions.npy of a pair table"
    )
    parser.add_argument(
        "--noise", type=path_argument, metavar="FILE", help="noise index of the train split, to measure the audit by"
    )
    parser.add_argument("--layout", choices=("auto", "precomp", "table"), default="auto", help="layout of the folder")
    parser.add_argument(
        "--evidence",
        choices=("all", "own similarity", "lemon"),
        help="one kind alone serves as a baseline; default: all",
    )
    parser.add_argument("--seed", type=int, help="of all that is drawn; default: 0")
    parser.add_argument(
        "--bom", action="store_true", help="start pairs.csv with a mark by which spreadsheets read UTF-8"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge every pair, write the folder, print the key figures and the worst pairs."""
    from in2r.audit.folder import require_no_data, write_audit
    from in2r.audit.page import write_page
    from in2r.report import read_decisions

    console, out = Console(), Path(args.out)
    if args.top < 0:
        raise InputError(f"--top must be at least 0, got {args.top}")
    require_no_data(out)
    if args.against is not None:
        _require_apart(args)
    with console.status("reading the data") as status:
        audit = _audit(args, status.update)
        decisions = None
        if args.decisions is not None:
            decisions = read_decisions(args.decisions, audit=audit.identity, pairs=len(audit.pairs.images))
        status.update("writing")
        write_audit(out, audit, bom=args.bom)
        write_page(out / "report.html", audit, args.source)
    for line in audit.doubts():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(key_figures(audit))
    if args.top and audit.verdicts.told:
        console.print(_worst(audit, args.top))
    if decisions is not None:
        _say_decisions(console, audit, decisions)
    console.print(f"look at: {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"every row: {out / 'pairs.csv'}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _require_apart(args: argparse.Namespace) -> None:
    """Raise `InputError` for what makes no sense where a kept audit judges."""
    if args.seed is not None:
        raise InputError("--seed and --against: give one; what is drawn was drawn by the earlier audit")
    if args.evidence is not None:
        raise InputError("--evidence and --against: give one; the kinds of evidence are those of the earlier audit")
    if Path(args.out).resolve() == Path(args.against).resolve():
        raise InputError(f"--out and --against: both are {args.out}; give a new folder, as the earlier audit would go")


def _audit(args: argparse.Namespace, on_step: Callable[[str], None]) -> "Audit":
    from in2r.audit.against import audit_against
    from in2r.audit.kept import load_kept
    from in2r.audit.pairs import read_pairs
    from in2r.audit.result import audit_pairs
    from in2r.audit.settings import AuditConfig
    from in2r.config import fill

    against = None if args.against is None else load_kept(Path(args.against))
    values: dict[str, Any] = (
        {"seed": args.seed or 0, "evidence": args.evidence or "all"} if against is None else asdict(against.config)
    )
    if args.cut is not None:
        values |= {"cut": args.cut, "sure": min(AuditConfig().sure, max(args.cut, 0.0))}
    config = fill(AuditConfig, values)
    pairs = read_pairs(
        args.data,
        text_dim=config.text_dim,
        caption_vectors=args.caption_vectors,
        layout=args.layout,
        pictures=args.images,
        noise=args.noise,
        against=against,
    )
    if args.source is not None and args.source not in pairs.columns:
        raise InputError(f"--source {args.source!r}: no such column; found {', '.join(map(repr, pairs.columns))}")
    if against is not None:
        return audit_against(pairs, against, config, on_step)
    return audit_pairs(pairs, config, on_step=on_step)


def key_figures(audit: "Audit") -> Table:
    """Return the key figures."""
    figures = audit.summary()
    table = Table(show_header=False, box=None, title=Text(f"Audit of {audit.pairs.name}"), title_justify="left")
    table.add_row(
        "rows", f"{figures['rows']:,}, of which {figures['judged']:,} were judged ({figures['images']:,} images)"
    )
    if audit.against is not None:
        table.add_row("judged by", Text(f"the audit of {audit.against.table}"))
    if figures["noise_rate"] is None:
        table.add_row("noise rate", "not known")
    else:
        low, high = figures["noise_rate_interval"]
        rate = f"{100 * figures['noise_rate']:.1f} % of the judged pairs ({100 * low:.1f} to {100 * high:.1f})"
        table.add_row("noise rate", rate)
    measured = figures["measurement_only"]
    if measured is not None:
        auroc = f"; AUROC {measured['auroc']:.3f}" if "auroc" in measured else ""
        table.add_row("injected", f"{100 * measured['noise_rate']:.1f} % of the judged pairs{auroc}")
    for name, count in figures["verdicts"].items():
        if count:
            table.add_row(name, f"{count:,}")
    where = "keep.txt" if audit.pairs.table is None else f"cleaned{audit.pairs.table.ending}"
    table.add_row("kept", f"{figures['kept']:,} rows: {where}")
    return table


def _worst(audit: "Audit", top: int) -> Table:
    """Return the worst pairs."""
    table = Table(title="The worst pairs", title_justify="left")
    table.add_column("row", justify="right")
    table.add_column("score", justify="right")
    table.add_column("image", overflow="fold", max_width=20)
    table.add_column("caption", overflow="fold")
    order = audit.judgement.log_odds.argsort(stable=True)[:top].tolist()
    for pair in order:
        row = int(audit.pairs.judged[pair])
        score = f"{float(audit.judgement.score[pair]):.3f}"
        table.add_row(str(row), score, Text(audit.pairs.images[row]), Text(audit.pairs.captions[row]))
    return table


def _say_decisions(console: Console, audit: "Audit", decisions: "Decisions") -> None:
    """Print what was decided by hand."""
    from in2r.report import noise_rate, precision

    found = {f"verdict {name}": each for name, each in precision(decisions, audit.verdicts.names.tolist()).items()}
    for name, share in {**found, "random sample": noise_rate(decisions)}.items():
        if share.share is not None:
            low, high = (f"{100 * end:.0f}" for end in share.interval)
            counted = f"{share.wrong} of {share.wrong + share.right} are wrong"
            line = f"by hand, {name}: {counted} ({100 * share.share:.0f} %; 95 %: {low} to {high})"
            console.print(line, highlight=False, soft_wrap=True)
