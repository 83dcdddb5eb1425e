"""SPS by hand: the loss and its consistencies, three sets, labels and proxies, and the steps made of them."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from given import Given, Pairs, S, batch
from in2r.losses import triplet_loss
from in2r.methods import Batch, Net, Now, PartitionConfig, Seen
from in2r.methods.judging import HINGE
from in2r.methods.sps import (
    INFO,
    Sps,
    SpsConfig,
    cosines,
    cross_consistency,
    info_nce,
    intra_consistency,
    mean_vectors,
    own_probability,
)
from in2r.models.base import Items
from in2r.runs.settings import load_config
from in2r.testing import CHECKS, Case

T = 0.07
SAME_IMAGE = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)
IN_BATCH = ("ignores_the_order_in_a_batch", "never_waits_for_the_device", "takes_any_division")
"""the common tests that look into the steps of one iteration"""
EARLY, CLEAN_TOO, ALL = (Now(epoch=epoch, epochs=40, seed=0, name="A") for epoch in (9, 10, 15))


def net(similarity: Tensor = S) -> Net:
    return Net(Given(similarity), nn.Module()).train()


def method(**settings: object) -> Sps:
    return Sps(replace(SpsConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


def images_at(*angles: float) -> Tensor:
    """Return unit vectors of 4 dimensions (n, 1, 4), in the plane of the first two."""
    radians = [math.radians(angle) for angle in angles]
    return torch.tensor([[[math.cos(r), math.sin(r), 0.0, 0.0]] for r in radians])


def step_losses(sps: Sps, one: Net, batches: dict[str, Batch], now: Now) -> list[dict[str, float]]:
    steps = sps.steps(one, one, batches, now)
    return [{name: float(loss.detach()) for name, loss in step.losses.items()} for step in steps]


def observed(losses: Tensor, mismatched: Tensor | None = None) -> Seen:
    """Return losses (n,) as both observed ones; of mismatched pairs the hinge is given, or 1."""
    hinge = torch.ones(8) if mismatched is None else mismatched
    return Seen({INFO: losses, HINGE: losses}, {INFO: torch.full((8,), 5.0), HINGE: hinge})


# --- formulas


def test_the_loss_by_hand() -> None:
    """Of S = [[t, 0], [0, 0]]: row and column of pair 0 have the softmax e / (e + 1), those of pair 1 one half."""
    similarity = torch.tensor([[T, 0.0], [0.0, 0.0]])
    wanted = [-2 * math.log(math.e / (math.e + 1)), -2 * math.log(0.5)]
    torch.testing.assert_close(info_nce(similarity, T), torch.tensor(wanted))
    q = own_probability(similarity, T)
    torch.testing.assert_close(q, torch.tensor([math.e / (math.e + 1), 0.5]))


@pytest.mark.parametrize("ignore", [None, SAME_IMAGE], ids=["all", "ignored"])
def test_the_loss_and_the_networks_own_probability_equal_a_plain_loop(ignore: Tensor | None) -> None:
    found, q = info_nce(S, T, ignore), own_probability(S, T, ignore)
    for i in range(4):
        row, column = _probabilities(S, i, ignore)
        assert float(found[i]) == pytest.approx(-math.log(row) - math.log(column), rel=1e-5)
        assert float(q[i]) == pytest.approx((row + column) / 2, rel=1e-5)


def test_both_consistencies_by_hand() -> None:
    assert float(cross_consistency(torch.tensor([[0.9, 0.2], [0.5, 0.7]]))) == pytest.approx(2 * 0.3**2 / 4)
    images, texts = images_at(0, 60)[:, 0], images_at(0, 90)[:, 0] * 3  # lengths do not count
    assert float(intra_consistency(images, texts)) == pytest.approx(2 * 0.5**2 / 4, abs=1e-6)
    assert float(intra_consistency(images, images)) == pytest.approx(0, abs=1e-12)


def test_a_cosine_with_nothing_is_zero() -> None:
    assert cosines(torch.zeros(1, 2), torch.ones(1, 2)).tolist() == [[0]]


def test_a_mean_vector_is_that_of_the_real_parts() -> None:
    parts = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    vector = torch.tensor([[1.0, 0.0]])
    assert mean_vectors(Items(vector, parts, mask)).tolist() == [[0.5, 0.5]]
    torch.testing.assert_close(mean_vectors(Items(vector, parts)), torch.tensor([[10 / 3, 10 / 3]]))
    assert mean_vectors(Items(vector)).tolist() == [[1, 0]]


# --- division


def test_the_warm_up_is_the_mean_of_the_loss() -> None:
    epochs, loss = method().warmup()
    assert epochs == 5
    step = loss.step(net(), batch())
    assert float(step.losses["total"].detach()) == pytest.approx(float(info_nce(S, T).mean()), rel=1e-5)


def test_the_observed_loss_is_that_of_the_warm_up() -> None:
    one = net()
    seen = method().observe(one, *one.encode(batch())[0], torch.arange(4))
    torch.testing.assert_close(seen[INFO].detach(), info_nce(S, T))
    torch.testing.assert_close(seen[HINGE].detach(), triplet_loss(S, 0.2, negatives="mean", reduction="none"))


def test_each_network_gets_its_peers_three_sets() -> None:
    """The nine losses between both groups of A have posteriors on either side of both bounds."""
    losses = torch.cat([torch.linspace(0.0, 0.2, 30), torch.linspace(0.3, 0.7, 9), torch.linspace(0.8, 1.0, 30)])
    low = torch.linspace(0.9, 1.0, len(losses))
    low[:40] = torch.linspace(0.0, 0.1, 40)
    seen = {"A": observed(losses), "B": observed(low)}
    sps = Sps(SpsConfig(), PartitionConfig(threshold=0.2, single_mode="split"))
    found = sps.divide(seen, {"A": net(), "B": net()}, Pairs(len(losses)), EARLY)  # type: ignore[arg-type]
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    p = found["B"].columns["clean_prob"]  # by A
    assert found["B"].sets.tolist() == [0 if each > 0.6 else 1 if each > 0.2 else 2 for each in p.tolist()]
    assert {0, 1, 2} == set(found["B"].sets.tolist())
    assert found["B"].figures["strict_fraction"] == pytest.approx(float((p > 0.6).float().mean()))
    assert found["A"].sets.tolist() == [0] * 40 + [2] * 29


def test_where_nothing_is_strictly_clean_the_clean_pairs_are() -> None:
    losses = torch.cat([torch.linspace(0.0, 0.2, 30), torch.linspace(0.8, 1.0, 30)])
    seen = dict.fromkeys("AB", observed(losses))
    sps = Sps(SpsConfig(strict_threshold=1.0), PartitionConfig(single_mode="split"))
    found = sps.divide(seen, {"A": net(), "B": net()}, Pairs(60), EARLY)  # type: ignore[arg-type]
    assert found["A"].sets.tolist() == [0] * 30 + [2] * 30


def test_the_hinge_says_whether_there_are_mismatched_pairs() -> None:
    """A noisy group is believed where pairs that are mismatched on purpose have hinges like it."""
    losses = torch.cat([torch.linspace(0.0, 0.2, 30), torch.linspace(0.8, 1.0, 30)])
    for mismatched, split in ((losses[30:], True), (torch.full((8,), 5.0), False)):
        seen = dict.fromkeys("AB", observed(losses, mismatched))
        found = method().divide(seen, {"A": net(), "B": net()}, Pairs(60), EARLY)["A"]  # type: ignore[arg-type]
        assert found.split is split
        assert found.sets.tolist() == [0] * 30 + [2 if split else 0] * 30


def test_where_there_is_one_group_all_pairs_are_in_the_first_set() -> None:
    seen = dict.fromkeys("AB", observed(torch.full((8,), 0.5)))
    found = method().divide(seen, {"A": net(), "B": net()}, Pairs(8), EARLY)["A"]  # type: ignore[arg-type]
    assert not found.split
    assert found.sets.tolist() == [0] * 8


# --- steps


def test_the_strict_step_adds_both_consistencies() -> None:
    """The vectors of this batch are one-hot on both sides, so that only the images are moved here."""
    turned = replace(batch(), images=torch.cat([images_at(0, 60), batch().images[2:]]))
    one = net()
    similarity = turned.images[:, 0] @ S
    (found,) = step_losses(method(), one, {"strict": turned}, ALL)
    assert found["strict"] == pytest.approx(float(info_nce(similarity, T).mean()), rel=1e-5)
    assert found["cross"] == pytest.approx(float((similarity - similarity.T).square().mean()), rel=1e-5)
    assert found["intra"] == pytest.approx(2 * 0.5**2 / 16, rel=1e-5)  # cos 60° against 0, twice of 16
    assert found["total"] == pytest.approx(found["strict"] + 25 * found["cross"] + 25 * found["intra"], rel=1e-5)
    (other,) = step_losses(method(cross_weight=1.0, intra_weight=2.0), one, {"strict": turned}, ALL)
    assert other["total"] == pytest.approx(found["strict"] + found["cross"] + 2 * found["intra"], rel=1e-5)


def test_clean_and_noisy_pairs_come_in_later() -> None:
    batches = {"strict": batch(), "clean": batch(clean_prob=[0.55] * 4), "noisy": batch()}
    names = [
        [next(iter(losses)) for losses in step_losses(method(), net(), batches, now)]
        for now in (EARLY, CLEAN_TOO, replace(ALL, epoch=14), ALL)
    ]
    assert names == [["strict"], ["strict", "clean"], ["strict", "clean"], ["strict", "clean", "noisy"]]
    assert len(step_losses(method(), net(), {"strict": batch()}, ALL)) == 1  # the other sets are empty


def test_a_clean_label_mixes_the_peers_posterior_with_the_networks_own_probability() -> None:
    p, one = [0.51, 0.55, 0.58, 0.6], net()
    _, step = method().steps(one, one, {"strict": batch(), "clean": batch(clean_prob=p)}, CLEAN_TOO)
    wanted = 0.0
    labels = []
    for i in range(4):
        row, column = _probabilities(S, i)
        labels.append(p[i] + (1 - p[i]) * (row + column) / 2)
        wanted += labels[i] * (-math.log(row) - math.log(column)) / 4
    assert float(step.losses["clean"].detach()) == pytest.approx(wanted, rel=1e-5)
    assert float(step.losses["total"].detach()) == pytest.approx(wanted, rel=1e-5)
    assert float(step.notes["label_clean"]) == pytest.approx(sum(labels) / 4, rel=1e-5)


def test_a_noisy_image_takes_the_caption_of_its_nearest_strictly_clean_image() -> None:
    """Three noisy images near the strict images 1, 0 and 2; the last one's label is too low to be used."""
    noisy = replace(batch(), images=torch.cat([images_at(80, 10), batch().images[2:3]]), pairs=torch.arange(3))
    noisy = replace(noisy, texts=noisy.texts[:3].flip(0))  # their own captions do not count
    matrix = torch.tensor([[0.9, 0.2, 0.1, 0], [0.1, 0.8, 0.3, 0], [0.8, 0.9, 0.1, 0], [0, 0, 0, 0.5]])
    one = net(matrix)
    *_, step = method().steps(one, one, {"strict": batch(), "noisy": noisy}, ALL)
    captions = [1, 0, 2]
    similarity = noisy.images[:, 0] @ matrix[:, captions]
    nearness = [math.cos(math.radians(10))] * 2 + [1.0]
    labels, wanted = [], 0.0
    for n in range(3):
        row, column = _probabilities(similarity, n)
        label = nearness[n] * (row + column) / 2
        labels.append(label if label >= 0.5 else 0.0)
        wanted += labels[n] * (-math.log(row) - math.log(column)) / 3
    assert labels[2] == 0 < min(labels[:2])
    assert wanted > 1e-4
    assert float(step.losses["noisy"].detach()) == pytest.approx(wanted, rel=1e-4)
    assert float(step.notes["label_noisy"]) == pytest.approx(sum(labels) / 3, rel=1e-5)
    assert float(step.notes["proxies_used"]) == pytest.approx(2 / 3)


