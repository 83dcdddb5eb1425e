import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from in2r.metrics import (
    chance_recalls,
    fold_mean,
    ranks,
    ranks_from_embeddings,
    ranks_from_similarity,
    recall_at_k,
    recalls_from_ranks,
    split_folds,
)

REFERENCE = np.load(Path(__file__).parents[1] / "arrays" / "metrics.npz")
NAMES = ("r1", "r5", "r10", "medr", "meanr")


def brute_force_ranks(sims, owner):
    """The definition, item by item: how many wrong items are at least as similar as the best right one."""
    images, captions = sims.shape
    i2t = []
    for image in range(images):
        right = [sims[image, c] for c in range(captions) if owner[c] == image]
        wrong = [sims[image, c] for c in range(captions) if owner[c] != image]
        i2t.append(sum(w >= max(right) for w in wrong) if right else -1)
    t2i = []
    for caption in range(captions):
        right = sims[owner[caption], caption]
        t2i.append(sum(sims[i, caption] >= right for i in range(images) if i != owner[caption]))
    return i2t, t2i


@st.composite
def ragged_similarities(draw):
    """Few distinct values, so ties abound; images own 0 to many captions, in any order."""
    images, captions = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    owner = generator.integers(0, images, captions)
    return generator.integers(-2, 3, (images, captions)) / 4, owner


def masked_ranks(sims, owner, tolerance=0.0):
    """The definition on the whole matrix: masked comparisons in float64, one for each direction."""
    sims = np.asarray(sims, dtype=np.float64)
    own = np.equal.outer(np.arange(len(sims)), owner)
    best = np.where(own, sims, -np.inf).max(axis=1)
    right = sims[owner, np.arange(len(owner))]
    i2t = ((sims >= best[:, None] - tolerance) & ~own).sum(axis=1)
    t2i = ((sims >= right - tolerance) & ~own).sum(axis=0)
    return np.where(own.any(axis=1), i2t, -1).tolist(), t2i.tolist()


def sorted_ranks(sims, owner):
    """The usual way: every row and every column sorted, and the best right item looked up."""
    by_row, by_column = np.argsort(-sims, axis=1), np.argsort(-sims, axis=0)
    i2t = [np.isin(order, np.flatnonzero(owner == image)).argmax() for image, order in enumerate(by_row)]
    t2i = [(order == image).argmax() for image, order in zip(owner, by_column.T, strict=True)]
    return np.where(np.isin(np.arange(len(sims)), owner), i2t, -1).tolist(), [int(rank) for rank in t2i]


@st.composite
def near_ties(draw):
    """Similarities a few units in the last place, or about the tolerance, apart; now and then infinite."""
    kind = draw(st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]))
    images, captions = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    owner = generator.integers(0, images, captions)
    tolerance = draw(st.sampled_from([0.0, 1e-20, 1e-6, 2.0**-24, 2.0**-12, -1e-6]))
    ulp, centre = torch.finfo(kind).eps / 2, draw(st.sampled_from([-0.5, 0.0, 0.5]))
    steps = generator.integers(-2, 3, (2, images, captions))
    sims = torch.from_numpy(centre + steps[0] * ulp + steps[1] * tolerance).to(kind)
    if draw(st.booleans()):
        sims[generator.random((images, captions)) < 0.2] = draw(st.sampled_from([math.inf, -math.inf]))
    return sims, owner, tolerance


def unit_embeddings(images, owner, dim, seed=0, noise=0.5):
    draw = np.random.default_rng(seed)
    v = draw.normal(size=(images, dim)).astype(np.float32)
    u = v[owner] + noise * draw.normal(size=(len(owner), dim)).astype(np.float32)
    return tuple(x / np.linalg.norm(x, axis=1, keepdims=True) for x in (v, u))


