"""What both networks of a run say of the pairs of a split."""

from dataclasses import replace

import torch
from torch import Tensor

from in2r.data.pairs import PairSet
from in2r.engine.scoring import Judgement, judge_pairs, score_pairs
from in2r.engine.setup import Setup
from in2r.engine.training_data import TrainingData
from in2r.methods import build_method
from in2r.results.best import Best

RATE_LOSS = "triplet-mean"
"""the loss whose fit is closest to the true noise rate (docs/results.md), whichever one the partition is made from"""


def judge_split(setup: Setup, best: Best, split: PairSet, image_of_pair: Tensor) -> dict[str, Judgement]:
    """Return what each network says of all pairs of a split.

    Whatever training took: a pair is judged by all that is in it, and by the loss that fits how much noise there is.

    Args:
        setup: the run's data.
        best: its networks.
        split: the images and captions.
        image_of_pair: (N,) int64, the image beside each caption.
    """
    config = replace(setup.config.partition, augmented=False, loss="auto")
    pairs = torch.arange(len(image_of_pair))
    data = TrainingData(
        images=split.images,
        texts=setup.texts(split),
        image_of_pair=image_of_pair,
        pairs=pairs,
        device=setup.device,
        region_drop=0.0,
        word_drop=0.0,
        vocabulary_size=0,
        mask_id=0,
    )
    losses = build_method(setup.config.method, len(pairs)).sample_losses
    judged = {}
    for name, encoder in best.encoders.items():
        scored = score_pairs(encoder, data, losses, config, setup.config.train.seed)
        judged[name] = judge_pairs(scored, pairs, len(pairs), config)
    return judged


def noise_rates(judged: dict[str, Judgement]) -> dict[str, float | None]:
    """Return the noise rate that each network estimates, and the mean of those that are known; None = not known."""
    rates = {name: judgement.noise_rates[RATE_LOSS] for name, judgement in judged.items()}
    known = [rate for rate in rates.values() if rate is not None]
    return {**rates, "mean": sum(known) / len(known) if known else None}
