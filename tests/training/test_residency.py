"""Where features lie while a run trains: the decision by made-up sizes, the same batches, the same runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r import device as device_module
from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import PackedTokens, Vocabulary
from in2r.device import free_memory
from in2r.errors import InputError
from in2r.files import read_json
from in2r.methods import build_method
from in2r.runs.settings import RunConfig
from in2r.training import residency
from in2r.training.pairs import TrainingData
from in2r.training.residency import Free, Residency, decide, settle_features, working_bytes
from in2r.training.setup import open_setup
from in2r.training.train import resume_run, start_run
from tiny_engine import assert_same, settings

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
GB = 10**9
FLICKR30K, COCO, CC152K = 4.3, 16.7, 22.1
"""GB of features in float16"""


# --- the decision


@pytest.mark.parametrize(
    ("features", "card", "host", "expected"),
    [
        (FLICKR30K, 80, 128, "device"),
        (COCO, 80, 128, "device"),
        (CC152K, 80, 128, "device"),
        (FLICKR30K, 24, 32, "device"),
        (COCO, 24, 64, "device"),
        (CC152K, 24, 64, "pinned"),  # would fit in 24, but not beside the run
        (CC152K, 24, 32, "mapped"),  # more than half of the host's memory
        (FLICKR30K, 8, 16, "device"),
        (FLICKR30K, 7, 16, "pinned"),
        (FLICKR30K, 7, 8, "mapped"),
        (COCO, 8, 32, "mapped"),
        (COCO, 8, 64, "pinned"),
    ],
)
def test_on_cuda_auto_takes_the_first_place_that_fits(features: float, card: int, host: int, expected: str) -> None:
    free = Free(card * GB, host * GB)
    found = decide("auto", CUDA, int(features * GB), int(2.2 * GB), free)
    assert found.place == expected
    where = {"device": ("cuda:0", free.device), "pinned": ("main memory", free.host), "mapped": ("file", None)}
    assert (found.where, found.free_bytes) == where[expected]
    assert found.bytes == int(features * GB)


def test_auto_leaves_a_tenth_of_the_card_and_half_of_the_host() -> None:
    assert decide("auto", CUDA, 80, 10, Free(100, 1000)).place == "device"
    assert decide("auto", CUDA, 81, 10, Free(100, 162)).place == "pinned"
    assert decide("auto", CUDA, 81, 10, Free(100, 161)).place == "mapped"


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_elsewhere_auto_leaves_the_file_to_the_system(kind: str) -> None:
    found = decide("auto", torch.device(kind), 1, 1, Free(10**12, 10**12))
    assert found == Residency("mapped", "file", 1, None)


def test_what_is_asked_for_is_done_to_the_last_byte() -> None:
    assert decide("device", CUDA, 90, 10, Free(100, 0)) == Residency("device", "cuda:0", 90, 100)
    assert decide("pinned", CUDA, 90, 10, Free(0, 90)) == Residency("pinned", "main memory", 90, 90)
    assert decide("mapped", CUDA, 90, 10, Free(10**9, 10**9)) == Residency("mapped", "file", 90, None)
    for asked in ("device", "pinned"):
        assert decide(asked, CPU, 90, 10, Free(100, 100)) == Residency("device", "main memory", 90, 100)


@pytest.mark.parametrize(
    ("setting", "device", "free", "run", "place", "left"),
    [
        ("device", CUDA, Free(8 * GB, 64 * GB), "2.05", "cuda:0", "7.45"),
        ("pinned", CUDA, Free(80 * GB, 16 * GB), "0.00", "main memory", "14.90"),
        ("device", CPU, Free(18 * GB, 18 * GB), "2.05", "main memory", "16.76"),
    ],
)
def test_a_place_that_is_too_small_is_refused_with_the_sizes(
    setting: Any, device: Any, free: Free, run: str, place: str, left: str
) -> None:
    with pytest.raises(InputError) as caught:
        decide(setting, device, int(16.7 * GB), int(2.2 * GB), free)
    assert str(caught.value) == (
        f"configuration: `data.residency` ({setting}) needs 15.55 GiB for the features and {run} GiB for the run in "
        f"{place}, where {left} GiB are free; mapped reads the features from the file"
    )


def test_working_memory_by_hand() -> None:
    base = RunConfig()
    config = replace(base, model=replace(base.model, dim=4), train=replace(base.train, batch_size=2))
    images = Features(np.zeros((1, 3, 5), np.float16), np.arange(1))
    vectors = Features(np.zeros((1, 1, 7), np.float32), np.arange(1))
    words = PackedTokens(np.zeros(15, np.int32), np.array([0, 3, 15]))  # 7.5 on average
    data = TrainingData(images, vectors, torch.zeros(1), torch.zeros(1), CPU, 0, 0, 0, 0)
    of_images = 3 * (2 * 5 + 8 * 4)
    assert working_bytes(config, data, 1000) == 3000 + 4 * 3 * 2 * (of_images + 2 * 7 + 8 * 4)
    assert working_bytes(config, replace(data, texts=words), 0) == 4 * 3 * 2 * (of_images + 15 * 24 * 4)


# --- what is free


def test_free_memory_is_that_of_the_machine_where_no_group_limits_it() -> None:
    assert 2**20 < free_memory(CPU) < 2**50


def test_the_tightest_control_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "root"
    own.write_text("4:memory:/old\n0::/job/step\n")
    for folder, limit in (("job", "1000\n"), ("job/step", "max\n")):
        (root / folder).mkdir(parents=True)
        (root / folder / "memory.max").write_text(limit)
        (root / folder / "memory.current").write_text("700\n")
        (root / folder / "memory.stat").write_text("anon 550\ninactive_file 100\nactive_file 50\n")
    monkeypatch.setattr(device_module, "OWN_GROUPS", own)
    monkeypatch.setattr(device_module, "ALL_GROUPS", root)
    assert free_memory(CPU) == 1000 - 700 + 150
    (root / "job/step/memory.max").write_text("900\n")
    assert free_memory(CPU) == 900 - 700 + 150
    monkeypatch.setattr(device_module, "OWN_GROUPS", tmp_path / "none")
    assert free_memory(CPU) > 2**20


# --- batches

WORDS = Vocabulary.build(["a b c d e f g"], min_count=1)


def make_training_data(draw: st.DataObject, words: bool) -> TrainingData:
    """Draw sizes, precision and lengths; images may be stored once per caption."""
    images, regions, every = draw.draw(st.integers(1, 9)), draw.draw(st.integers(1, 5)), draw.draw(st.integers(1, 3))
    rng = np.random.default_rng(draw.draw(st.integers(0, 99)))
    dtype = draw.draw(st.sampled_from([np.float16, np.float32]))
    lengths = rng.integers(1, regions + 1, images) if draw.draw(st.booleans()) else None
    array = rng.standard_normal((images * every, regions, 3)).astype(dtype)
    vectors = Features(rng.standard_normal((2 * images, 1, 4)).astype(dtype), np.arange(2 * images))
    captions = [" ".join(rng.choice(list("abcdefg"), rng.integers(0, 6))) for _ in range(2 * images)]
    return TrainingData(
        images=Features(array, np.arange(0, images * every, every), lengths),
        texts=WORDS.encode(captions) if words else vectors,
        image_of_pair=torch.as_tensor(rng.integers(0, images, 2 * images)),
        pairs=torch.arange(2 * images),
        device=CPU,
        region_drop=0.4,
        word_drop=0.4,
        vocabulary_size=len(WORDS),
        mask_id=WORDS.mask_id,
    )


def held(data: TrainingData, device: str) -> TrainingData:
    texts = data.texts.resident(device) if isinstance(data.texts, Features) else data.texts
    return replace(data, images=data.images.resident(device), texts=texts)


def batch(data: TrainingData, augmented: bool) -> dict[str, torch.Tensor | None]:
    pairs = torch.randperm(len(data.pairs), generator=torch.Generator().manual_seed(1))[:5]
    elite = torch.arange(len(data.pairs)) % 3 == 0
    made = data.batch(pairs, torch.Generator().manual_seed(2) if augmented else None, {"elite": elite})
    values = dict(vars(made))
    return values | values.pop("columns")


@given(st.data(), st.booleans(), st.booleans())
def test_resident_features_give_the_same_batches_bit_for_bit(draw: st.DataObject, words: bool, augmented: bool) -> None:
    data = make_training_data(draw, words)
    wanted, found = batch(data, augmented), batch(held(data, "cpu"), augmented)
    for name, value in wanted.items():
        other = found[name]
        assert (value is None) == (other is None)
        if isinstance(value, torch.Tensor):
            assert value.dtype == other.dtype  # type: ignore[union-attr]
            assert torch.equal(value, other)  # type: ignore[arg-type]
        else:
            assert value == other


@given(st.data(), st.booleans())
def test_masks_and_draws_stay_on_the_host_whatever_the_device(draw: st.DataObject, words: bool) -> None:
    """The meta device stands for one of another kind: it has shapes only, and whoever asks it for values fails."""
    data = make_training_data(draw, words)
    wanted = batch(data, True)
    for far in (replace(data, device=torch.device("meta")), replace(held(data, "meta"), device=torch.device("meta"))):
        for name, value in batch(far, True).items():
            there = wanted[name]
            assert (value is None) == (there is None)
            if not isinstance(value, torch.Tensor) or not isinstance(there, torch.Tensor):
                continue
            assert (value.shape, value.dtype) == (there.shape, there.dtype)
            assert value.device.type == ("cpu" if name.endswith("_mask") or name == "elite" else "meta")
            assert value.device.type == "meta" or torch.equal(value, there)


@given(st.data())
def test_a_column_goes_with_its_pairs_and_gives_their_places(draw: st.DataObject) -> None:
    data = make_training_data(draw, words=False)
    pairs = torch.as_tensor(draw.draw(st.permutations(range(len(data.pairs)))))
    elite = torch.as_tensor(draw.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))))
    found = data.batch(pairs, None, {"elite": elite})
    assert torch.equal(found.columns["elite"], elite[pairs])
    assert torch.equal(found.column("elite"), elite[pairs])
    rows = found.rows("elite")
    assert rows.dtype == torch.int64
    assert rows.tolist() == [place for place, pair in enumerate(pairs.tolist()) if elite[pair]]
    assert data.batch(pairs).columns == {}


# --- runs


@pytest.fixture(scope="module")
def mapped(data: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of the usual way."""
    return start_run(tmp_path_factory.mktemp("mapped") / "run", with_noise(data, noise)).path


