"""Corroborate: trust, re-matching, rounds and the loss, on planted embeddings and by plain loops."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.given import Given
from torch import Tensor, nn

from in2r.methods import Batch, LossConfig, Net, Now, PartitionConfig
from in2r.methods.corroborate import Corroborate, CorroborateConfig
from in2r.methods.network import Cost

SOFTMAX = LossConfig(kind="softmax", text_softness=0.3)


def method(loss: LossConfig = SOFTMAX, **settings: Any) -> Corroborate:
    config = replace(CorroborateConfig(neighbors=8), **settings)
    return Corroborate(config, PartitionConfig(max_iter=100, tol=1e-3), loss)


class Planted:
    """Images with captions whose embeddings are near their true image; some captions are given another image."""

    def __init__(self, images: int = 80, captions: int = 4, wrong: float = 0.4, networks: int = 2) -> None:
        draws = torch.Generator().manual_seed(0)
        self.true = torch.arange(images).repeat_interleave(captions)
        count = len(self.true)
        self.wrong = torch.rand(count, generator=draws) < wrong
        moved = self.true[self.wrong]
        self.image_of_pair = self.true.clone()
        self.image_of_pair[self.wrong] = moved[torch.randperm(len(moved), generator=draws)]
        self.wrong = self.image_of_pair != self.true
        self.pairs, self.device = torch.arange(count), torch.device("cpu")
        groups = torch.randn(max(1, images // 10), 32, generator=draws)  # ten images each are somewhat alike
        topics = unit(0.8 * groups[torch.arange(images) % len(groups)] + torch.randn(images, 32, generator=draws))
        self.raw_images = topics + 0.05 * torch.randn(images, 32, generator=draws)
        self.raw_texts = topics[self.true] + 0.05 * torch.randn(count, 32, generator=draws)
        self.embedded = [
            (
                unit(topics + 0.08 * torch.randn(images, 32, generator=draws)),
                unit(topics[self.true] + 0.08 * torch.randn(count, 32, generator=draws)),
            )
            for _ in range(networks)
        ]
        self.asked: list[bool] = []
        self.nets = {name: Net(Given(torch.eye(2)), method().own(2, count, 8)) for name in "AB"[:networks]}

    def embed(self, net: Net, before: bool = False) -> tuple[Tensor, Tensor]:
        self.asked.append(before)
        return self.embedded[[*self.nets.values()].index(net)]

    def image_vectors(self) -> Tensor:
        return self.raw_images

    def text_vectors(self, dim: int) -> Tensor:
        return self.raw_texts


def unit(values: Tensor) -> Tensor:
    return nn.functional.normalize(values, dim=1)


def divided(planted: Planted, asked: Corroborate | None = None, epoch: int = 0) -> Any:
    return (asked or method()).divide({}, planted.nets, planted, Now(epoch, 36, 0))["A"]  # type: ignore[arg-type]


def test_right_pairs_are_trusted_and_wrong_ones_are_not() -> None:
    planted = Planted()
    division = divided(planted)
    prob = division.columns["clean_prob"]
    assert float((prob[~planted.wrong] > 0.5).float().mean()) > 0.9
    assert float((prob[planted.wrong] < 0.5).float().mean()) > 0.85
    right = float((~planted.wrong).float().mean())
    assert float(planted.nets["A"].own.share) == pytest.approx(right, abs=0.04)
    assert abs(divided(planted, method(share="mixture")).figures["matching_share"] - right) < 0.1
    assert division.figures["mean_clean_prob"] == pytest.approx(float(prob.mean()))


def test_both_networks_train_on_one_judgement_that_is_counted_for_each() -> None:
    planted = Planted()
    both = method().divide({}, planted.nets, planted, Now(0, 36, 0))  # type: ignore[arg-type]
    assert torch.equal(both["A"].columns["weight"], both["B"].columns["weight"])
    assert [division.judge for division in both.values()] == ["A", "B"]
    images, captions = len(planted.raw_images), len(planted.true)
    for net in planted.nets.values():
        assert net.cost == Cost(scored_without_gradient=images * captions, passes=1)


def test_later_rounds_trust_the_share_that_the_first_one_found() -> None:
    planted = Planted()
    for net in planted.nets.values():
        net.own.share.fill_(0.25)
    anchored = divided(planted, epoch=8).columns["clean_prob"]
    assert float(anchored.mean()) == pytest.approx(0.25, abs=1e-4)
    free = divided(planted, method(anchor=False), epoch=8).columns["clean_prob"]
    assert abs(float((free > 0.5).float().mean()) - 0.6) < 0.1


def test_raw_evidence_decides_where_the_networks_know_nothing() -> None:
    """Random embeddings: the captions of an image still agree with each other, and with those of images like it."""
    planted = Planted(captions=5)
    draws = torch.Generator().manual_seed(1)
    good = planted.embedded
    planted.embedded = [
        (unit(v + torch.randn(v.shape, generator=draws)), unit(u + torch.randn(u.shape, generator=draws)))
        for v, u in good
    ]

    def sure(**settings: Any) -> float:
        prob = divided(planted, method(**settings)).columns["clean_prob"]
        return float(prob[~planted.wrong].mean() - prob[planted.wrong].mean())

    assert sure(raw_evidence=True) > sure(raw_evidence=False) + 0.1
    planted.raw_texts = torch.cat([good[0][1], good[1][1]], dim=1)  # what `learnt` would see of better networks
    assert sure(text_evidence="given") > sure(text_evidence="learnt")


def test_one_caption_per_image_and_one_network_have_evidence_too() -> None:
    planted = Planted(images=200, captions=1, networks=1)
    prob = divided(planted).columns["clean_prob"]
    assert float(prob[~planted.wrong].mean()) > 0.9
    assert float(prob[planted.wrong].mean()) < 0.15


def test_data_without_a_group_of_wrong_pairs_are_trusted_whole() -> None:
    division = divided(Planted(wrong=0.0))
    assert float(division.columns["weight"].mean()) > 0.95
    assert division.figures["matching_share"] > 0.97
    assert float((division.images == Planted(wrong=0.0).image_of_pair).float().mean()) > 0.98


def test_a_wrong_caption_is_trained_with_the_image_that_it_fits() -> None:
    planted = Planted()
    division = divided(planted)
    moved = division.images != planted.image_of_pair
    assert float((division.images == planted.true)[planted.wrong].float().mean()) > 0.75
    assert not moved[~planted.wrong & (division.columns["clean_prob"] > 0.5)].any()
    assert (division.columns["weight"][moved] > division.columns["clean_prob"][moved]).all()
    assert division.figures["rematched"] == pytest.approx(float(moved.float().mean()))
    without = divided(planted, method(rematch=False))
    assert torch.equal(without.images, planted.image_of_pair)
    assert torch.equal(without.columns["weight"], without.columns["clean_prob"])


def test_pairs_of_little_weight_are_left_out_unless_nothing_would_stay() -> None:
    planted = Planted()
    division = divided(planted, method(least_weight=0.3, rematch=False))
    assert torch.equal(division.sets == 0, division.columns["weight"] >= 0.3)
    for net in planted.nets.values():
        net.own.share.fill_(0.01)
    scarce = divided(planted, method(least_weight=1.0, rematch=False), epoch=8)
    assert float(scarce.columns["clean_prob"].max()) < 1
    assert (scarce.sets == 0).all()
    assert (scarce.columns["weight"] == 1).all()
    assert torch.equal(scarce.images, planted.image_of_pair)


def test_rounds_fill_the_epochs() -> None:
    assert method(rounds=3, round_epochs=8).rounds(36) == (0, 8, 16)
    assert method(rounds=3, round_epochs=8).rounds(16) == (0, 8)
    assert method(rounds=3, round_epochs=8).rounds(15) == (0,)  # no round of seven epochs
    assert method(rounds=1).rounds(5) == (0,)
    assert method(rounds=10**12, round_epochs=8).rounds(36) == (0, 8, 16, 24)


def test_an_oracle_trusts_every_pair_alike() -> None:
    division = method().trust(torch.tensor([0, 2]), 3)
    assert division.columns["weight"].tolist() == [1, 1, 1]
    assert division.sets.tolist() == [0, -1, 0]


def test_the_loss_of_a_step_equals_plain_loops() -> None:
    """Three images, five captions: soft targets by likeness and weight, half of them from the teachers."""
    planted, asked = Planted(images=6, captions=3), method()
    asked.begin_epoch(planted.nets, planted, Now(8, 36, 0))  # type: ignore[arg-type]
    assert planted.asked == [True, True]
    draws = torch.Generator().manual_seed(2)
    pairs, groups = torch.tensor([4, 9, 5, 0, 10]), torch.tensor([1, 3, 1, 0, 3])
    images, owner = torch.tensor([0, 1, 3]), torch.tensor([1, 2, 1, 0, 2])
    similarity = torch.randn(3, 5, generator=draws) / 4
    texts = torch.randn(5, 7, generator=draws)
    w = torch.tensor([0.9, 0.2, 0.6, 0.0, 1.0])
    net = Net(Table(similarity, owner), nn.Module())
    batch = Batch(
        pairs, groups, torch.zeros(3, 1, 2), None, texts[:, None], None, {"weight": w}, owner=owner,
        first=torch.tensor([3, 0, 1]),
    )  # fmt: skip
    [step] = asked.steps(net, net, {"all": batch}, Now(8, 36, 0, "A", 0))
    taught = torch.stack([v[images] @ u[pairs].T for v, u in planted.embedded]).mean(0)

    def softmax(values: list[float]) -> list[float]:
        top = max(values)
        parts = [math.exp(value - top) for value in values]
        return [part / sum(parts) for part in parts]

    likeness = (unit(texts) @ unit(texts).T).tolist()
    q: list[list[float]] = []
    for t in range(5):
        k = softmax([likeness[t][s] / 0.1 + math.log(max(float(w[s]), 1e-38)) for s in range(5)])
        q.append([0.7 * float(owner[t] == i) + 0.3 * sum(k[s] for s in range(5) if owner[s] == i) for i in range(3)])
    by_caption, by_image, images_weight = 0.0, 0.0, 0.0
    for t in range(5):
        p, teacher = softmax((similarity[:, t] / 0.05).tolist()), softmax((taught[:, t] / 0.05).tolist())
        target = [0.5 * q[t][i] + 0.5 * teacher[i] for i in range(3)]
        by_caption -= float(w[t] / w.sum()) * sum(target[i] * math.log(p[i]) for i in range(3))
    for i in range(3):
        p, teacher = softmax((similarity[i] / 0.05).tolist()), softmax((taught[i] / 0.05).tolist())
        mass = sum(float(w[t]) * q[t][i] for t in range(5))
        target = [0.5 * float(w[t]) * q[t][i] / mass + 0.5 * teacher[t] for t in range(5)]
        trust = min(1.0, sum(float(w[t]) for t in range(5) if owner[t] == i))
        by_image -= trust * sum(target[t] * math.log(p[t]) for t in range(5))
        images_weight += trust
    assert float(step.losses["total"].detach()) == pytest.approx((by_caption + by_image / images_weight) / 2, rel=1e-5)


def test_the_first_round_has_no_teacher() -> None:
    planted, asked = Planted(images=6, captions=3), method()
    asked.begin_epoch(planted.nets, planted, Now(7, 36, 0))  # type: ignore[arg-type]
    alone = method(distillation=0.0)
    alone.begin_epoch(planted.nets, planted, Now(20, 36, 0))  # type: ignore[arg-type]
    assert planted.asked == []


def test_the_last_rounds_networks_are_embedded_once_a_round() -> None:
    planted, asked = Planted(), method(rounds=3)
    divided(planted, asked, epoch=8)
    for epoch in range(8, 12):
        asked.begin_epoch(planted.nets, planted, Now(epoch, 36, 0))  # type: ignore[arg-type]
    assert planted.asked == [False, False]  # by `divide`, of the networks as they were before the round
    asked.begin_epoch(planted.nets, planted, Now(16, 36, 0))  # type: ignore[arg-type]
    assert planted.asked == [False, False, True, True]


class Table(Given):
    """Scores the images and captions of one batch by a table."""

    def __init__(self, similarity: Tensor, owner: Tensor) -> None:
        super().__init__(torch.eye(2))
        self.table, self.owner = nn.Parameter(similarity), owner

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Any:
        return super().encode_images(torch.arange(len(values), dtype=torch.float32)[:, None, None])

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Any:
        return super().encode_texts(torch.arange(len(values), dtype=torch.float32)[:, None, None])

    def logits(self, images: Any, texts: Any) -> Tensor:
        return self.table[images.vector[:, 0].long()][:, texts.vector[:, 0].long()]
