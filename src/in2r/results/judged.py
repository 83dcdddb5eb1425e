"""What the networks of a run say of the pairs of a split."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from in2r.data.pairs import PairSet
from in2r.methods import Division, Net
from in2r.methods.judging import HINGE, Judgement, PairLosses, judge_pairs
from in2r.results.best import Best
from in2r.training.division import observe_pairs
from in2r.training.pairs import TrainingData
from in2r.training.setup import Setup

RATE_LOSS = HINGE
"""the loss whose fit is closest to the true noise rate (docs/results.md)"""
SCE_FROM = 0.6
"""share of noisy pairs by the sce loss from which that loss gives the clean probabilities; IN²R's `sce_from`"""


@dataclass(frozen=True)
class Verdict:
    """What one network says of all pairs of a split."""

    judgement: Judgement
    division: Division

    @property
    def known(self) -> bool:
        """Whether the clean probabilities mean anything beyond their order."""
        return self.judgement.known

    @property
    def losses(self) -> Mapping[str, Tensor]:
        """Per-sample losses (N,) by name."""
        return self.judgement.losses

    @property
    def clean_prob(self) -> Tensor:
        """Clean probabilities (N,) float32."""
        return self.division.columns["clean_prob"]

    @property
    def clean(self) -> Tensor:
        """Which pairs count as clean, (N,) bool."""
        return self.division.sets == 0


def judge_split(setup: Setup, best: Best, split: PairSet, image_of_pair: Tensor) -> dict[str, Verdict]:
    """Return what each network says of all pairs of a split.

    Whatever the run's method observes: any model is asked alike, with all that is in a pair, and by the loss that fits
    how much noise there is.

    Args:
        setup: the run's data.
        best: its networks.
        split: the images and captions.
        image_of_pair: (N,) int64, the image beside each caption.
    """
    partition, losses = replace(setup.config.partition, augmented=False), PairLosses()
    config = replace(setup.config, partition=partition)
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
    verdicts = {}
    for name, backbone in best.backbones.items():
        seen = observe_pairs(
            lambda net, v, u, _: losses(net.logits(v, u), net.backbone.bounded),
            Net(backbone, nn.Module()),
            data,
            config,
        )
        judgement = judge_pairs(seen, "auto", SCE_FROM, partition)
        verdicts[name] = Verdict(judgement, judgement.divide(pairs, len(pairs), partition, name))
    return verdicts


def noise_rates(verdicts: Mapping[str, Verdict]) -> dict[str, float | None]:
    """Return the noise rate that each network estimates, and the mean of those that are known; None = not known."""
    rates = {name: verdict.judgement.noise_rates[RATE_LOSS] for name, verdict in verdicts.items()}
    known = [rate for rate in rates.values() if rate is not None]
    return {**rates, "mean": sum(known) / len(known) if known else None}
