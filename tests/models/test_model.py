"""The model folder: equal to its networks, the same in every batch, refused where it does not fit."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import in2r
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.dual import DualEncoder
from in2r.models.folder import save_model
from in2r.models.retrieval import RetrievalModel

WORDS = Vocabulary.build(["a red dog runs", "two cats sit on a mat", "the old man reads"], min_count=1)
VECTOR_INPUTS = Inputs(8, "vectors", 6)
WORD_INPUTS = Inputs(8, "words", len(WORDS))
INPUTS = {"image_dim": 8, "text": "vectors", "text_dim": 6}


def networks(inputs: Inputs, model: ModelConfig) -> dict[str, DualEncoder]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        encoders = {name: build_backbone(model, inputs) for name in ("A", "B")}
        for encoder in encoders.values():
            for values in encoder.buffers():  # BatchNorm statistics that are not the initial ones
                if values.dtype == torch.float32:
                    values.uniform_(0.5, 1.5)
    return encoders


def save(folder: Path, inputs: Inputs, **changes: object) -> dict[str, DualEncoder]:
    model = ModelConfig(dim=4, **changes)  # type: ignore[arg-type]
    encoders = networks(inputs, model)
    words = WORDS if inputs.text == "words" else None
    save_model(folder, encoders, model, inputs, words, "# A card\n", {"note": "made by a test"})
    return encoders


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    save(tmp_path / "vectors", VECTOR_INPUTS)
    return tmp_path / "vectors"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    save(tmp_path / "words", WORD_INPUTS, center=True)
    return tmp_path / "words"


def images(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 3, 8)).astype(np.float32)


def load(folder: Path, **options: str) -> RetrievalModel:
    return in2r.load(folder, device="cpu", **options)


def test_ensemble_is_the_mean_of_both_similarities(vectors: Path) -> None:
    features, captions = images(), np.random.default_rng(1).standard_normal((7, 6))
    sims = {}
    for network in ("ensemble", "A", "B"):
        model = load(vectors, network=network)
        v, u = model.encode_images(features), model.encode_captions(captions)
        assert v.dtype == u.dtype == np.float32
        assert v.shape == (5, model.dim)
        assert model.dim == (8 if network == "ensemble" else 4)
        np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(u, axis=1), 1, atol=1e-6)
        sims[network] = v @ u.T
    assert not np.allclose(sims["A"], sims["B"], atol=1e-2)
    np.testing.assert_allclose(sims["ensemble"], (sims["A"] + sims["B"]) / 2, atol=1e-6)


def test_equals_the_saved_networks(tmp_path: Path) -> None:
    encoders = save(tmp_path / "m", VECTOR_INPUTS)
    with torch.no_grad():
        expected = encoders["B"].eval().encode_images(torch.from_numpy(images())).vector
    np.testing.assert_allclose(load(tmp_path / "m", network="B").encode_images(images()), expected, atol=1e-6)


def test_a_caption_alone_equals_the_caption_in_a_batch_of_128(words: Path) -> None:
    model = load(words)
    captions = ["a dog", "", "two cats sit on the old mat", "🙂"] * 32
    together = model.encode_captions(captions)
    alone = np.concatenate([model.encode_captions([text]) for text in captions[:4]])
    np.testing.assert_allclose(together[:4], alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-5)
    assert np.abs(alone[0] - alone[2]).max() > 1e-3


def test_an_image_alone_equals_the_image_in_a_batch_of_128(words: Path) -> None:
    model = load(words)
    lengths = np.arange(128) % 3 + 1
    together = model.encode_images(images(128), lengths)
    alone = np.concatenate([model.encode_images(images(128)[i : i + 1], lengths[i : i + 1]) for i in range(4)])
    np.testing.assert_allclose(together[:4], alone, atol=1e-5)


def test_regions_beyond_the_length_do_not_count(words: Path) -> None:
    features = images(2)
    changed = features.copy()
    changed[0, 2] = 99
    model = load(words)
    np.testing.assert_array_equal(model.encode_images(features, [2, 3]), model.encode_images(changed, [2, 3]))
    np.testing.assert_allclose(model.encode_images(features, [3, 3]), model.encode_images(features), atol=1e-5)


def test_tensors_halves_doubles_and_flat_vectors_are_taken(vectors: Path) -> None:
    model = load(vectors)
    flat = images()[:, 0]
    expected = model.encode_images(flat)
    np.testing.assert_array_equal(model.encode_images(torch.from_numpy(flat)), expected)
    np.testing.assert_array_equal(model.encode_images(flat.astype(np.float64)), expected)
    np.testing.assert_array_equal(model.encode_images(flat[:, None, :]), expected)
    np.testing.assert_allclose(model.encode_images(torch.from_numpy(flat).bfloat16()), expected, atol=0.1)
    np.testing.assert_allclose(model.encode_images(flat.astype(np.float16)), expected, atol=1e-2)


def test_blocks_make_no_difference(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(vectors)
    whole = model.encode_images(images(7))
    monkeypatch.setattr("in2r.models.retrieval.BLOCK", 3)
    out = np.zeros((7, 8), np.float32)
    assert model.encode_images(images(7), out=out) is out
    with pytest.raises(InputError, match=r"`out`: shape \(7, 8\), dtype int64; expected \(7, 8\), float32"):
        model.encode_images(images(7), out=np.zeros((7, 8), np.int64))
    for wrong in ([], np.broadcast_to(np.float32(0), (7, 8))):
        with pytest.raises(InputError, match="`out`: expected an array that can be written to"):
            model.encode_images(images(7), out=wrong)  # type: ignore[arg-type]
    np.testing.assert_allclose(out, whole, atol=1e-6)
    with pytest.raises(InputError, match=r"row 3 .* holds NaN"):
        model.encode_images(NAN)


NAN, HUGE = images(), images()
NAN[3, 1, 2] = np.nan
HUGE[2] = 3e38


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (images()[..., :7], r"images: shape \(5, 3, 7\); expected \(N, regions, 8\) or \(N, 8\)"),
        (images()[0, 0], r"images: shape \(8,\); expected \(N, regions, 8\)"),
        (images()[:0], r"images: shape \(0, 3, 8\), nothing to encode"),
        ([], r"images: shape \(0,\)"),
        (NAN, r"images: row 3 \(counted from 0\) holds NaN, infinity or a value beyond 1e12"),
        (np.full((2, 8), 1e300), r"images: row 0 \(counted from 0\) holds NaN, infinity or a value beyond 1e12"),
        (HUGE, r"images: row 2 \(counted from 0\) holds NaN, infinity or a value beyond 1e12"),
        (["a.jpg", "b.jpg"], "images: found text; expected numbers"),
        ([[1.0] * 8, [1.0] * 7], "images: rows of different lengths"),
    ],
)
def test_images_refused(vectors: Path, features: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(vectors).encode_images(features)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 2], r"lengths: shape \(2,\), dtype int64; expected \(5,\) integers"),
        ([1, 2, 3, 4, 3], "lengths: item 3 is 4; expected 1 to 3"),
        ([0, 2, 3, 1, 3], "lengths: item 0 is 0; expected 1 to 3"),
        ([1.0] * 5, r"dtype float64; expected \(5,\) integers"),
    ],
)
def test_lengths_refused(vectors: Path, lengths: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(vectors).encode_images(images(), lengths)


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        (["a dog"], r"captions: found text; expected caption vectors \(N, 6\)"),
        (np.zeros((2, 7)), r"captions: shape \(2, 7\); expected caption vectors \(N, 6\)"),
        (np.zeros((0, 6)), "nothing to encode"),
        (np.full((2, 6), np.inf), "captions: row 0 .* holds NaN, infinity or a value beyond 1e12"),
    ],
)
def test_caption_vectors_refused(vectors: Path, captions: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(vectors).encode_captions(captions)


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ("a dog", r"captions: one text; expected a list of texts"),
        ([], "captions: an empty list"),
        (None, "captions: found NoneType; expected a list of texts"),
        (["a dog", 7], "captions: item 1 is int; expected text"),
        (np.zeros((2, 6)), "captions: item 0 is ndarray; expected text"),
    ],
)
def test_texts_refused(words: Path, captions: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(words).encode_captions(captions)


def test_empty_captions_are_said(words: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(words).encode_captions(["a dog", " ", ""])
    assert "2 of 3 hold no word, the first is item 1" in caplog.text


def test_unknown_words_are_said(words: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Six of the seven words are unknown, and two captions have no other: their vectors are equal."""
    with caplog.at_level(logging.WARNING):
        vectors = load(words).encode_captions(["a zxcv", "zxcv", "rotes Kleid", "", "schwarzes Hemd"])
    np.testing.assert_array_equal(vectors[2], vectors[4])
    assert caplog.messages[0] == (
        "captions: 85.7 % of the words are not in the model's vocabulary; 3 of 5 captions hold no known word, the "
        "first is item 1: their vectors depend on the number of their words only"
    )
    caplog.clear()
    load(words).encode_captions(["two cats sit on a blue mat"])  # one of seven
    assert not caplog.messages