@pytest.mark.parametrize(("name", "captions"), [("five_captions", 5), ("one_caption", 1)])
@pytest.mark.parametrize("kind", ["numpy", "tensor"])
def test_metrics_equal_the_reference(name, captions, kind):
    sims = REFERENCE[f"{name}_similarity"]
    owner = np.arange(sims.shape[1]) // captions
    found = recall_at_k(sims if kind == "numpy" else torch.from_numpy(sims), owner)
    for direction in ("i2t", "t2i"):
        assert [found[f"{direction}_{n}"] for n in NAMES] == REFERENCE[f"{name}_{direction}"].tolist()
    assert found["rsum"] == pytest.approx(sum(found[f"{d}_{n}"] for d in ("i2t", "t2i") for n in NAMES[:3]))


def test_recalls_by_hand():
    owner = [0, 0, 1, 2]
    sims = np.array(
        [
            [0.9, 0.1, 0.3, 0.2],  # best own 0.9: rank 0
            [0.8, 0.7, 0.6, 0.6],  # own 0.6, three at least as similar: rank 3
            [0.1, 0.3, 0.2, 0.5],  # own 0.5: rank 0
        ]
    )
    i2t, t2i = ranks_from_similarity(sims, owner)
    assert i2t.tolist() == [0, 3, 0]
    assert t2i.tolist() == [0, 2, 0, 1]  # caption 1: 0.1 below 0.7 and 0.3; caption 3: 0.5 below 0.6
    assert i2t.dtype == t2i.dtype == np.int64
    found = recall_at_k(sims, owner)
    assert found["i2t_r1"] == pytest.approx(200 / 3)
    assert (found["i2t_r5"], found["i2t_medr"], found["i2t_meanr"]) == (100, 1, 2)
    assert found["t2i_r1"] == 50
    assert (found["t2i_medr"], found["t2i_meanr"]) == (1, 1.75)  # the median 1.5 is rounded down
    assert found["rsum"] == pytest.approx(200 / 3 + 50 + 400)
    assert list(found) == [f"{d}_{n}" for d in ("i2t", "t2i") for n in NAMES] + ["rsum"]


@settings(max_examples=150, deadline=None)
@given(ragged_similarities(), st.integers(1, 3), st.integers(1, 5))
def test_ranks_equal_the_definition_with_ties_and_ragged_captions(case, tile_images, tile_captions):
    sims, owner = case
    expected = brute_force_ranks(sims, owner)
    assert tuple(r.tolist() for r in ranks_from_similarity(sims, owner)) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "TILE_IMAGES", tile_images)
        patch.setattr(ranks, "TILE_CAPTIONS", tile_captions)
        assert tuple(r.tolist() for r in ranks_from_similarity(sims, owner)) == expected
        # As embeddings: images are unit axes, so the products are the similarities themselves.
        axes = np.eye(len(sims), dtype=np.float32)
        tiled = ranks_from_embeddings(axes, sims.T.astype(np.float32), owner)
        assert tuple(r.tolist() for r in tiled) == expected


@settings(max_examples=300, deadline=None)
@given(near_ties(), st.integers(1, 3), st.integers(1, 5))
def test_ranks_are_exact_within_a_unit_in_the_last_place_of_any_precision(case, tile_images, tile_captions):
    sims, owner, tolerance = case
    expected, given_values = masked_ranks(sims.double(), owner, tolerance), sims.clone()
    assert tuple(r.tolist() for r in ranks_from_similarity(sims, owner, tolerance)) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "TILE_IMAGES", tile_images)
        patch.setattr(ranks, "TILE_CAPTIONS", tile_captions)
        assert tuple(r.tolist() for r in ranks_from_similarity(sims, owner, tolerance)) == expected
    assert torch.equal(sims, given_values)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("images", "captions"), [(300, 4500), (700, 60), (5, 5000)])
