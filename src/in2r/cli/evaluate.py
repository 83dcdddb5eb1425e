"""`in2r eval`: test the selected model of a run, or the mean similarity of several."""

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from in2r.cli.paths import path_argument
from in2r.errors import InputError

EXAMPLES = """\
examples:
  in2r eval runs/mine            the test split
  in2r eval runs/coco --folds 5  COCO 1K: the mean over five folds; else 5K
  in2r eval runs/coco --eccv     COCO 5K, also by ECCV Caption and CxC
  in2r eval runs/sgr runs/saf    SGRAF: the mean of the two runs' similarities

Writes RUN/result_<split>[_5fold].json: rows A, B and ensemble, and the
protocol under which they were measured. Of several runs, the result is in the
first one's folder: result_test_with_<the others' names and marks>.json.
"""
RECALLS = {
    "i2t_r1": "i2t R@1",
    "i2t_r5": "R@5",
    "i2t_r10": "R@10",
    "t2i_r1": "t2i R@1",
    "t2i_r5": "R@5",
    "t2i_r10": "R@10",
    "rsum": "rSum",
}
RANKS = {"i2t_medr": "i2t MedR", "i2t_meanr": "MeanR", "t2i_medr": "t2i MedR", "t2i_meanr": "MeanR"}
"""column of a row → its heading; each of the two tables fits into 80 columns"""
MATCHES = {"eccv": "ECCV Caption", "cxc": "CxC"}
MATCH_FIGURES = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "r_precision": "R-P", "map_at_r": "mAP@R"}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "eval",
        help="test the best epoch of a run",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    parser.add_argument(
        "others",
        type=path_argument,
        nargs="*",
        metavar="RUN",
        help="more runs on the same pairs: the mean of all their similarities is tested",
    )
    parser.add_argument("--split", default="test", choices=("test", "dev"), help="default: test")
    parser.add_argument("--folds", type=int, default=1, metavar="N", help="mean over N folds (COCO 1K: 5); default: 1")
    parser.add_argument(
        "--duplicates",
        default="auto",
        choices=("auto", "right", "wrong"),
        help="an identical copy of the right item counts as right, or as wrong as in the literature; "
        "default: right where more than 5 %% of the images or captions have copies",
    )
    parser.add_argument(
        "--eccv",
        action="store_true",
        help="MS-COCO: also count right pairs that its captions leave out (ECCV Caption, CxC); needs in2r[eccv]",
    )
    parser.add_argument("--device", help="auto, cpu, cuda, mps; default: the run's")
    parser.add_argument(
        "--force", action="store_true", help="use the data although they or the noise index have changed"
    )
    parser.add_argument("--unfinished", action="store_true", help="use the best epoch so far of an unfinished run")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Evaluate and print the table."""
    options = {
        "duplicates": args.duplicates,
        "device": args.device,
        "force": args.force,
        "unfinished": args.unfinished,
    }
    if args.others:
        if args.eccv:
            raise InputError("--eccv is of one run; give one RUN, or leave --eccv out")
        return _several(args, options)
    return _one(args, options)


def _one(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Print rows A, B and ensemble of a run."""
    from in2r.results import evaluate_run
    from in2r.training.evaluation import failures

    result = evaluate_run(args.folder, args.split, args.folds, eccv=args.eccv, **options)
    console = Console()
    console.print(result_table(result, RECALLS), "", result_table(result, RANKS), "")
    for name, rows in result.get("matches", {}).items():
        console.print(matches_table(MATCHES[name], rows), "")
    for line in [*failures(result["health"]), wrong_pairs(result), *protocol_lines(result["protocol"])]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def _several(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Print a row of each run, and that of their mean similarity."""
    from in2r.results import evaluate_runs

    result = evaluate_runs([args.folder, *args.others], args.split, args.folds, **options)
    protocols = {name: run["protocol"] for name, run in result["runs"].items()}
    shown = {**result, "health": {}, "protocol": next(iter(protocols.values()))}
    console = Console()
    console.print(result_table(shown, RECALLS), "", result_table(shown, RANKS), "")
    lines = [f"{name}: {line}" for name, protocol in protocols.items() for line in protocol_lines(protocol)]
    for line in [*lines, result["file"]]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def result_table(result: dict[str, Any], columns: dict[str, str]) -> Table:
    """Return rows A, B, ensemble, or of runs, × some columns."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("network", overflow="fold")
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in result["rows"].items():
        hidden = (result["protocol"]["noise"] or {}).get("hide_original")
        oracle = " (oracle)" if result["protocol"]["oracle"] else " (analysis)" if hidden else ""
        parts = "AB" if name == "ensemble" else name
        collapsed = " (collapsed)" if any(result["health"].get(f"collapsed_{part}") for part in parts) else ""
        table.add_row(f"{name}{oracle}{collapsed}", *(f"{row[column]:.1f}" for column in columns))
    if columns is RECALLS:
        table.add_row("by chance", *(f"{result['chance'][column]:.1f}" for column in columns), style="dim")
    return table


def matches_table(title: str, rows: dict[str, dict[str, float]]) -> Table:
    """Return the figures with the right pairs that COCO's captions leave out."""
    table = Table(box=None, padding=(0, 1, 0, 0), title=title, title_justify="left")
    table.add_column("network")
    for direction in ("i2t", "t2i"):
        for number, heading in enumerate(MATCH_FIGURES.values()):
            table.add_column(heading if number else f"{direction} {heading}", justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(f"{row[f'{d}_{figure}']:.1f}" for d in ("i2t", "t2i") for figure in MATCH_FIGURES))
    return table


def wrong_pairs(result: dict[str, Any]) -> str:
    """Say what a wrong pair of the split does to the figures, and how many look wrong where that is known."""
    share, split = result["wrong_pairs"]["mean"], result["protocol"]["evaluated"]["split"]
    found = "how many there are is not known (few, or the model cannot tell)"
    if share is not None:
        found = f"about {100 * share:.0f} % of the pairs look mismatched"
    return f"mismatched pairs of {split} lower these figures; {found}"


def protocol_lines(protocol: dict[str, Any]) -> list[str]:
    """Say what decides the meaning of the figures."""
    from in2r.data.noise import describe_noise

    data, evaluated, selection = protocol["data"], protocol["evaluated"], protocol["selection"]
    made = (
        f"{protocol['method']}, seed {protocol['seed']}, epoch {selection['epoch']} of {protocol['epochs']} "
        f"(dev rSum {selection['dev_rsum']:.1f})"
    )
    noise = describe_noise(protocol["noise"])
    if protocol["imported"] is not None:
        made, noise = imported_line(protocol), "injected noise not known"
    folds = "" if evaluated["folds"] == 1 else f", mean of {evaluated['folds']} folds"
    lines = [
        f"{evaluated['split']}: {evaluated['images']:,} images, {evaluated['captions']:,} captions{folds}; "
        f"data {data['fingerprint'][:12]}; {noise}",
        f"{made}; {evaluated['tie_rule']}",
    ]
    return lines + duplicate_lines(evaluated["duplicates"]) + reservations(protocol)


def imported_line(protocol: dict[str, Any]) -> str:
    """Say where imported networks come from, and what was stored with them beside what is measured."""
    imported, dev = protocol["imported"], protocol["selection"]["dev_rsum"]
    epoch = "not stored" if imported["epoch"] is None else f"{imported['epoch']} as stored"
    stored = "none stored" if imported["best_rsum"] is None else f"{imported['best_rsum']:.1f} as stored"
    return (
        f"imported from {imported['file']} of {imported['repository']}, epoch {epoch}, dev rSum {stored}, {dev:.1f} "
        f"measured (dev rule {protocol['data']['dev_rule']})"
    )


def duplicate_lines(found: dict[str, Any]) -> list[str]:
    """Say how many items have an identical copy, and what it counts as; nothing where none has."""
    if not found["images"] and not found["captions"]:
        return []
    counted = (
        "right (--duplicates wrong: as wrong, as in the literature)"
        if found["counted_as"] == "right"
        else "wrong, as in the literature (--duplicates right: as right)"
    )
    return [
        f"duplicates: {found['images']:,} images have an identical copy, {found['captions']:,} captions are those of "
        f"another image too; a copy of the right item counts as {counted}"
    ]


def reservations(protocol: dict[str, Any]) -> list[str]:
    """Name the changes in spite of which the figures were made."""
    forced = protocol["forced"]
    lines = [f"FORCED: changed since the start of the run: {change}" for change in forced["now"]]
    lines += [f"FORCED: changed while it was trained: {change}" for change in forced["training"]]
    if not protocol["finished"]:
        lines.append(f"UNFINISHED: {protocol['epochs_done']} of {protocol['epochs']} epochs")
    return lines