@pytest.mark.parametrize("kind", ["regions", "linear"])
def test_images_need_the_batch_axis_where_they_have_regions(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "m", Inputs(8, "vectors", 6, 3), image=kind)
    model, one = load(tmp_path / "m"), images(1)
    with pytest.raises(InputError) as caught:
        model.encode_images(one[0])
    assert str(caught.value) == (
        "images: shape (3, 8), but the model was trained on 3 regions: one image of 3 regions is (1, 3, 8), 3 images "
        "of one vector are (3, 1, 8)"
    )
    with pytest.raises(InputError, match=r"images: shape \(3, 7\); expected \(N, regions, 8\)$"):
        model.encode_images(one[0, :, :7])
    assert model.encode_images(one).shape == (1, 8)
    assert model.encode_images(images(4)[:, :1]).shape == (4, 8)


def test_flat_images_are_taken_from_a_model_of_one_region_and_said_where_that_is_not_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flat = images(5)[:, 0]
    for regions, said in (
        (1, []),
        (
            None,
            [
                "images: shape (5, 8) is read as 5 images of one vector; one image of 5 regions "
                "is (1, 5, 8), 5 images of one vector are (5, 1, 8)"
            ],
        ),
    ):
        save(tmp_path / "m", Inputs(8, "vectors", 6, regions))
        caplog.clear()
        assert load(tmp_path / "m").encode_images(flat).shape == (5, 8)
        assert caplog.messages == said


