"""`in2r demo`: the whole job on drawn scenes, in minutes: data, noise, methods side by side, worst pairs, audit."""

import argparse
import csv
import shutil
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from in2r.cli.paths import path_argument
from in2r.cli.score import probability
from in2r.cli.show import Terminal
from in2r.errors import InputError, command_line
from in2r.files import read_json

if TYPE_CHECKING:
    from in2r.data.noise import NoiseIndex
    from in2r.runs.settings import RunConfig

SEED = 0
SIZES = {"train": 3000, "dev": 250, "test": 500}
"""images with five captions each: recall is far from chance and from perfect"""
RATIO = 0.6
EPOCHS = 30
WORST = 10
"""pairs to show"""
PLAIN, OURS = "plain training", "corroborate"
LEGEND = {
    PLAIN: "as if every pair belonged together",
    OURS: "warm-up on all pairs, then two rounds of judging and training; clean: share it trusts",
}
DEMO = (
    # small enough for minutes on a CPU, where a second thread costs the small GRU more than it gives
    "model.dim=128", "model.word_dim=64", "train.threads=1",
    # a drawn thing fills few of the ten windows, so that their mean hides it
    "model.pooling=gpo",
    # in minutes a small batch makes more of a small set: more steps, and one caption of an image at a time
    "train.batch_size=60", "train.captions_per_image=1",
    # the epochs are few, so that less is left out in training
    "train.region_drop=0.2", "train.word_drop=0", "model.image_dropout=0.1", "model.text_dropout=0.1",
)  # fmt: skip


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "demo",
        help="do the whole job on drawn scenes with 60 %% mismatched captions, in minutes",
        epilog="example: in2r demo --out demo   (the same command resumes it)",
    )
    parser.add_argument("--out", type=path_argument, default=Path("demo"), metavar="FOLDER", help="default: demo")
    parser.add_argument(
        "--images", type=int, default=SIZES["train"], metavar="N", help="training images; default: 3000"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, metavar="N", help="default: 30")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the data, train and test each method, show the worst pairs, audit."""
    from in2r.results import evaluate_run
    from in2r.runs.settings import load_config

    console = Console()
    data, file = args.out / "data", args.out / f"noise_{RATIO}.npy"
    settings = [*DEMO, f"data.path={data}", f"noise.index={file}", f"train.epochs={args.epochs}"]
    warmup, first = max(1, args.epochs // 3), max(1, args.epochs // 4)  # epochs; the second round has the others
    rounds = [
        f"method.warmup_epochs={warmup}", f"method.round_epochs={first}",
        # too few epochs to learn everything twice
        "method.fresh_weights=false",
        # two drawn scenes may look alike and differ in one word: a caption of one of them is wrong for the other
        "method.rematch=false",
    ]  # fmt: skip
    configs = {  # the same recipe and as many epochs: they differ in nothing but what they make of doubtful pairs
        PLAIN: load_config("triplet+recipe/softmax", settings),
        OURS: load_config("corroborate", [*settings, *rounds]),
    }
    _scenes(data, args.images, console)
    noise = _noise(file, data)
    results = {}
    for title, config in configs.items():
        console.rule(f"training: {title}")
        console.print(LEGEND[title], highlight=False)
        folder = args.out / title.split()[0]
        _train(folder, config, console)
        results[title] = evaluate_run(folder)
    console.rule("results")
    console.print(_recalls(results), f"recalls in % among {SIZES['test']} test images; rSum counts R@5 too")
    if results[OURS]["protocol"]["selection"]["epoch"] <= warmup:
        console.print(f"{OURS}: the epoch is one of the warm-up; on so few pairs the rounds gained nothing")
    console.print("")
    _pairs(console, args.out / OURS, data, noise)
    console.rule("audit: the same pairs, judged without training")
    _audit(console, args.out / "audit", data, file)
    return 0


def _audit(console: Console, folder: Path, data: Path, noise: Path) -> None:
    """Audit the pairs as the noise index mismatches them, and write the report."""
    from in2r.audit.folder import write_audit
    from in2r.audit.page import write_page
    from in2r.audit.pairs import read_pairs
    from in2r.audit.result import audit_pairs
    from in2r.audit.settings import AuditConfig
    from in2r.cli.audit_show import key_figures

    config = AuditConfig()
    with console.status("audit"):
        audit = audit_pairs(read_pairs(data, text_dim=config.text_dim, pictures=data / "pictures", noise=noise), config)
        write_audit(folder, audit)
        write_page(folder / "report.html", audit)
    console.print(key_figures(audit))
    console.print(f"look at: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def _scenes(folder: Path, images: int, console: Console) -> None:
    """Draw the scenes, unless that was done before."""
    from in2r.demo import VERSION, make_scenes

    file = folder / "scenes.json"
    if not file.is_file():
        console.print(f"drawing scenes, {images:,} for training, in {folder}", markup=False, soft_wrap=True)
        half = folder.with_name(".data.new")  # it gets its name when it is whole
        shutil.rmtree(half, ignore_errors=True)
        make_scenes(half, train=images, dev=SIZES["dev"], test=SIZES["test"], seed=SEED)
        half.rename(folder)
        return
    drawn = read_json(file)
    for name, wanted in {"version": VERSION, "seed": SEED, **SIZES, "train": images}.items():
        found = drawn.get(name) if isinstance(drawn, dict) else None
        if found != wanted:
            raise InputError(f"{file}: {name} is {found}, now {wanted}; choose another --out")


def _noise(file: Path, data: Path) -> "NoiseIndex":
    """Mismatch 60 % of the captions, unless that was done before."""
    from in2r.data.noise import draw_noise, load_index, save_index
    from in2r.data.sources import open_data

    images = open_data(data).split("train").image_of_caption
    if not file.is_file():
        save_index(file, draw_noise(images, RATIO, "caption", SEED))
    return load_index(file, images, level="caption", ratio=RATIO)


def _train(path: Path, config: "RunConfig", console: Console) -> None:
    """Train, resume, or find it finished."""
    from in2r.results import export_model
    from in2r.runs.folder import RunFolder
    from in2r.runs.identity import changed_settings
    from in2r.training.train import reopen, resume_run, start_run

    folder = RunFolder(path)
    terminal = Terminal(console, folder.warmup_epochs() if folder.exists() else 0)
    try:
        if not folder.exists():
            start_run(path, config, terminal, terminal.plan)
        else:
            changed = changed_settings(folder.info()["settings"], config)
            if changed:
                raise InputError(f"{path}: was started with other settings: {', '.join(changed)}; choose another --out")
            if len(folder.records()) == config.train.epochs:
                console.print("the run is finished already: nothing is trained")
            resume_run(path, terminal)
    finally:
        terminal.close()
    export_model(folder, reopen(folder))


def _recalls(results: dict[str, dict[str, Any]]) -> Table:
    """Return a row per method: test recalls of the ensemble, rSum of the single networks, the epoch that dev chose."""
    names = ("i2t_r1", "i2t_r10", "t2i_r1", "t2i_r10", "rsum")
    table = Table("test", box=None, padding=(0, 1, 0, 0))
    for heading in ("i2t R@1", "R@10", "t2i R@1", "R@10", "rSum", "A alone", "B alone", "epoch"):
        table.add_column(heading, justify="right", no_wrap=True)
    for title, result in results.items():
        rows = result["rows"]
        figures = [rows["ensemble"][name] for name in names] + [rows[network]["rsum"] for network in "AB"]
        table.add_row(title, *(f"{figure:.1f}" for figure in figures), str(result["protocol"]["selection"]["epoch"]))
    chance = next(iter(results.values()))["chance"]
    table.add_row("by chance", *(f"{chance[name]:.1f}" for name in names), style="dim")
    return table


def _pairs(console: Console, folder: Path, data: Path, noise: "NoiseIndex") -> None:
    """Score the method's training pairs; print the noise rate, the worst pairs and, as we know it here, the truth."""
    from in2r.results import score_run

    scores = score_run(folder)
    rate = read_json(scores.with_suffix(".json"))["estimated_noise_rate"]["mean"]
    moved = 1 - noise.clean.mean()
    with scores.open(encoding="utf-8-sig", newline="") as rows:
        ranked = list(csv.DictReader(rows))
    wrong = [not noise.clean[int(row["pair"])] for row in ranked]
    table = Table("picture", "caption beside it", "clean\nprob.", "mismatched")
    for row, truth in islice(zip(ranked, wrong, strict=True), WORST):
        table.add_row(
            f"{row['image_id']}.png", row["caption"], probability(row["clean_prob"]), "yes" if truth else "no"
        )
    console.print(f"The {WORST} pairs that belong together least:")
    console.print(table)
    first = round(moved * len(wrong))
    for line in (
        f"{first:,} pairs are mismatched: {sum(wrong[:WORST])} of the {WORST} above, and "
        f"{100 * sum(wrong[:first]) / first:.0f} % of the worst {first:,} of the list",
        "(the truth is known, as we made it: it is shown here and used nowhere)",
        f"noise rate found: {'not known' if rate is None else f'{100 * rate:.1f} %'}, injected: {100 * moved:.1f} %",
        f"every pair, worst first: {scores}",
        f"pictures: {data / 'pictures' / 'train'}",
        f"search model: {folder / 'model'}   in Python: in2r.load({str(folder / 'model')!r})",
        f"search it: {command_line('in2r', 'index', folder, data, '--out', data.parent / 'index')}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
