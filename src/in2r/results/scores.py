"""`in2r score`: which training pairs belong together, in the judgement of both networks."""

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from in2r.device import use_threads
from in2r.files import atomic_path, require_writable, write_json
from in2r.methods import Division, Net
from in2r.methods.judging import HINGE, Judgement, PairLosses, judge_pairs
from in2r.metrics import auroc, chance_recalls
from in2r.results.best import load_best, require_finished
from in2r.results.protocol import protocol
from in2r.runs.folder import RunFolder
from in2r.training.division import observe_pairs
from in2r.training.health import Truth, partition_truth
from in2r.training.setup import Setup
from in2r.training.train import reopen

RATE_LOSS = HINGE
"""the loss whose fit is closest to the true noise rate (docs/results.md)"""
SCE_FROM = 0.6
"""share of noisy pairs by the sce loss from which that loss gives the clean probabilities; IN²R's `sce_from`"""


@dataclass(frozen=True)
class Verdict:
    """What one network says of all pairs."""

    judgement: Judgement
    division: Division

    @property
    def clean_prob(self) -> Tensor:
        """Return (N,) float32."""
        return self.division.columns["clean_prob"]


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
    # whatever the run's method observes: any model is asked alike, with all that is in a pair
    partition = replace(setup.config.partition, augmented=False)
    config, losses = replace(setup.config, partition=partition), PairLosses()
    verdicts = {}
    with use_threads(setup.config.train.threads):
        for name, backbone in best.backbones.items():
            net = Net(backbone, nn.Module())
            seen = observe_pairs(lambda net, v, u, _: losses(net.score(v, u)), net, data, config)
            judgement = judge_pairs(seen, "auto", SCE_FROM, partition)
            verdicts[name] = Verdict(judgement, judgement.divide(data.pairs, len(data.pairs), partition, name))
    file = folder.path / "scores.csv"
    _write_table(file, setup, data.image_of_pair, verdicts)
    summary = {
        **_summary(verdicts, setup),
        "dev_rsum": best.dev["ensemble"]["rsum"],
        "dev_rsum_by_chance": _chance(setup),
        "measurement_only": _measure(verdicts, setup),
        "protocol": protocol(folder, setup, best),
    }
    write_json(folder.path / "scores.json", summary)
    return file


def _chance(setup: Setup) -> float:
    """Return the rSum that a random order would have on dev: a model near it cannot judge pairs."""
    dev = setup.split("dev")
    return chance_recalls(dev.image_of_caption, len(dev.images))["rsum"]


def _mean(verdicts: dict[str, Verdict]) -> Tensor:
    return torch.stack([verdict.clean_prob for verdict in verdicts.values()]).mean(0)


def _worst_first(verdicts: dict[str, Verdict]) -> Tensor:
    """Order pairs by clean probability, and where that is equal by the loss behind it."""
    loss = next(iter(verdicts.values())).judgement.loss
    losses = torch.stack([verdict.judgement.losses[loss] for verdict in verdicts.values()]).mean(0)
    by_loss = torch.argsort(losses, descending=True, stable=True)
    return by_loss[torch.argsort(_mean(verdicts)[by_loss], stable=True)]


def _write_table(file: Path, setup: Setup, image_of_pair: Tensor, verdicts: dict[str, Verdict]) -> None:
    train = setup.train
    figures: dict[str, list[float]] = {"clean_prob": _mean(verdicts).tolist()}
    for name, verdict in verdicts.items():
        figures[f"clean_prob_{name}"] = verdict.clean_prob.tolist()
    for name, verdict in verdicts.items():
        for loss, values in verdict.judgement.losses.items():
            figures[f"loss_{loss}_{name}"] = values.tolist()
    images = image_of_pair.tolist()
    order = _worst_first(verdicts).tolist()
    places = setup.source.caption_places("train", range(len(images)))
    with atomic_path(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["pair", "image_id", *figures, "place", "caption"])
        for pair in order:
            caption = "" if train.captions is None else train.captions[pair]
            shown = [f"{column[pair]:.6g}" for column in figures.values()]
            writer.writerow([pair, train.image_ids[images[pair]], *shown, places[pair], caption])


def _summary(verdicts: dict[str, Verdict], setup: Setup) -> dict[str, Any]:
    rates = {name: verdict.judgement.noise_rates[RATE_LOSS] for name, verdict in verdicts.items()}
    return {
        "pairs": len(setup.train.image_of_caption),
        "loss": " and ".join(dict.fromkeys(verdict.judgement.loss for verdict in verdicts.values())),
        "estimated_noise_rate": {**rates, "mean": sum(rates.values()) / len(rates)},
        "networks": {name: dict(verdict.division.figures) for name, verdict in verdicts.items()},
    }


def _measure(verdicts: dict[str, Verdict], setup: Setup) -> dict[str, Any] | None:
    """Compare with the injected noise, where there is any."""
    if setup.noise is None:
        return None
    truth = Truth(setup.noise, torch.as_tensor(setup.train.image_of_caption), torch.device("cpu"))
    pairs = torch.arange(len(truth.clean))
    figures: dict[str, Any] = {
        name: _numbers_only(partition_truth(verdict.judgement.losses, verdict.division.sets == 0, pairs, truth))
        for name, verdict in verdicts.items()
    }
    really = truth.clean.numpy()
    if 0 < really.sum() < len(really):
        figures["auroc_clean_prob"] = auroc(_mean(verdicts).numpy(), really)
    return {"noise": setup.noise_record(), **figures}


def _numbers_only(figures: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not defined, such as the recall of a class without members: JSON has no NaN."""
    return {name: value for name, value in figures.items() if not math.isnan(value)}
