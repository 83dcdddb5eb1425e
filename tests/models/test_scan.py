"""SCAN against a slow loop over captions, in both directions; padding, gradients, relations."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from in2r.models.base import Items
from in2r.models.parts import RegionParts, WordParts
from in2r.models.scan import Scan
from pair_loops import (
    INPUT,
    LENGTHS,
    VOCABULARY,
    WORD,
    D,
    R,
    batch,
    oracle_weights,
    region_sets,
    unit,
    unlike_initial,
    word_sets,
)

every_form = pytest.mark.parametrize(
    ("direction", "pooling"), [("t2i", "lse"), ("t2i", "mean"), ("i2t", "lse"), ("i2t", "mean")]
)


def make(direction: str = "t2i", pooling: str = "lse", dropout: float = 0.0) -> Scan:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        image, text = RegionParts(INPUT, D, R, dropout, None), WordParts(VOCABULARY, WORD, D, dropout, None)
        model = Scan(image, text, direction, pooling, smoothing=4.0, lse=5.0)  # type: ignore[arg-type]
        unlike_initial(model)
    return model.double()


def encoded(model: Scan) -> tuple[Items, Items]:
    (values, region_mask), (ids, word_mask) = batch()
    return model.encode_images(values, region_mask), model.encode_texts(ids, word_mask)


def loops(model: Scan) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    (values, region_mask), (ids, _) = batch()
    captions = [row[:length] for row, length in zip(ids, LENGTHS, strict=True)]
    return region_sets(model, values, region_mask), word_sets(model, captions)


def oracle_score(model: Scan, contexts: list[Tensor], queries: list[Tensor]) -> Tensor:
    relevance = []
    for y, weights in zip(queries, oracle_weights(contexts, queries, 4.0), strict=True):
        attended = sum(weight * x for weight, x in zip(weights, contexts, strict=True))
        relevance.append(y @ attended / (y.norm() * attended.norm()))
    if model.pooling == "mean":
        return torch.stack(relevance).mean()
    return torch.stack([(5.0 * r).exp() for r in relevance]).sum().log() / 5.0


@every_form
@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_it_equals_a_loop_over_captions_without_padding(direction: str, pooling: str, training: bool) -> None:
    model = make(direction, pooling).train(training)
    regions, words = loops(model)
    rows = []
    for v in regions:
        pairs = [(v, w) if direction == "t2i" else (w, v) for w in words]
        rows.append(torch.stack([oracle_score(model, contexts, queries) for contexts, queries in pairs]))
    found = model.score(*encoded(model))
    assert found.std() > 0.01
    torch.testing.assert_close(found, torch.stack(rows), rtol=0, atol=1e-9)
    single = copy.deepcopy(model).float()
    (values, region_mask), (ids, word_mask) = batch()
    small = single.score(single.encode_images(values.float(), region_mask), single.encode_texts(ids, word_mask))
    torch.testing.assert_close(small, torch.stack(rows).float(), rtol=0, atol=1e-5)


def test_by_hand() -> None:
    """Two regions along the axes, one word along the first: cosines 1 and 0, unit over the one word, λ = 4."""
    model = make("t2i", "lse")
    regions = Items(torch.zeros(1, 2), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
    word = Items(torch.zeros(1, 2), torch.tensor([[[1.0, 0.0]]]))
    a = math.exp(4) / (math.exp(4) + 1)
    cosine = a / math.hypot(a, 1 - a)
    assert float(model.score(regions, word)) == pytest.approx(cosine, abs=1e-6)
    twice = Items(torch.zeros(1, 2), torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]))
    # the cosines of a region are now the unit vector (1, 1) / √2: the attention is flatter, and two words add log 2
    b = math.exp(4 / math.sqrt(2)) / (math.exp(4 / math.sqrt(2)) + 1)
    assert float(model.score(regions, twice)) == pytest.approx(b / math.hypot(b, 1 - b) + math.log(2) / 5, abs=1e-6)


@every_form
def test_padding_has_no_influence_and_gets_no_gradient(direction: str, pooling: str) -> None:
    model = make(direction, pooling)
    images, texts = encoded(model)
    expected = model.score(images, texts)
    assert images.parts is not None
    assert texts.parts is not None
    assert images.mask is not None
    longer = functional.pad(texts.mask, (0, 3))  # type: ignore[arg-type]
    regions = torch.where(images.mask[..., None], images.parts, 0.7).detach().requires_grad_()
    words = torch.where(longer[..., None], functional.pad(texts.parts, (0, 0, 0, 3)), 0.7).detach().requires_grad_()
    found = model.score(Items(images.vector, regions, images.mask), Items(texts.vector, words, longer))
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    assert regions.grad is not None
    assert words.grad is not None
    assert not regions.grad[~images.mask].any()
    assert not words.grad[~longer].any()
    assert words.grad[longer].any(dim=1).all()


@every_form
def test_nothing_to_attend_to_and_zero_states_are_finite(direction: str, pooling: str) -> None:
    model = make(direction, pooling, dropout=0.3).train()
    (values, region_mask), (ids, word_mask) = batch()
    word_mask[1] = False
    with torch.no_grad():
        model.text.embed.weight[5:].zero_()
    score = model.score(model.encode_images(values, region_mask), model.encode_texts(ids, word_mask))
    assert not (score[:, 1].any() and pooling == "mean")
    assert score.isfinite().all()
    score.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_the_vector_is_the_mean_of_the_parts_and_regions_may_be_of_any_number() -> None:
    model = make()
    (values, _), (ids, _) = batch()
    images, texts = model.encode_images(values[:, :3]), model.encode_texts(ids[2:3])
    assert images.parts is not None
    torch.testing.assert_close(images.vector[0], unit(images.parts[0].mean(0)))
    assert model.score(images, texts).shape == (len(values), 1)
    assert not model.embeds


@torch.no_grad()
def test_relations_inside_a_side_equal_loops() -> None:
    model = make("i2t", "lse")
    images, texts = encoded(model)
    _, words = loops(model)
    expected = torch.stack([torch.stack([oracle_score(model, one, two) for two in words]) for one in words])
    torch.testing.assert_close(model.relate_by_attention(texts), expected, rtol=0, atol=1e-9)
    assert images.parts is not None
    rows = torch.zeros(len(images), len(images), dtype=torch.float64)
    for i, one in enumerate(images.parts):
        for j, two in enumerate(images.parts):
            rows[i, j] = torch.stack([(5 * (x @ y)).exp() for x, y in zip(one, two, strict=True)]).sum().log() / 5
    torch.testing.assert_close(model.relate_by_place(images), rows, rtol=0, atol=1e-9)


def test_log_sum_exp_of_a_large_factor_is_finite() -> None:
    model = make()
    model.lse = 1000.0
    assert torch.isfinite(model.float().score(*(items.to(torch.device("cpu")) for items in encoded(make())))).all()
