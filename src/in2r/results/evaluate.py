"""`in2r eval`: the recalls of a run's selected model, with all that decides what they mean."""

import logging
from pathlib import Path
from typing import Any

import torch

from in2r.data.pairs import PairSet
from in2r.engine.device import use_threads
from in2r.engine.evaluation import evaluate_split
from in2r.engine.networks import NAMES
from in2r.engine.run import RunFolder
from in2r.engine.train import reopen
from in2r.errors import InputError
from in2r.files import require_writable, write_json
from in2r.metrics import SAME_SIMILARITY, TILE_CAPTIONS, TILE_IMAGES, chance_recalls
from in2r.results.best import load_best, require_finished
from in2r.results.judged import judge_split, noise_rates
from in2r.results.protocol import protocol

log = logging.getLogger(__name__)

LARGE = 2**30
"""bytes of embeddings from which an evaluation says what it needs"""
TIE_RULE = f"a wrong item that ties with the right one (within {SAME_SIMILARITY:g}) counts as before it"


def evaluate_run(
    path: str | Path,
    split: str = "test",
    folds: int = 1,
    *,
    device: str | None = None,
    force: bool = False,
    unfinished: bool = False,
) -> dict[str, Any]:
    """Evaluate the best validation checkpoint of a run and write RUN/result_<split>[_<folds>fold].json.

    Args:
        path: the run folder.
        split: test or dev.
        folds: 1 = all at once (COCO 5K); 5 = the mean over five contiguous folds (COCO 1K).
        device: another device than the run's setting.
        force: go on although the data are not those that the run was trained with; the result says so.
        unfinished: take the best epoch so far of a run that has not ended; the result says so.

    Returns:
        `rows` (A, B, ensemble → recalls), `chance` (of a random order), `health` of the embeddings, `wrong_pairs` (the
        share of the split's pairs that look mismatched, 0..1, by A, B, mean; None = not known), `protocol`.

    Raises:
        InputError: no run, an unfinished one, other data, a split that cannot be used, or a folder that cannot be
            written.
    """
    folder = RunFolder(path).require()
    require_writable(folder.path)
    if not unfinished:
        require_finished(folder, folder.config().train.epochs)
    setup = reopen(folder, device=device, force=force)
    best = load_best(folder, setup)
    pairs = setup.split(split)
    if not 1 <= folds <= len(pairs.images) // 2:
        raise InputError(f"{pairs.name}: folds={folds} of {len(pairs.images)} images; a fold needs two images or more")
    _say_memory(pairs, setup.config.model.dim)
    with use_threads(setup.config):
        rows, health = evaluate_split(best.encoders, pairs, setup.texts(pairs), setup.device, folds)
        judged = judge_split(setup, best, pairs, torch.as_tensor(pairs.image_of_caption))
    described = protocol(folder, setup, best)
    described["evaluated"] = {
        "split": pairs.name,
        "images": len(pairs.images),
        "captions": len(pairs.image_of_caption),
        "folds": folds,
        "tie_rule": TIE_RULE,
    }
    size = len(pairs.images) // folds
    chance = chance_recalls(pairs.image_of_caption[pairs.image_of_caption < size], size)  # of the first fold
    wrong = noise_rates(judged)
    if None in wrong.values():  # of a small split one network alone may find noise where there is none
        wrong["mean"] = None
    result = {"rows": rows, "chance": chance, "health": health, "wrong_pairs": wrong, "protocol": described}
    write_json(result_file(folder, pairs.name, folds), result)
    return result


def _say_memory(pairs: PairSet, dim: int) -> None:
    """Log what a large split will need: both networks' embeddings; never all similarities at once."""
    items, all_pairs = len(pairs.images) + len(pairs.image_of_caption), len(pairs.images) * len(pairs.image_of_caption)
    embeddings, block = 2 * len(NAMES) * items * dim * 4, 8 * TILE_IMAGES * TILE_CAPTIONS  # and the ensemble's
    if embeddings > LARGE:
        log.info(
            "%s: %.1f GiB of embeddings; ranks are counted in blocks of %d MiB (all similarities at once: %.1f GiB)",
            pairs.name, embeddings / 2**30, block >> 20, 4 * all_pairs / 2**30,
        )  # fmt: skip


def result_file(folder: RunFolder, split: str, folds: int) -> Path:
    """Return where the result of a split lies."""
    return folder.path / f"result_{split}{'' if folds == 1 else f'_{folds}fold'}.json"