def test_ranks_equal_the_plain_sort(images, captions, kind):
    """No two similarities are equal; several tiles of the true size, the last ones partly filled."""
    draw = np.random.default_rng(images)
    owner = draw.integers(0, images, captions)
    sims = (draw.permutation(images * captions).reshape(images, captions) / 2**22 - 0.25).astype(kind)
    assert len(np.unique(sims)) == sims.size
    sims[owner, np.arange(captions)] += np.quantile(sims, 0.9).astype(kind) + kind(2**-23)
    expected = sorted_ranks(sims, owner)
    for values in (sims, sims[::-1][::-1], torch.from_numpy(sims), torch.from_numpy(sims.T.copy()).T):
        assert tuple(r.tolist() for r in ranks_from_similarity(values, owner)) == expected
    assert masked_ranks(sims, owner) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0.0, 2.0**-12, 2.0**-11]))
def test_embeddings_near_the_tolerance_give_the_ranks_of_the_products(seed, tile, tolerance):
    """Coordinates are few small multiples of 1/64: products are exact, and differ by multiples of 2^-12."""
    draw = np.random.default_rng(seed)
    owner = draw.integers(0, 6, 15)
    v, u = (draw.integers(-2, 3, (count, 5)).astype(np.float32) / 64 for count in (6, 15))
    expected = masked_ranks(v @ u.T, owner, tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "TILE_IMAGES", tile)
        patch.setattr(ranks, "TILE_CAPTIONS", 2 * tile)
        assert tuple(r.tolist() for r in ranks_from_embeddings(v, u, owner, tolerance)) == expected


def test_a_right_pair_whose_product_rounds_differently_never_counts():
    owner = np.arange(400) // 4
    v, u = unit_embeddings(100, owner, 257, noise=1.0)
    sums = (v[owner].astype(np.float64) * u).sum(axis=1)
    products = (v.astype(np.float64) @ u.T.astype(np.float64))[owner, np.arange(400)]
    assert (products < sums).any()
    assert (products >= sums).any()
    expected = masked_ranks(v.astype(np.float64) @ u.T, owner)
    assert tuple(r.tolist() for r in ranks_from_embeddings(v, u, owner, tolerance=0.0)) == expected


def test_autocast_changes_no_rank():
    owner = np.arange(60) // 3
    v, u = (torch.from_numpy(x) for x in unit_embeddings(20, owner, 8, noise=2.0))
    plain = ranks_from_embeddings(v, u, owner)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for own, other in zip(plain, ranks_from_embeddings(v, u, owner), strict=True):
            np.testing.assert_array_equal(own, other)


@settings(max_examples=30, deadline=None)
@given(ragged_similarities(), st.integers(0, 99))
def test_order_of_items_does_not_matter(case, seed):
    sims, owner = case
    draw = np.random.default_rng(seed)
    rows, columns = draw.permutation(sims.shape[0]), draw.permutation(sims.shape[1])
    i2t, t2i = ranks_from_similarity(sims, owner)
    place = np.argsort(rows)
    moved = ranks_from_similarity(sims[rows][:, columns], place[owner[columns]])
    np.testing.assert_array_equal(moved[0], i2t[rows])
    np.testing.assert_array_equal(moved[1], t2i[columns])


@pytest.mark.parametrize("kind", ["numpy", "tensor", "half", "read-only"])
def test_embeddings_give_the_ranks_of_the_full_matrix(kind):
    owner = np.sort(np.random.default_rng(1).integers(0, 90, 300))
    v, u = unit_embeddings(90, owner, 12, noise=1.0)
    if kind == "half":
        v, u = v.astype(np.float16), u.astype(np.float16)
    full = ranks_from_similarity(v.astype(np.float64) @ u.T.astype(np.float64), owner)
    if kind == "tensor":
        v, u = torch.from_numpy(v).requires_grad_(), torch.from_numpy(u)
    if kind == "read-only":
        v.flags.writeable = u.flags.writeable = False
    with pytest.MonkeyPatch.context() as patch:
        for tiles in ((512, 4096), (7, 11), (90, 300), (1, 299)):
            patch.setattr(ranks, "TILE_IMAGES", tiles[0])
            patch.setattr(ranks, "TILE_CAPTIONS", tiles[1])
            found = ranks_from_embeddings(v, u, owner)
            np.testing.assert_array_equal(found[0], full[0])
            np.testing.assert_array_equal(found[1], full[1])
    assert 0 < np.mean(full[0] == 0) < 1


