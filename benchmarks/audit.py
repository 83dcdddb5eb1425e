"""Measure the audit on photographs whose mismatches are known, and on pairs that people rated.

    python benchmarks/audit.py flickr8k_precomp --text-model all-MiniLM-L6-v2 --human expert.tsv

measures all of `PLAN` with three seeds; finished settings are kept in the results file and not measured again, so the
command may be ended and given again. `python benchmarks/report.py` writes them into docs/audit.md. Levels: caption =
captions permuted alone; image = images permuted with all their captions; near = whole caption sets exchanged between
images that look alike; word = one word of a caption exchanged for another of its kind (benchmarks/words.py).
"""

import argparse
import csv
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
from words import exchange_words

from in2r.audit.evidence import EvidenceBase, Vectors, given_pairs
from in2r.audit.judge import Judgement, judge
from in2r.audit.pairs import AuditPairs, fit_words, read_pairs
from in2r.audit.settings import AuditConfig
from in2r.audit.verdicts import look_alikes_that_fit
from in2r.data.noise import make_index
from in2r.encoders.transformers_models import load
from in2r.evidence.vectors import centred
from in2r.files import read_json, write_json

Encode = Callable[[Sequence[str], NDArray[np.bool_]], torch.Tensor]
"""captions, and which of them are as they were → (pairs, dim) vectors"""

RESULTS = Path(__file__).parent / "results" / "audit.json"
SENTENCES, WORDS = "caps_minilm", "words"
"""suffix of the files of sentence vectors; TF-IDF"""
PLAN = {
    SENTENCES: [
        *(f"{level}:{ratio}" for level in ("caption", "image") for ratio in (0.05, 0.2, 0.4, 0.6)),
        *(f"{level}:{ratio}" for level in ("near", "word") for ratio in (0.2, 0.4)),
    ],
    WORDS: [
        *(f"{level}:{ratio}" for level in ("caption", "image") for ratio in (0.2, 0.6)),
        *(f"word:{ratio}" for ratio in (0.2, 0.4)),
    ],
}
"""what the captions are read by → levels and shares of noise"""
AT_A_TIME = 64
"""captions that the sentence model is given together"""
SAME_MODEL = 0.99
"""cosine of a caption's vectors, of which one is stored in half precision"""
RIGHT = 3.0
"""mean rating from which a caption counts as right"""


def asked_for() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder in the precomp layout, five captions per image")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--only", default="", metavar="TEXT", help="settings with this in their name, such as word:")
    parser.add_argument("--text-model", type=Path, help="folder of the model that made the caption vectors")
    parser.add_argument("--human", type=Path, help="table of ratings: image, caption_id, mean_score")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def exchange_near(images: torch.Tensor, ratio: float, seed: int) -> NDArray[np.int64]:
    """Return the image of each image's captions after images that look alike have exchanged theirs."""
    x, moved = centred(images), np.arange(len(images))
    free = torch.ones(len(x), dtype=torch.bool)
    for image in np.random.default_rng(seed).permutation(len(x)).tolist():
        if int((~free).sum()) >= ratio * len(x):
            break
        if free[image]:
            alike = (x @ x[image]).masked_fill(~free, -torch.inf)
            alike[image] = -torch.inf
            other = int(alike.argmax())
            free[image] = free[other] = False
            moved[image], moved[other] = other, image
    return moved


def mismatch(
    pairs: AuditPairs, level: str, ratio: float, seed: int, encode: Encode
) -> tuple[Vectors, NDArray[np.bool_]]:
    """Return the data with mismatched pairs, and which pairs are right."""
    vectors = pairs.vectors
    own = vectors.image_of_pair.numpy()
    if level == "word":
        captions, right = exchange_words(pairs.captions, ratio, seed)
        return replace(vectors, texts=encode(captions, right)), right
    given = (
        exchange_near(vectors.images, ratio, seed)[own] if level == "near" else make_index(own, ratio, level, seed=seed)
    )
    return replace(vectors, image_of_pair=torch.from_numpy(given)), given == own


