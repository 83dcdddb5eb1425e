"""CREAM by hand: three sets by two verdicts, refined labels, filters, mined pairs, and when each set is trained on."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from given import Given, Pairs, S, batch
from in2r.methods import Net, Now, PartitionConfig, Seen
from in2r.methods.cream import Cream, CreamConfig, log_softmaxes, mined_contrast_loss
from in2r.partition import fit_two_gaussians
from in2r.runs.settings import load_config

L = [0.414432, 2.105238, 4.540969, 6.591290]
P = [0.827858, 0.417318, 0.209891, 0.057651]
"""per-sample losses and predictions of S in the specification"""
Y = torch.tensor([1, 0.5, 0.25, 0])
THEIRS = S - 0.3 * torch.diag(torch.tensor([1.0, 0.0, 0.0, 1.0]))
"""the similarity by the peer, to which two of the pairs match less"""
THEIR_P = [
    (math.exp(THEIRS[i, i] / 0.07) / sum(math.exp(x / 0.07) for x in THEIRS[i])
     + math.exp(THEIRS[i, i] / 0.07) / sum(math.exp(x / 0.07) for x in THEIRS[:, i])) / 2
    for i in range(4)
]  # fmt: skip
PROB = {"clean_prob": [0.9, 0.8, 0.7, 0.5], "peer_prob": [1.0, 0.6, 0.9, 0.2]}


def at(epoch: int) -> Now:
    return Now(epoch=epoch, epochs=40, seed=0, name="A")


def nets() -> tuple[Net, Net]:
    return Net(Given(S), nn.Module()).train(), Net(Given(THEIRS), nn.Module()).train()


def method(**settings: object) -> Cream:
    return Cream(replace(CreamConfig(), **settings), PartitionConfig())  # type: ignore[arg-type]


def three(clean: float = 0.5, hard: float = 0.3, noisy: float = 0.2) -> dict[str, object]:
    """Return a batch of each set; the numbers are the sets' shares."""
    shares = {"clean": clean, "hard": hard, "noisy": noisy}
    return {name: batch(share=[share] * 4, **PROB) for name, share in shares.items()}


def loss_by_loops(similarity: Tensor, labels: list[float], smallest: float, tau: float = 0.07) -> float:
    """1/B Σ_ij [U_ij (-log P^r_ij) + V_ij (-log P^c_ij)]."""
    s, n, total = similarity.tolist(), len(labels), 0.0
    for i in range(n):
        for j in range(n):
            row = math.log(math.exp(s[i][j] / tau) / sum(math.exp(x / tau) for x in s[i]))
            column = math.log(math.exp(s[i][j] / tau) / sum(math.exp(s[k][j] / tau) for k in range(n)))
            if i == j:
                u = v = labels[i]
            else:
                u = (1 - labels[i]) * max(s[i][j], 0) / (sum(max(s[i][k], 0) for k in range(n) if k != i) + 1e-6)
                v = (1 - labels[j]) * max(s[i][j], 0) / (sum(max(s[k][j], 0) for k in range(n) if k != j) + 1e-6)
                u, v = u * (u >= smallest), v * (v >= smallest)
            total -= u * row + v * column
    return total / n


# --- warm-up, losses and predictions


def test_the_warm_up_adds_both_directions() -> None:
    net, _ = nets()
    epochs, warmup = method().warmup()
    assert epochs == 5
    assert float(warmup.step(net, batch()).losses["total"].detach()) == pytest.approx(sum(L) / 4, abs=1e-5)


def test_the_observed_loss_is_that_of_the_specification() -> None:
    net, _ = nets()
    seen = method().observe(net, *net.encode(batch())[0], torch.arange(4))
    torch.testing.assert_close(seen["infonce"].detach(), torch.tensor(L), atol=1e-4, rtol=0)


def test_the_prediction_is_that_of_the_specification() -> None:
    net, _ = nets()
    found = method()._predicted(net, batch(), net.encode(batch())[0])
    torch.testing.assert_close(found.detach(), torch.tensor(P), atol=1e-5, rtol=0)


# --- division


def seen_by(a: Tensor, b: Tensor) -> dict[str, Seen]:
    return {
        name: Seen({"infonce": losses}, {"infonce": losses[-8:]}) for name, losses in zip("AB", (a, b), strict=True)
    }