def with_noise(data: Path, noise: Path, *overrides: str) -> RunConfig:
    return settings(data, "in2r", f"noise.index={noise}", *overrides)


def test_a_run_with_resident_features_ends_bit_identically(
    data: Path, noise: Path, mapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    resident = Features.resident
    monkeypatch.setattr(Features, "resident", lambda self, to: copied.append(self.source) or resident(self, to))
    gathered: set[bool] = set()
    gather = Features.gather
    monkeypatch.setattr(Features, "gather", lambda self, *to: gathered.add(self.held is None) or gather(self, *to))
    folder = start_run(tmp_path / "run", with_noise(data, noise, "data.residency=device"))
    assert gathered == {False}  # no pass over the data reads the file any more
    assert sorted(Path(source).name for source in copied) == [
        "dev_ims.npy", "dev_vecs.npy", "train_ims.npy", "train_vecs.npy"
    ]  # fmt: skip
    assert_same(folder.path, mapped)
    images, captions = (12 + 4) * 3 * 8 * 4, (12 + 4) * 5 * 6 * 4
    found = read_json(folder.info_file)["plan"]["features"]
    assert found["free_bytes"] > 0
    assert {**found, "free_bytes": 0} == {
        "place": "device", "where": "main memory", "bytes": images + captions, "free_bytes": 0
    }  # fmt: skip
    record = read_json(mapped / "run.json")["plan"]["features"]
    assert record == {"place": "mapped", "where": "file", "bytes": images + captions, "free_bytes": None}


def test_a_run_may_go_on_with_its_features_elsewhere(data: Path, noise: Path, mapped: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        start_run(tmp_path / "run", with_noise(data, noise), InterruptedAt(7))
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("residency: auto", "residency: pinned"))
    resume_run(tmp_path / "run")
    assert_same(tmp_path / "run", mapped)


class InterruptedAt:
    """A display in whose n-th step somebody presses ^C."""

    def __init__(self, step: int) -> None:
        self.left = step

    def epoch(self, *args: Any) -> None: ...

    def record(self, *args: Any) -> None: ...

    def step(self) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_what_cannot_fit_is_refused_before_anything_is_copied(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "free_memory", lambda device: 1000)
    monkeypatch.setattr(Features, "resident", None)
    with pytest.raises(InputError, match=r"^configuration: `data.residency` \(device\) needs"):
        start_run(tmp_path / "run", settings(data, "sce", "data.residency=device"))


@pytest.mark.parametrize(("free", "place", "holder"), [(10**9, "device", "meta"), (1, "pinned", "cpu")])
def test_on_a_card_features_are_copied_where_the_decision_says(
    free: int, place: str, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on CUDA, with the meta device in the card's place."""
    rng = np.random.default_rng(0)
    images = Features(rng.standard_normal((4, 2, 3)).astype(np.float16), np.arange(4))
    data = TrainingData(images, WORDS.encode(["a"] * 4), torch.arange(4), torch.arange(4), CPU, 0, 0, 0, 0)
    dev = PairSet("dev", images.select(slice(0, 2)), np.arange(2), None, None, ["0", "1"])
    data = replace(data, device=torch.device("meta"))
    monkeypatch.setattr(residency, "free_memory", lambda device: free if device.type == "meta" else 10**9)
    monkeypatch.setattr(residency, "decide", lambda *args: decide(args[0], CUDA, *args[2:]))
    settled = settle_features(RunConfig(), [], data, dev, data.texts)
    assert settled.residency.place == place
    for part in (settled.train.images, settled.dev.images):
        assert part.held is not None
        assert part.held.device.type == holder
        assert part.held.dtype == torch.float16
    assert settled.train.texts is data.texts
    assert settled.dev_texts is data.texts


def test_batches_know_captions_of_the_same_words_where_the_method_asks(data: Path) -> None:
    for asked in (True, False):
        config = settings(data, "in2r", f"method.mask_same_image={str(asked).lower()}", words=True)
        setup = open_setup(config, CPU)
        assert setup.train.captions is not None
        captions = [" ".join(caption.lower().split()) for caption in setup.train.captions]
        pairs = setup.training_data()
        columns = build_method(config.method, config.partition).fixed_columns(pairs)
        if not asked:
            assert columns == {}
            continue
        words = pairs.batch(torch.arange(len(captions)), None, columns).columns["words"]
        for one, other in zip(range(len(captions)), range(1, len(captions)), strict=False):
            assert (words[one] == words[other]) == (captions[one] == captions[other])
