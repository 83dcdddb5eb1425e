"""What `gpu_check.sh` runs on a machine with a card: correctness, a short training, all methods, processes, speed.

Prints a report. A part that fails is named with its error, the others run all the same; then the exit code is 1.
"""

import argparse
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
import yaml
from run import GROUPS, HEAD, SGR_IMAGES, device, line, machine, rows
from toolkit import NO_DRAWS, Toolkit, scores
from workload import CAPTIONS, SIZES, THINGS, Size, embeddings, make_data

from in2r.config import to_dict
from in2r.data.noise import draw_noise, save_index
from in2r.errors import InputError
from in2r.methods import METHODS
from in2r.results import evaluate_run
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.testing import BACKBONES, Case
from in2r.training.train import start_run

CPU = torch.device("cpu")
CHECKED, TRAINED = 100, 2000
"""training images of the comparison with the CPU; of the short training"""
ALLOWED = {"float32": (1e-4, 1e-2), "bf16": (1e-2, 0.3)}
"""largest relative difference of a loss, and of the gradient (norm of the difference over the norm). Where two
negatives or two neighbours are as near as rounding, a sample's gradient takes another direction. A CPU's bf16 differs
by 5e-4 and 5e-2 at the paper's size."""

SAME_EPOCH = 1e-3
"""largest relative difference of a loss's mean over a tiny epoch, whose steps add up what rounding does"""


def step(size: Size, folder: Path, card: torch.device) -> Iterator[str]:
    """A training step without dropout, from the same weights and batches on the card as on the CPU."""
    size = part_of(size, CHECKED)
    make_data(folder, size)
    losses, gradient = Toolkit(folder, size, CPU, *NO_DRAWS).gradient()
    for precision, allowed in ALLOWED.items():
        with exact_products():
            found, other = Toolkit(folder, size, card, *NO_DRAWS, f"train.precision={precision}").gradient()
        loss = max(abs(found[name] - losses[name]) / max(1e-9, abs(losses[name])) for name in losses)
        off = float((other - gradient).norm() / gradient.norm())
        yield f"{precision} and the CPU's float32: losses differ by {loss:.1e}, the gradient by {off:.1e}"
        require(loss < allowed[0] and off < allowed[1], f"allowed are {allowed[0]:g} and {allowed[1]:g}")


def evaluation(size: Size, folder: Path, card: torch.device) -> Iterator[str]:
    """Ranks of the same embeddings, and SGR's similarities, on the card and on the CPU."""
    size = part_of(size, CHECKED)
    make_data(folder, size)
    sides = [Toolkit(folder, size, where) for where in (CPU, card)]
    given = embeddings(size.ranked, size.dim)
    one, other = (np.concatenate(side.ranks(*(part.to(side.device) for part in given))) for side in sides)
    differing = int((one != other).sum())
    yield f"{differing} of {len(one)} ranks differ"
    with exact_products():
        one, other = (scores(*side.sgr(min(SGR_IMAGES, size.dev))) for side in sides)
    off = float((one - other).abs().max())
    yield f"similarities of SGR differ by {off:.1e}"
    require(differing == 0 and off < 1e-4, "allowed are 0 and 1e-4")


def training(size: Size, folder: Path, card: torch.device) -> Iterator[str]:
    """A short run of IN²R at 40 % noise."""
    size = part_of(size, TRAINED)
    make_data(folder, size)
    noise = draw_noise(np.repeat(np.arange(size.images), CAPTIONS), 0.4, "caption", 0)
    settings = [f"data.path={folder}", f"noise.index={save_index(folder / 'noise.npy', noise)}", *size.settings]
    settings += [f"train.device={card}", "train.epochs=10", "method.warmup_epochs=6"]
    run = start_run(folder / "run", load_config("in2r", settings))
    last, result = run.records()[-1], evaluate_run(run.path)
    rsum, chance = result["rows"]["ensemble"]["rsum"], result["chance"]["rsum"]
    figures = ", ".join(f"{name} {last[name]:.2f}" for name in ("partition_precision_A", "partition_recall_A"))
    yield f"test rSum {rsum:.1f}, of a random order {chance:.1f}; {last['seconds']} s for the last epoch; {figures}"
    if size.images > CHECKED:  # fewer teach nothing
        require(rsum > 2 * chance, "expected at least twice the rSum of a random order")


