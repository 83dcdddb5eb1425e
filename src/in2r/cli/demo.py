"""`in2r demo`: the whole job on drawn scenes, in minutes: data, noise, a plain baseline, IN²R, the worst pairs."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from in2r.cli.score import worst_pairs
from in2r.cli.show import Terminal
from in2r.data.pairs import open_data
from in2r.data.scenes import make_scenes
from in2r.engine.run import RunFolder
from in2r.engine.settings import RunConfig, load_config
from in2r.engine.train import reopen, resume_run, start_run
from in2r.errors import InputError
from in2r.files import read_json
from in2r.noise import NoiseIndex, load_index, make_index, save_index
from in2r.results import evaluate_run, export_model, score_run

SEED = 0
SIZES = {"train": 1200, "dev": 250, "test": 500}
"""images with five captions each: recall is far from chance and from perfect"""
RATIO = 0.4
EPOCHS = 10
# the triplet-mean loss separates the pairs of so small a set; the default, sce, does not (docs/results.md)
DEMO = ["model.dim=128", "model.word_dim=64", "train.threads=1", "partition.loss=triplet-mean"]
"""a model small enough for minutes on a CPU, where a second thread costs the small GRU more than it gives"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "demo",
        help="do the whole job on drawn scenes with 40 %% mismatched captions, in about seven minutes",
        epilog="example: in2r demo --out demo   (called again, it goes on where it stopped)",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="default: demo")
    parser.add_argument(
        "--images", type=int, default=SIZES["train"], metavar="N", help="training images; default: 1200"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, metavar="N", help="default: 10")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the data, train both, test both, show the worst pairs."""
    console = Console()
    data = _scenes(args.out / "data", args.images, console)
    index = _noise(args.out / "noise_0.4.npy", data)
    results = {}
    warmup = max(1, args.epochs * 4 // 10)
    rows = {
        # the hardest negative, the field's usual choice, collapses on so many mismatches: the mean is the fair baseline
        "plain baseline": ("triplet", "method.negatives=mean"),
        "IN²R": ("paper", f"method.warmup_epochs={warmup}"),
    }
    for title, (preset, own) in rows.items():
        console.rule(f"training: {title}")
        settings = [f"data.path={data}", f"noise.index={index}", f"train.epochs={args.epochs}"]
        config = load_config(preset, [*DEMO, *settings, own])
        folder = _train(args.out / config.method.name, config, console)
        results[title] = evaluate_run(folder.path)
    _summary(console, results, RunFolder(args.out / "in2r"))
    return 0


def _scenes(folder: Path, images: int, console: Console) -> Path:
    if not (folder / "scenes.json").is_file():
        console.print(f"drawing {images:,} training scenes in {folder}", markup=False)
        make_scenes(folder, train=images, dev=SIZES["dev"], test=SIZES["test"], seed=SEED)
    return folder


def _noise(file: Path, data: Path) -> Path:
    """Mismatch 40 % of the captions, unless that was done before."""
    images = open_data(data).split("train").image_of_caption
    if file.is_file():
        load_index(file, images, level="caption", ratio=RATIO)
    else:
        save_index(file, NoiseIndex(make_index(images, RATIO, "caption", SEED), images, "caption", RATIO, SEED))
    return file


def _train(path: Path, config: RunConfig, console: Console) -> RunFolder:
    terminal = Terminal(console)
    folder = RunFolder(path)
    try:
        if not folder.exists():
            start_run(path, config, terminal, terminal.plan)
        elif folder.config().train.epochs != config.train.epochs:
            raise InputError(f"{path}: holds a demo of {folder.config().train.epochs} epochs; choose another --out")
        else:
            resume_run(path, terminal)
    finally:
        terminal.close()
    export_model(folder, reopen(folder))
    return folder


def _summary(console: Console, results: dict[str, dict[str, Any]], run_folder: RunFolder) -> None:
    table = Table("ensemble, test", "i2t R@1", "i2t R@10", "t2i R@1", "t2i R@10", "rSum", title="Retrieval")
    for title, result in results.items():
        row = result["rows"]["ensemble"]
        names = ("i2t_r1", "i2t_r10", "t2i_r1", "t2i_r10", "rsum")
        table.add_row(title, *(f"{row[name]:.1f}" for name in names))
    scores = score_run(run_folder.path)
    summary = read_json(scores.with_suffix(".json"))
    console.rule("results")
    console.print(table)
    rate = 100 * summary["estimated_noise_rate"]["mean"]
    console.print(f"noise rate found: {rate:.1f} %   injected: {100 * RATIO:.0f} %")
    console.print("The pairs that belong together least:")
    console.print(worst_pairs(scores, 10))
    for line in (
        f"every pair, worst first: {scores}",
        f"pictures: {run_folder.path.parent / 'data' / 'pictures'}",
        f"search model: {run_folder.model}   in Python: in2r.load('{run_folder.model}')",
    ):
        console.print(line, markup=False, soft_wrap=True)
