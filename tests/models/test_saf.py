"""SAF against a slow loop over captions, words and regions; whose statistics its BatchNorm has."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from in2r.models.base import Items
from in2r.models.parts import RegionParts, WordParts
from in2r.models.saf import Saf
from pair_loops import (
    INPUT,
    LENGTHS,
    VOCABULARY,
    WORD,
    D,
    R,
    S,
    batch,
    linear,
    oracle_images,
    oracle_nodes,
    oracle_texts,
    unit,
    unlike_initial,
)

Loops = list[list[list[Tensor]]]
"""similarity vectors of image i and caption j"""


def make(dropout: float = 0.0) -> Saf:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        image = RegionParts(INPUT, D, R, input_dropout=dropout, dropout=dropout)
        model = Saf(image, WordParts(VOCABULARY, WORD, D, dropout, dropout), similarity_dim=S)
        unlike_initial(model)
        with torch.no_grad():
            model.gate.weight.mul_(3)  # else all gates are much alike
    return model.double()


def encoded(model: Saf) -> tuple[Items, Items]:
    (values, region_mask), (ids, word_mask) = batch()
    return model.encode_images(values, region_mask), model.encode_texts(ids, word_mask)


def all_nodes(model: Saf, training: bool) -> Loops:
    (values, region_mask), (ids, _) = batch()
    images = oracle_images(model, values, region_mask, training)
    texts = oracle_texts(model, [row[:length] for row, length in zip(ids, LENGTHS, strict=True)])
    return [[oracle_nodes(model, image, text) for text in texts] for image in images]


def oracle_logit(model: Saf, nodes: list[Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    raw = torch.stack([linear(model.gate, node)[0] for node in nodes])
    normed = (raw - mean) / (variance + model.norm.eps).sqrt() * model.norm.weight[0] + model.norm.bias[0]
    gates = 1 / (1 + (-normed).exp())
    weights = gates / gates.sum()
    return linear(model.head, unit(sum(weight * node for weight, node in zip(weights, nodes, strict=True))))[0]


@torch.no_grad()
def test_in_eval_mode_it_equals_a_loop_over_captions() -> None:
    model = make().eval()
    loops = all_nodes(model, training=False)
    running = model.norm.running_mean[0], model.norm.running_var[0]
    expected = torch.stack([torch.stack([oracle_logit(model, nodes, *running) for nodes in row]) for row in loops])
    found = model.logits(*encoded(model))
    assert found.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.score(*encoded(model)), expected.sigmoid(), rtol=0, atol=1e-9)


@torch.no_grad()
def test_in_training_the_statistics_are_those_of_all_real_similarity_vectors() -> None:
    model = make().train()
    before = copy.deepcopy(model.norm)
    loops = all_nodes(model, training=True)
    raw = torch.stack([linear(model.gate, node)[0] for row in loops for nodes in row for node in nodes])
    assert len(raw) == len(loops) * (sum(LENGTHS) + len(LENGTHS))
    statistics = raw.mean(), raw.var(unbiased=False)
    expected = torch.stack([torch.stack([oracle_logit(model, nodes, *statistics) for nodes in row]) for row in loops])
    torch.testing.assert_close(model.logits(*encoded(model)), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.norm.running_mean[0], 0.9 * before.running_mean[0] + 0.1 * raw.mean())
    torch.testing.assert_close(model.norm.running_var[0], 0.9 * before.running_var[0] + 0.1 * raw.var())


@pytest.mark.parametrize("training", [False, True])
def test_padding_has_no_influence(training: bool) -> None:
    model = make().train(training)
    images, texts = encoded(model)
    expected = model.logits(images, texts)
    statistics = [buffer.clone() for buffer in model.norm.buffers()]
    again = make().train(training)
    images, texts = encoded(again)
    assert images.parts is not None
    assert texts.parts is not None
    assert images.mask is not None
    assert texts.mask is not None
    longer = functional.pad(texts.mask, (0, 3))
    dirty = (
        Items(images.vector, torch.where(images.mask[..., None], images.parts, 0.7), images.mask),
        Items(texts.vector, torch.where(longer[..., None], functional.pad(texts.parts, (0, 0, 0, 3)), 0.7), longer),
    )
    torch.testing.assert_close(again.logits(*dirty), expected)
    for one, other in zip(again.norm.buffers(), statistics, strict=True):
        torch.testing.assert_close(one, other)


def test_relations_inside_a_side_leave_the_statistics_of_pairs_alone() -> None:
    model = make().train()
    images, texts = encoded(model)
    kept = copy.deepcopy(model.norm.state_dict())
    in_training = model.relate_by_place(images), model.relate_by_attention(texts)
    for name, values in model.norm.state_dict().items():
        assert torch.equal(values, kept[name]), name
    assert model.norm.training
    model.eval()
    afterwards = model.relate_by_place(images), model.relate_by_attention(texts)
    for found, expected in zip(in_training, afterwards, strict=True):
        torch.testing.assert_close(found, expected)
    sum(found.sum() for found in in_training).backward()  # type: ignore[union-attr]
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters() if weight.grad is not None)


def test_gradients_reach_every_parameter_and_are_finite() -> None:
    model = make(dropout=0.4).train()
    model.score(*encoded(model)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_it_has_one_gate_beside_what_sgr_has() -> None:
    with torch.device("meta"):
        model = Saf(RegionParts(2048, 1024, 36, 0.0, 0.4), WordParts(8481, 300, 1024, 0.4, 0.4))
    names = {name.partition(".")[0] for name, _ in model.named_parameters()}
    assert names == {"image", "text", "whole", "local", "head", "gate", "norm"}
    assert sum(parameter.numel() for parameter in model.gate.parameters()) == 256 + 1
    assert [tuple(buffer.shape) for buffer in model.norm.buffers()] == [(1,), (1,), ()]
