"""The division: every pair's loss among its batch mates, and what counts as clean."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from in2r.data.features import Features
from in2r.errors import InputError
from in2r.methods import Division, Net, PartitionConfig, Seen
from in2r.methods.in2r import In2r, In2rConfig
from in2r.methods.judging import PairLosses, judge_pairs
from in2r.models.base import Backbone, Items
from in2r.results import score_run
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.seeds import torch_generator
from in2r.training.division import observe_pairs
from in2r.training.loop import Trainer
from in2r.training.pairs import TrainingData
from in2r.training.setup import open_setup
from in2r.training.train import Silent, start_run
from tiny_engine import settings

LOSSES = PairLosses()
METHOD = In2r(In2rConfig(), PartitionConfig())


class Plain(Backbone):
    """Encoders without weights: the features themselves, scaled to unit norm."""

    dim = 6

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return Items(torch.nn.functional.normalize(values.mean(1), dim=1))

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return Items(torch.nn.functional.normalize(values[:, 0], dim=1))

    def logits(self, images: Items, texts: Items) -> Tensor:
        return images.vector @ texts.vector.T


class Interacting(Plain):
    """The same, encoded chunk by chunk."""

    interacts = True


def observed(
    data: TrainingData, size: int = 128, seed: int = 0, backbone: type[Backbone] = Plain, net: Net | None = None
) -> Seen:
    config = load_config(None, partition={"batch_size": size}, train={"seed": seed})
    return observe_pairs(METHOD.observe, net or Net(backbone(), torch.nn.Module()), data, config)


def vectors(array: np.ndarray) -> Features:
    return Features(array.astype(np.float32)[:, None], np.arange(len(array)))


def tiny(images: int = 10, captions: int = 23, pairs: Tensor | None = None, same: bool = False) -> TrainingData:
    rng = np.random.default_rng(1)
    draw = np.ones if same else rng.standard_normal
    return TrainingData(
        images=vectors(draw((images, 6))),
        texts=vectors(draw((captions, 6))),
        image_of_pair=torch.as_tensor(np.arange(captions) % images),
        pairs=torch.arange(captions) if pairs is None else pairs,
        device=torch.device("cpu"),
        region_drop=0.0,
        word_drop=0.0,
        vocabulary_size=0,
        mask_id=0,
    )


def similarity(data: TrainingData, images: Tensor, texts: Tensor) -> Tensor:
    """Return S of the images of some pairs and the captions of others."""
    v = Plain().encode_images(torch.as_tensor(data.images.array[data.image_of_pair[images]])).vector
    return v @ Plain().encode_texts(torch.as_tensor(data.texts.array[texts])).vector.T  # type: ignore[union-attr]


def by_loops(data: TrainingData, size: int, seed: int) -> dict[str, list[float]]:
    """Score each pair on its own, among the mates that the fixed order gives it."""
    pairs = data.pairs.tolist()
    order = torch.randperm(len(pairs), generator=torch_generator(seed, "scoring order")).tolist()
    size = min(size, len(pairs))
    filled = order + order[: -len(order) % size]
    result: dict[str, list[float]] = {"sce": [0.0] * len(pairs), "triplet-mean": [0.0] * len(pairs)}
    for start in range(0, len(filled), size):
        mates = torch.tensor([pairs[place] for place in filled[start : start + size]])
        for name, losses in LOSSES(similarity(data, mates, mates)).items():
            for row, place in enumerate(filled[start : start + size]):
                if start + row < len(order):
                    result[name][place] = float(losses[row])
    return result


@pytest.mark.parametrize("size", [5, 7, 23, 100])
@pytest.mark.parametrize("pairs", [None, torch.tensor([22, 3, 4, 5, 9, 10, 1, 0, 17])])
@pytest.mark.parametrize("backbone", [Plain, Interacting])
def test_losses_equal_those_of_a_plain_loop(size: int, pairs: Tensor | None, backbone: type[Backbone]) -> None:
    data = tiny(pairs=pairs)
    found = observed(data, size, 3, backbone)
    for name, wanted in by_loops(data, size, 3).items():
        assert found[name].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_mismatched_pairs_meet_the_captions_of_another_batch() -> None:
    """By a plain loop: each image among the captions of the batch before, whose image it never is."""
    data = tiny(images=24, captions=24)
    found = observed(data, 8, 3).mismatched
    order = torch.randperm(24, generator=torch_generator(3, "scoring order"))
    wanted: dict[str, list[float]] = {"sce": [], "triplet-mean": []}
    for number in range(3):
        mine, others = order[8 * number :][:8], torch.roll(order, 8)[8 * number :][:8]
        assert not set(mine.tolist()) & set(others.tolist())
        for name, losses in LOSSES(similarity(data, mine, others)).items():
            wanted[name] += losses.tolist()
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].tolist() == pytest.approx(values, rel=1e-5, abs=1e-6)


def test_a_single_batch_is_mismatched_within_itself() -> None:
    seen = observed(tiny(images=9, captions=9), 20)
    data = tiny(images=9, captions=9)
    order = torch.randperm(9, generator=torch_generator(0, "scoring order"))
    wanted = LOSSES(similarity(data, order, order.roll(1)))["sce"]
    assert torch.allclose(seen.mismatched["sce"], wanted, atol=1e-5)
    assert not torch.allclose(seen.mismatched["sce"], seen["sce"][order], atol=1e-2)


@pytest.mark.parametrize("backbone", [Plain, Interacting])
def test_the_first_batches_are_enough_to_see_what_a_mismatch_looks_like(
    backbone: type[Backbone], monkeypatch: pytest.MonkeyPatch
) -> None:
    """41 pairs in batches of 4, two of them at a time: the first eight pairs, each among the other four's captions."""
    monkeypatch.setattr("in2r.training.division.CHUNK", 2)
    data = tiny(images=41, captions=41)
    order = torch.randperm(41, generator=torch_generator(0, "scoring order"))
    one, other = order[:4], order[4:8]
    wanted = [LOSSES(similarity(data, *pair))["triplet-mean"] for pair in ((one, other), (other, one))]
    assert torch.allclose(observed(data, 4, backbone=backbone).mismatched["triplet-mean"], torch.cat(wanted), atol=1e-5)


