"""BiCro by hand: small-loss warm-up, two Betas, anchors, labels from two agreements, noisy steps before clean ones."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from given import Given, Pairs, S, batch
from in2r.losses import soft_margin_triplet_loss
from in2r.methods import Net, Now, PartitionConfig, Seen
from in2r.methods.bicro import Bicro, BicroConfig, agreement, clean_labels, consistency, summary, trust_order
from in2r.models.base import Items
from in2r.partition import fit_two_betas
from in2r.runs.settings import load_config

EARLY, LATE = Now(epoch=0, epochs=4, seed=0, name="A"), Now(epoch=2, epochs=4, seed=0, name="A")
ANCHORS = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0.8, 0.6], [0.0, 1.0]])
QUERIES = torch.tensor([[0.9, 0.1], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [-1.0, 0.2]])
V = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
T = torch.tensor([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0], [-0.8, 0.6]])
"""images and captions of a batch; cosines to the first pair: 1, 0.8, 0.6, 0 of images, 1, 0.6, 1, -0.8 of captions"""


class Vectors(Given):
    """Scores by a given matrix, and has given vectors; which pairs it is asked for says the one-hot row."""

    def __init__(self, similarity: Tensor, images: Tensor, texts: Tensor) -> None:
        super().__init__(similarity)
        self.images, self.texts = images, texts

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        self.modes.append(self.training)
        return Items(values[:, 0] @ self.images)

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return Items(values[:, 0] @ self.texts)

    def logits(self, images: Items, texts: Items) -> Tensor:
        rows = [int((self.images - row).abs().sum(1).argmin()) for row in images.vector]
        return self.matrix[rows][:, rows]


def nets() -> tuple[Net, Net]:
    return Net(Given(S), nn.Module()).train(), Net(Vectors(S, V, T), nn.Module()).train()


def method(**settings: object) -> Bicro:
    return Bicro(replace(BicroConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


# --- warm-up and division


def test_the_warm_up_sums_the_small_losses_of_a_batch() -> None:
    net, _ = nets()
    for share, wanted in ((0.5, 0.1625), (0.74, 0.1625), (0.75, 0.3875), (1.0, 0.6625), (0.1, 0.0375)):
        step = method(warmup_share=share).warmup()[1].step(net, batch())
        assert float(step.losses["total"].detach()) == pytest.approx(wanted, abs=1e-6)
    kept = method(warmup_share=0.5).warmup()[1].step(net, batch()).losses["total"]
    kept.backward()  # type: ignore[no-untyped-call]
    assert net.backbone.matrix.grad is not None
    assert float(net.backbone.matrix.grad[3, 3]) == 0  # the pair of the largest loss teaches nothing of itself


def test_the_observed_loss_is_that_of_the_specification() -> None:
    net, _ = nets()
    seen = method().observe(net, *net.encode(batch())[0], torch.arange(4))
    torch.testing.assert_close(
        seen["triplet-mean"].detach(), torch.tensor([0.0375, 0.125, 0.225, 0.275]), atol=1e-5, rtol=0
    )


def test_each_network_trains_on_the_two_betas_of_its_peer() -> None:
    draws = torch.Generator().manual_seed(0)
    low, high = torch.rand(30, generator=draws) * 0.2, 0.7 + torch.rand(20, generator=draws) * 0.3
    seen = {
        "A": Seen({"triplet-mean": torch.cat([low, high])}, {"triplet-mean": high}),
        "B": Seen({"triplet-mean": torch.cat([high, low])}, {"triplet-mean": high}),
    }
    net, peer = nets()
    found = method().divide(seen, {"A": net, "B": peer}, Pairs(50), EARLY)  # type: ignore[arg-type]
    assert found["A"].sets.tolist() == [1] * 20 + [0] * 30
    assert found["B"].sets.tolist() == [0] * 30 + [1] * 20
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    wanted = torch.as_tensor(fit_two_betas(torch.cat([low, high]), clean="lower_mean").clean_probability).float()
    torch.testing.assert_close(found["B"].columns["clean_prob"], wanted)


def test_the_clean_component_is_the_one_of_the_lower_mean() -> None:
    """With few noisy pairs, their wide component is the likelier one at the lowest loss as well."""
    draws = torch.Generator().manual_seed(0)
    losses = torch.cat([0.3 + 0.05 * torch.randn(960, generator=draws), 0.8 + 0.1 * torch.randn(40, generator=draws)])
    split = Bicro(BicroConfig(), PartitionConfig(single_mode="split"))
    seen = dict.fromkeys("AB", Seen({"triplet-mean": losses}, {"triplet-mean": losses[960:]}))
    net, peer = nets()
    found = split.divide(seen, {"A": net, "B": peer}, Pairs(1000), EARLY)  # type: ignore[arg-type]
    assert int((found["A"].sets == 0).sum()) > 900


# --- anchors and labels


def test_the_consistency_is_that_of_the_specification() -> None:
    i2t, t2i = consistency(QUERIES, ANCHORS)
    wanted = torch.tensor([0.804923, 0.245145])
    torch.testing.assert_close(i2t, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(t2i, wanted, atol=1e-5, rtol=0)


def test_consistency_equals_a_plain_loop() -> None:
    draws = torch.Generator().manual_seed(1)
    v, t = (torch.randn(7, 5, generator=draws, dtype=torch.float64) for _ in range(2))
    av, at = (torch.randn(3, 5, generator=draws, dtype=torch.float64) for _ in range(2))

    def cos(one: Tensor, other: Tensor) -> float:
        return float(one @ other / max(float(one.norm() * other.norm()), 1e-8))

    def rho(x: float, y: float) -> float:
        return x / y if x / y < 1 else y / x

    i2t, t2i = consistency((v, t), (av, at))
    different = 0
    for n in range(7):
        c = max(range(3), key=lambda m: cos(v[n], av[m]))
        d = max(range(3), key=lambda m: cos(t[n], at[m]))
        different += c != d
        assert float(i2t[n]) == pytest.approx(rho(cos(v[n], av[c]), cos(t[n], at[c])))
        assert float(t2i[n]) == pytest.approx(rho(cos(t[n], at[d]), cos(v[n], av[d])))
    assert different  # else a nearest anchor of the wrong side would not be found out


def test_agreement_by_hand() -> None:
    x = torch.tensor([0.5, 0.25, 0.5, -0.25, 0.5, 0.0, 0.0, 0.5, -0.5, 1e-3, -0.5])
    y = torch.tensor([0.25, 0.5, 0.5, 0.5, -0.25, 0.0, 0.5, 0.0, 0.0, 1e-3, -0.25])
    assert agreement(x, y).tolist() == [0.5, 0.5, 1, -0.5, -2, 0, 0, 0, 0, 1, 0.5]


def test_a_vector_of_nothing_agrees_with_nothing() -> None:
    i2t, t2i = consistency((torch.zeros(1, 2), T[:1]), (V, T))
    assert (float(i2t), float(t2i)) == (0, 0)


def test_the_trusted_pairs_are_those_of_the_smallest_losses_and_ties_go_by_similarity() -> None:
    turned = torch.tensor([2, 0, 3, 1])
    assert trust_order(S).tolist() == [0, 1, 2, 3]
    assert turned[trust_order(S[turned][:, turned])].tolist() == [0, 1, 2, 3]
    apart = torch.diag(torch.tensor([0.5, 0.9, 0.7]))  # no hinge is positive: all losses are 0
    assert trust_order(apart).tolist() == [1, 2, 0]


def test_clean_labels_by_hand() -> None:
    agreements, order = torch.tensor([0.9, 0.6, -0.2, 0.4]), torch.tensor([2, 0, 3, 1])
    assert clean_labels(agreements, order, 1).tolist() == pytest.approx([0.95, 0.8, 1, 0.7])
    assert clean_labels(agreements, order, 2).tolist() == pytest.approx([1, 0.8, 1, 0.7])
    assert clean_labels(agreements, order, 1, "one").tolist() == [1, 1, 1, 1]
    # released: pairs 0, 3, 1, which follow the anchor, get the numbers of rows 0, 1, 2
    assert clean_labels(agreements, order, 1, "released").tolist() == pytest.approx([0.95, 0.4, 1, 0.8])


def test_the_summary_of_an_item_is_the_mean_of_its_real_parts() -> None:
    parts = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    vector = torch.zeros(2, 2)
    torch.testing.assert_close(summary(Items(vector, parts, mask)), torch.tensor([[0.5, 0.5], [1 / 3, 2 / 3]]))
    torch.testing.assert_close(summary(Items(vector, parts))[1], torch.tensor([1 / 3, 2 / 3]))
    assert summary(Items(V)) is V


# --- steps


def test_clean_labels_come_from_the_peer_and_its_anchors() -> None:
    """One anchor, the pair 0; agreements 1, 0.75, 0.6 and 0, as the cosine of the last images is 0."""
    net, peer = nets()
    (step,) = method().steps(net, peer, {"clean": batch(), "noisy": batch()}, EARLY)
    labels = torch.tensor([1, 0.5 + 0.75 / 2, 0.5 + 0.6 / 2, 0])  # 0.5 + 0 / 2 is not above the threshold
    wanted = soft_margin_triplet_loss(S, labels)
    assert float(step.losses["total"].detach()) == pytest.approx(float(wanted), abs=1e-5)
    assert float(step.notes["label_clean"]) == pytest.approx(float(labels.mean()), abs=1e-5)
    assert net.backbone.modes == [True]
    assert peer.backbone.modes == [False]
    assert peer.backbone.training


def test_from_the_middle_on_a_noisy_step_comes_before_the_clean_one() -> None:
    net, peer = nets()
    steps = list(method().steps(net, peer, {"clean": batch(), "noisy": batch()}, LATE))
    assert [sorted(step.losses) for step in steps] == [["noisy", "total"], ["clean", "total"]]
    labels = torch.tensor([1, 0.75, 0.6, 0])
    assert float(steps[0].losses["noisy"].detach()) == pytest.approx(
        float(soft_margin_triplet_loss(S, labels)), abs=1e-5
    )
    assert peer.backbone.modes == [False]  # both batches in one pass
    steps[0].losses["total"].backward()  # type: ignore[no-untyped-call]
    assert peer.backbone.matrix.grad is None


def test_anchors_of_a_noisy_batch_are_clean_pairs() -> None:
    net, peer = nets()
    noisy = batch()
    noisy = replace(noisy, images=noisy.images[[2, 1, 0, 3]], texts=noisy.texts[[2, 1, 0, 3]])
    first, _ = method().steps(net, peer, {"clean": batch(), "noisy": noisy}, LATE)
    assert float(first.notes["label_noisy"]) == pytest.approx((0.6 + 0.75 + 1 + 0) / 4, abs=1e-5)


def test_a_label_is_the_mean_of_both_agreements() -> None:
    """Anchors are the pairs 0 and 1. Image 2 is near image 1 (0.96 and 0.6), caption 2 near caption 0 (1 and 0.6)."""
    net, peer = nets()
    first, _ = method(anchor_share=0.25).steps(net, peer, {"clean": batch(), "noisy": batch()}, LATE)
    assert float(first.notes["label_noisy"]) == pytest.approx((1 + 1 + (0.6 / 0.96 + 0.6) / 2 + 0) / 4, abs=1e-5)


def test_labels_at_the_threshold_become_zero() -> None:
    net, peer = nets()
    for threshold, wanted in ((0.6, [1, 0.75, 0, 0]), (0.59, [1, 0.75, 0.6, 0]), (0.8, [1, 0, 0, 0])):
        first, _ = method(label_threshold=threshold).steps(net, peer, {"clean": batch(), "noisy": batch()}, LATE)
        assert float(first.notes["label_noisy"]) == pytest.approx(sum(wanted) / 4, abs=1e-5)


def test_without_noisy_pairs_there_is_the_clean_step_alone() -> None:
    net, peer = nets()
    assert len(list(method().steps(net, peer, {"clean": batch()}, LATE))) == 1


def test_every_clean_pair_may_be_an_anchor() -> None:
    net, peer = nets()
    (step,) = method(anchor_share=1.0).steps(net, peer, {"clean": batch()}, EARLY)
    assert float(step.notes["label_clean"]) == 1


def test_own_and_released_margins_are_those_of_the_specification() -> None:
    net, _ = nets()
    y = torch.tensor([1, 0.5, 0.25, 0])
    for margins, wanted in (("own", 1.032641), ("released", 1.113396)):
        step = method(margins=margins)._step(net, batch(), y, "clean")
        assert float(step.losses["total"].detach()) == pytest.approx(wanted, abs=1e-5)


def test_released_labels_are_those_of_other_pairs() -> None:
    net, peer = nets()
    (step,) = method(clean_labels="released").steps(net, peer, {"clean": batch()}, EARLY)
    labels = torch.tensor([1, 1, 0.5 + 0.75 / 2, 0.5 + 0.6 / 2])  # pairs 1, 2, 3 get the numbers of rows 0, 1, 2
    assert float(step.losses["total"].detach()) == pytest.approx(float(soft_margin_triplet_loss(S, labels)), abs=1e-5)


def test_the_presets_say_what_the_public_scripts_say() -> None:
    for preset, form in (("bicro/flickr30k", "own"), ("bicro/released", "released")):
        found = load_config(preset)
        assert (found.method.clean_labels, found.method.margins) == (form, form)
        assert (found.method.warmup_epochs, found.train.epochs, found.train.step_epochs) == (10, 50, 30)
        assert (found.train.learning_rate, found.train.schedule, found.train.schedule_from) == (2e-4, "step", "main")
        assert (found.train.initial_weights, found.train.order) == ("independent", "alternating")
        assert (found.partition.minimum_noisy_share, found.partition.single_mode) == (0.01, "split")
