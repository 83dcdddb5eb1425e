"""`in2r score`: which training pairs belong together, in the judgement of both networks."""

import csv
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in2r.classification import auroc
from in2r.engine.device import use_threads
from in2r.engine.health import Truth, partition_truth
from in2r.engine.run import RunFolder
from in2r.engine.scoring import Judgement
from in2r.engine.setup import Setup
from in2r.engine.train import reopen
from in2r.files import atomic_path, require_writable, write_json
from in2r.metrics import chance_recalls
from in2r.results.best import load_best, require_finished
from in2r.results.judged import judge_split, noise_rates
from in2r.results.protocol import protocol


def score_run(path: str | Path, *, device: str | None = None, force: bool = False, unfinished: bool = False) -> Path:
    """Score every training pair with the best validation checkpoint: RUN/scores.csv and RUN/scores.json.

    scores.csv has a row per pair, the worst first: by the mean clean probability of both networks, then by
    the mean loss. Where a network's losses do not show a group of mismatched pairs, its clean probabilities and
    its noise rate would be made up: they are left empty. Nothing in it comes from knowledge of injected noise;
    scores.json compares with that in a block of its own.

    Args:
        path: the run folder.
        device: another device than the run's setting.
        force: go on although the data are not those that the run was trained with.
        unfinished: take the best epoch so far of a run that has not ended.

    Returns:
        The path of scores.csv.

    Raises:
        InputError: no run, an unfinished one, other data, or a folder that cannot be written.
    """
    folder = RunFolder(path).require()
    require_writable(folder.path)
    if not unfinished:
        require_finished(folder, folder.config().train.epochs)
    setup = reopen(folder, device=device, force=force)
    best = load_best(folder, setup)
    image_of_pair = setup.training_data().image_of_pair  # an oracle run's left out pairs too
    with use_threads(setup.config):
        judgements = judge_split(setup, best, setup.train, image_of_pair)
    file = folder.path / "scores.csv"
    _write_table(file, setup, image_of_pair, judgements)
    summary = {
        **_summary(judgements, setup),
        "dev_rsum": best.dev["ensemble"]["rsum"],
        "dev_rsum_by_chance": _chance(setup),
        "measurement_only": _measure(judgements, setup),
        "protocol": protocol(folder, setup, best),
    }
    write_json(folder.path / "scores.json", summary)
    return file


def _chance(setup: Setup) -> float:
    """Return the rSum that a random order would have on dev: a model near it cannot judge pairs."""
    dev = setup.split("dev")
    return chance_recalls(dev.image_of_caption, len(dev.images))["rsum"]


def _mean(judgements: dict[str, Judgement]) -> Tensor | None:
    """Return the mean clean probability (N,) of the networks that know one, None where neither does."""
    known = [judgement.partition.clean_prob for judgement in judgements.values() if judgement.known]
    return torch.stack(known).mean(0) if known else None


def _worst_first(judgements: dict[str, Judgement]) -> Tensor:
    """Order pairs by clean probability, and where that is equal or not known by the loss behind it."""
    loss = next(iter(judgements.values())).loss
    losses = torch.stack([judgement.losses[loss] for judgement in judgements.values()]).mean(0)
    by_loss = torch.argsort(losses, descending=True, stable=True)
    mean = _mean(judgements)
    return by_loss if mean is None else by_loss[torch.argsort(mean[by_loss], stable=True)]


def _write_table(file: Path, setup: Setup, image_of_pair: Tensor, judgements: dict[str, Judgement]) -> None:
    train = setup.train
    mean, unknown = _mean(judgements), [None] * len(image_of_pair)
    figures: dict[str, list[float] | list[None]] = {"clean_prob": unknown if mean is None else mean.tolist()}
    for name, judgement in judgements.items():
        figures[f"clean_prob_{name}"] = judgement.partition.clean_prob.tolist() if judgement.known else unknown
    for name, judgement in judgements.items():
        for loss, values in judgement.losses.items():
            figures[f"loss_{loss}_{name}"] = values.tolist()
    images = image_of_pair.tolist()
    order = _worst_first(judgements).tolist()
    places = setup.source.caption_places("train", range(len(images)))
    with atomic_path(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["pair", "image_id", *figures, "place", "caption"])
        for pair in order:
            caption = "" if train.captions is None else train.captions[pair]
            shown = ["" if (value := column[pair]) is None else f"{value:.6g}" for column in figures.values()]
            writer.writerow([pair, train.image_ids[images[pair]], *shown, places[pair], caption])


def _summary(judgements: dict[str, Judgement], setup: Setup) -> dict[str, Any]:
    return {
        "pairs": len(setup.train.image_of_caption),
        "loss": " and ".join(dict.fromkeys(judgement.loss for judgement in judgements.values())),
        "estimated_noise_rate": noise_rates(judgements),
        "networks": {name: judgement.figures() for name, judgement in judgements.items()},
    }


def _measure(judgements: dict[str, Judgement], setup: Setup) -> dict[str, Any] | None:
    """Compare with the injected noise, where there is any."""
    if setup.noise is None:
        return None
    truth = Truth(setup.noise, torch.as_tensor(setup.train.image_of_caption), torch.device("cpu"))
    pairs = torch.arange(len(truth.clean))
    figures: dict[str, Any] = {
        name: _numbers_only(partition_truth(judgement.losses, judgement.partition.clean, pairs, truth))
        for name, judgement in judgements.items()
    }
    really = truth.clean.numpy()
    if 0 < really.sum() < len(really):
        place = torch.empty(len(really))
        place[_worst_first(judgements)] = torch.arange(len(really), dtype=place.dtype)
        figures["auroc_order"] = auroc(place.numpy(), really)
    return {"noise": setup.noise_record(), **figures}


def _numbers_only(figures: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not defined, such as the recall of a class without members: JSON has no NaN."""
    return {name: value for name, value in figures.items() if not math.isnan(value)}