def planted(low: int, high: int, seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.cat([0.1 * torch.rand(low, generator=draws), 1 + 0.1 * torch.rand(high, generator=draws)])


def test_a_pair_is_clean_by_two_verdicts_hard_by_one_and_noisy_by_none() -> None:
    a, b = planted(20, 20, 0), planted(30, 10, 1)
    split = Cream(CreamConfig(), PartitionConfig(single_mode="split"))
    found = split.divide(seen_by(a, b), {}, Pairs(40), at(0))  # type: ignore[arg-type]
    wanted = [0] * 20 + [1] * 10 + [2] * 10
    assert found["A"].sets.tolist() == wanted
    assert found["B"].sets.tolist() == wanted
    w_a, w_b = (torch.as_tensor(fit_two_gaussians(each).clean_probability).float() for each in (a, b))
    torch.testing.assert_close(found["A"].columns["peer_prob"], w_b)
    torch.testing.assert_close(found["B"].columns["peer_prob"], w_a)
    torch.testing.assert_close(found["A"].columns["clean_prob"], (w_a + w_b) / 2)
    assert found["A"].columns["share"].tolist() == pytest.approx([0.5] * 20 + [0.25] * 20)
    assert (found["A"].judge, found["B"].judge) == ("A", "B")
    assert (found["A"].figures["clean_fraction"], found["A"].figures["hard_fraction"]) == (0.5, 0.25)


def test_nothing_is_divided_where_one_network_sees_a_single_group() -> None:
    two, one = planted(20, 20, 0), 0.5 + 0.1 * torch.randn(40, generator=torch.Generator().manual_seed(2))
    found = method().divide(seen_by(two, one), {}, Pairs(40), at(0))  # type: ignore[arg-type]
    assert [found[name].figures["single_mode"] for name in "AB"] == [0, 1]
    assert [found[name].split for name in "AB"] == [False, False]
    assert found["A"].sets.tolist() == [0] * 40


def test_where_no_pair_is_clean_by_both_the_lowest_losses_are() -> None:
    a = planted(20, 20, 0)
    split = Cream(CreamConfig(), PartitionConfig(single_mode="split", minimum_clean_share=0.1))
    found = split.divide(seen_by(a, 2 * a.flip(0)), {}, Pairs(40), at(0))  # type: ignore[arg-type]
    clean = torch.nonzero(found["A"].sets == 0).flatten()
    assert clean.tolist() == sorted(torch.argsort(a + 2 * a.flip(0))[:4].tolist())
    assert (found["A"].sets == 1).sum() == 36
    assert "no two pairs are clean by both" in found["A"].remark


def test_an_oracle_run_trusts_its_pairs() -> None:
    net, peer = nets()
    every = method().trust(torch.arange(4), 5)
    assert every.sets.tolist() == [0, 0, 0, 0, -1]
    clean = batch(**{name: rows[:4].tolist() for name, rows in every.columns.items()})
    (step,) = method().steps(net, peer, {"clean": clean}, at(39))
    assert float(step.losses["total"].detach()) == pytest.approx(sum(L) / 4, abs=1e-5)


# --- labels and filters


def test_labels_of_the_three_sets() -> None:
    net, peer = nets()
    labels = method()._labels(net, peer, three())  # type: ignore[arg-type]
    clean = [w + (1 - w) * p for w, p in zip(PROB["peer_prob"], P, strict=True)]
    hard = [w + (1 - w) * p for w, p in zip(PROB["clean_prob"], P, strict=True)]
    noisy = [(p + q) / 2 for p, q in zip(P, THEIR_P, strict=True)]
    for name, wanted in (("clean", clean), ("hard", hard), ("noisy", noisy)):
        assert labels[name].tolist() == pytest.approx(wanted, abs=1e-5)
        assert not labels[name].requires_grad
    assert max(abs(p - q) for p, q in zip(P, THEIR_P, strict=True)) > 0.1
    assert net.backbone.modes == [False]  # one pass, in eval mode
    assert net.backbone.training


def test_the_filter_is_the_mean_label_by_the_sizes_of_the_sets() -> None:
    batches, labels = three(0.5, 0.3, 0.2), {"clean": Y, "hard": Y / 2, "noisy": Y / 4}
    f = 0.4375 * (0.5 + 0.3 / 2 + 0.2 / 4)
    found = method()._filters(batches, labels, -2)  # type: ignore[arg-type]
    assert {name: float(value) for name, value in found.items()} == pytest.approx(dict.fromkeys(labels, f))
    early = method()._filters(batches, labels, 3)  # type: ignore[arg-type]
    assert (float(early["clean"]), float(early["noisy"])) == pytest.approx((3, f))
    del batches["hard"], labels["hard"]  # used up, or empty: it counts as nothing
    found = method()._filters(batches, labels, 0)  # type: ignore[arg-type]
    assert float(found["clean"]) == pytest.approx(0.4375 * (0.5 + 0.2 / 4) / 0.7)


def test_there_is_no_filter_where_most_pairs_are_clean() -> None:
    labels = {"clean": Y, "hard": Y / 2, "noisy": Y / 4}
    found = method()._filters(three(0.86, 0.08, 0.06), labels, 10)  # type: ignore[arg-type]
    assert (found["clean"], found["hard"]) == (0, 0)
    assert float(found["noisy"]) == pytest.approx(0.4375 * (0.86 + 0.04 + 0.015))
    fewer = method()._filters(three(0.84, 0.1, 0.06), labels, 10)  # type: ignore[arg-type]
    assert (float(fewer["clean"]), float(fewer["hard"])) == pytest.approx((10, 0.4375 * (0.84 + 0.05 + 0.015)))


# --- loss


def test_the_loss_is_that_of_the_specification() -> None:
    for smallest, wanted in ((0.0, 3.313539), (0.2, 1.843358)):
        assert float(mined_contrast_loss(S, Y, smallest)) == pytest.approx(wanted, abs=1e-5)
        assert float(mined_contrast_loss(S, Y, torch.tensor(smallest))) == pytest.approx(wanted, abs=1e-5)


def test_from_a_filter_of_one_on_it_is_infonce_weighted_by_the_labels() -> None:
    for smallest in (1.0, 10.0):
        wanted = sum(float(y) * loss for y, loss in zip(Y, L, strict=True)) / 4
        assert float(mined_contrast_loss(S, Y, smallest)) == pytest.approx(wanted, abs=1e-5)


def test_a_weight_that_equals_the_filter_stays() -> None:
    similarity, unlabelled = torch.tensor([[0.9, 0.5], [0.5, 0.9]]), torch.zeros(2)
    weight = torch.tensor(0.5) / (torch.tensor(0.5) + 1e-6)
    wanted = 2 * math.log(1 + math.exp(0.4 / 0.07))  # -log P of each of the four mined entries, over B = 2
    assert float(mined_contrast_loss(similarity, unlabelled, weight)) == pytest.approx(wanted, rel=1e-4)
    assert float(mined_contrast_loss(similarity, unlabelled, torch.nextafter(weight, torch.tensor(1.0)))) == 0


def test_the_loss_equals_a_plain_loop_with_negative_cosines_among_it() -> None:
    draws = torch.Generator().manual_seed(3)
    similarity = torch.rand(6, 6, generator=draws, dtype=torch.float64) * 2 - 1
    labels = torch.rand(6, generator=draws, dtype=torch.float64)
    for smallest in (0.0, 0.05, 0.3):
        found = float(mined_contrast_loss(similarity, labels, smallest))
        assert found == pytest.approx(loss_by_loops(similarity, labels.tolist(), smallest))
    assert float(mined_contrast_loss(similarity.T, labels, 0.05)) == pytest.approx(
        loss_by_loops(similarity, labels.tolist(), 0.05)
    )


def test_the_gradient_flows_through_the_weights_unless_they_are_detached() -> None:
    def gradient(detach: bool) -> Tensor:
        similarity = S.clone().double().requires_grad_()
        labels = Y.double().requires_grad_()
        mined_contrast_loss(similarity, labels, 0.0, detach_weights=detach).backward()  # type: ignore[no-untyped-call]
        assert labels.grad is None
        assert similarity.grad is not None
        return similarity.grad

    def step(detach: bool) -> Tensor:
        """The slope by differences; the weights stay those of S where they are constants."""
        slopes, h = torch.zeros(4, 4, dtype=torch.float64), 1e-6
        for i in range(4):
            for j in range(4):
                for sign in (1, -1):
                    moved = S.clone().double()
                    moved[i, j] += sign * h
                    slopes[i, j] += sign * frozen(moved) if detach else sign * float(mined_contrast_loss(moved, Y, 0.0))
        return slopes / (2 * h)

    def frozen(moved: Tensor) -> float:
        rows, columns = log_softmaxes(moved, 0.07)
        others = S.double().fill_diagonal_(0)
        u = (1 - Y)[:, None] * others / (others.sum(1, keepdim=True) + 1e-6) + torch.diag(Y)
        v = (1 - Y)[None, :] * others / (others.sum(0, keepdim=True) + 1e-6) + torch.diag(Y)
        return float(-(u * rows + v * columns).sum() / 4)

    for detach in (False, True):
        torch.testing.assert_close(gradient(detach), step(detach), atol=1e-6, rtol=1e-5)
    assert (gradient(False) - gradient(True)).abs().max() > 0.01


def test_other_captions_of_an_image_are_no_negatives_and_are_not_mined() -> None:
    same = torch.eye(4, dtype=torch.bool)
    same[2, 3] = same[3, 2] = True
    rows, columns = log_softmaxes(S, 0.07, same)
    assert float(rows[2].exp().sum() - 1) == pytest.approx(1, abs=1e-5)  # but for the entry that is left out, exp(0)
    assert float(columns[:, 3].exp().sum() - 1) == pytest.approx(1, abs=1e-5)
    moved = S.clone()
    moved[2, 3], moved[3, 2] = 0.9, -0.9
    found = [float(mined_contrast_loss(each, Y, 0.0, ignore=same)) for each in (S, moved)]
    assert found[0] == pytest.approx(found[1])
    assert math.isfinite(found[0])


# --- steps


def test_sets_join_one_after_the_other() -> None:
    for epoch, wanted in ((0, ["clean"]), (9, ["clean"]), (10, ["clean", "hard"]), (14, ["clean", "hard"]),
                          (15, ["clean", "hard", "noisy"]), (39, ["clean", "hard", "noisy"])):  # fmt: skip
        net, peer = nets()
        steps = list(method().steps(net, peer, three(), at(epoch)))  # type: ignore[arg-type]
        assert [next(iter(step.losses)) for step in steps] == wanted


def test_before_hard_pairs_join_nothing_is_mined() -> None:
    net, peer = nets()
    (step,) = method().steps(net, peer, three(), at(9))  # type: ignore[arg-type]
    labels = [w + (1 - w) * p for w, p in zip(PROB["peer_prob"], P, strict=True)]
    wanted = sum(y * loss for y, loss in zip(labels, L, strict=True)) / 4
    assert float(step.losses["clean"].detach()) == pytest.approx(wanted, abs=1e-5)
    assert float(step.notes["filter_clean"]) == 1
    assert net.backbone.modes == [False, True]  # labels in eval mode, the loss in training mode


def test_each_step_has_the_loss_of_its_labels_and_the_common_filter() -> None:
    net, peer = nets()
    steps = list(method().steps(net, peer, three(), at(15)))  # type: ignore[arg-type]
    labels = method()._labels(net, peer, three())  # type: ignore[arg-type]
    f = sum(share * float(labels[name].mean()) for name, share in (("clean", 0.5), ("hard", 0.3), ("noisy", 0.2)))
    for step, (name, y) in zip(steps, labels.items(), strict=True):
        assert float(step.losses[name].detach()) == pytest.approx(loss_by_loops(S, y.tolist(), f), abs=1e-5)
    # the set that waits counts in the filter too
    first, _ = method().steps(net, peer, three(), at(12))  # type: ignore[arg-type]
    assert float(first.notes["filter_clean"]) == pytest.approx(f)


def test_labels_are_made_before_the_first_step_changes_the_network() -> None:
    net, peer = nets()
    before = method()._labels(net, peer, three())  # type: ignore[arg-type]
    steps = method().steps(net, peer, three(), at(15))  # type: ignore[arg-type]
    next(steps)
    with torch.no_grad():
        net.backbone.matrix.zero_()
    for step, name in zip(steps, ("hard", "noisy"), strict=True):
        assert float(step.notes[f"label_{name}"]) == pytest.approx(float(before[name].mean()), abs=1e-6)
    assert peer.backbone.matrix.grad is None
    assert peer.backbone.training


def test_hard_pairs_are_passed_over_once() -> None:
    assert [(walk.name, walk.again) for walk in Cream.sets] == [("clean", True), ("hard", False), ("noisy", True)]


def test_the_presets_say_what_the_public_code_says() -> None:
    for preset, main in (("cream/flickr30k", 40), ("cream/coco", 20)):
        found = load_config(preset)
        assert (found.method.warmup_epochs, found.train.epochs, found.train.step_epochs) == (5, 5 + main, 10)
        assert (int(found.method.hard_from * main), int(found.method.noisy_from * main)) == (10, 15)
        assert (found.train.learning_rate, found.train.schedule, found.train.schedule_from) == (2e-4, "step", "main")
        assert (found.train.initial_weights, found.train.order) == ("independent", "alternating")
        assert (found.partition.minimum_noisy_share, found.partition.single_mode) == (0.01, "split")
