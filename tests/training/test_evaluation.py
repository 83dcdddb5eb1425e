"""Recall of a split in three rows; divergence; what cannot be trained on."""

import logging
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny_engine
from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import Vocabulary
from in2r.device import resolve_device
from in2r.errors import InputError
from in2r.methods import Batch, Net, Now, Step
from in2r.methods.in2r import In2r
from in2r.metrics import recall_at_k
from in2r.models.base import Backbone, Items
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig
from in2r.training.evaluation import evaluate_split, failures, is_at_chance, is_collapsed, mean_pairwise_cosine
from in2r.training.train import reopen, resume_run, start_run
from tiny_engine import settings

CPU = torch.device("cpu")


class Turned(Backbone):
    """A backbone that turns the features by a matrix of its own and scales them to unit norm."""

    def __init__(self, seed: int, dim: int = 6) -> None:
        super().__init__()
        self.turn = torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed))

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return Items(torch.nn.functional.normalize(values[:, 0] @ self.turn, dim=1))

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return Items(torch.nn.functional.normalize(values[:, 0] @ self.turn + 0.1, dim=1))


def split(per_image: list[int], noise: float = 0.8) -> tuple[PairSet, Features]:
    """Images with as many captions as asked for; a caption lies near its image."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(per_image)), per_image)
    images = rng.standard_normal((len(per_image), 1, 6)).astype(np.float32)
    texts = (images[owner] + noise * rng.standard_normal((len(owner), 1, 6))).astype(np.float32)
    captions = Features(texts, np.arange(len(owner)))
    names = [str(image) for image in range(len(per_image))]
    return PairSet("dev", Features(images, np.arange(len(per_image))), owner, None, captions, names), captions


RAGGED = [1, 2, 7, 1, 3, 5, 2, 4, 1, 2]


def test_three_rows_and_the_ensemble_is_the_mean_of_both_similarities() -> None:
    part, texts = split(RAGGED)
    a, b = Turned(1), Turned(2)
    rows, health = evaluate_split({"A": a, "B": b}, part, texts, CPU)
    owner = part.image_of_caption
    v, u = torch.as_tensor(part.images.array), torch.as_tensor(texts.array)
    of = {net: (net.encode_images(v).vector, net.encode_texts(u).vector) for net in (a, b)}
    similarity = {net: images @ captions.T for net, (images, captions) in of.items()}
    assert list(rows) == ["A", "B", "ensemble"]
    assert rows["A"] == pytest.approx(recall_at_k(similarity[a], owner))
    assert rows["B"] == pytest.approx(recall_at_k(similarity[b], owner))
    assert rows["ensemble"] == pytest.approx(recall_at_k((similarity[a] + similarity[b]) / 2, owner))
    assert rows["A"]["rsum"] != rows["B"]["rsum"]
    assert health["peer_similarity_image"] == pytest.approx(float((of[a][0] * of[b][0]).sum(1).mean()), abs=1e-6)
    assert health["peer_similarity_text"] == pytest.approx(float((of[a][1] * of[b][1]).sum(1).mean()), abs=1e-6)
    assert not health["collapsed_A"]


def test_one_network_is_its_own_ensemble() -> None:
    part, texts = split(RAGGED)
    rows, health = evaluate_split({"A": Turned(1)}, part, texts, CPU)
    assert list(rows) == ["A", "ensemble"]
    assert rows["A"] == rows["ensemble"]
    assert list(health) == ["collapsed_A", "at_chance_A"]


def test_folds_are_averaged() -> None:
    part, texts = split([2, 1, 3, 2, 2, 1, 1, 4, 2, 2])
    net = Turned(1)
    rows, _ = evaluate_split({"A": net}, part, texts, CPU, folds=5)
    recalls = []
    for fold in range(5):
        inside = (part.image_of_caption // 2) == fold
        images = net.encode_images(torch.as_tensor(part.images.array[2 * fold : 2 * fold + 2])).vector
        captions = net.encode_texts(torch.as_tensor(texts.array[inside])).vector
        recalls.append(recall_at_k(images @ captions.T, part.image_of_caption[inside] - 2 * fold))
    for name, value in rows["A"].items():
        assert value == pytest.approx(np.mean([recall[name] for recall in recalls])), name
    assert rows["A"]["i2t_r1"] > evaluate_split({"A": net}, part, texts, CPU)[0]["A"]["i2t_r1"]


@pytest.mark.parametrize("seed", range(3))
def test_mean_pairwise_cosine_equals_the_pairwise_mean(seed: int) -> None:
    rows = torch.nn.functional.normalize(torch.randn(30, 5, generator=torch.Generator().manual_seed(seed)), dim=1)
    full = rows.double() @ rows.double().T
    expected = float(full.sum() - full.trace()) / (30 * 29)
    assert mean_pairwise_cosine(rows) == pytest.approx(expected, abs=1e-6)
    assert not is_collapsed(rows)


def test_collapse_is_seen_through_rounding_but_a_narrow_cone_is_none() -> None:
    one = torch.full((50, 16), 0.25)
    assert is_collapsed(one + 1e-7 * torch.arange(50)[:, None] / 50)
    cone = one + 0.02 * torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
    cone = torch.nn.functional.normalize(cone, dim=1)
    assert mean_pairwise_cosine(cone) > 0.99
    assert not is_collapsed(cone)
    assert not is_collapsed(one[:1])
    assert is_collapsed(torch.zeros(50, 4))
    assert math.isnan(mean_pairwise_cosine(one[:1]))


def test_a_collapsed_network_is_said(caplog: pytest.LogCaptureFixture) -> None:
    part, texts = split(RAGGED)

    class Constant(Turned):
        def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
            return Items(torch.eye(6)[:1].expand(len(values), 6))

    with caplog.at_level(logging.WARNING):
        _, health = evaluate_split({"A": Turned(1), "B": Constant(1)}, part, texts, CPU)
    assert not health["collapsed_A"]
    assert health["collapsed_B"]
    assert "network B is collapsed" in caplog.text
    assert "smaller train.learning_rate" in caplog.text
    assert [health["at_chance_A"], health["at_chance_B"]] == [False, True]  # all tie, and a tie counts against it


@pytest.mark.parametrize(
    ("mean_rank", "images", "rsum", "at_chance"),
    [
        (1.0, 2, 400.0, False),
        (1.5, 2, 399.0, True),
        (50.5, 100, 320.0, True),
        (41.0, 100, 399.0, True),
        (41.0, 100, 401.0, False),  # images are badly placed, but captions are found
        (40.5, 100, 320.0, False),
        (300.0, 1000, 320.0, False),
    ],
)
def test_at_chance_by_hand(mean_rank: float, images: int, rsum: float, at_chance: bool) -> None:
    """Mean rank 1 + 0.4 (N - 1), for 100 images 40.6; and an rSum below twice a random order's, here of 200."""
    assert is_at_chance({"t2i_meanr": mean_rank, "rsum": rsum}, images, 200.0) == at_chance


