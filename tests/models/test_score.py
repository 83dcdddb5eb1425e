"""`RetrievalModel.score`: exact for every backbone, saved and loaded; what an interaction backbone's vectors are."""

from pathlib import Path

import numpy as np
import pytest
import torch

import in2r
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.models.base import Backbone
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.folder import save_model
from in2r.models.retrieval import RetrievalModel

WORDS = Vocabulary.build(["a red dog runs", "two cats sit on a mat", "the old man reads"], min_count=1)
CAPTIONS = ["a dog", "", "two cats sit on the old mat", "🙂", "the man reads", "a mat", "red"]
IMAGES = np.random.default_rng(0).standard_normal((8, 4, 6)).astype(np.float32)
LENGTHS = np.array([4, 1, 2, 4, 3, 4, 4, 2])

every_backbone = pytest.mark.parametrize(
    "keys",
    [{}, {"backbone": "vsepp"}, {"backbone": "sgr", "sgr_dim": 5}, {"backbone": "saf"}, {"backbone": "scan"}],
    ids=["gpo", "vsepp", "sgr", "saf", "scan"],
)


def saved(folder: Path, keys: dict[str, object]) -> dict[str, Backbone]:
    config = ModelConfig(dim=8, word_dim=5, **keys)  # type: ignore[arg-type]
    inputs = Inputs(6, "words", len(WORDS), regions=4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        networks = {name: build_backbone(config, inputs) for name in "AB"}
        for network in networks.values():
            for name, values in (*network.named_parameters(), *network.named_buffers()):
                if values.is_floating_point() and ("norm" in name or "bns" in name):
                    values.data.uniform_(0.5, 1.5)
                if name == "head.weight":
                    values.data.mul_(100)
    save_model(folder, networks, config, inputs, WORDS, "# A card\n", {})
    return {name: network.eval() for name, network in networks.items()}


def load(folder: Path, network: str = "ensemble") -> RetrievalModel:
    return in2r.load(folder, device="cpu", network=network)  # type: ignore[arg-type]


def one_by_one(network: Backbone) -> np.ndarray:
    """Score every pair alone, without padding."""
    tokens = WORDS.encode(CAPTIONS)
    with torch.no_grad():
        mask = torch.arange(4) < torch.from_numpy(LENGTHS)[:, None]
        images = [network.encode_images(torch.from_numpy(IMAGES[i : i + 1]), mask[i : i + 1]) for i in range(8)]
        texts = [network.encode_texts(*tokens.gather(torch.tensor([j]))) for j in range(len(CAPTIONS))]
        return np.array([[float(network.score(image, text)) for text in texts] for image in images])


@every_backbone
def test_scores_are_those_of_every_pair_alone(tmp_path: Path, keys: dict[str, object]) -> None:
    networks = saved(tmp_path / "m", keys)
    expected = {name: one_by_one(network) for name, network in networks.items()}
    expected["ensemble"] = (expected["A"] + expected["B"]) / 2
    assert np.abs(expected["A"] - expected["B"]).max() > 0.01
    for name, scores in expected.items():
        found = load(tmp_path / "m", name).score(IMAGES, CAPTIONS, LENGTHS)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, scores, atol=1e-5)


@every_backbone
def test_scores_do_not_depend_on_batches(
    tmp_path: Path, keys: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "m", keys)
    model = load(tmp_path / "m")
    whole = model.score(IMAGES, CAPTIONS, LENGTHS)
    monkeypatch.setattr("in2r.models.retrieval.BATCH", 3)
    np.testing.assert_allclose(model.score(IMAGES, CAPTIONS, LENGTHS), whole, atol=1e-5)
    turned = model.score(torch.from_numpy(IMAGES[::-1].copy()), CAPTIONS[::-1], LENGTHS[::-1].copy())
    np.testing.assert_allclose(turned, whole[::-1, ::-1], atol=1e-5)


def test_a_dual_encoder_scores_by_its_vectors(tmp_path: Path) -> None:
    saved(tmp_path / "m", {})
    model = load(tmp_path / "m")
    assert not model.interacts
    expected = model.encode_images(IMAGES) @ model.encode_captions(CAPTIONS).T
    np.testing.assert_array_equal(model.score(IMAGES, CAPTIONS), expected)


def test_vectors_of_an_interaction_backbone_must_be_asked_for(tmp_path: Path) -> None:
    networks = saved(tmp_path / "m", {"backbone": "sgr", "sgr_dim": 5})
    model = load(tmp_path / "m", "A")
    assert model.interacts
    for encode, values in ((model.encode_images, IMAGES), (model.encode_captions, CAPTIONS)):
        with pytest.raises(InputError, match=r"no vector of an item .*; use score\(images, captions\), or coarse=True"):
            encode(values)
    with torch.no_grad():
        expected = networks["A"].encode_images(torch.from_numpy(IMAGES)).vector
    np.testing.assert_allclose(model.encode_images(IMAGES, coarse=True), expected, atol=1e-6)
    assert model.encode_captions(CAPTIONS, coarse=True).shape == (len(CAPTIONS), 8)


def test_scan_has_no_vectors_even_where_they_are_asked_for(tmp_path: Path) -> None:
    saved(tmp_path / "m", {"backbone": "scan"})
    for coarse in (False, True):
        with pytest.raises(InputError, match=r"has learnt no vector of an item; use score\(images, captions\)$"):
            load(tmp_path / "m").encode_images(IMAGES, coarse=coarse)


@every_backbone
def test_bad_input_is_refused_as_in_encoding(tmp_path: Path, keys: dict[str, object]) -> None:
    saved(tmp_path / "m", keys)
    model = load(tmp_path / "m")
    with pytest.raises(InputError, match="captions: one text; expected a list of texts"):
        model.score(IMAGES, "a dog")
    with pytest.raises(InputError, match=r"images: shape \(8, 4, 5\); expected \(N, regions, 6\)"):
        model.score(IMAGES[..., :5], CAPTIONS)
    bad = IMAGES.copy()
    bad[5, 1, 1] = np.nan
    with pytest.raises(InputError, match="images: row 5"):
        model.score(bad, CAPTIONS)


def test_other_numbers_of_regions_are_refused_by_sgr(tmp_path: Path) -> None:
    saved(tmp_path / "m", {"backbone": "sgr"})
    with pytest.raises(InputError, match="images: 3 regions per image, this model expects 4"):
        load(tmp_path / "m").score(IMAGES[:, :3], CAPTIONS)
