"""Embeddings: figures by hand, a sample that any run shares, saved once; maps that repeat."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import in2r
import tiny_run
from in2r.errors import InputError
from in2r.plots.embeddings import draw_embeddings, project
from in2r.results import export_model
from in2r.results.embeddings import Embeddings, describe_embeddings, sample_embeddings, sample_pairs
from in2r.tensors import load_tensors, save_tensors
from in2r.training.train import reopen

OWN = np.repeat(np.arange(14), 5)


def at(*degrees: float) -> torch.Tensor:
    return torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


def test_figures_by_hand() -> None:
    """Twelve images at 0°, 10°, ..., 110°; their texts lie there too, but for those of 0 and 5, which are exchanged."""
    where = [10 * item for item in range(12)]
    exchanged = [where[5], *where[1:5], where[0], *where[6:]]
    found = describe_embeddings(at(*where), at(*exchanged))
    cos = {angle: math.cos(math.radians(angle)) for angle in range(0, 120, 10)}
    same = 10 * cos[0] + 2 * cos[50]
    assert found["same_pair"] == pytest.approx(1 - same / 12, abs=1e-6)
    every = 12 * cos[0] + sum(2 * (12 - steps) * cos[10 * steps] for steps in range(1, 12))
    assert found["other_pair"] == pytest.approx(1 - (every - same) / 132, abs=1e-6)
    # ten of eleven others are near, all but the farthest: item 11 for 0 to 5, of images as of texts; for 6 to 11 it is
    # image 0 and text 5, so that nine are shared
    assert found["overlap"] == pytest.approx((6 * 10 + 6 * 9) / 120)
    assert found["overlap_by_chance"] == pytest.approx(10 / 11)


@given(st.integers(12, 40), st.integers(0, 99))
def test_equal_spaces_overlap_wholly_whatever_the_rotation(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.nn.functional.normalize(torch.randn(count, 6, generator=generator), dim=1)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator))
    assert describe_embeddings(images, images @ rotation)["overlap"] == pytest.approx(1, abs=0.02)
    assert describe_embeddings(images, images)["same_pair"] == pytest.approx(0, abs=1e-6)


@given(st.integers(1, 900), st.integers(0, 99))
def test_sample_takes_one_caption_of_each_of_so_many_images(images: int, seed: int) -> None:
    own = np.repeat(np.arange(images), np.random.default_rng(seed).integers(0, 5, images))
    chosen = sample_pairs(own)
    found = own[chosen]
    assert len(chosen) == len(set(found)) == min(500, len(set(own)))
    assert list(found) == sorted(found)
    assert list(sample_pairs(own)) == list(chosen)


def test_sample_is_no_row_of_first_captions() -> None:
    places = sample_pairs(np.repeat(np.arange(1000), 5)) % 5
    assert len(places) == 500
    assert set(places) == {0, 1, 2, 3, 4}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and another one on the same data."""
    root = tmp_path_factory.mktemp("embeddings")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_run.IMAGES, "dev", 14)
        data = tiny_run.make_data(root / "data")
    for name, method in (("one", "sce"), ("two", "triplet")):
        folder = tiny_run.train(root / name, data, method)
        export_model(folder, reopen(folder))
    return root


@pytest.fixture
def root(trained: Path, tmp_path: Path) -> Path:
    """Copies of the runs that a test may change; their data stay where they are."""
    for name in ("one", "two"):
        shutil.copytree(trained / name, tmp_path / name)
    return tmp_path


def test_sample_is_what_the_model_says_of_these_pairs(root: Path, trained: Path) -> None:
    found = sample_embeddings(root / "one")
    model = in2r.load(root / "one", device="cpu")
    pairs = sample_pairs(OWN)
    images = model.encode_images(np.load(trained / "data" / "dev_ims.npy"))[OWN[pairs]]
    texts = model.encode_captions(np.load(trained / "data" / "dev_vecs.npy"))[pairs]
    np.testing.assert_allclose(found.images, images, atol=1e-6)
    np.testing.assert_allclose(found.texts, texts, atol=1e-6)
    tensors, _ = load_tensors(root / "one" / "embeddings_dev.safetensors")
    assert tensors["pairs"].tolist() == pairs.tolist()
    assert found.about["run"] == "one"
    assert found.about["split"] == "dev"


