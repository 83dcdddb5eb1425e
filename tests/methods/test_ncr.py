"""NCR by hand: labels from posterior and prediction, steps before and after the middle, exchanged verdicts."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from given import Given, Pairs, S, batch
from in2r.losses import soft_margin_triplet_loss
from in2r.methods import Net, Now, PartitionConfig, Seen
from in2r.methods.ncr import Ncr, NcrConfig
from in2r.partition import matching_probability

P = [1, 0.758621, 0.482759, 0.344828]
"""the matching probabilities of S in the specification"""
THEIRS = S - 0.3 * torch.diag(torch.tensor([1.0, 0.0, 0.0, 1.0]))
"""the similarity by the peer, to which two of the pairs match less"""


def nets() -> tuple[Net, Net]:
    return Net(Given(S), nn.Module()).train(), Net(Given(THEIRS), nn.Module()).train()


def method(**settings: object) -> Ncr:
    return Ncr(replace(NcrConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


def test_a_clean_label_mixes_the_peers_posterior_with_the_networks_own_prediction() -> None:
    net, peer = nets()
    w = [1.0, 0.5, 0.9, 0.6]
    batches = {"clean": batch(clean_prob=w), "noisy": batch()}
    (step,) = method().steps(net, peer, batches, Now(epoch=0, epochs=4, seed=0))
    labels = [a + (1 - a) * p for a, p in zip(w, P, strict=True)]
    assert float(step.losses["total"].detach()) == pytest.approx(_loss(S, labels), abs=1e-5)
    assert float(step.notes["label_clean"]) == pytest.approx(sum(labels) / 4, abs=1e-5)
    assert net.backbone.modes == [False, True]  # the label in eval mode, the loss in training mode


def test_noisy_pairs_are_trained_on_from_the_middle_with_the_mean_prediction_of_both_networks() -> None:
    net, peer = nets()
    batches = {"clean": batch(clean_prob=[1.0] * 4), "noisy": batch()}
    steps = list(method().steps(net, peer, batches, Now(epoch=2, epochs=4, seed=0)))
    assert [sorted(step.losses) for step in steps] == [["clean", "total"], ["noisy", "total"]]
    theirs = matching_probability(THEIRS)
    assert abs(theirs - torch.tensor(P)).max() > 0.1
    labels = [(p + float(q)) / 2 for p, q in zip(P, theirs, strict=True)]
    assert float(steps[1].losses["noisy"].detach()) == pytest.approx(_loss(S, labels), abs=1e-5)
    assert peer.backbone.training
    assert peer.backbone.matrix.grad is None


def test_labels_are_made_before_the_first_step_changes_the_network() -> None:
    net, peer = nets()
    batches = {"clean": batch(clean_prob=[1.0] * 4), "noisy": batch()}
    steps = method().steps(net, peer, batches, Now(epoch=3, epochs=4, seed=0))
    next(steps)
    with torch.no_grad():
        net.backbone.matrix.zero_()
        net.backbone.matrix += torch.eye(4)
    second = next(steps)
    before = (matching_probability(S) + matching_probability(THEIRS)) / 2
    assert float(second.notes["label_noisy"]) == pytest.approx(float(before.mean()), abs=1e-6)


def test_nothing_is_done_with_noisy_pairs_where_there_are_none() -> None:
    net, peer = nets()
    steps = list(method().steps(net, peer, {"clean": batch(clean_prob=[1.0] * 4)}, Now(epoch=3, epochs=4, seed=0)))
    assert len(steps) == 1


def test_released_margins_are_those_of_the_negative_image() -> None:
    net, peer = nets()
    batches = {"clean": batch(clean_prob=[1.0, 0.0, 0.0, 0.0])}
    (step,) = method(margins="released").steps(net, peer, batches, Now(epoch=0, epochs=4, seed=0))
    labels = torch.tensor(P)
    wanted = soft_margin_triplet_loss(S, labels, margins="released")
    assert float(step.losses["total"].detach()) == pytest.approx(float(wanted), abs=1e-5)
    assert float(wanted) != pytest.approx(float(soft_margin_triplet_loss(S, labels)), abs=1e-3)


def test_each_network_gets_its_peers_verdict() -> None:
    data = Pairs(40)
    low, high = torch.rand(20, generator=torch.Generator().manual_seed(0)) * 0.1, torch.ones(20)
    mismatched = {"triplet-mean": torch.ones(8)}
    seen = {
        "A": Seen({"triplet-mean": torch.cat([low, high])}, mismatched),
        "B": Seen({"triplet-mean": torch.cat([high, low])}, mismatched),
    }
    net, peer = nets()
    found = method().divide(seen, {"A": net, "B": peer}, data, Now(0, 4, 0))  # type: ignore[arg-type]
    assert found["A"].sets.tolist() == [1] * 20 + [0] * 20  # A trains on what B calls clean
    assert found["B"].sets.tolist() == [0] * 20 + [1] * 20
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    assert float(found["A"].columns["clean_prob"][20:].min()) > 0.9


def test_the_observed_loss_is_that_of_the_specification() -> None:
    net, _ = nets()
    images, texts = net.encode(batch())[0]
    seen = method().observe(net, images, texts, torch.arange(4))
    torch.testing.assert_close(
        seen["triplet-mean"].detach(), torch.tensor([0.0375, 0.125, 0.225, 0.275]), atol=1e-5, rtol=0
    )


def _loss(similarity: Tensor, labels: list[float]) -> float:
    """Σ_i [α_i - S_ii + max_j S_ij]_+ + [α_i - S_ii + max_k S_ki]_+, by loops."""
    total, count = 0.0, len(labels)
    for i, y in enumerate(labels):
        alpha = 0.2 * (10**y - 1) / 9
        row = max(float(similarity[i, j]) for j in range(count) if j != i)
        column = max(float(similarity[k, i]) for k in range(count) if k != i)
        total += max(0.0, alpha - float(similarity[i, i]) + row) + max(0.0, alpha - float(similarity[i, i]) + column)
    return total