def test_two_images_with_one_proxy_are_each_others_negatives_unless_masked() -> None:
    """Unmasked, both have the row ½, ½, and columns near that: y is just below one half, and neither is used."""
    noisy = replace(batch(), images=images_at(5, 10), pairs=torch.arange(2), texts=batch().texts[:2])
    one = net()
    *_, step = method().steps(one, one, {"strict": batch(), "noisy": noisy}, ALL)
    assert (float(step.notes["proxies_used"]), float(step.losses["noisy"].detach())) == (0, 0)
    *_, lower = method(least_label=0.49).steps(one, one, {"strict": batch(), "noisy": noisy}, ALL)
    assert float(lower.notes["proxies_used"]) == 1
    *_, step = method(mask_duplicates=True).steps(one, one, {"strict": batch(), "noisy": noisy}, ALL)
    nearness = (math.cos(math.radians(5)) + math.cos(math.radians(10))) / 2
    assert float(step.notes["proxies_used"]) == 1
    assert float(step.notes["label_noisy"]) == pytest.approx(nearness, rel=1e-5)  # no negative is left: q = 1
    assert float(step.losses["noisy"].detach()) == pytest.approx(0, abs=1e-6)


def test_labels_and_proxies_are_made_in_eval_mode_before_the_first_step() -> None:
    one = net()
    batches = {"strict": batch(), "clean": batch(clean_prob=[0.55] * 4), "noisy": batch()}
    steps = method().steps(one, one, batches, ALL)
    next(steps)
    assert one.backbone.modes == [False, False, True]
    with torch.no_grad():
        one.backbone.matrix.zero_()
    _, noisy = next(steps), next(steps)
    labels = own_probability(S, T)  # of the similarity as it was
    assert float(noisy.notes["label_noisy"]) == pytest.approx(float(labels[labels >= 0.5].sum()) / 4, rel=1e-5)


