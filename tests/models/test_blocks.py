"""Whole splits in blocks: every pair once, within the budget, and the ranks of the whole matrix."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from in2r.errors import InputError
from in2r.metrics import SAME_SIMILARITY, ranks_from_embeddings, ranks_from_similarity
from in2r.models.base import Backbone, Items
from in2r.models.blocks import SAME_LOG_ODDS, log_odds, logit_blocks, mean_score, ranks_of, ranks_of_each, score_blocks
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.encode import evaluating, side_by_side

IMAGES, CAPTIONS = 23, 61


def model(backbone: str = "sgr", seed: int = 0, spread: float = 200.0) -> Backbone:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = ModelConfig(backbone=backbone, dim=8, word_dim=6, sgr_dim=5)  # type: ignore[arg-type]
        made = build_backbone(config, Inputs(6, "words", 30, regions=4))
    if made.bounded:
        with torch.no_grad():
            made.head.weight.mul_(spread)
    return made.train()  # what scores must take it to eval mode by itself, and back


def split(made: Backbone, seed: int = 0) -> tuple[Items, Items, np.ndarray]:
    """Images with 1 to 4 regions, captions of 1 to 9 words, each of a random image; some images have no caption."""
    draw = torch.Generator().manual_seed(seed)
    region_mask = torch.arange(4) < torch.randint(1, 5, (IMAGES, 1), generator=draw)
    word_mask = torch.arange(9) < torch.randint(1, 10, (CAPTIONS, 1), generator=draw)
    ids = torch.randint(4, 30, (CAPTIONS, 9), generator=draw) * word_mask
    made.eval()
    with torch.no_grad():
        images = made.encode_images(torch.randn(IMAGES, 4, 6, generator=draw), region_mask)
        texts = made.encode_texts(ids, word_mask)
    made.train()
    return images, texts, torch.randint(0, IMAGES - 2, (CAPTIONS,), generator=draw).numpy()


def whole(made: Backbone, images: Items, texts: Items) -> Tensor:
    with evaluating(made):
        return made.logits(images, texts)


@pytest.mark.parametrize("budget", [None, 1, 30_000, 300_000])
@pytest.mark.parametrize("backbone", ["gpo", "vsepp", "sgr", "saf", "scan"])
def test_every_pair_is_in_one_block_and_no_block_exceeds_the_budget(
    backbone: str, budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model(backbone)
    images, texts, _ = split(made)
    needed = []

    def logits(images: Items, texts: Items) -> Tensor:
        assert not made.training
        assert not torch.is_grad_enabled()
        words = 0 if texts.parts is None else texts.parts.shape[1]
        needed.append((len(images) * len(texts), len(images) * len(texts) * made.pair_bytes(words)))
        return type(made).logits(made, images, texts)

    monkeypatch.setattr(made, "logits", logits)
    found, times = torch.zeros(IMAGES, CAPTIONS), torch.zeros(IMAGES, CAPTIONS)
    for rows, columns, values in score_blocks(made, images, texts, budget):
        found[rows, columns] = values
        times[rows, columns] += 1
        assert torch.is_grad_enabled()
        assert made.training
    assert (times == 1).all()
    assert all(pairs == 1 or size <= (budget or 2**25) for pairs, size in needed)
    if budget == 300_000 and backbone == "sgr":
        assert 1 < len(needed) < 30  # the budget is used
        assert max(size for _, size in needed) > 200_000
    monkeypatch.undo()
    expected = whole(made, images, texts)
    torch.testing.assert_close(found, expected.sigmoid() if made.bounded else expected, rtol=0, atol=1e-5)


def test_a_block_is_cut_to_its_longest_caption(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    images, texts, _ = split(made)
    lengths = texts.mask.sum(1)
    places = []

    def logits(images: Items, texts: Items) -> Tensor:
        places.append(texts.parts.shape[1])
        return type(made).logits(made, images, texts)

    monkeypatch.setattr(made, "logits", logits)
    blocks = [lengths[columns] for _, columns, _ in score_blocks(made, images, texts, 60_000)]
    assert places == [int(block.max()) for block in blocks]
    assert len(set(places)) > 3
    assert torch.equal(torch.cat(blocks).unique(), lengths.unique())


@pytest.mark.parametrize("budget", [None, 5_000, 100_000])
@pytest.mark.parametrize("networks", [1, 2])
def test_ranks_are_those_of_the_whole_matrix(networks: int, budget: int | None) -> None:
    backbones = [model(seed=seed) for seed in range(networks)]
    splits = [split(made) for made in backbones]
    images, texts = [images for images, _, _ in splits], [texts for _, texts, _ in splits]
    owner = splits[0][2]
    logits = torch.stack([whole(*each) for each in zip(backbones, images, texts, strict=True)])
    mean = logits.double().sigmoid().mean(0)
    expected = ranks_from_similarity(mean.logit(), owner, SAME_LOG_ODDS)
    found = ranks_of(backbones, images, texts, owner, budget)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (found[0][-2:] == -1).all()  # images without captions
    assert len(set(found[1].tolist())) > 10


@pytest.mark.parametrize("backbone", ["gpo", "saf", "scan"])
@pytest.mark.parametrize("budget", [None, 5_000])
def test_means_of_some_backbones_are_those_of_their_matrices(backbone: str, budget: int | None) -> None:
    """As of two runs, the first of one network, the second of two: a network that is named twice counts twice."""
    backbones = [model(backbone, seed, spread=20.0) for seed in range(3)]
    splits = [split(made) for made in backbones]
    images, texts, owner = [v for v, _, _ in splits], [u for _, u, _ in splits], splits[0][2]
    similarity = torch.stack([whole(*each) for each in zip(backbones, images, texts, strict=True)]).double()
    similarity = similarity.sigmoid() if backbones[0].bounded else similarity
    runs = similarity[0], similarity[1:].mean(0)
    wanted = [*similarity, *runs, (runs[0] + runs[1]) / 2]
    found = ranks_of_each(backbones, images, texts, owner, budget, means=[[0], [1, 2], [0, 0, 1, 2]])
    assert len(found) == len(wanted)
    for ours, matrix in zip(found, wanted, strict=True):
        matrix = matrix.logit() if backbones[0].bounded else matrix
        tolerance = SAME_LOG_ODDS if backbones[0].interacts else SAME_SIMILARITY
        for mine, theirs in zip(ours, ranks_from_similarity(matrix, owner, tolerance), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert len({tuple(t2i.tolist()) for _, t2i in found}) == 5  # the first run's mean is its only network


def test_each_pair_is_scored_once_after_the_right_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    images, texts, _ = split(made)
    owner = np.sort(np.arange(CAPTIONS) % IMAGES)
    pairs = []

    def logits(images: Items, texts: Items) -> Tensor:
        pairs.append(len(images) * len(texts))
        return type(made).logits(made, images, texts)

    monkeypatch.setattr(made, "logits", logits)
    ranks_of([made], [images], [texts], owner)
    assert sum(pairs) <= IMAGES * CAPTIONS + 8 * CAPTIONS


@pytest.mark.parametrize("networks", [1, 2])
def test_ranks_of_dual_encoders_are_those_of_their_vectors(networks: int) -> None:
    backbones = [model("gpo", seed) for seed in range(networks)]
    splits = [split(made) for made in backbones]
    owner = splits[0][2]
    v = side_by_side([images.vector for images, _, _ in splits])
    u = side_by_side([texts.vector for _, texts, _ in splits])
    found = ranks_of(backbones, [images for images, _, _ in splits], [texts for _, texts, _ in splits], owner)
    for ours, theirs in zip(found, ranks_from_embeddings(v, u, owner), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("budget", [None, 3_000, 20_000])
def test_equal_items_tie_in_spite_of_rounding(budget: int | None) -> None:
    made = model()
    images, texts, _ = split(made)
    one_image, one_text = torch.full((IMAGES,), 3), torch.full((CAPTIONS,), 5)
    owner = np.arange(CAPTIONS) % IMAGES
    own = np.bincount(owner, minlength=IMAGES)
    i2t, t2i = ranks_of([made], [images[one_image]], [texts[one_text]], owner, budget)
    np.testing.assert_array_equal(i2t, CAPTIONS - own)  # the worst ranks: a tie counts against us
    np.testing.assert_array_equal(t2i, IMAGES - 1)


@pytest.mark.parametrize("budget", [None, 3_000])
def test_the_copy_of_a_right_image_ties_with_it(budget: int | None) -> None:
    """Its logits differ by rounding: copies stand at other places of a block."""
    made = model()
    images, texts, owner = split(made)
    twice = images[torch.arange(2 * IMAGES) % IMAGES]
    once = ranks_of([made], [images], [texts], owner, budget)[1]
    np.testing.assert_array_equal(ranks_of([made], [twice], [texts], owner, budget)[1], 2 * once + 1)


def test_log_odds_of_a_mean() -> None:
    logits = torch.tensor([[[-3.0, 0.5, 60.0, 61.0, -80.0]], [[2.0, 0.5, 60.0, 59.5, -81.0]]])
    exact = logits.double().sigmoid().mean(0).logit()
    found = log_odds(logits)
    torch.testing.assert_close(found[:, :2], exact[:, :2].float())
    # 1 - p = (e^-61 + e^-59.5) / 2, where p itself is 1 in float64; p = (e^-80 + e^-81) / 2
    assert found[0, 2].item() == pytest.approx(60.0, abs=1e-4)
    assert found[0, 3].item() == pytest.approx(-np.log((np.exp(-61.0) + np.exp(-59.5)) / 2), abs=1e-4)
    assert found[0, 4].item() == pytest.approx(np.log((np.exp(-80.0) + np.exp(-81.0)) / 2), abs=1e-4)
    assert torch.equal(log_odds(logits[:1]), logits[0])
    torch.testing.assert_close(mean_score(logits, True), logits.sigmoid().mean(0))
    torch.testing.assert_close(mean_score(logits, False), logits.mean(0))


def test_saturated_similarities_are_still_ranked() -> None:
    """All sigmoids are 1 in float32; the logits are not equal."""
    made = model()
    with torch.no_grad():
        made.head.bias.fill_(500.0)
    images, texts, owner = split(made)
    assert (made.score(images, texts) == 1).all()
    expected = ranks_from_similarity(whole(made, images, texts), owner, SAME_LOG_ODDS)
    for ours, theirs in zip(ranks_of([made], [images], [texts], owner, 50_000), expected, strict=True):
        assert np.mean(ours == theirs) > 0.9  # at 500, float32 resolves 3e-5
        assert len(set(ours.tolist())) > 10


def test_backbones_of_two_kinds_are_refused() -> None:
    kinds = [model(), model("gpo")]
    splits = [split(made) for made in kinds]
    with pytest.raises(InputError, match=r"a mean of cosines and of similarities in \(0, 1\) has no meaning"):
        ranks_of(kinds, [images for images, _, _ in splits], [texts for _, texts, _ in splits], splits[0][2])


def test_a_similarity_that_is_not_finite_is_named() -> None:
    made = model()
    images, texts, _ = split(made)
    images.vector[7] = torch.nan
    with pytest.raises(InputError, match=r"^the similarity of image 7 and caption \d+ is not finite$"):
        list(logit_blocks([made], [images], [texts], 50_000))


MEMORY = """
import torch
from in2r.models.blocks import ranks_of
from in2r.models.build import Inputs, ModelConfig, build_backbone