def test_many_batches_go_through_the_encoder_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny(captions=41)
    whole = observed(data, 4)
    monkeypatch.setattr("in2r.training.division.CHUNK", 2)
    assert torch.equal(whole["sce"], observed(data, 4)["sce"])
    assert torch.equal(whole["sce"], observed(data, 4, backbone=Interacting)["sce"])


@pytest.mark.parametrize("kept", [240, 239])
def test_images_that_would_fill_the_memory_are_encoded_chunk_by_chunk(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten images of six numbers are 240 bytes; of the 44 captions (41, and three again) a chunk holds eight."""
    data = tiny(captions=41)
    whole = observed(data, 4)
    monkeypatch.setattr("in2r.training.division.CHUNK", 2)
    monkeypatch.setattr("in2r.training.division.IMAGES_KEPT", kept)
    net = Net(Plain(), torch.nn.Module())
    assert torch.equal(whole["sce"], observed(data, 4, net=net)["sce"])
    order = torch.randperm(41, generator=torch_generator(0, "scoring order"))
    chunks = torch.split(torch.cat([order, order[:3]]), 8)
    images = 10 if kept == 240 else sum(len(set((chunk % 10).tolist())) for chunk in chunks)
    assert net.cost.encoded_without_gradient == images + 44
    assert images == 10 or images > 20


@pytest.mark.parametrize(("at_once", "mismatched"), [(16, 11), (2, 2)])
def test_what_a_look_at_all_pairs_costs_is_counted(
    at_once: int, mismatched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """41 pairs in batches of 4 fill eleven: 10 images once, 44 captions; 16 similarities in each, and mismatched."""
    monkeypatch.setattr("in2r.training.division.CHUNK", at_once)
    net = Net(Plain(), torch.nn.Module())
    observed(tiny(captions=41), 4, net=net)
    assert net.cost.record() == {
        "encoded": 0, "encoded_without_gradient": 10 + 44, "scored": 0,
        "scored_without_gradient": (11 + mismatched) * 16, "steps": 0, "passes": 1,
    }  # fmt: skip


def test_every_loss_is_taken_among_equally_many() -> None:
    """Equal pairs have equal losses: also those of the last batch, which would be smaller."""
    data = tiny(same=True)
    seen = observed(data, 5)
    for values in [*seen.columns.values(), *seen.mismatched.values()]:
        assert float(values.max() - values.min()) < 1e-5


def test_the_order_is_the_same_each_time() -> None:
    data = tiny()
    torch.manual_seed(1)
    first = observed(data, 5)["sce"]
    torch.manual_seed(2)
    assert torch.equal(observed(data, 5)["sce"], first)
    assert not torch.equal(observed(data, 5, seed=1)["sce"], first)


def test_augmented_batches_differ_and_are_repeatable(data: Path) -> None:
    config = settings(data, "in2r", "train.region_drop=0.5", words=True)
    trainer = Trainer(RunFolder(data / "unused"), open_setup(config, torch.device("cpu")), Silent())
    net = trainer.state.nets["A"]

    def losses(augmented: bool, epoch: int = 0) -> Tensor:
        changed = replace(config, partition=replace(config.partition, augmented=augmented))
        return observe_pairs(trainer.method.observe, net, trainer.data, changed, "A", epoch)["triplet-mean"]

    assert torch.equal(losses(True), losses(True))
    assert torch.equal(losses(False), losses(False, epoch=1))
    assert not torch.equal(losses(True), losses(False))
    assert not torch.equal(losses(True), losses(True, epoch=1))
    assert net.training
    assert net.backbone.training


def test_a_loss_that_is_not_finite_names_its_pair() -> None:
    data = tiny(pairs=torch.tensor([4, 6, 8, 20]))
    data.texts.array[8] = np.nan  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"the sce loss of pair (4|6|8|20) is nan"):
        observed(data)


# --- clean or noisy

TWO = torch.cat([torch.linspace(0.0, 0.2, 60), torch.linspace(2.0, 2.2, 40)])


def believed(losses: dict[str, Tensor]) -> Seen:
    """Return losses whose higher group is that of pairs that are mismatched on purpose."""
    return Seen(losses, {name: values[values >= values.max() / 2] for name, values in losses.items()})


def divided(losses: Tensor, pairs: Tensor, total: int, config: PartitionConfig) -> Division:
    return judge_pairs(believed({"sce": losses}), "sce", 0.6, config).divide(pairs, total, config, "A")


def clean(division: Division) -> Tensor:
    return division.sets == 0


def test_two_groups_are_told_apart_and_spread_over_all_pairs() -> None:
    pairs = torch.arange(100) * 2 + 1
    made = divided(TWO, pairs, 201, PartitionConfig())
    assert made.sets.shape == made.columns["clean_prob"].shape == made.columns["elite"].shape == (201,)
    assert torch.equal(torch.nonzero(made.sets == 0).flatten(), pairs[:60])
    assert torch.equal(torch.nonzero(made.sets == 1).flatten(), pairs[60:])
    assert (made.sets[::2] == -1).all()
    assert not made.columns["clean_prob"][::2].any()
    assert made.figures["clean_fraction"] == pytest.approx(0.6)
    assert made.figures["single_mode"] == 0


def test_elite_pairs_are_clean_and_above_the_mean() -> None:
    losses = torch.cat([torch.linspace(0, 1.2, 80), torch.linspace(1.6, 2.0, 40)])
    made = divided(losses, torch.arange(120), 120, PartitionConfig(single_mode="split"))
    trusted = made.columns["clean_prob"][clean(made)].double()
    assert made.figures["tau"] == pytest.approx(float(trusted.mean()))
    assert torch.equal(made.columns["elite"], clean(made) & (made.columns["clean_prob"] > made.figures["tau"]))
    assert 0 < made.columns["elite"].sum() < clean(made).sum()


def test_equal_losses_make_everything_clean() -> None:
    for mode in ("warmup", "split"):
        made = divided(torch.full((50,), 0.7), torch.arange(50), 50, PartitionConfig(single_mode=mode))  # type: ignore[arg-type]
        assert clean(made).all()
        assert made.columns["elite"].all()
        assert not made.split
        assert made.figures["single_mode"] == 1


def test_one_group_is_not_split_unless_asked() -> None:
    losses = torch.as_tensor(np.random.default_rng(0).standard_normal(400), dtype=torch.float32)
    kept = divided(losses, torch.arange(400), 400, PartitionConfig(minimum_separation=2.5))
    assert kept.figures["single_mode"] == 1
    assert clean(kept).all()
    assert not kept.split
    assert (
        float(kept.columns["clean_prob"].min()) < 0.1 < 0.9 < float(kept.columns["clean_prob"].max())
    )  # as fitted: they order the pairs
    cut = divided(losses, torch.arange(400), 400, PartitionConfig(minimum_separation=2.5, single_mode="split"))
    assert cut.split
    assert 0.2 < float(clean(cut).float().mean()) < 0.8


def test_nothing_above_the_threshold_trusts_the_lowest_losses() -> None:
    losses = TWO.flip(0).repeat(3)
    made = divided(losses, torch.arange(300), 300, PartitionConfig(threshold=1.0))
    assert made.figures["clean_set_was_empty"] == 1
    assert int(clean(made).sum()) == 3  # one in a hundred
    assert float(losses[clean(made)].max()) <= float(losses[~clean(made)].min())
    config = PartitionConfig(threshold=1.0, single_mode="split")
    few = divided(torch.tensor([3.0, 1.0, 2.0]), torch.arange(3), 3, config)
    assert clean(few).tolist() == [False, True, True]
    assert few.columns["elite"].sum() > 0


def test_the_released_rule_calls_one_in_a_hundred_noisy() -> None:
    """Where every pair is above the threshold, the least trusted 1 % count as noisy."""
    losses = torch.cat([TWO[:60], torch.linspace(0.2, 0.4, 140)])
    config = PartitionConfig(threshold=0.0, minimum_noisy_share=0.01, single_mode="split")
    made = divided(losses, torch.arange(200), 200, config)
    assert int((~clean(made)).sum()) == int((made.sets == 1).sum()) == 2
    assert float(made.columns["clean_prob"][~clean(made)].max()) <= float(made.columns["clean_prob"][clean(made)].min())
    assert clean(divided(losses, torch.arange(200), 200, replace(config, minimum_noisy_share=0.0))).all()


def test_an_oracle_trusts_what_it_is_given() -> None:
    made = METHOD.trust(torch.tensor([1, 3]), 5)
    assert made.sets.tolist() == [-1, 0, -1, 0, -1]
    assert made.columns["elite"].tolist() == [False, True, False, True, False]
    assert made.columns["clean_prob"].tolist() == [0, 1, 0, 1, 0]


# --- whole runs at the edges


def run(folder: Path, data: Path, *overrides: str, preset: str = "in2r") -> list[dict[str, object]]:
    return start_run(folder, settings(data, preset, "train.epochs=2", *overrides)).records()


def two_groups(noisy: int, of: int = 400) -> torch.Tensor:
    """Return losses of which so many lie far above the rest."""
    rng = np.random.default_rng(noisy)
    return torch.as_tensor(
        np.concatenate([rng.normal(0, 1, of - noisy), rng.normal(12, 1, noisy)]), dtype=torch.float32
    )


@pytest.mark.parametrize(("noisy", "chosen"), [(232, "triplet-mean"), (248, "sce"), (40, "triplet-mean")])
def test_auto_believes_the_sce_loss_where_it_calls_many_pairs_noisy(noisy: int, chosen: str) -> None:
    losses = {"sce": two_groups(noisy), "triplet-mean": two_groups(100)}
    config = PartitionConfig(threshold=0.4)

    def judged(loss: str, sce_from: float) -> str:
        made = judge_pairs(believed(losses), loss, sce_from, config)
        assert made.divide(torch.arange(400), 400, config, "A").mixture["loss"] == made.loss
        return made.loss

    assert judged("auto", In2rConfig().sce_from) == chosen
    assert judged("sce", In2rConfig().sce_from) == judged("auto", 0.0) == "sce"


def test_auto_says_what_it_took_and_both_networks_decide_for_themselves(
    data: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = iter([20, 50])  # by A, by B

    def losses(*_: object) -> Seen:
        return believed({"sce": two_groups(next(judged), 60), "triplet-mean": two_groups(20, 60)})

    monkeypatch.setattr("in2r.training.division.observe_pairs", losses)
    last = run(tmp_path / "run", data, f"noise.index={noise}", "method.partition_loss=auto")[-1]
    assert [last["mixture"][name]["loss"] for name in "AB"] == ["triplet-mean", "sce"]  # type: ignore[index]
    monkeypatch.undo()
    summary = json.loads(score_run(tmp_path / "run").with_suffix(".json").read_text())
    assert set(summary["loss"].split(" and ")) <= {"sce", "triplet-mean"}


def test_pairs_are_scored_whole_where_training_scored_them_augmented(data: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", data, "partition.augmented=true")
    scores = score_run(tmp_path / "run").read_bytes()
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("augmented: true", "augmented: false"))
    assert score_run(tmp_path / "run", force=True).read_bytes() == scores


def test_a_threshold_that_trusts_nothing_is_logged_and_the_run_continues(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    last = run(tmp_path / "run", data, "partition.threshold=1.0")[-1]
    told = [record.getMessage() for record in caplog.records if "threshold" in record.getMessage()]
    assert told == [
        "epoch 2, network A and B: no two pairs above partition.threshold=1; the lowest losses count as clean "
        "(logged once)"
    ]
    assert last["clean_set_was_empty_A"] == 1
    assert last["steps"] == {"A": 1, "B": 1}


def test_a_threshold_that_suspects_nothing_leaves_steps_unrectified(data: Path, tmp_path: Path) -> None:
    last = run(tmp_path / "run", data, "partition.threshold=0.0")[-1]
    assert last["clean_fraction_A"] == 1
    assert last["steps"]["A"] == 5  # type: ignore[index]
    assert last["unrectified_steps_A"] == 1  # the share of them
    assert "loss_rect_A" not in last


def test_one_group_trains_with_the_warm_up_loss_on_all_pairs(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    losses = torch.as_tensor(np.random.default_rng(0).standard_normal(60), dtype=torch.float32)
    seen = believed({"sce": losses, "triplet-mean": losses})
    monkeypatch.setattr("in2r.training.division.observe_pairs", lambda *_: seen)
    asked = ("partition.single_mode=warmup", "partition.minimum_separation=9")
    last = run(tmp_path / "run", data, *asked, "train.epochs=3")[-1]
    assert last["phase"] == "main"
    assert last["single_mode_A"] == last["single_mode_B"] == 1
    assert last["steps"] == {"A": 5, "B": 5}
    assert "loss_sce_A" in last
    assert "loss_inter_A" not in last
    assert last["memory_fill_A"] == 0
    [told] = [record.getMessage() for record in caplog.records if "show a group" in record.getMessage()]  # of two
    assert told == (
        "epoch 2, network A and B: the losses do not show a group of mismatched pairs (partition.minimum_separation=9, "
        "partition.maximum_divergence=0.33): the data are clean or the model is weak; in such an epoch a network "
        "trains on all pairs with the warm-up loss (logged once)"
    )
    line = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    for network in "AB":
        assert line[f"separation_{network}"] < 9
        assert line[f"divergence_{network}"] > 0
        # known to be not known: null, not 0
        assert line[f"estimated_noise_rate_sce_{network}"] is None
        assert line[f"mean_clean_prob_{network}"] is None


def test_equal_losses_are_logged_and_the_run_continues(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = believed(dict.fromkeys(("sce", "triplet-mean"), torch.ones(60)))
    monkeypatch.setattr("in2r.training.division.observe_pairs", lambda *_: seen)
    last = run(tmp_path / "run", data, "partition.single_mode=split")[-1]
    said = "epoch 2, network A and B: the losses do not show a group of mismatched pairs (partition.minimum_separation"
    assert f"{said}=2, partition.maximum_divergence=0.33): " in caplog.text
    assert last["clean_fraction_A"] == last["single_mode_A"] == 1
    assert last["separation_A"] == 0
    assert last["divergence_A"] is None
    assert last["estimated_noise_rate_sce_A"] is None


def test_an_empty_memory_is_filled_before_it_is_asked(data: Path, noise: Path, tmp_path: Path) -> None:
    index = f"noise.index={noise}"
    without = run(tmp_path / "without", data, index, "method.memory_prefill=false", "train.order=alternating")[-1]
    filled = run(tmp_path / "with", data, index, "train.order=alternating")[-1]
    assert filled["unrectified_steps_A"] == 0
    assert without["unrectified_steps_A"] == 1  # the share of its steps
    assert "loss_rect_A" not in without
    assert "loss_rect_B" in without


def test_clean_sets_that_leave_a_last_batch_of_one(data: Path, tmp_path: Path) -> None:
    """60 pairs in batches of 59: one pair is left out of each epoch and counted."""
    records = run(tmp_path / "run", data, "train.batch_size=59", "partition.threshold=0.0")
    assert [record["steps"] for record in records] == [{"A": 1, "B": 1}] * 2
    assert [record["left_out"] for record in records] == [{"A": 1, "B": 1}] * 2
