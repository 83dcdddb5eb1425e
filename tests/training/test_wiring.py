"""What connects the parts, seen by its effect in a run: verdicts exchanged, a pair followed from file to memory."""

import copy
import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from in2r.methods import Seen
from in2r.models.base import Backbone
from in2r.tensors import load_tensors
from in2r.training import loop
from in2r.training import step as step_module
from tiny_engine import settings
from watched import Look, Watch, watched

WARM, EPOCHS = 2, 4
PLAIN = (
    *("model.image_dropout=0", "model.text_dropout=0", "train.region_drop=0", "train.word_drop=0"),
    *(f"method.warmup_epochs={WARM}", f"train.epochs={EPOCHS}"),
)
"""nothing drawn at random, so that a batch is what the files say, and its embeddings can be computed again"""
CLEAN = {"A": set(range(20)), "B": set(range(20, 60))}
"""the pairs that each network calls clean"""
PEER = {"A": "B", "B": "A"}


def planted(observe: object, net: object, data: object, config: object, name: str, epoch: int) -> Seen:
    """Stand for what a network observes: the losses of `CLEAN` are low, some of them doubtful, all others high."""
    clean, count = sorted(CLEAN[name]), len(CLEAN[name])
    losses = torch.empty(60)
    losses[clean] = torch.linspace(0, 1.2, count)
    losses[sorted(set(range(60)) - CLEAN[name])] = high = torch.linspace(1.6, 2.0, 60 - count)
    return Seen({"sce": losses, "triplet-mean": losses}, {"sce": high, "triplet-mean": high})