def rise(call):
    '''Return the bytes by which this process grew while it ran.'''
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before = peak()
    call()
    return peak() - before

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

def encoded(n, m, words, **keys):
    made = build_backbone(ModelConfig(**{"backbone": "sgr", **keys}), Inputs(4, "words", 30, regions=6)).eval()
    return made, made.encode_images(torch.randn(n, 6, 4)), made.encode_texts(torch.randint(4, 30, (m, words)))

torch.set_grad_enabled(False)
made, images, texts = encoded(1000, 5000, 2, dim=3, word_dim=3, sgr_dim=2, sgr_steps=1)
owner = torch.arange(5000) // 5
ranks_of([made], [images[:40]], [texts[:200]], owner[:200], 2**22)  # what is loaded at first use
print(rise(lambda: ranks_of([made], [images], [texts], owner, 2**22)), 1000 * 5000 * made.pair_bytes(2))
for m, keys in (
    (1000, dict(backbone="scan", dim=20)), (100, dict(dim=200, sgr_dim=20)), (100, dict(dim=8, sgr_dim=100)),
    (100, dict(backbone="saf", dim=8, sgr_dim=100)),
):
    made, images, texts = encoded(64, m, 20, word_dim=4, **keys)
    print(rise(lambda: made.logits(images, texts)), 64 * m * made.pair_bytes(20))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no /proc/self/clear_refs")
def test_ranks_of_1000_by_5000_stay_within_the_budget_and_a_pair_needs_what_it_says() -> None:
    # each large tensor in pages of its own, which are given back when it is freed: else the rise is by chance smaller
    own = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, env=own)
    (rise, together), *blocks = (map(int, line.split()) for line in done.stdout.splitlines())
    assert rise < 8 * 2**20  # of a budget of 4 MiB
    assert together > 500 * 2**20
    assert len(blocks) == 4
    for found, said in blocks:
        assert 0.4 * said < found < 1.1 * said  # said is a bound: not all are there at once
