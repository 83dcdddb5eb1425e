"""The partition: every pair's loss among its batch mates, and what counts as clean."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_engine import settings
from torch import Tensor

from in2r.data.features import Features
from in2r.engine.scoring import PairLosses, Partition, judge_pairs, score_pairs, trust_all
from in2r.engine.settings import PartitionConfig
from in2r.engine.setup import open_setup
from in2r.engine.train import start_run
from in2r.engine.training_data import TrainingData
from in2r.errors import InputError
from in2r.methods.in2r import In2r, In2rConfig
from in2r.partition import fit_two_gaussians
from in2r.results import score_run
from in2r.seeds import torch_generator

LOSSES = In2r(In2rConfig(), 0).sample_losses


class Plain(torch.nn.Module):
    """Encoders without weights: the features themselves, scaled to unit norm."""

    def encode_images(self, values: Tensor, mask: Tensor | None) -> Tensor:
        return torch.nn.functional.normalize(values.mean(1), dim=1)

    def encode_texts(self, values: Tensor, mask: Tensor | None) -> Tensor:
        return torch.nn.functional.normalize(values[:, 0], dim=1)


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


def by_loops(data: TrainingData, size: int, seed: int) -> dict[str, list[float]]:
    """Score each pair on its own, among the mates that the fixed order gives it."""
    pairs = data.pairs.tolist()
    order = torch.randperm(len(pairs), generator=torch_generator(seed, "scoring order")).tolist()
    size = min(size, len(pairs))
    filled = order + order[: -len(order) % size]
    result: dict[str, list[float]] = {"sce": [0.0] * len(pairs), "triplet-mean": [0.0] * len(pairs)}
    for start in range(0, len(filled), size):
        mates = [pairs[place] for place in filled[start : start + size]]
        v = Plain().encode_images(torch.as_tensor(data.images.array[data.image_of_pair[mates]]), None)
        u = Plain().encode_texts(torch.as_tensor(data.texts.array[mates]), None)  # type: ignore[union-attr]
        for name, losses in LOSSES(v @ u.T).items():
            for row, place in enumerate(filled[start : start + size]):
                if start + row < len(order):
                    result[name][place] = float(losses[row])
    return result


@pytest.mark.parametrize("size", [5, 7, 23, 100])
@pytest.mark.parametrize("pairs", [None, torch.tensor([22, 3, 4, 5, 9, 10, 1, 0, 17])])
def test_losses_equal_those_of_a_plain_loop(size: int, pairs: Tensor | None) -> None:
    data = tiny(pairs=pairs)
    found = score_pairs(Plain(), data, LOSSES, PartitionConfig(batch_size=size), seed=3)  # type: ignore[arg-type]
    for name, wanted in by_loops(data, size, 3).items():
        assert found.given[name].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_mismatched_pairs_meet_the_captions_of_another_batch() -> None:
    """By a plain loop: each image among the captions of the batch before, whose image it never is."""
    data = tiny(images=24, captions=24)
    found = score_pairs(Plain(), data, LOSSES, PartitionConfig(batch_size=8), seed=3).mismatched  # type: ignore[arg-type]
    order = torch.randperm(24, generator=torch_generator(3, "scoring order"))
    wanted: list[float] = []
    for number in range(3):
        mine, others = order[8 * number :][:8], torch.roll(order, 8)[8 * number :][:8]
        assert not set(mine.tolist()) & set(others.tolist())
        v = Plain().encode_images(torch.as_tensor(data.images.array[mine]), None)
        u = Plain().encode_texts(torch.as_tensor(data.texts.array[others]), None)  # type: ignore[union-attr]
        wanted += LOSSES(v @ u.T)["triplet-mean"].tolist()
    assert found["triplet-mean"].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_a_single_batch_is_mismatched_within_itself() -> None:
    data = tiny(images=9, captions=9)
    scored = score_pairs(Plain(), data, LOSSES, PartitionConfig(batch_size=20), seed=0)  # type: ignore[arg-type]
    order = torch.randperm(9, generator=torch_generator(0, "scoring order"))
    v = Plain().encode_images(torch.as_tensor(data.images.array[order]), None)
    u = Plain().encode_texts(torch.as_tensor(data.texts.array[order.roll(1)]), None)  # type: ignore[union-attr]
    assert torch.allclose(scored.mismatched["sce"], LOSSES(v @ u.T)["sce"], atol=1e-5)
    assert not torch.allclose(scored.mismatched["sce"], scored.given["sce"][order], atol=1e-2)


def test_many_batches_go_through_the_encoder_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny(captions=41)
    whole = score_pairs(Plain(), data, LOSSES, PartitionConfig(batch_size=4), seed=0)  # type: ignore[arg-type]
    monkeypatch.setattr("in2r.engine.scoring.CHUNK", 2)
    parts = score_pairs(Plain(), data, LOSSES, PartitionConfig(batch_size=4), seed=0)  # type: ignore[arg-type]
    assert torch.equal(whole.given["sce"], parts.given["sce"])


def test_every_loss_is_taken_among_equally_many() -> None:
    """Equal pairs have equal losses: also those of the last batch, which would be smaller."""
    data = tiny(same=True)
    losses = score_pairs(Plain(), data, LOSSES, PartitionConfig(batch_size=5), seed=0)  # type: ignore[arg-type]
    for values in [*losses.given.values(), *losses.mismatched.values()]:
        assert float(values.max() - values.min()) < 1e-5


def test_the_order_is_the_same_each_time() -> None:
    data, config = tiny(), PartitionConfig(batch_size=5)
    torch.manual_seed(1)
    first = score_pairs(Plain(), data, LOSSES, config, seed=0).given["sce"]  # type: ignore[arg-type]
    torch.manual_seed(2)
    assert torch.equal(score_pairs(Plain(), data, LOSSES, config, seed=0).given["sce"], first)  # type: ignore[arg-type]
    assert not torch.equal(score_pairs(Plain(), data, LOSSES, config, seed=1).given["sce"], first)  # type: ignore[arg-type]


def test_augmented_batches_differ_and_are_repeatable(data: Path) -> None:
    config = settings(data, "paper", "train.region_drop=0.5", words=True)
    from in2r.engine.loop import Trainer
    from in2r.engine.run import RunFolder
    from in2r.engine.train import Silent

    trainer = Trainer(RunFolder(data / "unused"), open_setup(config, torch.device("cpu")), Silent())
    encoder = trainer.nets["A"].encoder

    def losses(augmented: bool) -> Tensor:
        part = replace(config.partition, augmented=augmented)
        return score_pairs(encoder, trainer.data, LOSSES, part, seed=0).given["triplet-mean"]

    assert torch.equal(losses(True), losses(True))
    assert torch.equal(losses(False), losses(False))
    assert not torch.equal(losses(True), losses(False))
    assert encoder.training


def test_a_loss_that_is_not_finite_names_its_pair() -> None:
    data = tiny(pairs=torch.tensor([4, 6, 8, 20]))
    data.texts.array[8] = np.nan  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"the sce loss of pair (4|6|8|20) is nan"):
        score_pairs(Plain(), data, LOSSES, PartitionConfig(), seed=0)  # type: ignore[arg-type]


# --- clean or noisy

TWO = torch.cat([torch.linspace(0.0, 0.2, 60), torch.linspace(2.0, 2.2, 40)])


def believed(losses: dict[str, Tensor]) -> PairLosses:
    """Return losses whose higher group is that of pairs that are mismatched on purpose."""
    return PairLosses(losses, {name: values[values >= values.aminmax().max / 2] for name, values in losses.items()})


def make_partition(losses: torch.Tensor, pairs: torch.Tensor, total: int, config: PartitionConfig) -> Partition:
    return judge_pairs(believed({"sce": losses}), pairs, total, config).partition


def test_two_groups_are_told_apart_and_spread_over_all_pairs() -> None:
    pairs = torch.arange(100) * 2 + 1
    made = make_partition(TWO, pairs, 201, PartitionConfig())
    assert made.clean.shape == made.clean_prob.shape == made.elite.shape == (201,)
    assert torch.equal(torch.nonzero(made.clean).flatten(), pairs[:60])
    assert not made.clean_prob[::2].any()
    assert made.figures["clean_fraction"] == pytest.approx(0.6)
    losses = {"sce": TWO, "x": TWO[:1].expand(100)}
    judged = judge_pairs(PairLosses(losses, {"sce": TWO[60:], "x": TWO}), pairs, 201, PartitionConfig())
    assert (judged.loss, judged.noise_rates) == ("sce", {"sce": pytest.approx(0.4, abs=0.01), "x": None})
    assert judged.known
    assert judged.figures()["estimated_noise_rate_sce"] == judged.noise_rates["sce"]
    assert made.figures["single_mode"] == 0


@pytest.mark.parametrize("shift", [-1.0, 1.0], ids=["at chance", "clean"])
def test_two_groups_of_which_none_is_mismatched_are_not_split(shift: float) -> None:
    """Where the mismatched pairs lie elsewhere, no figure is drawn from the mixture, and nothing is discarded."""
    mismatched = {"sce": TWO[60:] + shift, "x": TWO[60:] + shift}
    judged = judge_pairs(PairLosses({"sce": TWO, "x": TWO}, mismatched), torch.arange(100), 100, PartitionConfig())
    figures = judged.figures()
    assert not judged.known
    assert not judged.partition.split
    assert judged.partition.clean.all()
    assert judged.noise_rates == {"sce": None, "x": None}
    assert figures["mean_clean_prob"] is None
    assert "tau" not in figures
    assert figures["clean_fraction"] == figures["single_mode"] == 1
    assert figures["separation"] > 2  # type: ignore[operator]
    assert figures["divergence"] > 0.33  # type: ignore[operator]
    config = PartitionConfig(single_mode="split")  # as the released code: followed, but no figure is made of it
    followed = judge_pairs(PairLosses({"sce": TWO, "x": TWO}, mismatched), torch.arange(100), 100, config)
    assert followed.partition.split
    assert followed.partition.figures["clean_fraction"] == pytest.approx(0.6)
    assert not followed.known


def test_a_loss_is_believed_where_another_one_shows_mismatched_pairs() -> None:
    """The sce loss spreads clean pairs, so that its own noisy component is never where mismatched pairs lie."""
    mismatched = {"sce": TWO[60:] + 1, "x": TWO[60:]}
    judged = judge_pairs(PairLosses({"sce": TWO, "x": TWO}, mismatched), torch.arange(100), 100, PartitionConfig())
    assert judged.known
    assert judged.partition.split
    assert judged.noise_rates == {"sce": None, "x": pytest.approx(0.4, abs=0.01)}
    assert judged.partition.figures["divergence"] < 0.1  # type: ignore[operator]


MEASURED = np.load(Path(__file__).parents[1] / "data" / "believable.npz")
"""Losses of one network, 2,500 to 4,500 pairs: 500 and 900 clean scene images, 500 of which 30 % are duplicates, an
untrained model, 500 scene images with noise; 500 photographs. From runs of one to ten epochs, dim 64 or 256."""


def measured(case: str) -> PairLosses:
    def part(kind: str) -> dict[str, Tensor]:
        return {name: torch.as_tensor(MEASURED[f"{case}_{kind}_{name}"]).float() for name in ("triplet-mean", "sce")}

    return PairLosses(part("given"), part("mismatched"))


@pytest.mark.parametrize("case", ["clean_500", "clean_900", "duplicates", "at_chance", "photographs_clean"])
@pytest.mark.parametrize("loss", ["sce", "triplet-mean", "auto"])
def test_no_noise_is_found_where_there_is_none(case: str, loss: str) -> None:
    losses = measured(case)
    count = len(losses.given["sce"])
    judged = judge_pairs(losses, torch.arange(count), count, PartitionConfig(loss=loss))  # type: ignore[arg-type]
    assert judged.noise_rates == {"sce": None, "triplet-mean": None}
    assert not judged.known
    assert judged.partition.clean.all()
    alone = fit_two_gaussians(losses.given["triplet-mean"].numpy())
    assert alone.separation > 2  # by which it would be taken for noise
    assert alone.noise_rate > 0.05  # type: ignore[operator]
    assert judged.partition.figures["divergence"] > 1.4 * 0.33  # type: ignore[operator]


@pytest.mark.parametrize(
    ("case", "rate"),
    [
        ("noise_20", (0.2, 0.3)),
        ("noise_40", (0.33, 0.45)),
        ("noise_60", (0.4, 0.65)),
        ("photographs_10", (0.1, 0.2)),
        ("photographs_40", (0.35, 0.5)),
    ],
)
def test_injected_noise_is_found(case: str, rate: tuple[float, float]) -> None:
    losses = measured(case)
    count = len(losses.given["sce"])
    judged = judge_pairs(losses, torch.arange(count), count, PartitionConfig(loss="triplet-mean"))
    assert judged.known
    assert judged.partition.split
    assert rate[0] < judged.noise_rates["triplet-mean"] < rate[1]  # type: ignore[operator]
    assert judged.partition.figures["divergence"] < 0.33 / 1.4  # type: ignore[operator]


def test_elite_pairs_are_clean_and_above_the_mean() -> None:
    losses = torch.cat([torch.linspace(0, 1.2, 80), torch.linspace(1.6, 2.0, 40)])
    made = make_partition(losses, torch.arange(120), 120, PartitionConfig(single_mode="split"))
    trusted = made.clean_prob[made.clean].double()
    assert made.figures["tau"] == pytest.approx(float(trusted.mean()))
    assert torch.equal(made.elite, made.clean & (made.clean_prob > made.figures["tau"]))
    assert 0 < made.elite.sum() < made.clean.sum()


def test_equal_losses_make_everything_clean() -> None:
    for mode in ("warmup", "split"):
        made = make_partition(torch.full((50,), 0.7), torch.arange(50), 50, PartitionConfig(single_mode=mode))  # type: ignore[arg-type]
        assert made.clean.all()
        assert made.elite.all()
        assert not made.split
        assert made.figures["single_mode"] == 1


def test_one_group_is_not_split_unless_asked() -> None:
    losses = torch.as_tensor(np.random.default_rng(0).standard_normal(400), dtype=torch.float32)
    kept = make_partition(losses, torch.arange(400), 400, PartitionConfig(minimum_separation=2.5))
    assert kept.figures["single_mode"] == 1
    assert kept.clean.all()
    assert not kept.split
    assert float(kept.clean_prob.min()) < 0.1 < 0.9 < float(kept.clean_prob.max())  # as fitted: they order the pairs
    cut = make_partition(losses, torch.arange(400), 400, PartitionConfig(minimum_separation=2.5, single_mode="split"))
    assert cut.split
    assert 0.2 < float(cut.clean.float().mean()) < 0.8


def test_nothing_above_the_threshold_trusts_the_lowest_losses() -> None:
    losses = TWO.flip(0).repeat(3)
    made = make_partition(losses, torch.arange(300), 300, PartitionConfig(threshold=1.0))
    assert made.figures["clean_set_was_empty"] == 1
    assert int(made.clean.sum()) == 3  # one in a hundred
    assert float(losses[made.clean].max()) <= float(losses[~made.clean].min())
    config = PartitionConfig(threshold=1.0, single_mode="split")
    few = make_partition(torch.tensor([3.0, 1.0, 2.0]), torch.arange(3), 3, config)
    assert few.clean.tolist() == [False, True, True]
    assert few.elite.sum() > 0


def test_the_released_rule_calls_one_in_a_hundred_noisy() -> None:
    """Where every pair is above the threshold, the least trusted 1 % count as noisy."""
    losses = torch.cat([TWO[:60], torch.linspace(0.2, 0.4, 140)])
    config = PartitionConfig(threshold=0.0, minimum_noisy_share=0.01, single_mode="split")
    made = make_partition(losses, torch.arange(200), 200, config)
    assert int((~made.clean).sum()) == 2
    assert float(made.clean_prob[~made.clean].max()) <= float(made.clean_prob[made.clean].min())
    assert make_partition(losses, torch.arange(200), 200, replace(config, minimum_noisy_share=0.0)).clean.all()


def test_an_oracle_trusts_what_it_is_given() -> None:
    made = trust_all(torch.tensor([1, 3]), 5)
    assert made.clean.tolist() == made.elite.tolist() == [False, True, False, True, False]
    assert made.clean_prob.tolist() == [0, 1, 0, 1, 0]


# --- whole runs at the edges


def run(folder: Path, data: Path, *overrides: str, preset: str = "paper") -> list[dict[str, object]]:
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
    config = PartitionConfig(loss="auto", threshold=0.4)

    def judged(config: PartitionConfig) -> str:
        made = judge_pairs(believed(losses), torch.arange(400), 400, config)
        assert made.partition.mixture["loss"] == made.loss
        return made.loss

    assert judged(config) == chosen
    assert judged(PartitionConfig(loss="sce")) == judged(replace(config, sce_from=0.0)) == "sce"


def test_auto_says_what_it_took_and_both_networks_decide_for_themselves(
    data: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = iter([20, 50])  # by A, by B

    def losses(*_: object) -> PairLosses:
        return believed({"sce": two_groups(next(judged), 60), "triplet-mean": two_groups(20, 60)})

    monkeypatch.setattr("in2r.engine.judge.score_pairs", losses)
    last = run(tmp_path / "run", data, f"noise.index={noise}", "partition.loss=auto")[-1]
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


def test_a_threshold_that_trusts_nothing_is_said_and_the_run_goes_on(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    last = run(tmp_path / "run", data, "partition.threshold=1.0")[-1]
    told = [record.getMessage() for record in caplog.records if "threshold" in record.getMessage()]
    assert told == [
        "epoch 2, network A and B: no two pairs above partition.threshold=1.0; the lowest losses count as clean"
    ]
    assert last["clean_set_was_empty_A"] == 1
    assert last["steps"] == {"A": 1, "B": 1}


def test_a_threshold_that_suspects_nothing_leaves_steps_unrectified(data: Path, tmp_path: Path) -> None:
    last = run(tmp_path / "run", data, "partition.threshold=0.0")[-1]
    assert last["clean_fraction_A"] == 1
    assert last["unrectified_steps_A"] == last["steps"]["A"] == 5  # type: ignore[index]
    assert "loss_rect_A" not in last


def test_one_group_goes_on_with_the_warm_up_loss_on_all_pairs(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    losses = torch.as_tensor(np.random.default_rng(0).standard_normal(60), dtype=torch.float32)
    monkeypatch.setattr("in2r.engine.judge.score_pairs", lambda *_: believed({"sce": losses, "triplet-mean": losses}))
    asked = ("partition.single_mode=warmup", "partition.minimum_separation=9")
    last = run(tmp_path / "run", data, *asked, "train.epochs=3")[-1]
    assert last["phase"] == "co-training"
    assert last["single_mode_A"] == last["single_mode_B"] == 1
    assert last["steps"] == {"A": 5, "B": 5}
    assert "loss_sce_A" in last
    assert "loss_inter_A" not in last
    assert last["memory_fill_A"] == 0
    [told] = [record.getMessage() for record in caplog.records if "show a group" in record.getMessage()]  # of two
    assert told == (
        f"epoch 2, network A and B: the losses do not show a group of mismatched pairs (separation "
        f"{last['separation_A']:.2f}, {last['separation_B']:.2f}, partition.minimum_separation asks for 9.0; "
        f"divergence from mismatched pairs {last['divergence_A']:.2f}, {last['divergence_B']:.2f}, "
        "partition.maximum_divergence allows 0.33): where that is so, the other network trains with the warm-up loss "
        "on all pairs, as suits clean data or a weak model (said once)"
    )
    line = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    for network in "AB":  # known to be not known: null, not 0
        assert line[f"estimated_noise_rate_sce_{network}"] is None
        assert line[f"mean_clean_prob_{network}"] is None


def test_all_losses_equal_is_said_and_the_run_goes_on(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "in2r.engine.judge.score_pairs", lambda *_: believed(dict.fromkeys(("sce", "triplet-mean"), torch.ones(60)))
    )
    last = run(tmp_path / "run", data, "partition.single_mode=split")[-1]
    assert "(separation 0.00, 0.00, partition.minimum_separation asks for 2.0; divergence from" in caplog.text
    assert "divergence from mismatched pairs none, none, " in caplog.text
    assert last["clean_fraction_A"] == last["single_mode_A"] == 1
    assert last["estimated_noise_rate_sce_A"] is None


def test_an_empty_memory_is_filled_before_it_is_asked(data: Path, noise: Path, tmp_path: Path) -> None:
    index = f"noise.index={noise}"
    without = run(tmp_path / "without", data, index, "method.memory_prefill=false", "train.order=alternating")[-1]
    filled = run(tmp_path / "with", data, index, "train.order=alternating")[-1]
    assert filled["unrectified_steps_A"] == 0
    assert without["unrectified_steps_A"] == without["steps"]["A"]  # type: ignore[index]
    assert "loss_rect_A" not in without
    assert "loss_rect_B" in without


def test_clean_sets_that_leave_a_last_batch_of_one(data: Path, tmp_path: Path) -> None:
    """60 pairs in batches of 59: one pair is left out of each epoch and counted."""
    records = run(tmp_path / "run", data, "train.batch_size=59", "partition.threshold=0.0")
    assert [record["steps"] for record in records] == [{"A": 1, "B": 1}] * 2
    assert [record["left_out"] for record in records] == [{"A": 1, "B": 1}] * 2