def test_tiles_are_never_larger_than_their_bound(monkeypatch):
    monkeypatch.setattr(ranks, "TILE_IMAGES", 4)
    monkeypatch.setattr(ranks, "TILE_CAPTIONS", 8)
    owner = np.arange(50) // 5
    v, u = (torch.from_numpy(x) for x in unit_embeddings(10, owner, 6))
    sizes = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                sizes.append(result.numel())
            return result

    with Spy():
        ranks_from_embeddings(v, u, owner)
    assert max(sizes) <= u.numel() < len(v) * len(u)


def test_identical_items_tie_in_spite_of_rounding():
    owner = np.arange(6)
    v, u = unit_embeddings(6, owner, 64, noise=0.01)
    u[3] = u[2]
    v[3] = v[2] * np.float32(1 + 2e-7)  # the same image, encoded in another batch
    i2t, t2i = ranks_from_embeddings(v, u, owner)
    assert i2t.tolist() == [0, 0, 1, 1, 0, 0]
    assert t2i.tolist() == [0, 0, 1, 1, 0, 0]
    assert ranks_from_embeddings(v, u, owner, tolerance=0.0)[1].tolist() != t2i.tolist()


def test_a_collapsed_model_gets_the_worst_ranks():
    owner = np.arange(20) // 2
    i2t, t2i = ranks_from_embeddings(np.full((10, 4), 0.5), np.full((20, 4), 0.5), owner)
    assert (i2t == 18).all()
    assert (t2i == 9).all()
    assert recalls_from_ranks(i2t, t2i)["i2t_r10"] == 0


def test_an_image_without_captions_is_a_candidate_but_no_query():
    sims = np.array([[0.1, 0.2], [0.9, 0.8], [0.3, 0.7]])
    i2t, t2i = ranks_from_similarity(sims, [0, 2])
    assert i2t.tolist() == [1, -1, 0]
    assert t2i.tolist() == [2, 1]
    found = recall_at_k(sims, [0, 2])
    assert found["i2t_r1"] == 50
    assert found["i2t_meanr"] == 1.5


def test_whole_numbers_and_half_precision_are_similarities_too():
    sims = np.array([[3, 1], [2, 2]])
    for values in (sims, sims.astype(np.float16), torch.from_numpy(sims), torch.from_numpy(sims).bfloat16()):
        i2t, t2i = ranks_from_similarity(values, [0, 1])
        assert i2t.tolist() == [0, 1]
        assert t2i.tolist() == [0, 0]


# Chance


def test_chance_by_hand():
    """Three images with 2, 1 and 1 of four captions: the best place of two is first with 1/2, of one with 1/4."""
    chance = chance_recalls([0, 0, 1, 2], 3)
    assert chance["i2t_r1"] == pytest.approx(100 * (1 / 2 + 1 / 4 + 1 / 4) / 3)
    assert chance["t2i_r1"] == pytest.approx(100 / 3)
    assert chance["i2t_r5"] == chance["i2t_r10"] == chance["t2i_r5"] == chance["t2i_r10"] == 100
    assert chance["rsum"] == pytest.approx(100 * (1 / 3 + 1 / 3 + 4))


def test_chance_is_what_random_orders_have_on_average():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(20), rng.integers(1, 6, 20))
    drawn = [recall_at_k(rng.standard_normal((20, len(owner))), owner) for _ in range(800)]
    for name, expected in chance_recalls(owner, 20).items():
        assert np.mean([row[name] for row in drawn]) == pytest.approx(expected, rel=0.05)


