"""ESC by hand: lowest hinges, deviation from equivariance, labels by the peer's anchors, the order of the steps."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from given import Given, Pairs, S, batch
from in2r.losses import soft_margin_triplet_loss, triplet_loss
from in2r.methods import Batch, Net, Now, PartitionConfig, Seen
from in2r.methods.esc import (
    DIVISION_LOSS,
    Esc,
    EscConfig,
    LowestHingesWarmup,
    equivariance_error,
    mean_agreement,
    ratio,
    trusted_pairs,
    whole_vectors,
)
from in2r.models.base import Backbone, Items
from in2r.partition import fit_two_betas, fit_two_gaussians

HINGES = [0.0375, 0.125, 0.225, 0.275]
"""the hinges of S averaged over its negatives, in the specification"""
ERRORS = [0, 0.04 / 0.9625, 0.0625 / 0.2825, 0.0225 / 0.3875]
"""of S: the anchor is pair 0, D_ii = 0, .2, .25, -.15 over the norms of D_i. = S_0. - S_i0"""
LATE, EARLY = Now(epoch=2, epochs=4, seed=0), Now(epoch=1, epochs=4, seed=0)
LABELS = torch.tensor([1, 0.5, 0.25, 0])


def method(**settings: object) -> Esc:
    return Esc(replace(EscConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


def given(similarity: Tensor = S) -> Net:
    return Net(Given(similarity), nn.Module()).train()


class Vectors(Backbone):
    """Takes given unit vectors for items; S is their cosine, times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.modes: list[bool] = []

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        self.modes.append(self.training)
        return Items(values[:, 0])

    encode_texts = encode_images

    def logits(self, images: Items, texts: Items) -> Tensor:
        return self.scale * images.vector @ texts.vector.T


def unit(rows: int, seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return nn.functional.normalize(torch.randn(rows, 3, generator=draws), dim=1)


def vectors(rows: int, seed: int) -> Batch:
    images = unit(rows, seed)
    texts = nn.functional.normalize(images + 0.7 * unit(rows, seed + 100), dim=1)
    return Batch(torch.arange(rows), torch.arange(rows), images[:, None], None, texts[:, None], None, {})


@pytest.mark.parametrize(("rate", "wanted"), [(0.5, 0.1625), (0.3, 0.0375), (1.0, 0.6625), (0.01, 0.0375)])
def test_the_warm_up_sums_the_lowest_hinges(rate: float, wanted: float) -> None:
    step = LowestHingesWarmup(0.2, rate).step(given(), batch())
    assert float(step.losses["total"].detach()) == pytest.approx(wanted, abs=1e-6)


def test_the_warm_up_is_that_of_the_settings() -> None:
    assert method(warmup_rate=0.4, margin=0.1, warmup_epochs=3).warmup() == (3, LowestHingesWarmup(0.1, 0.4))


def test_the_deviation_from_equivariance_by_hand() -> None:
    torch.testing.assert_close(equivariance_error(S), torch.tensor(ERRORS), atol=1e-6, rtol=0)


def test_the_deviation_from_equivariance_equals_a_plain_loop() -> None:
    s = torch.rand(9, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2 - 1
    a = max(range(9), key=lambda i: float(s[i, i]))
    wanted = []
    for i in range(9):
        row = [float(s[a, j] - s[i, a]) for j in range(9)]
        wanted.append((row[i] / (math.sqrt(sum(x * x for x in row)) + 1e-8)) ** 2)
    torch.testing.assert_close(equivariance_error(s), torch.tensor(wanted, dtype=torch.float64))
    assert wanted[a] == 0
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(equivariance_error(s[order][:, order]), equivariance_error(s)[order])


def test_pairs_that_are_exchanged_alike_deviate_by_nothing() -> None:
    symmetric = (S + S.T) / 2
    assert equivariance_error(symmetric).abs().max() < 1e-12
    assert equivariance_error(S).max() > 0.2


def test_equal_similarities_and_a_single_pair_have_no_deviation_and_a_finite_gradient() -> None:
    for size in (1, 4):
        same = torch.full((size, size), 0.5, requires_grad=True)
        error = equivariance_error(same)
        error.sum().backward()  # type: ignore[no-untyped-call]
        assert same.grad is not None
        assert error.tolist() == [0.0] * size
        assert bool(same.grad.isfinite().all())


def test_the_observed_loss_adds_half_the_deviation_to_the_hinge() -> None:
    net = given()
    seen = method().observe(net, *net.encode(batch())[0], torch.arange(4))
    wanted = torch.tensor([hinge + error / 2 for hinge, error in zip(HINGES, ERRORS, strict=True)])
    torch.testing.assert_close(seen[DIVISION_LOSS].detach(), wanted, atol=1e-6, rtol=0)
    without = method(division_weight=0.0).observe(net, *net.encode(batch())[0], torch.arange(4))
    torch.testing.assert_close(without[DIVISION_LOSS].detach(), torch.tensor(HINGES), atol=1e-6, rtol=0)


def test_agreement_with_the_nearest_anchor_is_that_of_the_specification() -> None:
    anchors = unit_rows([[1, 0], [0.6, 0.8]]), unit_rows([[0.8, 0.6], [0, 1]])
    queries = unit_rows([[0.9, 0.1], [0, 1]]), unit_rows([[1, 0], [-1, 0.2]])
    found = mean_agreement(*queries, *anchors)
    torch.testing.assert_close(found, torch.tensor([0.804923, 0.245145]), atol=1e-5, rtol=0)
    exchanged = mean_agreement(queries[1], queries[0], anchors[1], anchors[0])
    torch.testing.assert_close(exchanged, found)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (0.3, 0.6, 0.5),
        (0.6, 0.3, 0.5),
        (-0.2, -0.8, 0.25),
        (0.5, -0.5, 0),
        (-0.9, 0.1, 0),
        (0.0, 0.0, 0),
        (0.4, 0.0, 0),
    ],
)
def test_the_ratio_stays_between_nothing_and_one(one: float, other: float, wanted: float) -> None:
    assert float(ratio(torch.tensor(one), torch.tensor(other))) == pytest.approx(wanted)


