"""The table of `in2r score`: a row per training pair, the worst first, to be joined to the table it came from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from in2r.errors import InputError
from in2r.files import write_csv
from in2r.results.judged import Verdict
from in2r.training.setup import Setup

FIRST = ("rank", "percentile", "pair", "row", "image_id")
LAST = ("place", "caption")
LEAST = 1e-6
"""Clean probabilities are written from here to 1 minus this: what a fitted mixture says beyond is no knowledge."""


def refuse_taken(keep: Sequence[str]) -> None:
    """Raise `InputError` where a column of the user's table is called like one that scores.csv has itself."""
    for name in keep:
        if name in (*FIRST, *LAST) or name.startswith(("clean_prob", "loss_")):
            raise InputError(f"--keep {name}: scores.csv has a column of that name itself; rename it in the table")


def write_scores(
    file: Path,
    setup: Setup,
    image_of_pair: Tensor,
    judged: Mapping[str, Verdict],
    kept: Mapping[str, Sequence[str]],
    bom: bool,
) -> None:
    """Write scores.csv.

    Args:
        file: where to.
        setup: the run's data.
        image_of_pair: (N,) int64, the image beside each caption.
        judged: what each network says of the training pairs.
        kept: columns of the user's table, a value for each pair.
        bom: start with a byte order mark.
    """
    train, source, images = setup.train, setup.source, image_of_pair.tolist()
    figures = _figures(judged, len(images))
    rows, places = source.caption_rows("train"), source.caption_places("train", range(len(images)))
    captions = [""] * len(images) if train.captions is None else train.captions
    write_csv(
        file,
        [*FIRST, *figures, *LAST, *kept],
        (
            [
                rank, f"{100 * rank / len(images):.6g}", pair, rows[pair], train.image_ids[images[pair]],
                *(column[pair] for column in figures.values()), places[pair], captions[pair],
                *(column[pair] for column in kept.values()),
            ]
            for rank, pair in enumerate(worst_first(judged).tolist(), start=1)
        ),
        bom=bom,
    )  # fmt: skip


def worst_first(judged: Mapping[str, Verdict]) -> Tensor:
    """Return the pairs (N,) by clean probability, and where that is equal or not known by the loss behind it."""
    loss = next(iter(judged.values())).judgement.loss
    losses = torch.stack([verdict.losses[loss] for verdict in judged.values()]).mean(0)
    by_loss = torch.argsort(losses, descending=True, stable=True)
    mean = _mean(judged)
    return by_loss if mean is None else by_loss[torch.argsort(mean[by_loss], stable=True)]


def _mean(judged: Mapping[str, Verdict]) -> Tensor | None:
    """Return the mean clean probability (N,) of the networks that know one, None where neither does."""
    known = [verdict.clean_prob for verdict in judged.values() if verdict.known]
    return torch.stack(known).mean(0) if known else None


def _figures(judged: Mapping[str, Verdict], count: int) -> dict[str, list[str]]:
    """Return the columns of figures as text; a probability that is not known is empty."""
    mean, unknown = _mean(judged), [""] * count
    found = {"clean_prob": unknown if mean is None else _probabilities(mean)}
    for name, verdict in judged.items():
        known = verdict.known
        found[f"clean_prob_{name}"] = _probabilities(verdict.clean_prob) if known else unknown
    for name, verdict in judged.items():
        for loss, values in verdict.losses.items():
            found[f"loss_{loss}_{name}"] = [f"{value:.6f}" for value in values.tolist()]
    return found


def _probabilities(values: Tensor) -> list[str]:
    """Return probabilities with six decimals, neither 0 nor 1: their order stays, rounded ones have the rank's."""
    return [f"{value:.6f}" for value in values.double().clamp(LEAST, 1 - LEAST).tolist()]