def test_folder_holds_weights_words_settings_and_card(words: Path) -> None:
    assert sorted(path.name for path in words.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "vocabulary.json",
    ]
    config = json.loads((words / "config.json").read_text())
    assert config["vocabulary"] == {"hash": WORDS.hash, "words": len(WORDS)}
    assert config["inputs"] == {"image_dim": 8, "text": "words", "text_dim": len(WORDS), "regions": None}
    assert load(words).info["note"] == "made by a test"


def test_loading_leaves_the_global_generator_alone(vectors: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    load(vectors)
    assert torch.rand(1) == expected


def test_a_model_says_what_it_takes_and_gives(words: Path) -> None:
    model = load(words)
    said = f"images of 8, {len(WORDS)} words -> vectors of {model.dim}, on {model.device})"
    assert repr(model).endswith(said)
    assert repr(model).startswith("RetrievalModel(")


def test_another_vocabulary_is_refused(words: Path) -> None:
    other = Vocabulary([*WORDS.words[:5], "zebra", *WORDS.words[6:]])
    assert len(other) == len(WORDS)
    other.save(words / "vocabulary.json")
    with pytest.raises(InputError, match=rf"vocabulary differs .*{other.hash[:12]}.*expected {WORDS.hash[:12]}"):
        load(words)


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])


