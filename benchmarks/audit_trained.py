"""Measure what trained runs add to an audit of photographs whose mismatches are known.

    python benchmarks/audit_trained.py flickr8k_precomp --folder FOLDER

FOLDER keeps the mismatched data and the runs; the command may be ended and given again. Training pairs are mismatched,
dev and test stay as they are; all are audited, without runs and with two half runs of each method.
`python benchmarks/report.py` writes the figures into docs/audit.md.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from audit import SENTENCES, figures
from in2r.audit.pairs import read_pairs
from in2r.audit.result import audit_pairs
from in2r.audit.settings import AuditConfig
from in2r.audit.trained import train_halves, trained_scorer
from in2r.data.noise import make_index
from in2r.files import read_json, write_json
from in2r.runs.settings import load_config
from in2r.training.train import Silent

RESULTS = Path(__file__).parent / "results" / "audit_trained.json"
NOISE = ("caption:0.2", "caption:0.6", "image:0.6")
RUNS = {
    "no run": None,
    "in2r": ["model.dim=512", "train.epochs=10", "method.warmup_epochs=4"],
    "corroborate": ["model.dim=512"],
}
"""preset → settings; the epochs are those of docs/results.md and docs/results-recipe.md"""
PER_IMAGE = 5


def mismatched(source: Path, out: Path, level: str, ratio: float) -> NDArray[np.bool_]:
    """Make the folder where it is not there; return which pairs of train are right."""
    captions = (source / "train_caps.txt").read_text(encoding="utf-8").splitlines()
    own = np.arange(len(captions)) // PER_IMAGE
    given = make_index(own, ratio, level, seed=0)
    order = np.argsort(given, kind="stable")
    if not out.is_dir():
        out.mkdir(parents=True)
        for split in ("dev", "test"):
            for name in (f"{split}_ims.npy", f"{split}_caps.txt", f"{split}_{SENTENCES}.npy"):
                shutil.copyfile(source / name, out / name)
        shutil.copyfile(source / "train_ims.npy", out / "train_ims.npy")
        np.save(out / f"train_{SENTENCES}.npy", np.load(source / f"train_{SENTENCES}.npy")[order])
        text = "".join(f"{captions[caption]}\n" for caption in order.tolist())
        (out / "train_caps.txt").write_text(text, encoding="utf-8")
    return np.asarray((given == own)[order])


def measure(data: Path, out: Path, right: NDArray[np.bool_], preset: str, settings: list[str] | None) -> dict[str, Any]:
    """Audit the folder, with half runs of the preset unless `settings` is None."""
    config = AuditConfig()
    pairs = read_pairs(data, text_dim=config.text_dim, caption_vectors=SENTENCES, for_runs=True)
    scorer = None
    if settings is not None:
        where = {"path": str(data), "caption_vectors": SENTENCES, "skip_missing": True}
        run = load_config(preset, [*settings, "train.threads=1"], data=where)
        scorer = trained_scorer(train_halves(out, pairs, config, run, Silent()), pairs, config)
    audit = audit_pairs(pairs, config, scorer)
    every = np.concatenate([right, np.ones(len(pairs.judged) - len(right), dtype=bool)])
    found = audit.judgement
    kinds = {name: found.evidence[:, column].numpy() for column, name in enumerate(audit.base.names)}
    auroc = {name: float(roc_auc_score(every, values)) for name, values in kinds.items() if np.isfinite(values).all()}
    return {**figures(found, every), "auroc": {"all together": float(roc_auc_score(every, found.log_odds)), **auroc}}


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder in the precomp layout, five captions per image")
    parser.add_argument("--folder", type=Path, required=True, help="where mismatched data and runs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    done: dict[str, Any] = read_json(asked.out) if asked.out.is_file() else {}
    for noise in NOISE:
        level, ratio = noise.split(":")
        place = asked.folder / noise.replace(":", "-")
        right = mismatched(asked.data, place / "data", level, float(ratio))
        for preset, settings in RUNS.items():
            if preset not in done.setdefault(noise, {}):
                done[noise][preset] = measure(place / "data", place / preset, right, preset, settings)
                print(noise, preset, done[noise][preset]["auroc"], flush=True)
                write_json(asked.out, done)


if __name__ == "__main__":
    main()
