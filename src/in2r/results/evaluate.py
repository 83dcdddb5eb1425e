"""`in2r eval`: the recalls of a run's selected model, with all that decides what they mean."""

import logging
from pathlib import Path
from typing import Any

import torch

from in2r.data.coco_matches import Matches, matches_folder, read_matches
from in2r.data.duplicates import find_copies
from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import PackedTokens
from in2r.device import use_threads
from in2r.errors import InputError
from in2r.files import require_writable, write_json
from in2r.metrics import SAME_SIMILARITY, TILE_CAPTIONS, TILE_IMAGES, Copies, chance_recalls, count_copies, split_copies
from in2r.results.best import Best, load_best, require_finished
from in2r.results.judged import judge_split, noise_rates
from in2r.results.matches import evaluate_matches
from in2r.results.protocol import protocol
from in2r.runs.folder import RunFolder
from in2r.training.evaluation import evaluate_split
from in2r.training.networks import NAMES
from in2r.training.setup import Setup
from in2r.training.train import reopen

log = logging.getLogger(__name__)

LARGE = 2**30
"""bytes of embeddings from which an evaluation says what it needs"""
TIE_RULE = f"a wrong item that ties with the right one (within {SAME_SIMILARITY:g}) counts as before it"
DUPLICATES = ("auto", "right", "wrong")
"""what an identical copy of the right item counts as; wrong is the literature's way, auto decides by MANY"""
MANY = 0.05
"""share of images or captions with copies above which auto counts them as right: more than the field's data sets have,
whose published figures were counted the other way, and enough to move a recall by as many points"""


def evaluate_run(
    path: str | Path,
    split: str = "test",
    folds: int = 1,
    *,
    duplicates: str = "auto",
    eccv: bool = False,
    device: str | None = None,
    force: bool = False,
    unfinished: bool = False,
) -> dict[str, Any]:
    """Evaluate the best validation checkpoint of a run and write RUN/result_<split>[_<folds>fold].json.

    Args:
        path: the run folder.
        split: test or dev.
        folds: 1 = all at once (COCO 5K); 5 = the mean over five contiguous folds (COCO 1K).
        duplicates: what an identical copy of the right item counts as: right, or wrong as in the literature and as in
            validation while training; auto = right where more than 5 % of the images or of the captions have copies.
        eccv: also count the right pairs of MS-COCO's test split that its captions leave out (ECCV Caption, CxC).
        device: another device than the run's setting.
        force: use data that differ from those of the training; the result says so.
        unfinished: take the best epoch so far of a run that has not ended; the result says so.

    Returns:
        `rows` (A, B, ensemble → recalls), `chance` (of a random order), `health` of the embeddings, `wrong_pairs` (the
        share of the split's pairs that look mismatched, 0..1, by A, B, mean; None = not known), `protocol`; with `eccv`
        also `matches` (`evaluate_matches`).

    Raises:
        InputError: no run, an unfinished one, other data, a split that cannot be used, or a folder that cannot be
            written.
    """
    require_writable(RunFolder(path).require().path)
    folder, setup, best = open_best(path, device, force, unfinished)
    pairs = setup.split(split)
    require_folds(pairs, folds)
    matches = _matches(setup, pairs, folds) if eccv else None
    _say_memory(pairs, setup.config.model.dim)
    with use_threads(setup.config.train.threads):
        texts = setup.texts(pairs)
        copies, counted = choose_copies(pairs, texts, duplicates)
        rows, health = evaluate_split(best.backbones, pairs, texts, setup.device, folds, copies)
        matched = None if matches is None else evaluate_matches(best.backbones, pairs, texts, setup.device, matches)
        judged = judge_split(setup, best, pairs, torch.as_tensor(pairs.image_of_caption))
    described = protocol(folder, setup, best)
    described["evaluated"] = describe_split(pairs, folds, counted)
    wrong = noise_rates(judged)
    if None in wrong.values():  # of a small split one network alone may find noise where there is none
        wrong["mean"] = None
    result = {
        "rows": rows,
        "chance": chance_of(pairs, folds, copies),
        "health": health,
        "wrong_pairs": wrong,
        "protocol": described,
    }
    if matched is not None:
        result["matches"] = matched
    write_json(result_file(folder, pairs.name, folds), result)
    return result


def open_best(path: str | Path, device: str | None, force: bool, unfinished: bool) -> tuple[RunFolder, Setup, Best]:
    """Return a run, its data opened again, and its selected networks; arguments as of `evaluate_run`."""
    folder = RunFolder(path).require()
    if not unfinished:
        require_finished(folder, folder.config().train.epochs)
    setup = reopen(folder, device=device, force=force)
    return folder, setup, load_best(folder, setup)


def require_folds(pairs: PairSet, folds: int) -> None:
    """Refuse folds of fewer than two images."""
    if not 1 <= folds <= len(pairs.images) // 2:
        raise InputError(f"{pairs.name}: folds={folds} of {len(pairs.images)} images; a fold needs two images or more")


def describe_split(pairs: PairSet, folds: int, duplicates: dict[str, Any]) -> dict[str, Any]:
    """Return what a protocol says of the split: its size, and how ranks were counted."""
    return {
        "split": pairs.name,
        "images": len(pairs.images),
        "captions": len(pairs.image_of_caption),
        "folds": folds,
        "tie_rule": TIE_RULE,
        "duplicates": duplicates,
    }


def chance_of(pairs: PairSet, folds: int, copies: Copies | None) -> dict[str, float]:
    """Return the recalls of a random order, in the first fold."""
    size = len(pairs.images) // folds
    first = pairs.image_of_caption[pairs.image_of_caption < size]
    return chance_recalls(first, size, split_copies(copies, pairs.image_of_caption, folds)[0])


def _matches(setup: Setup, pairs: PairSet, folds: int) -> dict[str, Matches]:
    """Read the right pairs that COCO's captions leave out."""
    if pairs.name != "test" or folds != 1:
        raise InputError("ECCV Caption and CxC are of all test images at once: split test, without folds")
    return read_matches(matches_folder(), setup.source.path, pairs.image_of_caption, len(pairs.images))


def choose_copies(
    pairs: PairSet, texts: Features | PackedTokens, duplicates: str
) -> tuple[Copies | None, dict[str, Any]]:
    """Return the copies that count as right, and how many there are.

    Where there are none, both ways of counting are the same; the result then names the one of the literature.
    """
    if duplicates not in DUPLICATES:
        raise InputError(f"`duplicates` must be one of {', '.join(DUPLICATES)}, got {duplicates!r}")
    captions = texts if isinstance(texts, Features) else pairs.captions
    assert captions is not None  # else the model would read vectors
    copies = find_copies(pairs.images, captions)
    counts = count_copies(pairs.image_of_caption, len(pairs.images), copies)
    share = max(counts["images"] / len(pairs.images), counts["captions"] / len(pairs.image_of_caption))
    counted = duplicates
    if duplicates == "auto" or not share:
        counted = "right" if share > MANY else "wrong"
    return copies if counted == "right" else None, {"counted_as": counted, **counts}


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