def test_random_embeddings_are_at_chance_whole_and_in_folds() -> None:
    part, texts = split([5] * 60, noise=100.0)
    for folds in (1, 5):
        _, health = evaluate_split({"A": Turned(1)}, part, texts, CPU, folds)  # type: ignore[dict-item]
        assert health["at_chance_A"]
    part, texts = split([5] * 60)
    assert not evaluate_split({"A": Turned(1)}, part, texts, CPU)[1]["at_chance_A"]  # type: ignore[dict-item]


def test_what_failed_is_named_once_with_advice() -> None:
    fine = {f"{what}_{net}": False for what in ("collapsed", "at_chance") for net in "AB"}
    assert failures(fine) == failures({}) == []
    advice = (
        "; train again with a smaller train.learning_rate, a longer warm-up if the method has one, more steps in an "
        "epoch (a smaller train.batch_size), or more pairs"
    )
    order = "no better than a random order"
    assert failures({**fine, "at_chance_A": True, "at_chance_B": True}) == [
        f"NOTHING LEARNT: network A and B: {order}{advice}"
    ]
    assert failures({**fine, "at_chance_A": True, "at_chance_B": True, "collapsed_B": True}) == [
        f"NOTHING LEARNT: network B: collapsed, all embeddings are equal; network A: {order}{advice}"
    ]


def test_an_embedding_that_is_not_finite_is_named() -> None:
    part, texts = split(RAGGED)
    texts.array[3] = np.inf
    with pytest.raises(InputError, match="network A: dev caption 3 has an embedding that is not finite"):
        evaluate_split({"A": Turned(1)}, part, texts, CPU)


# --- divergence

