"""`in2r audit`: which pairs of a table are wrong."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from in2r.cli.audit_checks import DECISIONS, OF_PHOTOS, DecisionFiles, refuse, require_column, training_of
from in2r.cli.audit_show import key_figures, say_cut, say_decisions, worst_pairs, worst_sources
from in2r.cli.features import ENCODERS, add_options, make
from in2r.cli.paths import name_or_path, path_argument
from in2r.errors import InputError, command_line

if TYPE_CHECKING:
    from in2r.audit.kept import Kept
    from in2r.audit.pairs import AuditPairs
    from in2r.audit.result import Audit
    from in2r.audit.settings import AuditConfig
    from in2r.audit.trained import TrainedScorer

EXAMPLES = """\
examples:
  in2r audit mydata --out audit
  in2r audit mydata --out audit --source shop --cut 0.3
  in2r audit mydata --out audit --decisions mine.json hers.json
  in2r audit tomorrow --against audit --out tomorrow_audit
  in2r audit photos table.csv --out audit \\
      --encoder transformers:openai/clip-vit-base-patch32
                        photos and a table: features are made into audit/data,
                        once; the same command continues, and audits again
  in2r audit photos --out audit --encoder onnx:model.onnx
                        no table: photo.txt beside photo.jpg, or tars

Nothing is trained. AUDIT gets report.html to look at, pairs.csv (every row of
your table with score and verdict), cleaned.* (your table without the rows to
drop), keep.txt, drop.txt, weights.csv, evidence.jsonl, summary.json and
judge.safetensors, by which --against judges new pairs.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "audit",
        help="list the wrong pairs of a data folder or of photos, without training",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "data", type=path_argument, metavar="DATA",
        help="the data folder; with --encoder, photos as `in2r features` takes them",
    )  # fmt: skip
    parser.add_argument(
        "table", type=path_argument, nargs="?", metavar="TABLE",
        help="the table of captions of photos; without it, name.txt beside name.jpg",
    )  # fmt: skip
    parser.add_argument("--out", type=path_argument, required=True, metavar="AUDIT", help="the folder to write")
    parser.add_argument(
        "--against",
        type=path_argument,
        metavar="AUDIT",
        help="folder of an earlier audit that judges these pairs; from one pair on",
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="worst pairs to print; default: 10")
    parser.add_argument("--source", metavar="COLUMN", help="count suspects by a column of your table, such as shop")
    parser.add_argument(
        "--cut", type=float, metavar="SCORE", help="a pair below it is a suspect; default: by decisions, else 0.5"
    )
    parser.add_argument(
        "--decisions",
        nargs="+",
        type=path_argument,
        metavar="FILE",
        help="decisions.json saved from report.html, also of several people: what they say, and the cut by them; "
        "of a row that two files decide, the later file counts; AUDIT/decisions.json keeps them for the next time",
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
    parser.add_argument(
        "--train",
        nargs="*",
        type=name_or_path,
        metavar="SETTING",
        help="also train two runs, each on one half of the images, which judge the other half: a preset and key=value, "
        "as `in2r train` takes them; default: corroborate; seldom worth its time (docs/audit.md)",
    )
    parser.add_argument(
        "--run",
        nargs="+",
        type=path_argument,
        dest="runs",
        metavar="RUN",
        help="also ask trained runs about pairs that they were not trained on",
    )
    parser.add_argument("--seed", type=int, help="of all that is drawn; default: 0")
    parser.add_argument(
        "--bom", action="store_true", help="start pairs.csv with a mark by which spreadsheets read UTF-8"
    )
    photos = parser.add_argument_group("photos in place of a data folder", "Features are made first, into AUDIT/data.")
    photos.add_argument("--encoder", metavar="KIND:NAME", help=ENCODERS)
    add_options(photos)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge every pair, write the folder, print the key figures and the worst pairs."""
    console, out = Console(), Path(args.out)
    with console.status("starting"):  # torch takes seconds
        from in2r.audit.by_hand import follow, move_cut
        from in2r.audit.folder import require_no_data, write_audit
        from in2r.audit.kept import load_kept
        from in2r.audit.page import shown_rows, write_page
        from in2r.report import joined, write_decisions

    require_no_data(out)
    refuse(args, out)
    kept = None if args.against is None else load_kept(Path(args.against))
    config = _config(args, kept)
    given = DecisionFiles.read(out, args.decisions or [])
    training = None if args.train is None else training_of(args)
    data = _data(args, console)
    with console.status("reading the data"):
        pairs = _pairs(args, data, config, kept)
    given.check(pairs.identity(config.seed), len(pairs.images))
    scorer = _scorer(args, pairs, config, training, console)
    with console.status("judging") as status:
        audit = before = _audit(pairs, config, kept, scorer, status.update)
        decisions = joined(given.parts) if given.parts else None
        if decisions is not None:
            given.check(pairs.identity(config.seed), len(pairs.images), shown_rows(audit).sample)
            if args.cut is None:
                audit = move_cut(audit, decisions) or audit
            audit = follow(audit, decisions)
        status.update("writing")
        if decisions is not None:  # first, so that none is lost if the writing ends here
            out.mkdir(parents=True, exist_ok=True)
            write_decisions(out / DECISIONS, decisions)
        write_audit(out, audit, bom=args.bom)
        write_page(out / "report.html", audit, args.source)
    for line in audit.doubts():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(key_figures(audit))
    if args.source is not None:
        console.print(worst_sources(audit, args.source))
    if args.top and audit.verdicts.told:
        console.print(worst_pairs(audit, args.top))
    if decisions is not None:
        given.say(console)
        say_decisions(console, before, decisions)
        say_cut(console, audit, args.cut)
    if data != args.data:
        against = [] if args.against is None else ["--against", args.against]
        source = [] if args.source is None else ["--source", args.source]
        again = command_line("in2r", "audit", data, *against, "--out", out, *source)
        console.print(f"again, by other settings: {again}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"look at: {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"every row: {out / 'pairs.csv'}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _config(args: argparse.Namespace, kept: "Kept | None") -> "AuditConfig":
    from in2r.audit.settings import AuditConfig
    from in2r.config import fill

    drawn = {"seed": args.seed or 0, "evidence": args.evidence or "all"}
    values: dict[str, Any] = drawn if kept is None else asdict(kept.config)
    if args.cut is not None:
        values |= {"cut": args.cut, "sure": min(AuditConfig().sure, max(args.cut, 0.0))}
    return fill(AuditConfig, values)


def _data(args: argparse.Namespace, console: Console) -> Path:
    """Return the data folder; of photos, it is made."""
    from in2r.data.sources import LAYOUTS, holds_data
    from in2r.data.table_rows import read_names
    from in2r.raw.columns import find_encoding

    data: Path = args.data
    if args.encoder is not None:
        if args.table is not None and args.source is not None and args.table.is_file():
            require_column(args.source, read_names(args.table, args.encoding or find_encoding(args.table)))
        made: Path = args.out / "data"
        make(args, console, data, args.table, made)
        return made
    model = f"the model by --encoder KIND:NAME: {ENCODERS}; such as --encoder transformers:openai/clip-vit-base-patch32"
    if args.table is not None:
        raise InputError(f"{args.table}: a table goes with photos, of which features are made first; name {model}")
    if (data / "judge.safetensors").is_file() or (data / "summary.json").is_file():
        raise InputError(f"{data}: an audit; expected the folder of the data that it judged, such as {data / 'data'}")
    if data.is_dir() and not holds_data(data):
        raise InputError(
            f"{data}: no data folder; expected {LAYOUTS}; of photos, features are made first; name {model}"
        )
    for name in OF_PHOTOS:
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} goes with photos; give --encoder too, or leave it out")
    return data


def _pairs(args: argparse.Namespace, data: Path, config: "AuditConfig", kept: "Kept | None") -> "AuditPairs":
    from in2r.audit.pairs import read_pairs

    pairs = read_pairs(
        data,
        text_dim=config.text_dim,
        caption_vectors=args.caption_vectors,
        layout=args.layout,
        pictures=args.images,
        noise=args.noise,
        against=kept,
        for_runs=args.train is not None or bool(args.runs),
    )
    if args.source is not None:
        require_column(args.source, pairs.columns)
    return pairs


def _scorer(
    args: argparse.Namespace,
    pairs: "AuditPairs",
    config: "AuditConfig",
    training: tuple[str, list[str]] | None,
    console: Console,
) -> "TrainedScorer | None":
    """Return the evidence of runs, which are trained first where --train says so."""
    from in2r.audit.trained import train_halves, trained_scorer
    from in2r.cli.show import Terminal
    from in2r.runs.settings import load_config

    runs = [Path(run) for run in args.runs or []]
    if training is not None:
        assert pairs.origin is not None
        read = pairs.origin.splits[0].caption_vectors is not None
        data = {
            "path": str(pairs.origin.source.path.absolute()),
            "layout": args.layout,
            "caption_vectors": (args.caption_vectors or "auto") if read else None,
            "skip_missing": True,
        }
        settings = load_config(*training, data=data)
        terminal = Terminal(console)
        try:
            runs += train_halves(Path(args.out) / "train", pairs, config, settings, terminal)
        finally:
            terminal.close()
    return trained_scorer(runs, pairs, config) if runs else None


def _audit(
    pairs: "AuditPairs",
    config: "AuditConfig",
    kept: "Kept | None",
    scorer: "TrainedScorer | None",
    on_step: Callable[[str], None],
) -> "Audit":
    from in2r.audit.against import audit_against
    from in2r.audit.result import audit_pairs

    if kept is not None:
        return audit_against(pairs, kept, config, on_step)
    return audit_pairs(pairs, config, scorer, on_step)