def test_labels_carry_no_gradient() -> None:
    one, other = net(), net()
    batches = {"strict": batch(), "clean": batch(clean_prob=[0.0] * 4)}
    _, step = method().steps(one, one, batches, CLEAN_TOO)
    step.losses["total"].backward()
    (own_probability(S, T) * info_nce(other.backbone.matrix, T)).mean().backward()
    torch.testing.assert_close(one.backbone.matrix.grad, other.backbone.matrix.grad)


@pytest.mark.parametrize(
    ("check", "backbone", "batch_of"),
    [
        *((check, "gpo", "pairs") for check in CHECKS if check != "treats_both_sides_alike"),
        *((check, *other) for check in IN_BATCH for other in (("sgr", "pairs"), ("gpo", "images"), ("sgr", "images"))),
    ],
)
def test_the_contract_holds_with_all_sets_from_the_first_epoch_on(
    check: str, backbone: str, batch_of: str, tmp_path: Path
) -> None:
    """In the common tests proxies come in the last epoch only. They are for images, so both sides are not alike."""
    now = ("method.clean_from=0", "method.noisy_from=0", "method.strict_threshold=0.9", f"train.batch_of={batch_of}")
    CHECKS[check](Case("sps", backbone, tmp_path, now))


def test_the_published_numbers() -> None:
    for name, epochs, clean, noisy in (("flickr30k", 40, 10, 15), ("coco", 20, 5, 10)):
        config = load_config(f"sps/{name}")
        train, found = config.train, config.method
        assert isinstance(found, SpsConfig)
        assert (train.epochs - found.warmup_epochs, train.step_epochs, train.learning_rate) == (epochs, 10, 2e-4)
        assert (found.clean_from * epochs, found.noisy_from * epochs) == (clean, noisy)
        assert (config.partition.minimum_noisy_share, config.partition.single_mode) == (0.01, "split")


def _probabilities(similarity: Tensor, i: int, ignore: Tensor | None = None) -> tuple[float, float]:
    """The softmaxes of row i and of column i at i, by loops."""
    here = [j for j in range(len(similarity)) if j == i or ignore is None or not ignore[i, j]]
    own = math.exp(float(similarity[i, i]) / T)
    row = sum(math.exp(float(similarity[i, j]) / T) for j in here)
    return own / row, own / sum(math.exp(float(similarity[j, i]) / T) for j in here)
