"""Measure the methods on real photographs with injected mismatches: `make results DATA=folder`.

Runs what is missing, two runs at a time with one thread each, in order of priority; goes on after a stop. A finished
run leaves one small JSON record, from which the tables are made. The records are committed, the run folders are not.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

RECORDS = Path(__file__).parent / "results" / "flickr8k"

METHODS = {
    "hardest": ["triplet"],
    "triplet": ["triplet", "method.negatives=mean"],
    "plain": ["triplet", "method.warmup=sce"],
    "sce": ["sce"],
    "discard": ["discard"],
    "in2r": ["paper"],
    "oracle": ["discard", "noise.oracle=true"],
}
"""row → preset and overrides"""

BENCHES = {
    "vectors": ["data.caption_vectors=caps_minilm", "model.dim=512", "train.epochs=10"],
    "words": ["model.dim=128", "train.epochs=10"],
}
"""bench → overrides; words: the paper's Bi-GRU, with a small D so that a run takes minutes"""

WARMUP = 4
SAME = ["train.threads=1", "checkpoint.keep=1"]


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    bench: str
    ratio: int
    seed: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.bench}_{self.ratio:02d}_s{self.seed}_{self.method}"

    @property
    def record(self) -> Path:
        return RECORDS / f"{self.name}.json"


def grid() -> list[Cell]:
    """All cells, the most wanted first."""
    order = [("vectors", 60, 0), ("vectors", 80, 0)]
    order += [("vectors", ratio, seed) for seed in (1, 2) for ratio in (60, 80)]
    order += [("words", 60, 0), ("vectors", 40, 0), ("vectors", 20, 0), ("vectors", 0, 0)]
    # IN²R's warm-up serves the later ones; the oracle, at its side meanwhile, has one of its own
    methods = ["in2r", "oracle", "discard", "plain", "sce"]
    cells = [Cell(bench, ratio, seed, method) for bench, ratio, seed in order for method in methods]
    # without IN²R's warm-up, one seed: the field's own recipe collapses under noise, and is sound without it
    cells += [Cell("vectors", ratio, 0, method) for method in ("hardest", "triplet") for ratio in (0, 60, 80)]
    # without noise the oracle is the discarding row's clean training
    return [cell for cell in cells if not (cell.ratio == 0 and cell.method == "oracle")]


def in2r(*arguments: str, log: Path) -> None:
    """Run the command line, its output into a file."""
    command = [sys.executable, "-m", "in2r.cli.main", *arguments]
    with log.open("a") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}, see {log}")


def noise_file(data: Path, work: Path, ratio: int, seed: int) -> Path:
    path = work / f"caption_{ratio:02d}_s{seed}.npy"
    if not path.is_file():
        level = ["--level", "caption", "--ratio", str(ratio / 100), "--seed", str(seed)]
        in2r("noise", "make", str(data), *level, "--out", str(path), log=work / "noise.log")
    return path


def measure(cell: Cell, data: Path, work: Path) -> None:
    """Train (or resume) and test one cell, then write its record."""
    folder, log = work / cell.name, work / f"{cell.name}.log"
    begun = time.monotonic()
    if (folder / "config.yaml").is_file():
        in2r("resume", str(folder), log=log)
    else:
        settings = [*METHODS[cell.method], f"data.path={data}", *BENCHES[cell.bench], *SAME]
        settings += [f"train.seed={cell.seed}", f"checkpoint.warmups={work / 'warmups'}"]
        if cell.method in ("in2r", "discard", "oracle", "plain"):
            settings.append(f"method.warmup_epochs={WARMUP}")
        if cell.ratio:
            index = noise_file(data, work, cell.ratio, cell.seed)
            settings += [f"noise.index={index}", "noise.level=caption", f"noise.ratio={cell.ratio / 100}"]
        in2r("train", *settings, "--out", str(folder), log=log)
    in2r("eval", str(folder), log=log)
    result = json.loads((folder / "result_test.json").read_text())
    epochs = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    record = {
        "cell": cell.__dict__,
        "minutes": round((time.monotonic() - begun) / 60, 2),
        "result": result,
        "epochs": epochs,
    }
    RECORDS.mkdir(parents=True, exist_ok=True)
    # the place of the data is this machine's affair
    text = json.dumps(record, indent=1).replace(f"{data}/", "").replace(str(data), data.name)
    cell.record.write_text(text.replace(f"{work}/", "").replace(str(work), work.name) + "\n")
    shutil.rmtree(folder / "checkpoints")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="precomp folder with caption vectors")
    parser.add_argument("--work", type=Path, default=Path("runs/results"), help="where the run folders lie")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time, one thread each")
    parser.add_argument("--only", default="", help="measure only the cells whose name contains this")
    args = parser.parse_args()
    work, data = args.work.absolute(), args.data.absolute()
    work.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in grid() if args.only in cell.name and not cell.record.is_file()]
    for cell in missing:
        if cell.ratio:
            noise_file(data, work, cell.ratio, cell.seed)
    print(f"{len(missing)} of {len(grid())} cells are missing")

    def one(cell: Cell) -> bool:
        try:
            measure(cell, data, work)
        except RuntimeError as error:
            print(f"{cell.name}: {error}", flush=True)
            return False
        print(f"{cell.name}: done", flush=True)
        return True

    with ThreadPoolExecutor(args.at_once) as pool:
        done = list(pool.map(one, missing))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