EXPLODE = "train.learning_rate=1e30"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ((EXPLODE,), r"epoch 1, step [12] of network [AB] \(pairs \d+(, \d+){7}, \.\.\.\): the loss or its gradient"),
        ((EXPLODE, "train.batch_size=60"), "epoch 1, validation: network A: dev image 0 has an embedding"),
        ((EXPLODE, "method.warmup_epochs=0"), r"epoch 1, step \d of network [AB] \(pairs "),
    ],
)
def test_a_run_that_diverges_stops_with_its_place(
    data: Path, tmp_path: Path, overrides: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError, match=f"run: {said}.*try a lower train.learning_rate") as error:
        start_run(tmp_path / "run", settings(data, "in2r", *overrides))
    assert "\n" not in str(error.value)


def test_divergence_leaves_the_checkpoint_before_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(data, "in2r", "checkpoint.every_steps=3", "train.epochs=2")
    whole = start_run(tmp_path / "whole", config).path

    def poisoned(method: In2r, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        for step in honest(method, net, peer, batches, now):
            if (now.name, now.step) == ("B", 1):  # the run's 14th step
                step.losses["total"] = step.losses["total"] * float("nan")
            yield step

    honest = In2r.steps
    with monkeypatch.context() as broken:
        broken.setattr(In2r, "steps", poisoned)
        with pytest.raises(InputError, match=r"epoch 2, step 2 of network B .* is not finite"):
            start_run(tmp_path / "run", config)
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "step-000000012.safetensors"
    resume_run(tmp_path / "run")
    tiny_engine.assert_same(tmp_path / "run", whole)


# --- what cannot be trained on


def refused(tmp_path: Path, config: RunConfig, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        start_run(tmp_path / "run", config)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.fixture
def own(data: Path, tmp_path: Path) -> Path:
    """Return a copy of the data that a test may spoil."""
    return Path(shutil.copytree(data, tmp_path / "own"))


def change(file: Path, how: Callable[[np.ndarray], np.ndarray]) -> None:
    np.save(file, how(np.load(file)))


def test_one_image_is_too_few(own: Path, tmp_path: Path) -> None:
    change(own / "train_ims.npy", lambda a: a[:1])
    change(own / "train_vecs.npy", lambda a: a[:5])
    (own / "train_caps.txt").write_text("a\nb\nc\nd\ne\n", encoding="utf-8")
    refused(tmp_path, settings(own), "train_ims.npy: 1 image in train; at least 2 are needed")


def test_captions_that_do_not_fit_the_features(own: Path, tmp_path: Path) -> None:
    change(own / "train_vecs.npy", lambda a: a[:-1])
    refused(tmp_path, settings(own), r"train_vecs\.npy: 59 rows but 60 captions in .*train_caps\.txt")


@pytest.mark.parametrize("file", ["train_ims.npy", "dev_ims.npy", "train_vecs.npy", "dev_vecs.npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite(own: Path, tmp_path: Path, file: str, value: float) -> None:
    def spoil(array: np.ndarray) -> np.ndarray:
        array[3, ..., 1] = value
        return array

    change(own / file, spoil)
    refused(tmp_path, settings(own), rf"{file}.*row 3")


def test_a_vocabulary_of_other_words(own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "words.json"
    overrides = (f"data.vocabulary={file}", "train.epochs=1")
    Vocabulary.build(["zebra stripe"], min_count=1).save(file)
    refused(tmp_path, settings(own, "sce", *overrides, words=True), r"words\.json: holds no word of the training capt")
    Vocabulary.build(["zebra dog"], min_count=1).save(file)
    start_run(tmp_path / "run", settings(own, "sce", *overrides, words=True))
    assert re.search(
        r"train captions: \d\d(\.\d)? % of the words are not in .*words\.json; \d+ of 60 captions hold", caplog.text
    )


@pytest.mark.parametrize("file", ["dev_ims.npy", "dev_vecs.npy"])
def test_another_dimension_in_another_split(own: Path, tmp_path: Path, file: str) -> None:
    change(own / file, lambda a: np.concatenate([a, a], axis=-1))
    dim = {"dev_ims.npy": 8, "dev_vecs.npy": 6}[file]
    refused(tmp_path, settings(own), rf"{file}: dim {2 * dim}, but {file.replace('dev', 'train')} has {dim}")


def test_an_image_in_several_splits(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    np.save(folder / "images.npy", np.ones((4, 2), np.float32))
    rows = [f"{image}\ta dog\t{split}\n" for split in ("train", "dev") for image in range(3)]
    (folder / "pairs.tsv").write_text("image\tcaption\tsplit\n" + "".join(rows), encoding="utf-8")
    refused(tmp_path, settings(folder, words=True), r"table: 3 images lie in several splits \(image 0 in line \d\)")


def test_caption_text_where_there_is_none(own: Path, tmp_path: Path) -> None:
    (own / "train_caps.txt").unlink()
    refused(tmp_path, settings(own, words=True), r"train_caps\.txt: no such file; 0 pairs")
    refused(tmp_path, settings(own, "in2r", "model.text=words"), "model.text=words needs captions as words")


def test_a_missing_split_or_folder(own: Path, tmp_path: Path) -> None:
    (own / "dev_ims.npy").unlink()
    refused(tmp_path, settings(own), r"dev_ims\.npy: no such file")
    refused(tmp_path, settings(tmp_path / "absent"), "absent: ")
    empty = replace(settings(own), data=replace(settings(own).data, path=""))
    refused(tmp_path, empty, "`data.path` is empty")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("noise.ratio=0.8",), r"noise_0\.4\.npy.*0\.8"),
        (("noise.level=image",), r"noise_0\.4\.npy.*image"),
    ],
)
def test_a_noise_index_that_is_not_what_was_declared(
    data: Path, noise: Path, tmp_path: Path, overrides: tuple[str, ...], said: str
) -> None:
    refused(tmp_path, settings(data, "in2r", f"noise.index={noise}", *overrides), said)


def test_a_noise_index_that_is_missing_is_never_drawn(data: Path, tmp_path: Path) -> None:
    refused(tmp_path, settings(data, "in2r", f"noise.index={tmp_path / 'no.npy'}"), "no such noise index")
    assert not (tmp_path / "no.npy").exists()


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "cpu:1", "meta", ""])
def test_devices_that_are_not_here(device: str) -> None:
    with pytest.raises(InputError, match=f"device {device}: "):
        resolve_device(device)


def test_devices_that_are_here() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda", "mps")


def test_equal_and_empty_captions_are_said_and_do_not_stop_a_run(
    own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (own / "train_caps.txt").write_text("a dog\n" * 59 + "\n", encoding="utf-8")
    records = start_run(tmp_path / "run", settings(own, "in2r", "train.epochs=2", words=True)).records()
    assert len(records) == 2
    assert caplog.text.count("of 60 training captions 1 are empty and 58 repeat an earlier one") == 1


def test_an_oracle_trains_on_the_truly_matching_pairs_only(data: Path, noise: Path, tmp_path: Path) -> None:
    config = settings(data, "in2r", f"noise.index={noise}", "noise.oracle=true", "train.epochs=2")
    folder = start_run(tmp_path / "run", config)
    matching = int((np.load(noise) == np.repeat(np.arange(12), 5)).sum())
    info = folder.info()
    assert info["training_pairs"] == matching
    assert info["noise"]["oracle"] is True
    assert RunFolder(folder.path).records()[-1]["steps"] == {"A": -(-matching // 12), "B": -(-matching // 12)}


def test_more_neighbors_than_pairs_are_refused_at_the_start(data: Path, tmp_path: Path) -> None:
    config = settings(data, "in2r", "method.num_neighbors=61", "method.memory_size=null")
    refused(tmp_path, config, r"`method\.num_neighbors` \(61\) .* `method\.memory_size` \(61\) .* pairs \(60\)")


@pytest.mark.parametrize(("preset", "warmup", "warned"), [("in2r", 2, True), ("in2r", 1, False), ("triplet", 2, False)])
def test_a_run_that_ends_within_its_warm_up_is_warned_of(
    data: Path, tmp_path: Path, preset: str, warmup: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    start_run(tmp_path / "run", settings(data, preset, "train.epochs=2", f"method.warmup_epochs={warmup}"))
    assert ("no main phase: train.epochs=2 ends within method.warmup_epochs=2" in caplog.text) is warned


def test_a_drawn_split_is_announced_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = tmp_path / "table"
    table.mkdir()
    rng = np.random.default_rng(0)
    np.save(table / "images.npy", rng.standard_normal((20, 8)).astype(np.float32))
    np.save(table / "captions.npy", rng.standard_normal((20, 6)).astype(np.float32))
    (table / "pairs.csv").write_text("image,caption\n" + "".join(f"{image},dog {image}\n" for image in range(20)))
    with caplog.at_level(logging.INFO):
        config = settings(table, "sce", "train.epochs=1", "data.caption_vectors=captions", "model.image=linear")
        reopen(start_run(tmp_path / "run", config))
    told = [record.getMessage() for record in caplog.records if "drew" in record.getMessage()]
    assert told == ["pairs.csv has no split column: drew 16 images for train, 2 for dev, 2 for test (split_seed 0)"]
