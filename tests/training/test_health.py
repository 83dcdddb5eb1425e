"""The health record, and that what is known of injected noise reaches nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from in2r.data.noise import NoiseIndex
from in2r.memory import Neighbors
from in2r.methods import Batch, LookUp, Step
from in2r.seeds import derive
from in2r.training import health, loop, networks
from in2r.training import step as step_module
from in2r.training.health import Means, Truth, gradient_norms, partition_truth, record_step
from in2r.training.train import start_run
from tiny_engine import outcome, settings

CPU = torch.device("cpu")


def test_means_of_numbers_and_tensors() -> None:
    means = Means()
    means.add("a", 1.0)
    means.add("a", torch.tensor(4.0))
    means.add("a", torch.tensor(4.0, dtype=torch.float64))
    means.add("b", torch.tensor(0.5))
    assert means.read() == {"a": 3.0, "b": 0.5}
    assert means.state() == {"a": [9.0, 3], "b": [0.5, 1]}


def test_values_wait_until_many_can_be_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches = []
    stack = torch.stack
    monkeypatch.setattr(torch, "stack", lambda values: fetches.append(len(values)) or stack(values))
    monkeypatch.setattr(health, "PENDING", 4)
    means = Means()
    for number in range(6):
        means.add("x", torch.tensor(float(number)))
    assert fetches == [4]
    assert means.read() == {"x": 2.5}
    assert fetches == [4, 2]


def test_means_go_through_a_checkpoint_without_a_bit_lost() -> None:
    values = [float(value) for value in np.random.default_rng(0).standard_normal(20)]
    straight, first = Means(), Means()
    for value in values:
        straight.add("x", torch.tensor(value))
    for value in values[:7]:
        first.add("x", torch.tensor(value))
    second = Means(json.loads(json.dumps(first.state())))
    for value in values[7:]:
        second.add("x", torch.tensor(value))
    assert second.read() == straight.read()


def near(ids: list[list[int]], groups: list[list[int]] | None = None) -> Neighbors:
    shape = torch.tensor(ids)
    rows = torch.zeros(*shape.shape, 2)
    scores = torch.full(shape.shape, 0.5)
    return Neighbors(scores, rows, rows, shape, torch.tensor(groups if groups else ids))


def test_distinct_pairs_by_hand() -> None:
    assert float(near([[1, 2, 3], [4, 4, 4], [5, 6, 5]]).distinct()) == pytest.approx((3 + 1 + 2) / 3)
    assert float(near([[7]]).distinct()) == 1.0


def test_places_left_empty_by_exclusion_do_not_count(truth: Truth) -> None:
    some, none = near([[1, 1, 2], [3, 4, 3]]), near([[1], [2]])
    some.scores[0, 2], some.scores[1, 1:] = -torch.inf, -torch.inf
    none.scores[:] = -torch.inf
    assert float(some.distinct()) == 1.0
    assert float(none.distinct()) == 0.0
    images = near([[3, 0], [0, 5]], groups=[[1, 0], [0, 0]])
    images.scores[1, 0] = -torch.inf  # an excluded hit: of three places two hit
    share = truth.same_image(LookUp(noisy_batch([1, 2], [1, 0]), images, none))
    assert float(share["neighbors_same_image_i2t"]) == pytest.approx(2 / 3)
    assert float(share["neighbors_same_image_t2i"]) == 0


def noisy_batch(pairs: list[int], groups: list[int]) -> Batch:
    empty = torch.zeros(len(pairs), 1, 2)
    return Batch(torch.tensor(pairs), torch.tensor(groups), empty, None, empty, None)


@pytest.fixture
def truth() -> Truth:
    """Six captions of three images, two each; captions 1 and 2 have changed places."""
    own = np.array([0, 0, 1, 1, 2, 2])
    return Truth(NoiseIndex(np.array([0, 1, 0, 1, 2, 2]), own), torch.as_tensor(own), CPU)


def test_same_image_by_hand(truth: Truth) -> None:
    """Queries: pair 1 stands beside image 1, pair 2 beside image 0."""
    images = near([[3, 0], [0, 5]], groups=[[1, 0], [0, 2]])  # images 1, 0 for image 1; 0, 2 for 0
    texts = near([[0, 1], [4, 1]])  # captions written for 0, 0; query for 0. Then 2, 0; query for 1
    share = truth.same_image(LookUp(noisy_batch([1, 2], [1, 0]), images, texts))
    assert float(share["neighbors_same_image_i2t"]) == pytest.approx(2 / 4)
    assert float(share["neighbors_same_image_t2i"]) == pytest.approx(2 / 4)


def test_a_steps_record_by_hand(truth: Truth) -> None:
    step = Step({"total": torch.tensor(3.0), "inter": torch.tensor(1.0)})
    step.notes = {"elite_pairs": 2.0, "unrectified_steps": 0.0, "neighbor_score_i2t": torch.tensor(0.5)}
    images = near([[3, 0], [0, 0]], groups=[[1, 0], [0, 0]])
    step.found = LookUp(noisy_batch([1, 2], [1, 0]), images, near([[0, 1], [4, 1]]))
    means = Means()
    record_step(means, "A", step, truth)
    record_step(means, "A", Step({"total": torch.tensor(5.0)}, notes={"unrectified_steps": 1.0}), truth)
    head = Step({"total": torch.tensor(8.0), "head": torch.tensor(7.0)}, of="head")
    record_step(means, "A", head, truth)  # the total of an optimiser of its own is no part of the network's
    read = means.read()
    assert read["loss_total_A"] == 4.0
    assert read["loss_inter_A"] == 1.0
    assert read["loss_head_A"] == 7.0
    assert read["elite_pairs_A"] == 2.0
    assert read["neighbor_score_i2t_A"] == 0.5
    assert read["neighbors_same_image_i2t_A"] == 0.75
    assert read["unrectified_steps_A"] == 0.5  # the share of the steps
    assert means.state()["unrectified_steps_A"] == [1.0, 2]


def test_partition_against_the_truth_by_hand(truth: Truth) -> None:
    assert truth.clean.tolist() == [True, False, False, True, True, True]
    losses = {"sce": torch.tensor([0.1, 0.9, 0.3, 0.4, 0.2, 0.5])}
    clean = torch.tensor([True, False, True, True, False, False])
    figures = partition_truth(losses, clean, torch.tensor([0.95, 0.15, 0.85, 0.95, 0.65, 0.35]), torch.arange(6), truth)
    # of 4 x 2 couples of a matching and a mismatched pair, 6 are in order: 0.9 is above all four, 0.3 above two
    assert figures["auroc_sce"] == pytest.approx(6 / 8)
    assert figures["partition_precision"] == pytest.approx(2 / 3)
    assert figures["partition_recall"] == pytest.approx(2 / 4)
    assert figures["noise_rate_error"] == pytest.approx(4 / 6 - 3.9 / 6)  # 2 of 6 are wrong, 2.1 by the probabilities
    # the bins from 0.9, 0.1, 0.8, 0.6 and 0.3 on
    assert figures["calibration_error"] == pytest.approx((2 * 0.05 + 0.15 + 0.85 + 0.35 + 0.65) / 6)
    some = torch.tensor([0, 3, 4])
    only_clean = partition_truth({"sce": torch.ones(3)}, clean, None, some, truth)
    assert "calibration_error" not in only_clean
    assert "auroc_sce" not in only_clean
    assert only_clean["partition_recall"] == pytest.approx(2 / 3)


def test_gradient_norms_of_each_loss() -> None:
    net = torch.nn.Linear(2, 1, bias=False)
    step = Step({"one": 3 * net.weight[0, 0], "two": 4 * net.weight.sum(), "total": net.weight.sum()})
    norms = gradient_norms(net, step)
    assert norms.keys() == {"one", "two"}
    assert float(norms["one"]) == pytest.approx(3)
    assert float(norms["two"]) == pytest.approx(4 * 2**0.5)
    assert net.weight.grad is None
    step.losses["total"].backward()  # type: ignore[no-untyped-call]


def test_the_record_has_what_tells_health(data: Path, noise: Path, tmp_path: Path) -> None:
    warm, last = start_run(tmp_path / "run", settings(data, "in2r", f"noise.index={noise}", "train.epochs=2")).records()
    assert {"loss_sce_A", "peer_similarity_image", "peer_similarity_text", "collapsed_B"} <= warm.keys()
    for name in ("A", "B"):
        for key in (
            *("loss_inter", "loss_intra_image", "loss_intra_text", "loss_clean", "loss_rect", "loss_total"),
            *("clean_fraction", "mean_clean_prob", "estimated_noise_rate_triplet-mean"),
            *("memory_fill", "unrectified_steps"),
            *("distinct_neighbors_i2t", "distinct_neighbors_t2i", "auroc_sce", "auroc_triplet-mean"),
            *("partition_precision", "partition_recall", "neighbors_same_image_i2t", "neighbors_same_image_t2i"),
        ):
            assert f"{key}_{name}" in last, key
    assert not any("auroc" in key for key in warm)


class Garbage:
    """A truth that is wrong about everything."""

    def __init__(self, noise: NoiseIndex, image_of_caption: Tensor, device: torch.device) -> None:
        self.clean = torch.as_tensor(noise.index) != image_of_caption

    def same_image(self, found: LookUp) -> dict[str, Tensor]:
        return {"neighbors_same_image_i2t": torch.tensor(-7.0), "neighbors_same_image_t2i": torch.tensor(-7.0)}


def test_the_truth_reaches_the_record_and_nothing_that_trains(
    data: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(data, "in2r", f"noise.index={noise}")
    start_run(tmp_path / "right", config)
    monkeypatch.setattr(loop, "Truth", Garbage)
    start_run(tmp_path / "wrong", config)
    tensors, meta, best, records = outcome(tmp_path / "right")
    tensors2, meta2, best2, records2 = outcome(tmp_path / "wrong")
    assert all(torch.equal(tensors[name], tensors2[name]) for name in tensors)
    assert records[-1]["mixture"]["A"]["clean_counts"] != records2[-1]["mixture"]["A"]["clean_counts"]
    assert best == best2
    assert meta["best"] == meta2["best"]
    told = ("auroc", "partition_", "neighbors_same_image", "calibration_error", "noise_rate_error")

    def untold(record: dict[str, Any]) -> dict[str, Any]:
        mixture = {
            name: {key: value for key, value in fitted.items() if key != "clean_counts"}
            for name, fitted in record.get("mixture", {}).items()
        }
        return {key: value for key, value in record.items() if not key.startswith(told)} | {"mixture": mixture}

    assert [untold(record) for record in records] == [untold(record) for record in records2]
    assert records2[-1]["neighbors_same_image_i2t_A"] == -7


def test_the_two_networks_are_treated_alike(
    data: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchange their names and their turns: each becomes the other, bit by bit."""
    config = settings(data, "in2r", f"noise.index={noise}", "train.initial_weights=independent", "train.epochs=2")
    start_run(tmp_path / "straight", config)
    swap = {"A": "B", "B": "A"}

    def swapped(seed: int, *names: str | int) -> int:
        return derive(seed, *(swap.get(str(name), name) for name in names))

    monkeypatch.setattr("in2r.seeds.derive", swapped)
    for module in (step_module, networks):
        monkeypatch.setattr(module, "derive", swapped)
    monkeypatch.setattr(networks, "NAMES", ("B", "A"))
    start_run(tmp_path / "swapped", config)
    straight, exchanged = (outcome(tmp_path / name)[0] for name in ("straight", "swapped"))
    for name, value in straight.items():
        kind, net, rest = name.split(".", 2)
        assert torch.equal(value, exchanged[f"{kind}.{swap[net]}.{rest}"]), name


