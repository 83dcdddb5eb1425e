"""What two losses say of the pairs: which one divides them, and whether a group of mismatched pairs is believed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from in2r.methods import PartitionConfig, Seen
from in2r.methods.judging import HINGE, SCE, Judgement, judge_pairs
from in2r.partition import fit_two_gaussians

TWO = torch.cat([torch.linspace(0.0, 0.2, 60), torch.linspace(2.0, 2.2, 40)])
"""losses of sixty pairs that match and of forty that do not"""
PAIRS = torch.arange(100)
BOUND = PartitionConfig().maximum_divergence


def judge(seen: Seen, loss: str = SCE, config: PartitionConfig | None = None) -> Judgement:
    return judge_pairs(seen, loss, 0.6, config or PartitionConfig())


def test_each_loss_has_its_own_fit_and_noise_rate() -> None:
    """Of equal losses nothing can be fitted: their noise rate is not known, and they do not gainsay the others."""
    pairs = PAIRS * 2 + 1
    judged = judge(Seen({"sce": TWO, "x": TWO[:1].expand(100)}, {"sce": TWO[60:], "x": TWO}))
    assert (judged.loss, judged.noise_rates) == ("sce", {"sce": pytest.approx(0.4, abs=0.01), "x": None})
    assert judged.known
    made = judged.divide(pairs, 201, PartitionConfig(), "A")
    assert made.judge == "A"
    assert torch.equal(torch.nonzero(made.sets == 0).flatten(), pairs[:60])
    assert made.figures["estimated_noise_rate_sce"] == judged.noise_rates["sce"]
    assert made.figures["estimated_noise_rate_x"] is None
    assert made.figures["single_mode"] == 0
    assert made.figures["mean_clean_prob"] == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("shift", [-1.0, 1.0], ids=["at chance", "clean"])
def test_two_groups_of_which_none_is_mismatched_are_not_split(shift: float) -> None:
    """Where the mismatched pairs lie elsewhere, no figure is drawn from the mixture, and nothing is discarded."""
    seen = Seen({"sce": TWO, "x": TWO}, {"sce": TWO[60:] + shift, "x": TWO[60:] + shift})
    judged = judge(seen)
    made = judged.divide(PAIRS, 100, PartitionConfig(), "A")
    assert not judged.known
    assert not made.split
    assert (made.sets == 0).all()
    assert judged.noise_rates == {"sce": None, "x": None}
    assert made.figures["mean_clean_prob"] is None
    assert "tau" not in made.figures
    assert made.figures["clean_fraction"] == made.figures["single_mode"] == 1
    assert made.figures["separation"] > 2  # type: ignore[operator]
    assert made.figures["divergence"] > BOUND  # type: ignore[operator]
    assert "do not show a group of mismatched pairs" in made.remark
    config = PartitionConfig(single_mode="split")  # as the released code: followed, but no figure is made of it
    followed = judge(seen, config=config)
    made = followed.divide(PAIRS, 100, config, "A")
    assert made.split
    assert made.figures["clean_fraction"] == pytest.approx(0.6)
    assert made.figures["mean_clean_prob"] is None
    assert not followed.known


@pytest.mark.parametrize("sce_first", [True, False])
def test_a_loss_is_believed_where_another_one_shows_mismatched_pairs(sce_first: bool) -> None:
    """The sce loss spreads clean pairs, so that its own noisy component is never where mismatched pairs lie."""
    names = ("sce", "x") if sce_first else ("x", "sce")
    seen = Seen(dict.fromkeys(names, TWO), {"sce": TWO[60:] + 1, "x": TWO[60:]})
    judged = judge(seen)
    made = judged.divide(PAIRS, 100, PartitionConfig(), "A")
    assert judged.known
    assert made.split
    assert made.mixture["loss"] == "sce"
    assert judged.noise_rates == {"sce": None, "x": pytest.approx(0.4, abs=0.01)}
    assert made.figures["divergence"] < 0.1  # type: ignore[operator]


def test_what_is_believed_follows_the_settings() -> None:
    seen = Seen({"sce": TWO}, {"sce": TWO[60:] + 1})
    divergence = judge(seen).belief.divergence
    assert judge(seen, config=PartitionConfig(maximum_divergence=divergence)).known
    assert not judge(seen, config=PartitionConfig(maximum_divergence=0.999 * divergence)).known
    near = Seen({"sce": TWO}, {"sce": TWO[60:]})
    assert not judge(near, config=PartitionConfig(minimum_separation=1000)).known
    wide = judge(near, config=PartitionConfig(reg_covar=0.05))
    assert wide.fits["sce"].variances.min() > 0.05
    assert wide.belief.divergence < 0.05  # added to both variances


def test_one_group_by_the_loss_that_divides_is_not_known_whatever_another_one_says() -> None:
    one_group = torch.as_tensor(np.random.default_rng(0).standard_normal(400), dtype=torch.float32)
    config = PartitionConfig(minimum_separation=2.5)
    judged = judge(Seen({"sce": one_group, "x": TWO.repeat(4)}, {"sce": one_group, "x": TWO[60:]}), config=config)
    assert judged.belief.believed
    assert judged.fits["sce"].single_mode
    assert not judged.known
    assert not judged.divide(torch.arange(400), 400, config, "A").split


@pytest.mark.parametrize(("share", "chosen"), [(0.39, SCE), (0.41, HINGE)])
def test_auto_takes_the_sce_loss_where_that_calls_so_many_pairs_noisy(share: float, chosen: str) -> None:
    """It calls 40 of 100 noisy, the hinge 10."""
    hinge = torch.cat([torch.linspace(0.0, 0.2, 90), torch.linspace(2.0, 2.2, 10)])
    seen = Seen({SCE: TWO, HINGE: hinge}, {SCE: TWO[60:], HINGE: hinge[90:]})
    assert judge_pairs(seen, "auto", share, PartitionConfig()).loss == chosen


# --- on measured losses

MEASURED = np.load(Path(__file__).parents[1] / "arrays" / "believable.npz")
"""Losses of one network, 2,500 to 4,500 pairs: 500 and 900 clean scene images, 500 of which 30 % are duplicates, an
untrained model, 500 scene images with noise; 500 photographs. From runs of one to ten epochs, dim 64 or 256."""


def measured(case: str) -> Seen:
    def part(kind: str) -> dict[str, Tensor]:
        return {name: torch.as_tensor(MEASURED[f"{case}_{kind}_{name}"]).float() for name in (HINGE, SCE)}

    return Seen(part("given"), part("mismatched"))


@pytest.mark.parametrize("case", ["clean_500", "clean_900", "duplicates", "at_chance", "photographs_clean"])
@pytest.mark.parametrize("loss", ["sce", "triplet-mean", "auto"])
def test_no_noise_is_found_where_there_is_none(case: str, loss: str) -> None:
    seen = measured(case)
    count = len(seen["sce"])
    judged = judge(seen, loss)
    made = judged.divide(torch.arange(count), count, PartitionConfig(), "A")
    assert judged.noise_rates == {"sce": None, "triplet-mean": None}
    assert not judged.known
    assert (made.sets == 0).all()
    alone = fit_two_gaussians(seen["triplet-mean"].numpy())
    assert alone.separation > 2  # by which it would be taken for noise
    assert alone.noise_rate > 0.05  # type: ignore[operator]
    assert made.figures["divergence"] > 1.4 * 0.33  # type: ignore[operator]


@pytest.mark.parametrize(
    ("case", "rate"),
    [
        ("noise_20", (0.2, 0.3)),
        ("noise_40", (0.33, 0.45)),
        ("noise_60", (0.4, 0.65)),
        ("photographs_10", (0.1, 0.2)),
        ("photographs_40", (0.35, 0.5)),
    ],
)
def test_injected_noise_is_found(case: str, rate: tuple[float, float]) -> None:
    seen = measured(case)
    count = len(seen["sce"])
    judged = judge(seen, "triplet-mean")
    made = judged.divide(torch.arange(count), count, PartitionConfig(), "A")
    assert judged.known
    assert made.split
    assert rate[0] < judged.noise_rates["triplet-mean"] < rate[1]  # type: ignore[operator]
    assert made.figures["divergence"] < 0.33 / 1.4  # type: ignore[operator]
