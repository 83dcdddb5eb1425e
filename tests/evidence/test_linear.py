import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from in2r.evidence import fit_linear_maps, linear_similarity
from in2r.evidence.vectors import check_finite, mean_row


def pairs(images=60, captions=2, f=6, d=4, shared=2, noise=0.5, seed=0):
    """Images and captions whose first `shared` directions are the same but for noise, and a fold of each pair."""
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(images).repeat_interleave(captions)
    v, u = torch.randn(images, f, generator=generator), torch.randn(len(owner), d, generator=generator)
    u[:, :shared] = v[owner, :shared] + noise * u[:, :shared]
    mixed = [x @ torch.randn(x.shape[1], x.shape[1], generator=generator) + 3 for x in (v, u)]
    return *mixed, owner, owner % 3


def product(maps):
    """Of the two maps: it does not depend on the signs of the directions."""
    return maps.image_map @ maps.text_map.T


# The maps


def textbook(images, texts, weight, ridge):
    """Regularised canonical correlation analysis of pairs side by side, in float64."""
    x, y, w = (values.double().numpy() for values in (images, texts, weight))
    w = w / w.sum()
    means = w @ x, w @ y
    x, y = x - means[0], y - means[1]
    cxx, cyy, cxy = (a.T @ (w[:, None] * b) for a, b in ((x, x), (y, y), (x, y)))
    cxx += ridge * np.trace(cxx) / len(cxx) * np.eye(len(cxx))
    cyy += ridge * np.trace(cyy) / len(cyy) * np.eye(len(cyy))
    squares = np.linalg.eigvals(np.linalg.solve(cxx, cxy) @ np.linalg.solve(cyy, cxy.T)).real  # another way to them
    left, right = (np.linalg.inv(sqrtm(c).real) for c in (cxx, cyy))
    u, r, vt = np.linalg.svd(left @ cxy @ right, full_matrices=False)
    correlations = np.sqrt(np.sort(squares.clip(min=0))[::-1][: len(r)])
    return means, (left @ u * r) @ (right @ vt.T * r).T, correlations


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.05, 2), st.integers(0, 99))
def test_the_maps_are_those_of_the_textbook_on_the_other_folds(f, d, ridge, seed):
    images, texts, owner, fold = pairs(f=f, d=d, shared=min(f, d, 2), seed=seed)
    weight = torch.rand(len(owner), generator=torch.Generator().manual_seed(seed))
    for number, found in enumerate(fit_linear_maps(images, texts, owner, fold, 3, weight, ridge)):
        rest = fold != number
        means, maps, correlations = textbook(images[owner[rest]], texts[rest], weight[rest], ridge)
        np.testing.assert_allclose(found.image_mean, means[0], atol=1e-4)
        np.testing.assert_allclose(found.text_mean, means[1], atol=1e-4)
        np.testing.assert_allclose(product(found), maps, rtol=1e-3, atol=1e-3 * np.abs(maps).max())
        np.testing.assert_allclose(found.correlations, correlations, atol=1e-3)
        assert found.image_map.shape == (f, min(f, d))
        assert found.text_map.shape == (d, min(f, d))


def test_one_direction_by_hand():
    # Fold 0 is judged by the last four pairs: x = 1, 1, -1, -1 about 5 and y = 2, 2, 2, -6, of mean 0.
    # The variances are 1 and 12, the covariance is (2 + 2 - 2 + 6) / 4 = 2; the ridge makes them 1.5 and 18.
    images = torch.tensor([[0.0], [9.0], [6.0], [6.0], [4.0], [4.0]])
    texts = torch.tensor([[7.0], [0.0], [2.0], [2.0], [2.0], [-6.0]])
    found = fit_linear_maps(images, texts, torch.arange(6), torch.tensor([0, 0, 1, 1, 1, 1]), 2, ridge=0.5)[0]
    r = 2 / math.sqrt(1.5 * 18)
    assert float(found.correlations) == pytest.approx(r)
    assert (float(found.image_mean), float(found.text_mean)) == pytest.approx((5, 0), abs=1e-6)
    assert abs(float(found.image_map)) == pytest.approx(r / math.sqrt(1.5))
    assert float(product(found)) == pytest.approx(r**2 / math.sqrt(1.5 * 18))


