"""What `gpu_check.sh` runs: is a step on the card the CPU's, how fast is it, what does a short training learn?

Each part is written to the JSON record as soon as it is done, a part that fails with its error; then the exit code is
1. A part that would begin after --budget seconds is left out and named.
"""

import argparse
import json
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import learnable
import torch
from bound import Bound
from rich.console import Console
from rows import STEPS, Rows
from run import PRECISIONS, RESULTS, profile_table, table
from sides import Ours, different_images
from timing import device, device_mb, machine, new_file, positive, seconds
from workload import SIZES, Workload

from in2r.runs.folder import versions

LOSS_TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-2
"""relative; where two negatives or two neighbours are as near as rounding, one sample's gradient goes another way"""
GROUPS = ("step", "partition", "validation", "retrieval", "epoch")
CHECKED_IMAGES = 600
Record = dict[str, Any]


def correctness(args: argparse.Namespace) -> Record:
    """One training step without dropout on the card and on the CPU: same weights and batches.

    It passes or fails in exact float32; beside it stands how far the precision differs that training computes in.
    """
    size = SIZES[args.size]
    size = replace(size, images=min(size.images, CHECKED_IMAGES))
    on_cpu = Workload(size, torch.device("cpu"), dropout=False)
    losses, gradient = _step(on_cpu)

    def difference(precision: str) -> Record:
        found, other = _step(Workload(size, args.device, precision, dropout=False, features=on_cpu.features))
        return {
            "loss_differences": {key: abs(found[key] - losses[key]) / max(1e-9, abs(losses[key])) for key in losses},
            "gradient_difference": float((other - gradient).norm() / gradient.norm()),
        }

    with exact_products():
        exact = difference("float32")
    loss, gradient_off = max(exact["loss_differences"].values()), exact["gradient_difference"]
    passed = loss < LOSS_TOLERANCE and gradient_off < GRADIENT_TOLERANCE
    print(
        f"a step against the CPU, float32: losses off by {loss:.1e} at most (allowed {LOSS_TOLERANCE:g}), gradient by "
        f"{gradient_off:.1e} (allowed {GRADIENT_TOLERANCE:g})"
    )
    return {"losses": losses, "float32": exact, "as trained": difference(args.precision), "passed": passed}


@contextmanager
def exact_products() -> Iterator[None]:
    """Compute float32 products in float32: cuDNN's recurrence uses TF32 otherwise."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _step(work: Workload) -> tuple[dict[str, float], torch.Tensor]:
    losses, weights = Ours(work).losses(*different_images(work, work.size.batch))
    gradients = torch.autograd.grad(losses["total"], weights)
    flat = torch.cat([gradient.flatten().float().cpu() for gradient in gradients])
    return {name: float(loss.detach()) for name, loss in losses.items()}, flat


def speed(args: argparse.Namespace) -> Record:
    """The benchmarks on features of the real shape, and a whole epoch of the toolkit."""
    size = SIZES[args.size]
    work = Workload(size, args.device, args.precision)
    rows = Rows(work, args.repeat, Bound(args.device, PRECISIONS[args.precision]))
    record: Record = {
        "size": args.size,
        "settings": asdict(size),
        "repeat": args.repeat,
        "threads": torch.get_num_threads(),
        "precision": args.precision,
        "machine": machine(args.device),
        "rows": [row for group in GROUPS for row in rows.measure(group, {})],
    }
    whole: list[float] = []
    peak = device_mb(lambda: whole.append(seconds(rows.ours.epoch, args.device)[0]), args.device)
    record["whole_epoch"] = {"seconds": whole[0], "device_mb": peak, "device_mb_held": _held(args.device)}
    record["profile"] = rows.profile()
    console = Console(width=140)
    console.print(table(record), profile_table(record["profile"]), f"a whole epoch: {whole[0]:.2f} s", sep="\n")
    return record


def training(args: argparse.Namespace) -> Record:
    """A short IN²R run of the toolkit itself on data that can be learnt."""
    with tempfile.TemporaryDirectory() as folder:
        if args.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(args.device)
        images = learnable.FEW_IMAGES if args.size == "toy" else learnable.IMAGES
        found = learnable.train(Path(folder), SIZES[args.size], args.device, images, args.precision)
    if args.device.type == "cuda":
        found["device_mb"] = round(torch.cuda.max_memory_allocated(args.device) / 1e6, 1)
    rsum, by_chance = found["recalls"]["ensemble"]["rsum"], found["chance"]["rsum"]
    last = found["epochs"][-1]["seconds"]
    print(f"a short training: test rSum {rsum:.1f} (chance {by_chance:.1f}), {last:.1f} s for the last epoch")
    return found


def _held(device: torch.device) -> float | None:
    return round(torch.cuda.memory_allocated(device) / 1e6, 1) if device.type == "cuda" else None


PARTS: dict[str, Callable[[argparse.Namespace], Record]] = {
    "correctness": correctness,
    "training": training,
    "speed": speed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=device, default="cuda", help="cpu with --size toy tries the script out")
    parser.add_argument("--size", choices=SIZES, default="flickr30k")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16", help="of the toolkit's side")
    parser.add_argument("--repeat", type=positive, default=5, help=f"timed turns (of a step {STEPS} times as many)")
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no further part begins")
    parser.add_argument("--out", type=new_file, help="JSON record (default: benchmarks/results/gpu_CARD.json)")
    args = parser.parse_args()
    card = torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else "cpu"
    out = args.out or RESULTS / f"gpu_{re.sub(r'[^A-Za-z0-9]+', '_', card)}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    record: Record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(args.device),
        "versions": versions(),
        "part_seconds": {},
    }
    begun, failed = time.monotonic(), []
    for name, part in PARTS.items():
        started = time.monotonic()
        if started - begun > args.budget:
            record[name] = {"error": f"left out: began after {args.budget:g} s"}
        else:
            try:
                record[name] = part(args)
            except Exception as error:  # the other parts are worth having
                traceback.print_exc()
                record[name] = {"error": f"{type(error).__name__}: {error}"}
        record["part_seconds"][name] = round(time.monotonic() - started, 1)
        if "error" in record[name] or record[name].get("passed") is False:
            failed.append(name)
        out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{out.name}: {', '.join(failed) + ' failed' if failed else 'all parts passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
