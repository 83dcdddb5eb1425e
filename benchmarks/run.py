"""Time the toolkit against a plain version of the same, in turns, beside the computed bound: `make bench`.

Writes a JSON record and prints a table. Random data of the chosen size. --size paper needs 6 GB and, on two cores, a
quarter of an hour; its epoch is composed of the measured parts.
"""

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from bound import Bound
from rich.console import Console
from rich.table import Table
from rows import STEPS, Rows, peak_memory
from timing import device, machine, new_file, positive
from workload import SIZES, Workload

from in2r.device import hold_freed_memory
from in2r.runs.folder import versions

RESULTS = Path(__file__).parent / "results"
GROUPS = ("step", "partition", "validation", "ranks", "retrieval", "epoch")
PARTS = ("step", "partition", "validation")
"""of a composed epoch"""
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}


def table(record: dict[str, Any]) -> Table:
    where = record["machine"]["card"] or f"{record['threads']} thread(s)"
    turns = f"medians of {record['repeat']} turns (a step: {STEPS * record['repeat']})"
    shown = Table(title=f"{record['size']} size, {record['precision']}, {where}, {turns}")
    for heading in ("", "ours, s", "plain, s", "plain / ours", "CPU time", "bound, s", "share", "peak MB"):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=bool(heading))
    for row in record["rows"]:
        wall, cpu = row["seconds"], row["cpu_seconds"]
        ratios = (f"{c['ratio']:.2f} ({c['ratio_min']:.2f}-{c['ratio_max']:.2f})" for c in (wall, cpu))
        times = (f"{wall['ours_median']:.3g}", f"{wall['plain_median']:.3g}")
        limit = ("", "")
        if "bound_share" in row:
            limit = (f"{row['bound_seconds']:.3g}", f"{100 * row['bound_share']:.0f} %")
        shown.add_row(row["what"], *times, *ratios, *limit, f"{row['peak_mb']:.0f}" if "peak_mb" in row else "")
    return shown


def profile_table(profile: dict[str, Any]) -> Table:
    """The largest operators of a step, both versions side by side."""
    shown = Table(title="where a training step's time goes")
    for side, found in profile.items():
        shown.add_column(f"{side}, {found['seconds']:.3g} s")
        shown.add_column("share", justify="right")
    sides = []
    for found in profile.values():
        entries = [(entry["operator"], entry["share"]) for entry in found["operators"]]
        sides.append([*entries, ("other operators", found["others"]), ("outside operators", found["outside"])])
    for entries in zip(*sides, strict=True):
        shown.add_row(*(text for name, share in entries for text in (name, f"{100 * share:.1f} %")))
    return shown


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--only", choices=GROUPS, nargs="+", default=GROUPS, help="measure only these")
    parser.add_argument("--repeat", type=positive, default=3, help=f"timed turns (of a step {STEPS} times as many)")
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads")
    parser.add_argument("--device", type=device, default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32", help="of the toolkit's side")
    parser.add_argument("--profile", action="store_true", help="also list the largest operators of a step")
    parser.add_argument(
        "--out", type=new_file, help="JSON record (default: benchmarks/results/bench_SIZE[_GROUPS].json)"
    )
    args = parser.parse_args()
    if "epoch" in args.only and not SIZES[args.size].whole and not set(PARTS) <= set(args.only):
        parser.error(f"an epoch of size {args.size} is composed of {', '.join(PARTS)}: measure them too")
    return args


def main() -> None:
    args = parse()
    torch.set_num_threads(args.threads)
    hold_freed_memory()  # as training does; it cannot be taken back for the plain version's turns
    size, wanted = SIZES[args.size], [group for group in GROUPS if group in args.only]
    # first of all: a child's peak begins at what its parent holds when it starts it
    sizes = size.ranks if "ranks" in wanted else ()
    peaks = {images: peak_memory(images, size.dim, args.threads) for images in sizes}
    work = Workload(size, args.device, args.precision)
    rows = Rows(work, args.repeat, Bound(args.device, PRECISIONS[args.precision]))
    record: dict[str, Any] = {
        "size": args.size,
        "settings": asdict(size),
        "threads": args.threads,
        "repeat": args.repeat,
        "precision": args.precision,
        "float32_products": torch.get_float32_matmul_precision(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(args.device),
        "versions": versions(),
        "rows": [row for group in wanted for row in rows.measure(group, peaks)],
    }
    console = Console(width=140)
    console.print(table(record))
    if args.profile:
        record["profile"] = rows.profile()
        console.print(profile_table(record["profile"]))
    groups = args.only if set(args.only) != set(GROUPS) else []
    out = args.out or RESULTS / ("_".join(["bench", args.size, *groups]) + ".json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"record: {out}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
