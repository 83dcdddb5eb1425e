"""GSC by hand: weighted losses, relation profiles, what is kept of a pair, and its average over the epochs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from given import Given, Pairs, S, batch
from in2r.methods import Net, Now, PartitionConfig
from in2r.methods.gsc import CORRESPONDENCE, PLACE, Gsc, GscConfig, GscOwn, GscPlus, GscPlusConfig, log_confidence
from in2r.models.base import Items
from in2r.partition import fit_two_gaussians

NOW = Now(epoch=0, epochs=4, seed=0, name="A")
Y = [1.0, 0.5, 0.25, 0.0]
BY_IMAGES = torch.tensor([[2.0, -1.0, 0.5, 0.0], [-1.0, 2.0, 0.3, 0.2], [0.5, 0.3, 2.0, -0.4], [0.0, 0.2, -0.4, 2.0]])
BY_TEXTS = torch.tensor([[1.5, -0.5, 0.9, 0.1], [-0.2, 1.7, 0.1, 0.6], [0.4, 0.2, 1.9, 0.3], [0.3, 0.1, -0.6, 1.8]])


class Related(Given):
    """As `Given`, with given relations inside each side: of images by place, of texts by attention."""

    def __init__(self, bounded: bool) -> None:
        super().__init__(S)
        self.bounded = bounded  # type: ignore[misc]
        self.asked: list[str] = []

    def relate_by_place(self, items: Items) -> Tensor:
        self.asked.append("place")
        return BY_IMAGES[:, : len(items)][: len(items)]

    def relate_by_attention(self, items: Items) -> Tensor:
        self.asked.append("attention")
        return BY_TEXTS


def method(**settings: object) -> Gsc:
    return Gsc(replace(GscConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


def one_step(bounded: bool = True, y: Sequence[float] = Y, place: Sequence[int] = range(4), **settings: object) -> Any:
    net = Net(Related(bounded), GscOwn(6)).train()
    given = batch(correspondence=list(y))
    given = replace(given, columns={**given.columns, PLACE: torch.tensor(list(place))})
    (step,) = method(**settings).steps(net, net, {"all": given}, NOW)
    return net, step


def test_one_pair_is_confident_by_its_row() -> None:
    found = log_confidence(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), 1.0)
    wanted = torch.tensor([math.log(math.e / (math.e + 1)), math.log(math.e**3 / (math.e**3 + 1))])
    torch.testing.assert_close(found, wanted)
    warmer = log_confidence(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), 0.5)
    assert float(warmer[0]) == pytest.approx(math.log(math.e**2 / (math.e**2 + 1)))


def test_what_is_ignored_is_no_negative_and_a_pair_never_ignores_itself() -> None:
    ignore = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    found = log_confidence(S[:3, :3], 1.0, ignore)
    wanted = math.log(math.exp(0.8) / (math.exp(0.8) + math.exp(0.75)))
    assert float(found[0]) == pytest.approx(wanted, abs=1e-6)


def test_large_entries_do_not_overflow() -> None:
    matrix = torch.full((128, 128), 100.0).fill_diagonal_(128.0)
    assert bool(log_confidence(matrix, 1.0).isfinite().all())
    assert bool(log_confidence(matrix - 128, 0.07).isfinite().all())


@pytest.mark.parametrize("bounded", [True, False])
def test_the_losses_equal_plain_loops(bounded: bool) -> None:
    _, step = one_step(bounded, structure_weight=0.5)
    similarity = [[_sigmoid(float(x)) if bounded else float(x) for x in row] for row in S]
    u, v = _profiles(BY_IMAGES, bounded), _profiles(BY_TEXTS, bounded)
    t = [[sum(u[i][k] * v[j][k] for k in range(4)) for j in range(4)] for i in range(4)]
    columns = [list(column) for column in zip(*similarity, strict=True)]
    cross = -sum(Y[i] * (_log(similarity, i, 0.07) + _log(columns, i, 0.07)) / 2 for i in range(4)) / 4
    intra = -sum(Y[i] * _log(t, i, 1.0) for i in range(4)) / 4
    assert float(step.losses["cross"].detach()) == pytest.approx(cross, abs=1e-5)
    assert float(step.losses["intra"].detach()) == pytest.approx(intra, abs=1e-5)
    assert float(step.losses["total"].detach()) == pytest.approx(cross + 0.5 * intra, abs=1e-5)
    assert step.of == "net"


def test_the_signals_of_a_step_are_kept_once_it_is_taken() -> None:
    net, step = one_step(place=[5, 0, 3, 1])
    assert net.own.cross.tolist() == [1] * 6
    step.losses["total"].backward()
    step.after()
    u, v = _profiles(BY_IMAGES, True), _profiles(BY_TEXTS, True)
    similarity = [[_sigmoid(float(x)) for x in row] for row in S]
    columns = [list(column) for column in zip(*similarity, strict=True)]
    for pair, place in enumerate([5, 0, 3, 1]):
        confidence = (math.exp(_log(similarity, pair, 0.07)) + math.exp(_log(columns, pair, 0.07))) / 2
        assert float(net.own.cross[place]) == pytest.approx(confidence, abs=1e-5)
        assert float(net.own.intra[place]) == pytest.approx(_cosine(u[pair], v[pair]), abs=1e-5)
    assert (float(net.own.cross[2]), float(net.own.intra[4])) == (1, 1)  # no pair of the batch
    assert not net.own.cross.requires_grad
    assert net.own.y.tolist() == [1] * 6  # until the epoch ends


def test_pairs_without_correspondence_give_no_loss_and_no_nan() -> None:
    net, step = one_step(y=[0.0] * 4)
    step.losses["total"].backward()
    step.after()
    assert float(step.losses["total"].detach()) == 0
    assert bool(net.backbone.matrix.grad.isfinite().all())
    assert bool(net.own.intra.isfinite().all())


def test_captions_may_be_compared_by_place_too() -> None:
    net, _ = one_step()
    assert net.backbone.asked == ["place", "attention"]
    net, _ = one_step(text_relation="place")
    assert net.backbone.asked == ["place", "place"]


def test_the_end_of_an_epoch_averages_both_signals_and_takes_the_smaller() -> None:
    draws = torch.Generator().manual_seed(0)
    own = GscOwn(60)
    own.intra.copy_(torch.cat([0.9 + 0.02 * torch.rand(30, generator=draws), 0.3 * torch.rand(30, generator=draws)]))
    own.cross.copy_(torch.rand(60, generator=draws))
    right = torch.as_tensor(fit_two_gaussians(-own.intra).clean_probability).float()
    assert right[:30].min() > 0.9  # the component with the larger mean
    assert right[30:].max() < 0.1
    figures = method().end_epoch({"A": Net(Given(S), own)}, NOW)
    cross, intra = 0.7 * own.cross + 0.3, 0.7 * right + 0.3
    torch.testing.assert_close(own.average_cross, cross)
    torch.testing.assert_close(own.average_intra, intra)
    torch.testing.assert_close(own.y, torch.minimum(cross, intra))
    assert figures["correspondence_A"] == pytest.approx(float(own.y.mean()))
    method().end_epoch({"A": Net(Given(S), own)}, NOW)
    torch.testing.assert_close(own.average_cross, 0.7 * own.cross + 0.3 * cross)
    torch.testing.assert_close(own.y, torch.minimum(own.average_cross, own.average_intra))


def test_equal_signals_leave_the_structure_trusted() -> None:
    own = GscOwn(8)
    own.intra.fill_(0.4)
    own.update(0.7, PartitionConfig())
    assert own.average_intra.tolist() == [1] * 8


def test_one_network_gets_its_own_correspondences_and_all_pairs() -> None:
    net = Net(Given(S), GscOwn(3))
    net.own.y.copy_(torch.tensor([0.1, 0.2, 0.3]))
    data = Some(6, [1, 2, 4])
    found = method().divide({}, {"A": net}, data, NOW)["A"]
    torch.testing.assert_close(found.columns[CORRESPONDENCE], torch.tensor([0, 0.1, 0.2, 0, 0.3, 0]))
    torch.testing.assert_close(found.losses[CORRESPONDENCE], torch.tensor([0.9, 0.8, 0.7]))
    assert found.sets.tolist() == [-1, 0, 0, -1, 0, -1]
    assert (found.judge, found.figures) == ("A", {})
    assert method().trust(data.pairs, 6).columns[CORRESPONDENCE].tolist() == [1] * 6
    assert method().fixed_columns(data)[PLACE][[1, 2, 4]].tolist() == [0, 1, 2]


def test_two_networks_exchange_their_correspondences() -> None:
    nets = {name: Net(Given(S), GscOwn(4)) for name in "AB"}
    nets["A"].own.y.fill_(0.25)
    nets["B"].own.y.fill_(0.75)
    plus = GscPlus(GscPlusConfig(), PartitionConfig())
    found = plus.divide({}, nets, Pairs(4), NOW)  # type: ignore[arg-type]
    assert found["A"].columns[CORRESPONDENCE].tolist() == [0.75] * 4
    assert found["B"].columns[CORRESPONDENCE].tolist() == [0.25] * 4
    assert (found["A"].judge, found["B"].judge) == ("B", "A")


def test_a_network_keeps_its_own_signals_and_not_its_peers() -> None:
    net, peer = Net(Related(True), GscOwn(4)).train(), Net(Related(True), GscOwn(4)).train()
    given = batch(correspondence=Y)
    given = replace(given, columns={**given.columns, PLACE: torch.arange(4)})
    plus = GscPlus(GscPlusConfig(), PartitionConfig())
    (step,) = plus.steps(net, peer, {"all": given}, NOW)
    step.after()
    assert net.own.cross.max() < 1
    assert peer.own.cross.tolist() == [1] * 4


class Some(Pairs):
    """N pairs of which some are trained on, with vectors for captions."""

    in_words = False

    def __init__(self, count: int, pairs: list[int]) -> None:
        super().__init__(count)
        self.pairs = torch.tensor(pairs)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _profiles(relation: Tensor, bounded: bool) -> list[list[float]]:
    return [
        [(_sigmoid(float(x)) if bounded else float(x)) * y for x, y in zip(row, Y, strict=True)] for row in relation
    ]


def _log(matrix: list[list[float]], row: int, temperature: float) -> float:
    return matrix[row][row] / temperature - math.log(sum(math.exp(x / temperature) for x in matrix[row]))


def _cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / (math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other)))
