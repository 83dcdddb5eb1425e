"""`in2r score`: which training pairs belong together, in the judgement of both networks."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from in2r.device import use_threads
from in2r.files import require_writable, write_json
from in2r.metrics import auroc, chance_recalls
from in2r.results.best import load_best, require_finished
from in2r.results.judged import Verdict, judge_split, noise_rates
from in2r.results.protocol import protocol
from in2r.results.score_table import refuse_taken, worst_first, write_scores
from in2r.runs.folder import RunFolder
from in2r.training.health import Truth, partition_truth
from in2r.training.setup import Setup
from in2r.training.train import reopen


def score_run(
    path: str | Path,
    *,
    keep: Sequence[str] = (),
    bom: bool = False,
    device: str | None = None,
    force: bool = False,
    unfinished: bool = False,
) -> Path:
    """Score every training pair with the best validation checkpoint: RUN/scores.csv and RUN/scores.json.

    scores.csv has a row per pair, the worst first: by the mean clean probability of both networks, then by
    the mean loss. Where a network's losses do not show a group of mismatched pairs, its clean probabilities and
    its noise rate would be made up: they are left empty. Nothing in it comes from knowledge of injected noise;
    scores.json compares with that in a block of its own.

    Args:
        path: the run folder.
        keep: other columns of the pair table to write into scores.csv.
        bom: start scores.csv with a byte order mark, by which spreadsheets recognise UTF-8.
        device: another device than the run's setting.
        force: use data that differ from those of the training.
        unfinished: take the best epoch so far of a run that has not ended.

    Returns:
        The path of scores.csv.

    Raises:
        InputError: no run, an unfinished one, other data, no such column, or a folder that cannot be written.
    """
    refuse_taken(keep)
    folder = RunFolder(path).require()
    require_writable(folder.path)
    if not unfinished:
        require_finished(folder, folder.config().train.epochs)
    setup = reopen(folder, device=device, force=force)
    kept = setup.source.caption_columns("train", keep)
    best = load_best(folder, setup)
    image_of_pair = setup.training_data().image_of_pair  # an oracle run's left out pairs too
    with use_threads(setup.config.train.threads):
        verdicts = judge_split(setup, best, setup.train, image_of_pair)
    file = folder.path / "scores.csv"
    write_scores(file, setup, image_of_pair, verdicts, kept, bom)
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


def _summary(verdicts: dict[str, Verdict], setup: Setup) -> dict[str, Any]:
    return {
        "pairs": len(setup.train.image_of_caption),
        "loss": " and ".join(dict.fromkeys(verdict.judgement.loss for verdict in verdicts.values())),
        "estimated_noise_rate": noise_rates(verdicts),
        "networks": {name: dict(verdict.division.figures) for name, verdict in verdicts.items()},
    }


def _measure(verdicts: dict[str, Verdict], setup: Setup) -> dict[str, Any] | None:
    """Compare with the injected noise, where there is any."""
    if setup.noise is None:
        return None
    truth = Truth(setup.noise, torch.as_tensor(setup.train.image_of_caption), torch.device("cpu"))
    pairs = torch.arange(len(truth.clean))
    figures: dict[str, Any] = {
        name: _numbers_only(partition_truth(verdict.losses, verdict.clean, verdict.clean_prob, pairs, truth))
        for name, verdict in verdicts.items()
    }
    really = truth.clean.numpy()
    if 0 < really.sum() < len(really):
        place = torch.empty(len(really))
        place[worst_first(verdicts)] = torch.arange(len(really), dtype=place.dtype)
        figures["auroc_order"] = auroc(place.numpy(), really)
    return {"noise": setup.noise_record(), **figures}


def _numbers_only(figures: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not defined, such as the recall of a class without members: JSON has no NaN."""
    return {name: value for name, value in figures.items() if not math.isnan(value)}
