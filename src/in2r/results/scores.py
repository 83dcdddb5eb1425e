"""`in2r score`: which training pairs belong together, in the judgement of both networks."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in2r.classification import auroc
from in2r.engine.device import use_threads
from in2r.engine.health import Truth, partition_truth
from in2r.engine.run import RunFolder
from in2r.engine.scoring import Judgement, judge_pairs, score_pairs
from in2r.engine.setup import Setup
from in2r.engine.train import reopen
from in2r.files import require_writable, write_csv, write_json
from in2r.methods import build_method
from in2r.metrics import chance_recalls
from in2r.results.best import load_best, require_finished
from in2r.results.protocol import protocol

RATE_LOSS = "triplet-mean"
"""the loss whose fit is closest to the true noise rate (docs/results.md), whichever one the partition is made from"""


def score_run(path: str | Path, *, device: str | None = None, force: bool = False, unfinished: bool = False) -> Path:
    """Score every training pair with the best validation checkpoint: RUN/scores.csv and RUN/scores.json.

    scores.csv has a row per pair, the worst first: by the mean clean probability of both networks, then by
    the mean loss. Nothing in it comes from knowledge of injected noise; scores.json compares with that in a
    block of its own.

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
    data = setup.training_data()
    data = replace(data, pairs=torch.arange(len(data.image_of_pair)))  # an oracle run's left out pairs too
    method = build_method(setup.config.method, len(data.pairs))
    judgements = {}
    # whatever training took: a pair is judged by all that is in it, and by the loss that fits how much noise there is
    config = replace(setup.config.partition, augmented=False, loss="auto")
    with use_threads(setup.config):
        for name, encoder in best.encoders.items():
            losses = score_pairs(encoder, data, method.sample_losses, config, setup.config.train.seed)
            judgements[name] = judge_pairs(losses, data.pairs, len(data.pairs), config)
    file = folder.path / "scores.csv"
    _write_table(file, setup, data.image_of_pair, judgements)
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


def _mean(judgements: dict[str, Judgement]) -> Tensor:
    return torch.stack([judgement.partition.clean_prob for judgement in judgements.values()]).mean(0)


def _worst_first(judgements: dict[str, Judgement]) -> Tensor:
    """Order pairs by clean probability, and where that is equal by the loss behind it."""
    loss = next(iter(judgements.values())).loss
    losses = torch.stack([judgement.losses[loss] for judgement in judgements.values()]).mean(0)
    by_loss = torch.argsort(losses, descending=True, stable=True)
    return by_loss[torch.argsort(_mean(judgements)[by_loss], stable=True)]


def _write_table(file: Path, setup: Setup, image_of_pair: Tensor, judgements: dict[str, Judgement]) -> None:
    train = setup.train
    figures: dict[str, list[float]] = {"clean_prob": _mean(judgements).tolist()}
    for name, judgement in judgements.items():
        figures[f"clean_prob_{name}"] = judgement.partition.clean_prob.tolist()
    for name, judgement in judgements.items():
        for loss, values in judgement.losses.items():
            figures[f"loss_{loss}_{name}"] = values.tolist()
    images = image_of_pair.tolist()
    order = _worst_first(judgements).tolist()
    places = setup.source.caption_places("train", range(len(images)))

    def row(pair: int) -> list[Any]:
        caption = "" if train.captions is None else train.captions[pair]
        shown = [f"{column[pair]:.6g}" for column in figures.values()]
        return [pair, train.image_ids[images[pair]], *shown, places[pair], caption]

    write_csv(file, ["pair", "image_id", *figures, "place", "caption"], map(row, order))


def _summary(judgements: dict[str, Judgement], setup: Setup) -> dict[str, Any]:
    rates = {name: judgement.noise_rates[RATE_LOSS] for name, judgement in judgements.items()}
    return {
        "pairs": len(setup.train.image_of_caption),
        "loss": " and ".join(dict.fromkeys(judgement.loss for judgement in judgements.values())),
        "estimated_noise_rate": {**rates, "mean": sum(rates.values()) / len(rates)},
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
        figures["auroc_clean_prob"] = auroc(_mean(judgements).numpy(), really)
    return {"noise": setup.noise_record(), **figures}


def _numbers_only(figures: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not defined, such as the recall of a class without members: JSON has no NaN."""
    return {name: value for name, value in figures.items() if not math.isnan(value)}