def test_the_second_time_neither_data_nor_weights_are_needed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sample_embeddings(root / "one")
    monkeypatch.setattr("in2r.results.embeddings.reopen", None)
    again = sample_embeddings(root / "one")
    assert torch.equal(again.images, first.images)
    assert again.about == first.about
    (root / "one" / "best.safetensors").unlink()
    assert torch.equal(sample_embeddings(root / "one").texts, first.texts)


def test_a_sample_of_another_best_epoch_is_made_anew(root: Path) -> None:
    first = sample_embeddings(root / "one")
    best = root / "one" / "best.safetensors"
    tensors, meta = load_tensors(best)
    save_tensors(best, {name: value + 0.1 for name, value in tensors.items()}, {**meta, "epoch": 7})
    again = sample_embeddings(root / "one")
    assert again.about["epoch"] == 7
    assert not torch.allclose(again.images, first.images)


@pytest.mark.parametrize("left", [0, 1000])
def test_a_sample_that_was_cut_off_is_made_anew(root: Path, left: int, caplog: pytest.LogCaptureFixture) -> None:
    first = sample_embeddings(root / "one")
    file = root / "one" / "embeddings_dev.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:left])
    assert torch.equal(sample_embeddings(root / "one").images, first.images)
    assert file.read_bytes() == whole
    assert "embeddings_dev.safetensors: not a readable safetensors file" in caplog.text
    assert "it is made again" in caplog.text


def test_too_few_pairs_are_refused(root: Path) -> None:
    with pytest.raises(InputError, match="10 images in test; at least 12 are needed"):
        sample_embeddings(root / "one", "test")


def test_a_run_of_scan_has_no_embeddings(tmp_path: Path) -> None:
    data = tiny_run.make_data(tmp_path / "data")
    run = tiny_run.train(tmp_path / "run", data, "sce", "model.backbone=scan", "train.epochs=1", words=True)
    with pytest.raises(InputError, match=r"run: model\.backbone=scan learns no vector of an item$"):
        sample_embeddings(run.path)


def test_panels_name_the_run_and_its_figures(root: Path) -> None:
    samples = [sample_embeddings(root / name) for name in ("one", "two")]
    figure = Figure(layout="constrained")
    draw_embeddings(figure, *samples)
    figure.draw_without_rendering()
    for axes, sample, name in zip(figure.axes, samples, ("one", "two"), strict=True):
        found = describe_embeddings(sample.images, sample.texts)
        assert axes.get_title().startswith(f"{name} (dev rSum ")
        assert f"same pair {found['same_pair']:.3f}, other pairs {found['other_pair']:.3f}" in axes.get_xlabel()
        assert f"overlap {found['overlap']:.3f} (by chance 0.769)" in axes.get_xlabel()  # 10 of 13
        assert [len(points.get_offsets()) for points in axes.collections] == [14, 14]
    assert "14 pairs of the dev split of data" in figure.get_supxlabel().replace("\n", " ")


def test_map_repeats() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(30, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    first = project(vectors.numpy())
    assert first is not None
    np.testing.assert_array_equal(project(vectors.numpy()), first)


def test_collapsed_embeddings_are_said(root: Path) -> None:
    whole = sample_embeddings(root / "one")
    same = torch.zeros_like(whole.images)
    same[:, 0] = 1
    figure = Figure(layout="constrained")
    draw_embeddings(figure, Embeddings(same, same, whole.about), whole)
    assert figure.axes[0].texts[0].get_text() == "collapsed: all embeddings are equal"


def test_runs_on_different_data_are_refused(root: Path) -> None:
    one = sample_embeddings(root / "one")
    other = Embeddings(one.images, one.texts, {**one.about, "fingerprint": "b", "data": "birds"})
    with pytest.raises(InputError, match=r"runs on different data \(data, birds\)"):
        draw_embeddings(Figure(), one, other)