def encoder(pairs: AuditPairs, kind: str, model: Path | None) -> Encode:
    """Return what makes the vectors of changed captions: TF-IDF anew, or the sentence model for those that changed."""

    def by_words(captions: Sequence[str], right: NDArray[np.bool_]) -> torch.Tensor:
        return fit_words(captions, AuditConfig().text_dim).vectors(captions)

    def by_sentences(captions: Sequence[str], right: NDArray[np.bool_]) -> torch.Tensor:
        sentences, texts = load(str(model), torch.device("cpu")), pairs.vectors.texts.clone()
        check = sentences.encode_texts(pairs.captions[:AT_A_TIME])
        if torch.cosine_similarity(check, texts[:AT_A_TIME]).min() < SAME_MODEL:
            raise SystemExit(f"{model}: not the model that made the caption vectors")
        for some in np.array_split(np.flatnonzero(~right), max(1, (~right).sum() // AT_A_TIME)):
            texts[some] = sentences.encode_texts([captions[pair] for pair in some.tolist()])
        return texts

    if kind == SENTENCES and model is None:
        raise SystemExit("name the folder of the sentence model: --text-model, or leave the words out: --only")
    return by_words if kind == WORDS else by_sentences


def measure(data: Vectors, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Audit, and compare with the truth."""
    start = time.process_time()
    base = EvidenceBase(data, AuditConfig())
    found = judge(base)
    seconds = time.process_time() - start
    kinds = {name: found.evidence[:, column] for column, name in enumerate(base.names)}
    seen, maps = base.look(given_pairs(data)), base.fit(torch.ones(len(right)))
    kinds |= {"linear maps, one pass": base.similarity(maps, seen.asked), "LEMoN": base.lemon(seen, maps)}
    kinds["look-alikes"] = -look_alikes_that_fit(base, found.maps)
    return {**figures(found, right), "auroc": aurocs(found, kinds, right), "cpu_seconds": round(seconds, 1)}


def aurocs(found: Judgement, kinds: dict[str, torch.Tensor], right: NDArray[np.bool_]) -> dict[str, float]:
    """Return the AUROC of all evidence together and of each kind; unknown evidence counts as the least."""
    scores = {"all together": found.log_odds, **kinds}
    if right.all():
        return {}
    return {name: float(roc_auc_score(right, s.nan_to_num(-1e3).numpy())) for name, s in scores.items()}


def figures(found: Judgement, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Return noise rate, calibration and what the worst pairs are."""
    score, order, wrong = found.score.numpy(), found.log_odds.numpy().argsort(), ~right
    bins = np.minimum((score * 10).astype(int), 9)
    off = sum(abs(right[bins == b].mean() - score[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins))
    worst = {f"worst {p} %": float(wrong[order[: max(1, len(order) * p // 100)]].mean()) for p in (1, 5, 10)}
    part = {
        "noise": float(wrong.mean()),
        "estimated": 1 - found.share,
        "interval": [1 - s for s in found.interval[::-1]],
    }
    flagged = score < AuditConfig().cut
    cut = {"precision": float(wrong[flagged].mean()) if flagged.any() else None}
    if right.all():
        return {**part, "calibration_error": float(off), "flagged": float(flagged.mean())}
    precision, recall, _ = precision_recall_curve(wrong, -found.log_odds.numpy())
    best = float(np.max(2 * precision * recall / np.maximum(precision + recall, 1e-9)))
    recalled = float(flagged[wrong].mean())
    return {
        **part, **worst, **cut, "recall": recalled, "best_f1": best, "calibration_error": float(off),
        "auprc": float(average_precision_score(wrong, -found.log_odds.numpy())), "moved_alone": found.moved_alone,
    }  # fmt: skip


def rated(data: Vectors, ids: list[str], path: Path, train: int) -> dict[str, Any]:
    """Append the rated pairs of the test images to the training pairs with 20 % wrong captions, and audit all."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    place = {name: number for number, name in enumerate(ids)}
    images = torch.tensor([place[row["image"]] for row in rows])
    captions = [row["caption_id"].split("#") for row in rows]
    texts = torch.tensor([5 * place[name] + int(number) for name, number in captions])
    ratings = np.array([float(row["mean_score"]) for row in rows])
    old = torch.arange(train)
    owner = torch.from_numpy(make_index(data.image_of_pair[old].numpy(), 0.2, "caption", seed=0))
    both = Vectors(
        data.images, torch.cat([data.texts[old], data.texts[texts]]), torch.cat([owner, images]), data.group_of_image
    )
    base = EvidenceBase(both, AuditConfig())
    found = judge(base)
    scores = {"all together": found.log_odds, **{n: found.evidence[:, c] for c, n in enumerate(base.names)}}
    result = {}
    for name, values in scores.items():
        own = values[train:].nan_to_num(-1e3).numpy()
        result[name] = {"rank": float(spearmanr(own, ratings)[0]), "auroc": float(roc_auc_score(ratings >= RIGHT, own))}
    return {"pairs": len(rows), **result}


def main() -> None:
    """Measure what is not measured yet."""
    asked = asked_for()
    torch.set_num_threads(1)
    done: dict[str, Any] = read_json(asked.out) if asked.out.is_file() else {}
    for kind, settings in PLAN.items():
        pairs = read_pairs(asked.data, text_dim=AuditConfig().text_dim, caption_vectors=None if kind == WORDS else kind)
        for noise, seed in itertools.product(settings, asked.seeds):
            key = f"{kind} {noise} seed {seed}"
            if key in done or asked.only not in key:
                continue
            level, ratio = noise.split(":")
            done[key] = measure(*mismatch(pairs, level, float(ratio), seed, encoder(pairs, kind, asked.text_model)))
            print(key, json.dumps(done[key]), flush=True)
            write_json(asked.out, done)
        key = f"{kind} human"
        if asked.human is not None and kind == SENTENCES and key not in done:
            ids = list(dict.fromkeys(pairs.images))
            train = sum(part == "train" for part in pairs.columns["split"])
            done[key] = rated(pairs.vectors, ids, asked.human, train)
            print(key, json.dumps(done[key]), flush=True)
            write_json(asked.out, done)


if __name__ == "__main__":
    main()