def test_a_weight_counts_as_repetition():
    images, texts, owner, fold = pairs()
    times = torch.arange(len(owner)) % 4
    often = torch.arange(len(owner)).repeat_interleave(times)
    weighted = fit_linear_maps(images, texts, owner, fold, 3, times.float())
    repeated = fit_linear_maps(images, texts[often], owner[often], fold[often], 3)
    for one, other in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(one.image_mean, other.image_mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(product(one), product(other), rtol=1e-3, atol=1e-4)


def test_no_pair_speaks_for_its_own_fold():
    images, texts, owner, fold = pairs()
    before = fit_linear_maps(images, texts, owner, fold, 3)
    images[torch.arange(60) % 3 == 1] *= -2
    texts[fold == 1] += 5
    after = fit_linear_maps(images, texts, owner, fold, 3)
    torch.testing.assert_close(product(after[1]), product(before[1]), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(after[1].text_mean, before[1].text_mean, rtol=1e-4, atol=1e-4)
    for other in (0, 2):
        assert not torch.allclose(product(after[other]), product(before[other]), atol=1e-2)


def test_planted_directions_are_found():
    images, texts, owner, fold = pairs(images=500, f=10, d=8, shared=3, noise=0.3, seed=1)
    maps = fit_linear_maps(images, texts, owner, fold, 3, ridge=1e-6)
    for found in maps:  # corr(v, v + 0.3 e) = 1 / sqrt(1.09)
        assert found.correlations[:3].tolist() == pytest.approx([1 / math.sqrt(1.09)] * 3, abs=0.03)
        assert float(found.correlations[3]) < 0.2
    every = torch.arange(len(owner))
    own = linear_similarity(maps, torch.arange(500) % 3, images, texts, owner, every)
    other = linear_similarity(maps, torch.arange(500) % 3, images, texts, owner.roll(100), every)
    assert float(own.mean()) > 0.9
    assert abs(float(other.mean())) < 0.1


# Degenerate inputs


def test_a_constant_column_tells_nothing():
    images, texts, owner, fold = pairs()
    images = torch.cat([images, torch.full((60, 1), 7.0)], dim=1)
    found = fit_linear_maps(images, texts, owner, fold, 3)[0]
    elsewhere = images.clone()
    elsewhere[:, -1] = 1000
    torch.testing.assert_close(found.embed_images(elsewhere), found.embed_images(images), rtol=1e-3, atol=1e-3)


def test_equal_captions_are_like_no_image():
    images, texts, owner, fold = pairs()
    maps = fit_linear_maps(images, texts[:1].expand(len(owner), -1), owner, fold, 3)
    found = linear_similarity(maps, torch.arange(60) % 3, images, texts, owner, torch.arange(len(owner)))
    assert torch.equal(found, torch.zeros(len(owner)))


def test_fewer_pairs_than_dimensions():
    images, texts, owner, fold = pairs(images=6, captions=1, f=40, d=30)
    maps = fit_linear_maps(images, texts, owner, fold, 3)
    assert all(torch.isfinite(product(found)).all() for found in maps)
    assert all(int((found.correlations > 1e-4).sum()) == 3 for found in maps)  # four pairs, less their mean


@pytest.mark.parametrize("length", [1e-9, 1e6])
def test_the_length_of_the_vectors_does_not_matter(length):
    images, texts, owner, fold = pairs()
    images, texts = images - images.mean(dim=0), texts - texts.mean(dim=0)
    asked = torch.arange(60) % 3, images, texts, owner, torch.arange(len(owner))
    usual = linear_similarity(fit_linear_maps(images, texts, owner, fold, 3), *asked)
    scaled = asked[0], images * length, texts * length, *asked[3:]
    found = linear_similarity(fit_linear_maps(scaled[1], scaled[2], owner, fold, 3), *scaled)
    torch.testing.assert_close(found, usual, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_precisions(dtype):
    images, texts, owner, fold = pairs()
    asked = torch.arange(60) % 3, images.half().to(dtype), texts.half().to(dtype), owner, torch.arange(len(owner))
    found = linear_similarity(fit_linear_maps(asked[1], asked[2], owner, fold, 3), *asked)
    usual = asked[0], images.half().float(), texts.half().float(), *asked[3:]
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found, linear_similarity(fit_linear_maps(usual[1], usual[2], owner, fold, 3), *usual), rtol=1e-3, atol=1e-3
    )


# The similarity


def similarity_by_loops(maps, fold_of_image, images, texts, image_of_pair, text_of_pair):
    def cosine(of_fold, v, u):
        a = (v - of_fold.image_mean).double() @ of_fold.image_map.double()
        b = (u - of_fold.text_mean).double() @ of_fold.text_map.double()
        return float(a @ b / a.norm() / b.norm())

    for image, text in zip(image_of_pair.tolist(), text_of_pair.tolist(), strict=True):
        fold = int(fold_of_image[image])
        asked = maps if fold < 0 else [maps[fold]]
        yield sum(cosine(one, images[image], texts[text]) for one in asked) / len(asked)


@pytest.mark.parametrize("block_bytes", [1, 999, 2**20])
def test_the_similarity_equals_plain_loops_in_any_blocks(block_bytes):
    images, texts, owner, fold = pairs(images=20)
    whole = fit_linear_maps(images, texts, owner, fold, 3)
    maps = fit_linear_maps(images, texts, owner, fold, 3, block_bytes=block_bytes)
    for one, other in zip(whole, maps, strict=True):
        torch.testing.assert_close(product(one), product(other), rtol=1e-4, atol=1e-4)
    generator = torch.Generator().manual_seed(3)
    fold_of_image = torch.where(torch.arange(20) < 5, -1, torch.arange(20) % 3)
    asked = torch.randint(20, (70,), generator=generator), torch.randint(40, (70,), generator=generator)
    found = linear_similarity(whole, fold_of_image, images, texts, *asked, block_bytes=block_bytes)
    expected = list(similarity_by_loops(whole, fold_of_image, images, texts, *asked))
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_wrong_arguments_are_named():
    images, texts, owner, fold = pairs(images=6)
    with pytest.raises(ValueError, match="one fold holds all of the weight; the maps need pairs of other folds"):
        fit_linear_maps(images, texts, owner, torch.ones_like(fold), 3)
    with pytest.raises(ValueError, match="one fold holds all of the weight"):
        fit_linear_maps(images, texts, owner, fold, 3, (fold == 2).float())
    with pytest.raises(ValueError, match="ridge must be positive, got 0"):
        fit_linear_maps(images, texts, owner, fold, 3, ridge=0)
    with pytest.raises(ValueError, match=r"fold_of_pair must be in \[0, 2\), got 0 to 2"):
        fit_linear_maps(images, texts, owner, fold, 2)
    with pytest.raises(ValueError, match=r"image_of_pair must be in \[0, 5\), got 0 to 5"):
        fit_linear_maps(images[:5], texts, owner, fold, 3)
    with pytest.raises(ValueError, match="texts must be finite, row 1 is not"):
        fit_linear_maps(images, texts.index_fill(0, torch.tensor([1]), torch.nan), owner, fold, 3)
    with pytest.raises(ValueError, match="weight must be finite and at least 0"):
        fit_linear_maps(images, texts, owner, fold, 3, -torch.ones(12))
    maps = fit_linear_maps(images, texts, owner, fold, 3)
    with pytest.raises(ValueError, match=r"text_of_pair must be in \[0, 12\), got 12 to 12"):
        linear_similarity(maps, fold[:6], images, texts, owner[:1], torch.tensor([12]))


def test_half_precision_is_checked_and_averaged_in_float32(monkeypatch):
    monkeypatch.setattr("in2r.evidence.vectors.BLOCK_BYTES", 4 * 512 * 7)  # several blocks, the last one cut short
    values = torch.full((30, 512), 300.0, dtype=torch.float16)  # the sum of a row is 153,600
    values += torch.arange(30)[:, None].half()
    check_finite("values", values)
    torch.testing.assert_close(mean_row(values), values.double().mean(dim=0).float(), rtol=0, atol=0)
    values[23, 5] = torch.inf
    with pytest.raises(ValueError, match="values must be finite, row 23 is not"):
        check_finite("values", values)