@pytest.fixture(scope="module")
def exchanged(data: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """Return a run in which A and B call different pairs clean."""
    folder = tmp_path_factory.mktemp("exchanged") / "run"
    return watched(settings(data, "in2r", f"noise.index={noise}", *PLAIN), folder, planted)


@pytest.fixture(scope="module")
def usual(data: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """Return a run on noise, by its own verdicts."""
    folder = tmp_path_factory.mktemp("usual") / "run"
    return watched(settings(data, "in2r", f"noise.index={noise}", *PLAIN), folder)


# --- verdicts are exchanged


def test_each_network_trains_on_what_its_peer_calls_clean(exchanged: Watch) -> None:
    for name, peer in PEER.items():
        for epoch in range(WARM, EPOCHS):
            clean, noisy = (exchanged.pairs(name, which, epoch) for which in ("clean", "noisy"))
            assert sorted(clean) == sorted(CLEAN[peer])
            assert set(noisy) <= CLEAN[name]
        looks = exchanged.of(name)
        assert all(look.peer == peer for look in looks)
        assert len(looks) == (EPOCHS - WARM) * math.ceil(len(CLEAN[peer]) / 12)
    for record in exchanged.trainer.folder.records()[WARM:]:
        assert record["steps"] == {"A": 4, "B": 2}
        assert record["clean_fraction_A"] == pytest.approx(1 / 3)  # what A says, not what it trains on
        assert record["mixture"]["B"]["boundary"] == pytest.approx(1.2 / 2)


def test_a_network_looks_for_neighbours_in_its_peers_memory(exchanged: Watch) -> None:
    """A trains on what B calls clean, and keeps it; so what A finds, B has kept: pairs that A calls clean."""
    for name in "AB":
        for look in exchanged.of(name):
            assert look.found is not None
            assert set(look.memories[name][2].tolist()) <= CLEAN[PEER[name]]
            for near in (look.found.near_images, look.found.near_texts):
                assert set(near.ids.flatten().tolist()) <= set(look.memories[PEER[name]][2].tolist()) <= CLEAN[name]
            assert torch.equal(look.found.batch.pairs, look.batches["noisy"].pairs)


def test_the_record_compares_what_each_network_says_with_the_noise(exchanged: Watch, noise: Path) -> None:
    matching = set(np.flatnonzero(np.load(noise) == np.arange(60) // 5).tolist())
    for record in exchanged.trainer.folder.records()[WARM:]:
        for name in "AB":
            both = len(matching & CLEAN[name])
            assert record[f"partition_precision_{name}"] == pytest.approx(both / len(CLEAN[name]))
            assert record[f"partition_recall_{name}"] == pytest.approx(both / len(matching))


def test_an_oracle_divides_for_each_network(data: Path, noise: Path, tmp_path: Path) -> None:
    config = settings(data, "in2r", f"noise.index={noise}", "noise.oracle=true", *PLAIN)
    watch = watched(config, tmp_path / "run")
    matching = np.flatnonzero(np.load(noise) == np.arange(60) // 5).tolist()
    for name in "AB":
        assert sorted(watch.pairs(name, "clean", WARM)) == matching
        assert watch.pairs(name, "noisy") == []
        assert watch.trainer.folder.records()[-1][f"clean_fraction_{name}"] == 1


# --- a pair from file to memory


def all_looks(watch: Watch) -> list[Look]:
    assert {look.epoch for look in watch.looks} == set(range(EPOCHS))
    return watch.looks


def test_a_batch_holds_what_the_files_and_the_noise_index_say(usual: Watch, data: Path, noise: Path) -> None:
    images, texts = (torch.as_tensor(np.load(data / f"train_{kind}.npy")) for kind in ("ims", "vecs"))
    index = torch.as_tensor(np.load(noise))
    assert (index != torch.arange(60) // 5).sum() > 15
    for look in all_looks(usual):
        for batch in look.batches.values():
            assert torch.equal(batch.groups, index[batch.pairs])
            assert torch.equal(batch.images, images[index[batch.pairs]])
            assert torch.equal(batch.texts[:, 0], texts[batch.pairs])
            for column in ("clean_prob", "elite") if look.division is not None else ():
                assert torch.equal(batch.columns[column], look.division.columns[column][batch.pairs])


def test_a_batch_holds_its_rows_of_what_stays_the_same(data: Path, tmp_path: Path) -> None:
    """In warm-up and main phase: which captions have the same words."""
    config = settings(data, "in2r", "method.mask_same_image=true", *PLAIN, words=True)
    watch = watched(config, tmp_path / "run")
    words = watch.trainer.data.same_words()
    for look in all_looks(watch):
        for batch in look.batches.values():
            assert words is not None
            assert torch.equal(batch.columns["words"], words[batch.pairs])


@pytest.fixture(scope="module", params=["elite", "every clean pair"])
def kept(
    request: pytest.FixtureRequest, exchanged: Watch, data: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Watch, bool]:
    """Return a run, and whether elite pairs alone are kept."""
    if request.param == "elite":
        return exchanged, True
    config = settings(data, "in2r", f"noise.index={noise}", "method.memory_elite=false", *PLAIN)
    return watched(config, tmp_path_factory.mktemp("every") / "run", planted), False


def trusted(look: Look, elite: bool) -> list[int]:
    assert look.division is not None
    column = look.division.columns["elite"] if elite else look.division.sets == 0
    return column.nonzero().flatten().tolist()


def test_the_first_division_fills_the_memories_with_the_trusted_pairs_of_the_files(
    kept: tuple[Watch, bool], data: Path, noise: Path
) -> None:
    """Embedded by the networks as the warm-up left them: at A's first step none has changed since."""
    watch, elite = kept
    images, texts = (torch.as_tensor(np.load(data / f"train_{kind}.npy")) for kind in ("ims", "vecs"))
    index = torch.as_tensor(np.load(noise))
    for name, backbone in watch.divided.items():
        v, u, pairs, groups = watch.of("A", WARM)[0].memories[name]
        expected = trusted(watch.of(name, WARM)[0], elite)
        assert len(expected) < len(CLEAN[PEER[name]]) or not elite
        assert len(set(pairs.tolist())) == len(pairs) == min(16, len(expected))
        assert set(pairs.tolist()) <= set(expected)
        assert pairs.tolist() != sorted(pairs.tolist())
        assert torch.equal(groups, index[pairs])
        with torch.no_grad():
            assert torch.allclose(v, backbone.encode_images(images[index[pairs]], None).vector, atol=1e-5)
            assert torch.allclose(u, backbone.encode_texts(texts[pairs][:, None], None).vector, atol=1e-5)
        assert not torch.allclose(v, u, atol=0.1)


def test_later_the_memories_are_queues_of_the_trusted_pairs_that_were_trained_on(
    kept: tuple[Watch, bool], noise: Path
) -> None:
    """Beside a queue that is filled by hand, pair by pair, from the batches; no later division fills them again."""
    watch, elite = kept
    index = torch.as_tensor(np.load(noise))
    looks = [look for look in watch.looks if look.now is not None]
    queues = {name: deque(zip(*entries, strict=True), 16) for name, entries in looks[0].memories.items()}
    for look in looks:
        for name, queue in queues.items():
            for found, wanted in zip(look.memories[name], zip(*queue, strict=True), strict=True):
                assert torch.allclose(found, torch.stack(wanted), atol=1e-6)
        rows, clean = trusted(look, elite), look.batches["clean"]
        assert look.encoded is not None
        for v, u, pair in zip(*look.encoded, clean.pairs, strict=True):
            if int(pair) in rows:
                queues[look.name].append((v, u, pair, index[pair]))


# --- order, cost, learning rate, draws, clipping, initial weights


def test_every_epoch_and_every_network_has_an_order_of_its_own(usual: Watch) -> None:
    orders = [usual.pairs(name, "all", epoch) for name in "AB" for epoch in range(WARM)]
    assert all(sorted(order) == list(range(60)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_each_epoch_is_recorded_with_its_own_cost(usual: Watch) -> None:
    """Five steps, each of 12 images and 12 captions."""
    records = usual.trainer.folder.records()
    for record in records[:WARM]:
        for cost in record["cost"].values():
            assert (cost["steps"], cost["encoded"], cost["scored"], cost["passes"]) == (5, 5 * 24, 5 * 144, 0)
    assert [record["cost"]["A"]["passes"] for record in records[WARM:]] == [1, 1]


@pytest.mark.parametrize("order", ["interleaved", "alternating"])
def test_the_networks_take_turns(order: str, exchanged: Watch, data: Path, tmp_path: Path) -> None:
    """A has 4 iterations in an epoch of the main phase, B 2."""
    watch = exchanged
    if order == "alternating":
        watch = watched(settings(data, "in2r", f"train.order={order}", *PLAIN), tmp_path / "run", planted)
    turns = {epoch: "".join(look.name for look in watch.looks if look.epoch == epoch) for epoch in range(EPOCHS)}
    wanted = ("ABABABABAB", "ABABAA") if order == "interleaved" else ("AAAAABBBBB", "AAAABB")
    assert turns == {0: wanted[0], 1: wanted[0], 2: wanted[1], 3: wanted[1]}
    for look in watch.looks[20:]:
        assert look.now is not None
        assert (look.now.epoch, look.now.epochs, look.now.seed) == (look.epoch - WARM, EPOCHS - WARM, 0)
        assert look.now.name == look.name
    assert [look.now.step for look in watch.of("A", 3)] == [0, 1, 2, 3]  # type: ignore[union-attr]


SCHEDULES = {
    "train.schedule=cosine": [0.01, 0.01 * (2 + math.sqrt(2)) / 4, 0.005, 0.01 * (2 - math.sqrt(2)) / 4],
    "train.schedule_from=main": [0.01, 0.01, 0.01, 0.005],
    "train.schedule=step": [0.01, 0.01, 0.01, 0.001],
}
"""learning rates by hand: of four epochs, two are the warm-up's"""


@pytest.mark.parametrize("setting", SCHEDULES)
def test_each_step_has_the_learning_rate_of_its_epoch(setting: str, usual: Watch, data: Path, tmp_path: Path) -> None:
    watch = usual
    if setting != "train.schedule=cosine":
        config = settings(data, "in2r", setting, "train.step_epochs=3", *PLAIN)
        watch = watched(config, tmp_path / "run")
    for look in all_looks(watch):
        assert look.rates == {"net": pytest.approx(SCHEDULES[setting][look.epoch])}
    recorded = [record["learning_rate"] for record in watch.trainer.folder.records()]
    assert recorded == pytest.approx(SCHEDULES[setting])


def test_an_optimiser_of_the_methods_own_has_its_own_rate_and_a_warm_up_takes_every_pair(
    data: Path, tmp_path: Path
) -> None:
    """L2RM wants whole batches, which is no concern of its warm-up: 60 pairs make two of 25, and one of 10."""
    schedule = ("method.warmup_epochs=2", "train.epochs=3", "train.batch_size=25")
    watch = watched(settings(data, "l2rm", *schedule), tmp_path / "run")
    for epoch, factor in enumerate((1, 0.75)):
        looks = watch.of("A", epoch)
        assert sorted(watch.pairs("A", "all", epoch)) == list(range(60))
        assert [len(look.batches["all"]) for look in looks] == [25, 25, 10]
        for look in looks:
            assert look.rates == {"net": pytest.approx(0.01 * factor), "cost": pytest.approx(0.0001 * factor)}


def test_every_step_draws_its_own_dropout_and_gaps(data: Path, noise: Path, tmp_path: Path) -> None:
    config = settings(data, "in2r", f"noise.index={noise}", *PLAIN, "train.region_drop=0.5")
    looks = watched(config, tmp_path / "run").looks
    masks = [next(iter(look.batches.values())).image_mask for look in looks]
    assert len({tuple(mask.flatten().tolist()) for mask in masks if mask is not None}) == len(looks)
    assert len({look.seed for look in looks}) == len(looks)


def test_the_gradient_of_each_loss_is_taken_once_an_epoch(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs a pass backwards for each loss."""
    taken, norms = [], step_module.gradient_norms
    monkeypatch.setattr(step_module, "gradient_norms", lambda *args: taken.append(0) or norms(*args))
    watched(settings(data, "in2r", *PLAIN), tmp_path / "run")
    assert len(taken) == 2 * EPOCHS


def test_the_best_epoch_is_the_first_of_the_highest_rsum_of_the_ensemble(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rsums, evaluate, states = iter([(1, 5), (9, 4), (3, 7), (3, 7)]), loop.evaluate_split, []

    def planned(backbones: Mapping[str, Backbone], *args: Any, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        rows, health = evaluate(backbones, *args, **more)
        states.append({name: copy.deepcopy(backbone.state_dict()) for name, backbone in backbones.items()})
        rows["A"]["rsum"], rows["ensemble"]["rsum"] = next(rsums)
        return rows, health

    monkeypatch.setattr(loop, "evaluate_split", planned)
    folder = watched(settings(data, "in2r", *PLAIN), tmp_path / "run").trainer.folder
    tensors, about = load_tensors(folder.best_file)
    assert (about["epoch"], about["rsum"]) == (3, 7)
    for name, state in states[2].items():
        assert all(torch.equal(tensors[f"{name}.{key}"], value) for key, value in state.items())
    assert any(not torch.equal(states[3]["A"][key], value) for key, value in states[2]["A"].items())


def test_the_gradient_of_encoders_and_refiner_is_clipped_as_one(data: Path, noise: Path, tmp_path: Path) -> None:
    config = settings(data, "in2r", f"noise.index={noise}", "train.gradient_clip=0.01", *PLAIN)
    watch = watched(config, tmp_path / "run")
    assert len(watch.gradients) == len(watch.looks)
    for (_, gradients), look in zip(watch.gradients, watch.looks, strict=True):
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
        assert norm == pytest.approx(0.01, rel=1e-3)
        refined = any(name.startswith("own.refiners") and gradient.any() for name, gradient in gradients.items())
        assert refined == ("rect" in look.losses)
    last = watch.trainer.folder.records()[-1]
    assert last["gradient_norm_A"] > 0.01  # as it was before


@pytest.mark.parametrize("weights", ["copy", "independent"])
def test_b_starts_as_a_copy_of_a_unless_asked(weights: str, usual: Watch, data: Path, tmp_path: Path) -> None:
    watch = usual
    if weights == "independent":
        config = settings(data, "in2r", "train.initial_weights=independent", "train.epochs=1")
        watch = watched(config, tmp_path / "run")
    one, other = watch.start["A"], watch.start["B"]
    drawn = [name for name in one if one[name].ndim > 1 and name.endswith("weight")]
    assert any(name.startswith("own.refiners") for name in drawn)
    assert all(torch.equal(one[name], other[name]) == (weights == "copy") for name in drawn)
    at_end = [watch.state(name) for name in "AB"]
    assert any(not torch.equal(at_end[0][name], at_end[1][name]) for name in drawn)
    assert any(not torch.equal(at_end[0][name], one[name]) for name in drawn)


@pytest.mark.parametrize("gamma", [1.0, 0.0])
def test_rectification_teaches_the_refiner(gamma: float, usual: Watch, data: Path, noise: Path, tmp_path: Path) -> None:
    watch = usual
    if not gamma:
        watch = watched(settings(data, "in2r", f"noise.index={noise}", "method.gamma=0", *PLAIN), tmp_path / "run")
    for name in "AB":
        assert all("rect" in look.losses for look in watch.of(name))
        changed = {
            key: not torch.equal(value, watch.start[name][key])
            for key, value in watch.state(name).items()
            if key.startswith("own.refiners") and key.endswith("weight")
        }
        assert any(changed.values()) == all(changed.values()) == bool(gamma)