def methods(size: Size, folder: Path, card: torch.device) -> Iterator[str]:
    """Every method on every backbone (on a CPU one on one): tiny runs without dropout, losses beside the CPU's."""
    backbones, chosen = (BACKBONES, [*METHODS]) if card.type == "cuda" else (("sgr",), ["in2r"])
    worst = dict.fromkeys(backbones, (0.0, ""))
    for backbone, method in product(backbones, chosen):
        case = Case(method, backbone, folder)
        try:
            case.config()
        except InputError as refused:
            yield f"{method} on {backbone} is refused: {refused}"
            continue
        one, other = first_losses(case, "cpu", "beside"), first_losses(case, str(card), "card")
        off = max(abs(other[name] - value) / max(1e-6, abs(value)) for name, value in one.items())
        worst[backbone] = max(worst[backbone], (off, method))
    for backbone, (off, method) in worst.items():
        yield f"{backbone}: losses differ by at most {off:.1e} ({method})"
    require(max(worst.values())[0] < SAME_EPOCH, f"allowed is {SAME_EPOCH:g}")


def first_losses(case: Case, where: str, name: str) -> dict[str, float]:
    """Train a case in a folder of this name; return the losses of its first epoch, and see that all are finite."""
    without = ["model.image_dropout=0", "model.text_dropout=0", "model.attention_dropout=0"]
    config = case.config(f"train.device={where}", "train.precision=float32", *without)
    with exact_products():
        records = start_run(case.folder / f"{case.method}-{case.backbone}-{name}", config).records()
    losses = [{key: value for key, value in record.items() if key.startswith("loss_")} for record in records]
    require(
        all(value is not None for one in losses for value in one.values()),
        f"{case.method} on {case.backbone}: a loss is not finite",
    )
    return losses[0]


def processes(size: Size, folder: Path, card: torch.device) -> Iterator[str]:
    """Two processes on two cards, by torchrun, beside one process; with one card, on the CPU."""
    if card.type == "cpu":
        yield "not on a CPU alone: tests/training/test_processes.py compares processes there"
        return
    two_cards = card.type == "cuda" and torch.cuda.device_count() > 1
    case, where = Case("in2r", "gpo", folder), "cuda" if two_cards else "cpu"
    without = ["model.image_dropout=0", "model.text_dropout=0", "method.refiner_dropout=0"]
    config = case.config(f"train.device={where}", "train.precision=float32", *without)
    settings = folder / "settings.yaml"
    settings.write_text(yaml.safe_dump(to_dict(config), allow_unicode=True), encoding="utf-8")
    one = start_run(folder / "one", config).records()[0]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "in2r"]
    subprocess.run([*launcher, "train", str(settings), "--out", str(folder / "two")], check=True, timeout=180)
    other = RunFolder(folder / "two").records()[0]
    off = max(abs(other[name] - one[name]) / max(1e-6, abs(one[name])) for name in one if name.startswith("loss_"))
    yield f"two processes on {where}: losses of the first epoch differ by at most {off:.1e}"
    require(off < SAME_EPOCH, f"allowed is {SAME_EPOCH:g}")


def speed(size: Size, folder: Path, card: torch.device) -> Iterator[str]:
    """The benchmark: the toolkit in bf16, the plain version in float32."""
    make_data(folder, size)
    yield HEAD
    for what, row in rows(folder, size, card, GROUPS, 3, "train.precision=bf16"):
        yield line("", what, row)
    if card.type == "cuda":
        side, held = Toolkit(folder, size, card, "train.precision=bf16"), torch.cuda.memory_allocated(card)
        for what, call in {"a step": lambda: side.step(1), "an epoch": side.epoch}.items():
            torch.cuda.reset_peak_memory_stats(card)
            call()
            peak = torch.cuda.max_memory_allocated(card)
            yield f"memory: {held / 1e9:.2f} GB held before, {peak / 1e9:.2f} GB at most in {what}"


def part_of(size: Size, images: int) -> Size:
    """The size with so many images at most, and few words, so that each is in the training captions."""
    return replace(size, images=min(images, size.images), dev=min(images, size.dev), words=THINGS + 1)


def require(met: bool, wanted: str) -> None:
    if not met:
        raise ValueError(wanted)


@contextmanager
def exact_products() -> Iterator[None]:
    """Compute float32 products in float32: cuDNN's recurrence uses TF32 otherwise."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


PARTS: dict[str, Callable[[Size, Path, torch.device], Iterator[str]]] = {
    "step": step,
    "evaluation": evaluation,
    "training": training,
    "methods": methods,
    "processes": processes,
    "speed": speed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=device, default="cuda", help="cpu with --size toy tries the script out")
    parser.add_argument("--size", choices=SIZES, default="card")
    args = parser.parse_args()
    print(machine(args.device), flush=True)
    failed = []
    for name, part in PARTS.items():
        print(f"\n{name}: {part.__doc__}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                for found in part(SIZES[args.size], Path(folder) / "data", args.device):
                    print(found, flush=True)
            except Exception as error:  # the other parts are worth having
                traceback.print_exc()
                print(f"failed: {error!r}")
                failed.append(name)
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'all parts passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