def change_config(**values: object):  # type: ignore[no-untyped-def]
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_weights, "model.safetensors: not a readable safetensors file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: no such file"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json here; expected a model folder"),
        (
            lambda folder: (folder / "config.json").write_text('{"a": 1}'),
            "not the description of an in2r model",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "not valid JSON"),
        (change_config(format_version=2), "format version 2; this in2r .* reads 1"),
        (change_config(inputs={"image_dim": 8}), r"config\.json: .*`inputs\.text` is missing"),
        (change_config(model={"dimm": 4}), "config.json: .*did you mean `model.dim`"),
        (change_config(model={"dim": 5}), "weights of network A do not fit its settings"),
        (change_config(networks=["A", "C"]), "weights of network C do not fit"),
        *[
            (change_config(networks=found), "config.json: `networks` must be a list of different names, got")
            for found in ([], ["A", "A"], "AB", [1], None)
        ],
        *[
            (
                change_config(inputs={**INPUTS, name: value}),
                rf"config.json: .*`inputs.{name}` must be in \[1, .*\], got {value}",
            )
            for name, value in (("image_dim", -1), ("image_dim", 2**40), ("text_dim", 0))
        ],
        *[
            (change_config(model={"dim": dim}), r"model\.safetensors: weights of network A do not fit its settings")
            for dim in (2**24, 2**40, 2**62)
        ],
    ],
)
def test_damaged_folders_are_refused(vectors: Path, damage: object, message: str) -> None:
    damage(vectors)  # type: ignore[operator]
    with pytest.raises(InputError, match=message) as caught:
        load(vectors)
    assert "\n" not in str(caught.value)


def test_sizes_are_compared_before_memory_is_taken(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def watched(model: ModelConfig, inputs: Inputs) -> DualEncoder:
        encoder = build_backbone(model, inputs)
        built.append(next(encoder.parameters()).device.type)
        return encoder

    monkeypatch.setattr("in2r.models.folder.build_backbone", watched)
    change_config(model={"dim": 5})(vectors)
    with pytest.raises(InputError, match="do not fit its settings"):
        load(vectors)
    assert built == ["meta"]


def test_other_things_are_refused(tmp_path: Path, vectors: Path) -> None:
    legacy = tmp_path / "model_best.pth.tar"
    torch.save({"opt": 1}, legacy)
    with pytest.raises(InputError, match=r"model_best\.pth\.tar: a pickled checkpoint could run code"):
        load(legacy)
    with pytest.raises(InputError, match="nowhere: no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"expected ensemble, A, B"):
        load(vectors, network="C")


def test_a_run_folder_stands_for_its_model(tmp_path: Path, vectors: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"run: the run has no model yet; `in2r resume .*run` finishes it"):
        load(run)
    shutil.copytree(vectors, run / "model")
    np.testing.assert_array_equal(load(run).encode_images(images()), load(vectors).encode_images(images()))


def test_saving_replaces_a_model_and_nothing_else(tmp_path: Path, vectors: Path) -> None:
    save(vectors, WORD_INPUTS)
    assert load(vectors).encode_captions(["a dog"]).shape == (1, 8)
    assert [path.name for path in tmp_path.iterdir()] == ["vectors"]
    (tmp_path / "photos").mkdir()
    for config in (None, "{", "[]", '{"format": "other"}'):
        if config is not None:
            (tmp_path / "photos" / "config.json").write_text(config)
        with pytest.raises(InputError, match=r"photos: exists and is not a model folder .*; remove or rename it"):
            save(tmp_path / "photos", VECTOR_INPUTS)


def test_a_failed_save_leaves_the_older_model(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(vectors).encode_images(images())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("in2r.models.folder.write_text", full)
    with pytest.raises(InputError, match="No space left on device"):
        save(vectors, WORD_INPUTS)
    np.testing.assert_array_equal(load(vectors).encode_images(images()), before)
    assert [path.name for path in vectors.parent.iterdir()] == ["vectors"]


def test_a_save_killed_between_its_two_renames_is_put_right(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors.rename(vectors.with_name(".vectors.old"))
    (vectors.with_name(".vectors.new")).mkdir()
    monkeypatch.setattr("in2r.models.folder.write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(InputError, match="an older model is kept"):
        save(vectors, WORD_INPUTS)
    assert load(vectors).dim == 8


def test_the_package_is_light_to_import() -> None:
    code = "import in2r, sys; assert not {'torch', 'numpy', 'in2r.models'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert in2r.losses.triplet_loss
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        in2r.nothing  # noqa: B018