def test_chance_leaves_out_images_without_captions_as_recall_does():
    """Images 2 and 3 own nothing: the others find one of three captions among the first ten for certain."""
    chance, found = chance_recalls([0, 0, 1], 4), recall_at_k(np.zeros((4, 3)), [0, 0, 1])
    assert chance["i2t_r1"] == pytest.approx(100 * (2 / 3 + 1 / 3) / 2)
    assert chance["i2t_r10"] == found["i2t_r10"] == 100
    assert chance["t2i_r1"] == 25  # as candidates they count


# Folds


def test_folds_are_contiguous_and_count_captions_within_the_fold():
    owner = np.repeat(np.arange(10), [1, 2, 3, 1, 2, 3, 1, 2, 3, 2])
    images, captions = np.arange(10.0)[:, None], np.arange(20.0)[:, None]
    seen = []
    for v, u, local in split_folds(images, captions, owner, 5):
        assert len(v) == 2
        np.testing.assert_array_equal(v[local][:, 0], owner[u[:, 0].astype(int)])
        seen += u[:, 0].tolist()
    assert seen == list(range(20))
    tensors = list(split_folds(torch.from_numpy(images), torch.from_numpy(captions), owner, 3))
    assert [len(v) for v, _, _ in tensors] == [3, 3, 4]
    assert sum(len(u) for _, u, _ in tensors) == 20


def test_fold_mean_averages_everything():
    owner = np.arange(100) // 5
    v, u = unit_embeddings(20, owner, 4, noise=1.0)
    folds = [recalls_from_ranks(*ranks_from_embeddings(*part)) for part in split_folds(v, u, owner, 5)]
    mean = fold_mean(folds)
    assert mean["t2i_medr"] == np.mean([f["t2i_medr"] for f in folds])
    assert mean["i2t_r1"] == pytest.approx(np.mean([f["i2t_r1"] for f in folds]))
    assert mean["rsum"] == pytest.approx(sum(mean[f"{d}_r{k}"] for d in ("i2t", "t2i") for k in (1, 5, 10)))
    assert list(mean) == list(folds[0])


# Messages

NAN_ROW = np.array([[1.0, 0.0], [np.nan, 0.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recall_at_k(np.zeros(3), [0]), r"images × captions, got shape \(3,\)"),
        (lambda: recall_at_k(np.zeros((2, 3)), [0, 1]), r"shape \(2,\), expected \(3,\), at least one"),
        (lambda: recall_at_k(np.zeros((2, 0)), []), r"shape \(0,\), expected \(0,\), at least one"),
        (lambda: recall_at_k(np.zeros((2, 3)), [0, 2, -1]), r"image_of_caption\[1\] is 2, expected 0\.\.1"),
        (lambda: recall_at_k(NAN_ROW, [0, 1]), "similarity holds NaN"),
        (lambda: recall_at_k(NAN_ROW, [0, 0]), "similarity holds NaN"),
        (lambda: ranks_from_embeddings(np.eye(2), NAN_ROW, [0, 1]), "embedding of caption 1 is not finite"),
        (lambda: ranks_from_embeddings(NAN_ROW, np.eye(2), [0, 1]), "embedding of image 1 is not finite"),
        (lambda: ranks_from_embeddings(np.eye(2), np.diag([1, np.inf]), [0, 1]), "of caption 1 is not finite"),
        (lambda: ranks_from_embeddings(np.diag([-np.inf, 1]), np.eye(2), [0, 1]), "of image 0 is not finite"),
        (
            lambda: ranks_from_embeddings(np.eye(2), np.eye(3), [0, 1, 1]),
            r"images \(2, 2\) and captions \(3, 3\)",
        ),
        (lambda: list(split_folds(np.eye(2), np.eye(2), [0, 1], 5)), "cannot make 5 folds of 2 images"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_owners_are_integers():
    with pytest.raises(ValueError, match="image_of_caption is float64, expected integers"):
        recall_at_k(np.eye(2), [0.0, 1.7])