def test_anchors_are_the_tenth_and_one_that_match_best() -> None:
    assert trusted_pairs(S, 0.2).tolist() == [0]
    s = torch.rand(25, 25, generator=torch.Generator().manual_seed(0))
    quality = (0.2 - triplet_loss(s, negatives="mean", reduction="none") / 2).clamp(0, 0.2)
    chosen = trusted_pairs(s, 0.2)
    assert len(chosen) == 3
    others = [i for i in range(25) if i not in chosen.tolist()]
    assert quality[chosen].min() >= quality[others].max()


def test_an_item_of_parts_is_the_mean_of_its_real_ones() -> None:
    parts = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [5.0, 0.0]]])
    whole = torch.tensor([[0.0, 1.0]])
    real = Items(whole, parts, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(whole_vectors(real), torch.tensor([[0.5**0.5, 0.5**0.5]]))
    torch.testing.assert_close(whole_vectors(Items(whole, parts)), unit_rows([[6, 1]]))
    torch.testing.assert_close(whole_vectors(Items(whole)), whole)


def test_labels_are_the_peers_by_the_anchors_of_the_clean_batch() -> None:
    clean, noisy = vectors(20, 1), vectors(12, 2)
    net, peer = Net(Vectors(), nn.Module()).train(), Net(Vectors(), nn.Module()).train()
    steps = list(method().steps(net, peer, {"clean": clean, "noisy": noisy}, LATE))
    y_clean, y_noisy = _labels(clean, clean), _labels(clean, noisy)
    assert sum(y == 1 for y in y_clean) == 3
    assert any(y == 0 for y in y_noisy)
    assert any(y > 0 for y in y_noisy)
    for step, name, labels, given_batch in (
        (steps[0], "noisy", y_noisy, noisy),
        (steps[1], "clean", y_clean, clean),
    ):
        similarity = given_batch.images[:, 0] @ given_batch.texts[:, 0].T
        wanted = soft_margin_triplet_loss(similarity, torch.tensor(labels))
        assert float(step.losses["total"].detach()) == pytest.approx(float(wanted), rel=1e-5)
        assert float(step.notes[f"label_{name}"]) == pytest.approx(sum(labels) / len(labels), abs=1e-6)
    assert peer.backbone.modes == [False, False]  # images and captions, each in one pass
    assert peer.training
    assert all(net.backbone.modes)


def test_the_threshold_makes_doubtful_labels_zero() -> None:
    clean, noisy = vectors(20, 1), vectors(12, 2)
    net = Net(Vectors(), nn.Module()).train()
    first, *_ = method(label_threshold=0.0).steps(net, net, {"clean": clean, "noisy": noisy}, LATE)
    assert float(first.notes["label_noisy"]) == pytest.approx(sum(_labels(clean, noisy, 0.0)) / 12, abs=1e-6)
    again, *_ = method(label_threshold=1.0).steps(net, net, {"clean": clean, "noisy": noisy}, LATE)
    assert float(again.notes["label_noisy"]) == 0


def test_no_gradient_reaches_the_labels_and_the_peer() -> None:
    net, peer = Net(Vectors(), nn.Module()).train(), Net(Vectors(), nn.Module()).train()
    for step in method().steps(net, peer, {"clean": vectors(20, 1), "noisy": vectors(12, 2)}, LATE):
        step.losses["total"].backward()  # type: ignore[no-untyped-call]
    assert net.backbone.scale.grad is not None
    assert peer.backbone.scale.grad is None


@pytest.mark.parametrize(("margins", "wanted"), [("own", 1.032641), ("released", 1.113396)])
def test_the_training_loss_is_that_of_the_specification(margins: str, wanted: float) -> None:
    step = method(margins=margins)._step(given(), batch(), LABELS, "clean")
    assert float(step.losses["total"].detach()) == pytest.approx(wanted, abs=1e-6)


def test_released_margins_are_those_of_the_caption_in_both_directions() -> None:
    margins = [0.2 * (10 ** float(y) - 1) / 9 for y in LABELS]
    total = 0.0
    for i in range(4):
        others = [j for j in range(4) if j != i]
        total += max(0.0, *(margins[j] + float(S[i, j] - S[i, i]) for j in others))
        total += max(0.0, *(margins[i] + float(S[j, i] - S[i, i]) for j in others))
    step = method(margins="released")._step(given(), batch(), LABELS, "clean")
    assert float(step.losses["total"].detach()) == pytest.approx(total, abs=1e-6)


def test_noisy_pairs_come_first_and_from_the_middle_on() -> None:
    batches = {"clean": batch(), "noisy": batch()}
    net, peer = given(), given()
    names = [sorted(step.losses)[:-1] for step in method().steps(net, peer, batches, LATE)]
    assert names == [["noisy"], ["clean"], ["equivariance"]]
    names = [sorted(step.losses)[:-1] for step in method().steps(net, peer, batches, EARLY)]
    assert names == [["clean"], ["equivariance"]]
    names = [sorted(step.losses)[:-1] for step in method().steps(net, peer, {"clean": batch()}, LATE)]
    assert names == [["clean"], ["equivariance"]]
    names = [sorted(step.losses)[:-1] for step in method(regulariser_weight=0.0).steps(net, peer, batches, EARLY)]
    assert names == [["clean"]]


def test_the_regulariser_is_a_step_of_its_own_on_the_network_as_it_is_then() -> None:
    net = given()
    steps = method(regulariser_weight=2.0).steps(net, given(), {"clean": batch()}, EARLY)
    next(steps)
    changed = S.clone()
    changed[0, 1] = 0.9
    with torch.no_grad():
        net.backbone.matrix.copy_(changed)
    step = next(steps)
    wanted = float(equivariance_error(changed).sum())
    assert wanted != pytest.approx(sum(ERRORS), abs=1e-2)
    assert float(step.losses["equivariance"].detach()) == pytest.approx(wanted, abs=1e-6)
    assert float(step.losses["total"].detach()) == pytest.approx(2 * wanted, abs=1e-6)
    assert step.of == "net"


def test_the_hinged_regulariser_by_hand_and_from_both_sides() -> None:
    for similarity in (S, S.T):
        *_, step = method(regulariser="hinged").steps(given(similarity), given(), {"clean": batch()}, EARLY)
        assert float(step.losses["equivariance"].detach()) == pytest.approx(0.0625 - 0.04, abs=1e-6)
    *_, step = method(regulariser="hinged", tolerance=0.0).steps(given(), given(), {"clean": batch()}, EARLY)
    assert float(step.losses["equivariance"].detach()) == pytest.approx(0.04 + 0.0625 + 0.0225, abs=1e-6)


@pytest.mark.parametrize(("mixture", "fit"), [("beta", fit_two_betas), ("gaussian", fit_two_gaussians)])
def test_each_network_gets_its_peers_verdict_by_the_chosen_components(mixture: str, fit: object) -> None:
    draws = torch.rand(20, generator=torch.Generator().manual_seed(0))
    low, high = draws * 0.2, 0.6 + 0.4 * draws
    mismatched = {DIVISION_LOSS: high}
    seen = {
        "A": Seen({DIVISION_LOSS: torch.cat([low, high])}, mismatched),
        "B": Seen({DIVISION_LOSS: torch.cat([high, low])}, mismatched),
    }
    nets = {"A": given(), "B": given()}
    found = method(mixture=mixture).divide(seen, nets, Pairs(40), LATE)  # type: ignore[arg-type]
    assert found["A"].sets.tolist() == [1] * 20 + [0] * 20
    assert found["B"].sets.tolist() == [0] * 20 + [1] * 20
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    wanted = torch.as_tensor(fit(seen["A"][DIVISION_LOSS]).clean_probability).float()  # type: ignore[operator]
    torch.testing.assert_close(found["B"].columns["clean_prob"], wanted)


def test_few_noisy_pairs_do_not_turn_the_clean_component_around() -> None:
    """A wide component of 5 % wins at both ends: by its likelihood at the lowest loss it would be the clean one."""
    draws = torch.randn(95, generator=torch.Generator().manual_seed(0))
    losses = torch.cat([0.1 + 0.03 * draws.abs(), torch.linspace(0.05, 1, 5)])
    seen = {name: Seen({DIVISION_LOSS: losses}, {DIVISION_LOSS: losses[95:]}) for name in "AB"}
    esc = Esc(EscConfig(), PartitionConfig(single_mode="split"))
    found = esc.divide(seen, dict.fromkeys("AB", given()), Pairs(100), LATE)  # type: ignore[arg-type]
    assert found["A"].sets[:95].sum() < 3  # of the 95 right pairs
    wrong = torch.as_tensor(fit_two_betas(losses, clean="lowest_loss").clean_probability)
    assert (wrong > 0.5).sum() < 5


def unit_rows(rows: list[list[float]]) -> Tensor:
    return nn.functional.normalize(torch.tensor(rows, dtype=torch.float32), dim=1)


def _labels(clean: Batch, asked: Batch, threshold: float = 0.5) -> list[float]:
    """Return the labels of a batch by loops; those of the clean one, whose anchors have 1, if it is asked for."""

    def cos(one: Tensor, other: Tensor) -> float:
        return float(one @ other)

    def agreement(x: float, z: float) -> float:
        if x * z <= 0:
            return 0.0
        return x / z if x / z < 1 else z / x

    images, texts = clean.images[:, 0], clean.texts[:, 0]
    size = len(clean)
    cost = []
    for i in range(size):
        rows = sum(max(0.0, 0.2 + cos(images[i], texts[j]) - cos(images[i], texts[i])) for j in range(size) if j != i)
        columns = sum(
            max(0.0, 0.2 + cos(images[j], texts[i]) - cos(images[i], texts[i])) for j in range(size) if j != i
        )
        cost.append((rows + columns) / size)
    anchors = sorted(range(size), key=lambda i: cost[i])[: size // 10 + 1]
    labels = []
    for i in range(len(asked)):
        v, u = asked.images[i, 0], asked.texts[i, 0]
        a = max(anchors, key=lambda k: cos(v, images[k]))
        b = max(anchors, key=lambda k: cos(u, texts[k]))
        r = agreement(cos(v, images[a]), cos(u, texts[a])) + agreement(cos(u, texts[b]), cos(v, images[b]))
        y = r / 2
        if asked is clean:
            y = 1.0 if i in anchors else 0.5 + r / 4
        labels.append(y if y > threshold else 0.0)
    return labels