def test_what_belongs_to_an_image_is_found_on_both_sides() -> None:
    """Images 0, 1, 2 with captions 0-1, 2-4, none; caption 0 was moved to image 1, caption 2 to image 0."""
    original = torch.tensor([0, 0, 1, 1, 1])
    index = np.array([1, 0, 0, 1, 2])
    truth = Truth(NoiseIndex(index, original.numpy(), "caption", None, None), original, torch.device("cpu"))
    asked = torch.tensor([0, 2])
    hidden = truth.hidden(batch_of(asked, torch.as_tensor(index)[asked]))
    groups, pairs = hidden["image"]  # images 1 and 0, as given
    assert groups.tolist() == [1, 0]
    assert pairs.tolist() == [[2, 3, 4], [0, 1, -1]]
    groups, pairs = hidden["text"]  # the images that captions 0 and 2 were written for
    assert groups.tolist() == [0, 1]
    assert pairs.tolist() == [[0, 1, -1], [2, 3, 4]]
    image_without_caption = truth.hidden(batch_of(torch.tensor([4]), torch.tensor([2])))
    assert image_without_caption["image"][1].tolist() == [[-1, -1, -1]]


def batch_of(pairs: Tensor, groups: Tensor) -> Batch:
    nothing = torch.zeros(len(pairs), 1, 1)
    return Batch(pairs, groups, nothing, None, nothing, None)
