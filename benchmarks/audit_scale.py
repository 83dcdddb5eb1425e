"""Measure CPU time by stage and peak memory of an audit of many made pairs.

    python benchmarks/audit_scale.py 50000 200000 1000000 --folder /tmp/scale

Each size is made as a pair table with vectors (float16, 512 and 384 numbers, one caption an image, 20 % of the captions
exchanged), audited in a process of its own as `in2r audit` does it, and removed. Figures go to
benchmarks/results/audit_scale.json; `python benchmarks/report.py` writes them into docs/audit.md.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from in2r.audit.folder import write_audit
from in2r.audit.page import write_page
from in2r.audit.pairs import read_pairs
from in2r.audit.result import audit_pairs
from in2r.audit.settings import AuditConfig
from in2r.files import read_json, write_csv, write_json

RESULTS = Path(__file__).parent / "results" / "audit_scale.json"
IMAGE_DIM, TEXT_DIM = 512, 384
"""of CLIP's images and of small sentence models"""
TOPICS, SHARED, WORDS = 2_000, 64, 8
"""topics; directions that both sides share; words of a caption"""
NOISE = 0.2
ROWS = 10_000
"""made at a time"""


def make(folder: Path, pairs: int, seed: int = 0) -> None:
    """Make a pair table of planted topics, and truth.npy: which captions are at home."""
    folder.mkdir(parents=True)
    draws = np.random.default_rng(seed)
    topics = draws.standard_normal((TOPICS, SHARED), dtype=np.float32)
    ways = {"images": draws.standard_normal((SHARED, IMAGE_DIM), dtype=np.float32)}
    ways["captions"] = draws.standard_normal((SHARED, TEXT_DIM), dtype=np.float32)
    files = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float16, (pairs, way.shape[1]))
        for name, way in ways.items()
    }
    topic = draws.integers(TOPICS, size=pairs)
    image = np.arange(pairs)
    moved = draws.permutation(pairs)[: int(NOISE * pairs)]
    image[moved] = np.roll(moved, 1)
    for start in range(0, pairs, ROWS):
        some = slice(start, start + ROWS)
        own = topics[topic[some]] + draws.standard_normal((len(topic[some]), SHARED), dtype=np.float32)
        for name, way in ways.items():
            noise = draws.standard_normal((len(own), SHARED), dtype=np.float32)
            files[name][some] = (own + 0.5 * noise) @ way + draws.standard_normal((len(own), way.shape[1]), np.float32)
    words = draws.integers(50, size=(pairs, WORDS))
    texts = (" ".join(f"w{topic[row]}x{word}" for word in words[row].tolist()) for row in range(pairs))
    rows = ((f"{name}.jpg", text, f"shop{name % 7}") for name, text in zip(image.tolist(), texts, strict=True))
    write_csv(folder / "pairs.csv", ("image", "caption", "shop"), rows)
    (folder / "image_ids.txt").write_text("".join(f"{name}.jpg\n" for name in range(pairs)))
    np.save(folder / "truth.npy", image == np.arange(pairs))


class Clock:
    """CPU seconds of each stage, and the largest memory up to its end."""

    def __init__(self) -> None:
        self._stage, self._start = "", 0.0
        self.seconds: dict[str, float] = {}
        self.peak: dict[str, float] = {}

    def start(self, stage: str) -> None:
        """End the stage before, and start one."""
        now = time.process_time()
        if self._stage:
            self.seconds[self._stage] = round(now - self._start, 1)
            self.peak[self._stage] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
        self._stage, self._start = stage, now


def measure(folder: Path) -> dict[str, Any]:
    """Audit a folder, stage by stage as `in2r audit` does it."""
    clock, started = Clock(), time.time()
    clock.start("reading")
    config = AuditConfig()
    pairs = read_pairs(folder, text_dim=config.text_dim)
    audit = audit_pairs(pairs, config, on_step=clock.start)
    clock.start("files")
    write_audit(folder / "audit", audit)
    clock.start("page")
    write_page(folder / "audit" / "report.html", audit)
    clock.start("")
    figures = audit.summary()
    return {
        "seconds": clock.seconds,
        "peak_gib": clock.peak,
        "wall": round(time.time() - started),
        "threads": torch.get_num_threads(),
        "noise_rate": figures["noise_rate"],
        "auroc": float(roc_auc_score(np.load(folder / "truth.npy"), audit.verdicts.score)),
    }


def main() -> None:
    """Measure each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", type=int)
    parser.add_argument("--folder", type=Path, required=True, help="where data may lie: 2.5 GB for a million pairs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.folder)))
        return
    for pairs in asked.pairs:
        data = asked.folder / str(pairs)
        make(data, pairs)
        try:
            command = [sys.executable, __file__, "--measure", "--folder", str(data)]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        finally:
            shutil.rmtree(data)
        done = read_json(asked.out) if asked.out.is_file() else {}
        done[str(pairs)] = json.loads(said)
        print(pairs, json.dumps(done[str(pairs)]), flush=True)
        write_json(asked.out, done)


if __name__ == "__main__":
    main()
