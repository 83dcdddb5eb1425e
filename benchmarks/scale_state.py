"""Count what each method keeps for every training pair: bytes, by tensor.

    python benchmarks/scale_state.py --folder /tmp/scale

Each method trains two epochs, one of them of the common warm-up, on 1,000 and on 2,000 made pairs of scale.py. The
tensors of its last checkpoint, and the columns that it computes at the start and no checkpoint holds, grow by so many
bytes a pair. Memories have a fixed size. Beside it: what a run of IN²R at D = 512 on vectors of 512 numbers, batches of
1,024 pairs and a float16 memory of 10^6 entries needs on 8 processes, as `in2r train --plan` says it. Figures go to
benchmarks/results/scale_state.json; `python benchmarks/report.py` writes them into docs/scaling.md.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
from scale import make

from in2r.files import write_json
from in2r.methods.registry import METHODS
from in2r.runs.checkpoints import load_newest
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.training.loop import Trainer
from in2r.training.setup import open_setup
from in2r.training.train import Silent, plan_run, start_run

RESULTS = Path(__file__).parent / "results" / "scale_state.json"
PAIRS = (1000, 2000)
SETTINGS = ("model.dim=16", "train.epochs=2", "method.common_warmup=1", "train.threads=1", "train.device=cpu")


def kept(folder: Path, pairs: int, method: str) -> dict[str, int]:
    """Train on so many pairs; return the bytes of each tensor."""
    data, run = folder / str(pairs), folder / f"{method}-{pairs}"
    own = ("method.memory_size=100",) if method == "in2r" else ()
    config = load_config(method, [f"data.path={data}", "partition.single_mode=split", *SETTINGS, *own])
    start_run(run, config)
    found = load_newest(RunFolder(run).checkpoints)
    assert found is not None
    sizes = {name: tensor.nbytes for name, tensor in found[1].items()}
    columns = Trainer(RunFolder(run), open_setup(config, torch.device("cpu")), Silent()).learner.columns
    return sizes | {f"column.{name}": values.nbytes for name, values in columns.items()}


def per_pair(small: dict[str, int], large: dict[str, int]) -> dict[str, float]:
    """Return by how many bytes a pair each tensor has grown; a moment of a weight that was never used is no growth."""
    more = {name: (large[name] - small[name]) / (PAIRS[1] - PAIRS[0]) for name in large.keys() & small.keys()}
    return {name: value for name, value in sorted(more.items()) if value}


def plan(folder: Path) -> dict[str, Any]:
    """Return what a run on 8 processes needs beside what grows with the pairs."""
    data = folder / "wide"
    make(data, 2000, dim=512)
    wide = ("model.dim=512", "train.batch_size=1024", "method.memory_size=1000000", "method.memory_precision=float16")
    config = load_config("in2r", [f"data.path={data}", "train.device=cpu", *wide])
    found = plan_run(config, folder, processes=8).record()
    return {name: found[name] for name in ("memory_bytes", "step_bytes", "sent_bytes", "disk_bytes", "networks")}


def main() -> None:
    """Count for all methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", default=sorted(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    try:
        for pairs in PAIRS:
            make(asked.folder / str(pairs), pairs)
        needs = plan(asked.folder)
        for method in asked.methods:
            found[method] = per_pair(*(kept(asked.folder, pairs, method) for pairs in PAIRS))
            print(method, found[method], flush=True)
    finally:
        shutil.rmtree(asked.folder)
    write_json(asked.out, {"bytes_per_pair": found, "plan": needs})


if __name__ == "__main__":
    main()
