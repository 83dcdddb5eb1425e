"""A sample of a run's embeddings, kept beside the run, and what it says of the two modalities."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.device import use_threads
from in2r.errors import InputError
from in2r.files import require_writable, sha256_file
from in2r.models.encode import encode_images, encode_texts, side_by_side
from in2r.results.best import load_best
from in2r.runs.folder import RunFolder
from in2r.seeds import numpy_generator
from in2r.tensors import load_tensors, save_tensors
from in2r.training.setup import Setup
from in2r.training.train import reopen

log = logging.getLogger(__name__)

SAMPLE = 500
"""pairs"""
SAMPLE_SEED = 0
"""not the run's: every run on the same data has the same sample"""
NEIGHBORS = 10
FEWEST = NEIGHBORS + 2
"""pairs below which the neighbourhoods of all items are the same"""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Pairs of a split as the ensemble sees them; both networks' embeddings side by side, over √2."""

    images: Tensor
    """(n, 2 D) float32, unit norm; n different images"""
    texts: Tensor
    """(n, 2 D) float32, unit norm; text i is a caption of image i"""
    about: dict[str, Any]
    """split, its fingerprint, the run's name, data, method, seed, noise, epoch and dev rSum, what was forced"""


def sample_embeddings(
    path: str | Path, split: str = "dev", *, device: str | None = None, force: bool = False
) -> Embeddings:
    """Read RUN/embeddings_<split>.safetensors; make it first where it is missing, damaged or of another best epoch.

    Args:
        path: the run folder; its data are needed where the sample must be made.
        split: dev or test.
        device: another device than the run's setting.
        force: use data or settings that differ from those of the training; the sample says so.

    Raises:
        InputError: no run, no epoch has ended, other data, too few pairs, embeddings that are not finite.
    """
    folder = RunFolder(path).require()
    file = folder.path / f"embeddings_{split}.safetensors"
    best = sha256_file(folder.best_file) if folder.best_file.is_file() else None
    kept = _kept(file)
    if kept is not None:
        tensors, about = kept
        if best in (None, about.pop("best")):  # None: the weights were not taken along with the record
            return Embeddings(tensors["images"], tensors["texts"], about)
    require_writable(folder.path)
    setup = reopen(folder, device=device, force=force)
    with use_threads(setup.config.train.threads):
        tensors, about = _encode(folder, setup, split)
    save_tensors(file, tensors, {**about, "best": best})
    return Embeddings(tensors["images"], tensors["texts"], about)


def _kept(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read the sample that was kept; None where there is none that can be read."""
    if not file.is_file():
        return None
    try:
        return load_tensors(file)
    except InputError as error:
        log.warning("%s; it is made again", error)
        return None


def _encode(folder: RunFolder, setup: Setup, split: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    pairs, best, info = setup.split(split), load_best(folder, setup), folder.info()
    if not all(network.embeds for network in best.backbones.values()):
        raise InputError(f"{folder.path}: model.backbone={setup.config.model.backbone} learns no vector of an item")
    chosen = sample_pairs(pairs.image_of_caption)
    if len(chosen) < FEWEST:
        raise InputError(f"{setup.source.path}: {len(chosen)} images in {split}; at least {FEWEST} are needed")
    captions, images = torch.as_tensor(chosen), pairs.images.select(pairs.image_of_caption[chosen])
    texts = setup.texts(pairs)
    networks = best.backbones.values()
    tensors = {
        "images": side_by_side([encode_images(network, images, setup.device).vector.cpu() for network in networks]),
        "texts": side_by_side(
            [encode_texts(network, texts, setup.device, captions).vector.cpu() for network in networks]
        ),
        "pairs": captions,
    }
    for name in ("images", "texts"):
        if not tensors[name].isfinite().all():
            raise InputError(f"{folder.best_file}: embeddings of {split} {name} that are not finite")
    return tensors, {
        "split": split,
        "fingerprint": setup.source.fingerprint()["splits"][split]["hash"],
        "run": folder.path.resolve().name,
        "data": Path(info["data"]["path"]).name,
        "method": info["method"],
        "seed": info["seed"],
        "noise": info["noise"],
        "epoch": best.epoch,
        "dev_rsum": best.dev["ensemble"]["rsum"],
        "forced": [*info.get("forced", []), *setup.changes],
    }


def sample_pairs(image_of_caption: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (n,) int64, ascending: captions of `SAMPLE` different images, or of all, one caption an image.

    They depend on `image_of_caption` and on a fixed seed only.
    """
    generator = numpy_generator(SAMPLE_SEED, "embedding sample")
    _, first, captions = np.unique(image_of_caption, return_index=True, return_counts=True)
    chosen = np.sort(generator.choice(len(first), min(SAMPLE, len(first)), replace=False))
    return np.asarray(first[chosen] + generator.integers(captions[chosen]), dtype=np.int64)


def describe_embeddings(images: Tensor, texts: Tensor) -> dict[str, float]:
    """Return what a picture of the embeddings cannot prove.

    With v_i the image and u_i the text of pair i, N_v(i) the k = `NEIGHBORS` items j ≠ i with the largest v_i · v_j and
    N_u(i) the k items j ≠ i with the largest u_i · u_j (of equal ones the first):

        same_pair = mean over i of 1 - v_i · u_i
        other_pair = mean over i ≠ j of 1 - v_i · u_j
        overlap = mean over i of |N_v(i) ∩ N_u(i)| / k

    Args:
        images: (n, D) unit norm, n at least `FEWEST`.
        texts: (n, D) unit norm.

    Returns:
        `same_pair` and `other_pair` (cosine distances, 0..2), `overlap` (0..1), and `overlap_by_chance`, the overlap
        k / (n - 1) of neighbourhoods that have nothing to do with each other.
    """
    v, u = images.double(), texts.double()
    count = len(v)
    distances = 1 - v @ u.T
    same = distances.diagonal()
    shared = _nearest(v) & _nearest(u)
    return {
        "same_pair": float(same.mean()),
        "other_pair": float((distances.sum() - same.sum()) / (count * (count - 1))),
        "overlap": float(shared.sum() / (count * NEIGHBORS)),
        "overlap_by_chance": NEIGHBORS / (count - 1),
    }


def _nearest(items: Tensor) -> Tensor:
    """Return (n, n) bool: is j among the nearest of i."""
    similarity = (items @ items.T).fill_diagonal_(-math.inf)
    nearest = similarity.argsort(dim=1, descending=True, stable=True)[:, :NEIGHBORS]
    return torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, nearest, True)
