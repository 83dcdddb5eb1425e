"""Measure a kept audit: new pairs of test images, judged by an audit of the training and dev pairs.

    python benchmarks/audit_feed.py flickr8k_precomp --human expert.tsv

The old pairs have 20 % wrong captions. New pairs: all test pairs, of which some captions are exchanged; the last of the
five captions of each old image, where the old pairs are the other four; and the pairs that people rated.
`python benchmarks/report.py` writes the results into docs/audit.md.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from in2r import Auditor
from in2r.audit.pairs import AuditPairs, read_pairs
from in2r.audit.settings import AuditConfig
from in2r.data.noise import make_index
from in2r.files import write_json
from in2r.metrics import calibration_error

RESULTS = Path(__file__).parent / "results" / "audit_feed.json"
OLD_NOISE = 0.2
"""share of wrong captions among the old pairs"""
NOISES = (0.05, 0.2, 0.4, 0.6)
"""shares of wrong captions among the new pairs"""
RIGHT, WRONG = 3.0, 2.0
"""mean ratings from which on, and up to which, a caption is clearly right or wrong"""


class Photographs:
    """Pairs of images and captions of a folder, chosen anew."""

    def __init__(self, data: Path) -> None:
        pairs: AuditPairs = read_pairs(data, text_dim=AuditConfig().text_dim, caption_vectors="caps_minilm")
        self.images, self.texts = pairs.vectors.images.numpy(), pairs.vectors.texts.numpy()
        self.own, self.captions = pairs.vectors.image_of_pair.numpy(), list(pairs.captions)
        self.ids = list(dict.fromkeys(pairs.images))
        self.test = np.array(pairs.columns["split"]) == "test"

    def given(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> dict[str, Any]:
        """Return the arguments by which an auditor takes these images, each with the caption of that pair."""
        kept, owner = np.unique(images, return_inverse=True)
        words = [self.captions[text] for text in texts]
        return {"images": self.images[kept], "captions": words, "image_of_caption": owner,
                "caption_vectors": self.texts[texts]}  # fmt: skip


def exchanged(data: Photographs, which: NDArray[np.bool_], ratio: float) -> tuple[Any, NDArray[np.bool_]]:
    """Return pairs of which some captions are exchanged, and which are right."""
    texts = np.flatnonzero(which)
    own = data.own[texts]
    index = make_index(own - own.min(), ratio, "caption", seed=0) + own.min()
    return data.given(index, texts), index == own


def scores_of(auditor: Auditor) -> dict[str, NDArray[np.float64]]:
    """Return all evidence together and each kind that is known; where it is not, it counts as the least."""
    found = auditor.audit_.judgement
    kinds = {name: found.evidence[:, column] for column, name in enumerate(auditor.audit_.base.names)}
    known = {name: kind.nan_to_num(-1e3).numpy() for name, kind in kinds.items() if not kind.isnan().all()}
    return {"all together": found.log_odds.numpy(), **known}


def figures(auditor: Auditor, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Compare with the truth."""
    aurocs = {name: float(roc_auc_score(right, values)) for name, values in scores_of(auditor).items()}
    return {"noise": float((~right).mean()), "estimated": auditor.noise_rate_,
            "interval": auditor.audit_.summary()["noise_rate_interval"], "auroc": aurocs,
            "calibration_error": calibration_error(auditor.scores_, right)}  # fmt: skip


def rated(auditor: Auditor, data: Photographs, path: Path) -> dict[str, Any]:
    """Judge the rated pairs: rank correlation, AUROC of 3 or more against the rest, and against 2 or less."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    place = {name: number for number, name in enumerate(data.ids)}
    named = [row["caption_id"].split("#") for row in rows]
    texts = np.array([5 * place[name] + int(number) for name, number in named])
    images, rating = np.array([place[row["image"]] for row in rows]), np.array([float(r["mean_score"]) for r in rows])
    found, clear = {}, (rating >= RIGHT) | (rating <= WRONG)
    for name, values in scores_of(auditor.judge(**data.given(images, texts))).items():
        right = float(roc_auc_score(rating >= RIGHT, values))
        clearly = float(roc_auc_score(rating[clear] >= RIGHT, values[clear]))
        found[name] = {"rank": float(spearmanr(values, rating)[0]), "auroc": right, "clear_auroc": clearly}
    return found


def main() -> None:
    """Measure all, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder in the precomp layout, five captions per image")
    parser.add_argument("--human", type=Path, help="table of ratings: image, caption_id, mean_score")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = Photographs(asked.data)
    done: dict[str, Any] = {}
    auditor = Auditor().fit(**exchanged(data, ~data.test, OLD_NOISE)[0])
    for noise in NOISES:
        pairs, right = exchanged(data, data.test, noise)
        alone = Auditor().fit(**pairs)
        found = {"against": figures(auditor.judge(**pairs), right), "in one table": figures(alone, right)}
        done[f"{100 * noise:.0f} %"] = found
        print(noise, json.dumps(found, indent=1), flush=True)
    last = np.arange(len(data.own)) % 5 == 4
    before = Auditor().fit(**exchanged(data, ~data.test & ~last, OLD_NOISE)[0])
    pairs, right = exchanged(data, ~data.test & last, OLD_NOISE)
    done["old images"] = {"against": figures(before.judge(**pairs), right)}
    print(json.dumps(done["old images"], indent=1), flush=True)
    if asked.human is not None:
        done["human"] = rated(auditor, data, asked.human)
        print(json.dumps(done["human"], indent=1))
    write_json(asked.out, done)


if __name__ == "__main__":
    main()
