"""SGR against a slow loop over pairs, words and regions; padding, blocks and gradients."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.errors import InputError
from in2r.layers.norms import RegionNorm, RowNorm, per_batch
from in2r.models.base import Items
from in2r.models.parts import RegionParts, WordParts
from in2r.models.sgr import Sgr
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


def make(seed: int = 0, dropout: float = 0.0) -> Sgr:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        image = RegionParts(INPUT, D, R, input_dropout=dropout, dropout=dropout)
        model = Sgr(image, WordParts(VOCABULARY, WORD, D, dropout, dropout), similarity_dim=S, steps=3)
        unlike_initial(model)
    return model.double()


def oracle_logit(
    model: Sgr, image: tuple[list[Tensor], Tensor], text: tuple[list[Tensor], Tensor], offset: float = 0.0
) -> Tensor:
    return oracle_graph(model, oracle_nodes(model, image, text, offset))


def oracle_graph(model: Sgr, nodes: list[Tensor]) -> Tensor:
    for step in model.steps:
        new = []
        for node in nodes:
            edges = torch.stack([linear(step.query, node) @ linear(step.key, other) for other in nodes])
            weights = edges.exp() / edges.exp().sum()
            message = sum(weight * other for weight, other in zip(weights, nodes, strict=True))
            new.append(linear(step.graph, message).clamp(min=0))
        nodes = new
    return linear(model.head, nodes[0])[0]


@pytest.mark.parametrize("training", [False, True])
def test_equals_a_loop_over_pairs_without_padding(training: bool) -> None:
    model = make().train(training)
    (values, region_mask), (ids, word_mask) = batch()
    with torch.no_grad():
        images = oracle_images(model, values, region_mask, training)
        texts = oracle_texts(model, [row[:length] for row, length in zip(ids, LENGTHS, strict=True)])
        expected = torch.stack([torch.stack([oracle_logit(model, image, text) for text in texts]) for image in images])
        encoded = model.encode_images(values, region_mask), model.encode_texts(ids, word_mask)
        found = model.logits(*encoded)
    for items, loops in zip(encoded, (images, texts), strict=True):
        torch.testing.assert_close(items.vector, torch.stack([vector for _, vector in loops]), rtol=0, atol=1e-9)
    assert found.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.score(*encoded), expected.sigmoid(), rtol=0, atol=1e-9)
    single = copy.deepcopy(model).float()
    small = single.score(single.encode_images(values.float(), region_mask), single.encode_texts(ids, word_mask))
    torch.testing.assert_close(small, expected.sigmoid().float(), rtol=0, atol=1e-5)


def test_relations_inside_a_side_equal_loops_over_items() -> None:
    """Captions by attention, row = context, column = the words that attend; images place by place, padding included."""
    model = make().eval()
    (values, region_mask), (ids, word_mask) = batch()
    with torch.no_grad():
        texts = oracle_texts(model, [row[:length] for row, length in zip(ids, LENGTHS, strict=True)])
        wanted = torch.stack([torch.stack([oracle_logit(model, one, two, 1e-6) for two in texts]) for one in texts])
        found = model.relate_by_attention(model.encode_texts(ids, word_mask))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
        assert (found - found.T).abs().max() > 1e-3
        images = model.encode_images(values, region_mask)
        assert images.parts is not None
        rows = []
        for v, parts in zip(images.vector, images.parts, strict=True):
            row = []
            for other, others in zip(images.vector, images.parts, strict=True):
                nodes = [unit(linear(model.whole, (v - other) ** 2 + 1e-6))]
                nodes += [unit(linear(model.local, (x - y) ** 2 + 1e-6)) for x, y in zip(parts, others, strict=True)]
                row.append(oracle_graph(model, nodes))
            rows.append(torch.stack(row))
        torch.testing.assert_close(model.relate_by_place(images), torch.stack(rows), rtol=0, atol=1e-9)


def test_an_item_and_itself_have_a_relation_with_a_finite_gradient() -> None:
    model = make().train()
    with torch.no_grad():
        model.whole.bias.zero_()
        model.local.bias.zero_()
    (values, region_mask), _ = batch()
    model.relate_by_place(model.encode_images(values, region_mask)).sum().backward()  # type: ignore[no-untyped-call]
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters() if weight.grad is not None)


def test_batches_that_stand_below_each_other_have_their_own_statistics() -> None:
    model = make().train()
    (values, mask), _ = batch()
    other = copy.deepcopy(model)
    together = model.encode_images(values, mask, [3, 2]).vector
    apart = torch.cat(
        [other.encode_images(values[:3], mask[:3]).vector, other.encode_images(values[3:], mask[3:]).vector]
    )
    torch.testing.assert_close(together, apart)
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, other.get_buffer(name))
    assert not torch.allclose(together, make().train().encode_images(values, mask).vector, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_what_stands_in_padding_has_no_influence(training: bool) -> None:
    model = make().train(training)
    (values, region_mask), (ids, word_mask) = batch()
    images, texts = model.encode_images(values, region_mask), model.encode_texts(ids, word_mask)
    expected = model.logits(images, texts)
    junk_ids = torch.where(word_mask, ids, 9)
    junk_values = torch.where(region_mask[..., None], values, 5.0)
    again = copy.deepcopy(model)
    found = again.logits(again.encode_images(junk_values, region_mask), again.encode_texts(junk_ids, word_mask))
    torch.testing.assert_close(found, expected)
    assert images.parts is not None
    assert texts.parts is not None
    dirty = [
        Items(items.vector, torch.where(mask[..., None], items.parts, 0.7), mask)
        for items, mask in ((images, region_mask), (texts, word_mask))
    ]
    torch.testing.assert_close(model.logits(*dirty), expected)


def test_padding_takes_no_weight_from_the_parts_even_where_its_own_would_be_largest() -> None:
    attention = make().text.attention
    with torch.no_grad():
        attention.weight.weight.mul_(1000)
        parts = functional.normalize(
            torch.randn(6, 3, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=2
        )
        mask = torch.tensor([[True, True, True, False]]).expand(6, -1)
        found = attention(functional.pad(parts, (0, 0, 0, 1)), mask, None)
        torch.testing.assert_close(found, attention(parts, None, None))


def test_a_score_is_the_same_alone_and_in_any_block() -> None:
    model = make().eval().float()
    (values, region_mask), (ids, word_mask) = batch()
    with torch.no_grad():
        images, texts = model.encode_images(values.float(), region_mask), model.encode_texts(ids, word_mask)
        whole = model.score(images, texts)
        for i in range(len(values)):
            for j, length in enumerate(LENGTHS):
                one = model.encode_images(values[i : i + 1].float(), region_mask[i : i + 1])
                alone = model.encode_texts(ids[j : j + 1, :length])
                assert alone.mask is None
                torch.testing.assert_close(model.score(one, alone)[0, 0], whole[i, j], rtol=0, atol=1e-5)
        rows, columns = torch.tensor([3, 0, 4]), torch.tensor([5, 1, 0, 2])
        torch.testing.assert_close(
            model.score(images[rows], texts[columns]), whole[rows][:, columns], rtol=0, atol=1e-5
        )
        longer = Items.cat([texts, model.encode_texts(torch.full((1, 12), 5))])[: len(texts)]
        torch.testing.assert_close(model.score(images, longer), whole, rtol=0, atol=1e-5)


def test_the_order_of_regions_counts_in_their_norm_only_and_that_of_words_in_the_gru_only() -> None:
    model = make().eval()
    (values, _), (ids, _) = batch()
    images, texts = model.encode_images(values), model.encode_texts(ids[2:3])
    assert images.parts is not None
    assert texts.parts is not None
    turned = Items(images.vector, images.parts.flip(1)), Items(texts.vector, texts.parts.flip(1))
    torch.testing.assert_close(model.logits(*turned), model.logits(images, texts))
    assert not torch.allclose(model.encode_images(values.flip(1)).vector, images.vector, atol=1e-4)


def test_gradients_are_finite_at_padded_and_all_zero_words() -> None:
    model = make(dropout=0.4).train()
    (values, region_mask), (ids, word_mask) = batch()
    with torch.no_grad():
        model.text.embed.weight.zero_()
        for name, weight in model.text.cap_rnn.named_parameters():
            if "bias" in name:
                weight.zero_()  # every state is zero
    values = values.clone().requires_grad_()
    images, texts = model.encode_images(values, region_mask), model.encode_texts(ids, word_mask)
    assert not texts.parts.any()
    model.score(images, texts).sum().backward()
    assert torch.isfinite(values.grad).all()
    assert not values.grad[~region_mask].any()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_no_gradient_reaches_a_padded_word() -> None:
    model = make().train()
    (values, _), (ids, word_mask) = batch()
    images, texts = model.encode_images(values), model.encode_texts(ids, word_mask)
    parts = texts.parts.detach().requires_grad_()
    model.logits(images, Items(texts.vector, parts, word_mask)).square().sum().backward()
    assert not parts.grad[~word_mask].any()
    assert parts.grad[word_mask].any(dim=1).all()


def test_a_training_batch_of_one_is_no_error() -> None:
    model = make(dropout=0.4).train()
    (values, region_mask), (ids, word_mask) = batch()
    images = model.encode_images(values[2:3], region_mask[2:3])  # one region only
    logit = model.logits(images, model.encode_texts(ids[3:4], word_mask[3:4]))
    logit.sum().backward()
    assert torch.isfinite(logit).all()
    assert all(torch.isfinite(buffer).all() for buffer in model.buffers())
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_caption_of_no_word_has_a_finite_score() -> None:
    model = make().eval()
    (values, _), (ids, word_mask) = batch()
    word_mask[1] = False
    assert torch.isfinite(model.logits(model.encode_images(values), model.encode_texts(ids, word_mask))).all()


def test_another_number_of_regions_is_refused() -> None:
    with pytest.raises(InputError, match="3 regions per image, this model expects 4: its BatchNorm has one channel"):
        make().encode_images(torch.zeros(2, 3, INPUT, dtype=torch.float64))


def test_nothing_waits_for_values_of_the_device() -> None:
    model = make(dropout=0.4).float().to("meta").train()
    (values, region_mask), (ids, word_mask) = batch()
    images = model.encode_images(values.float().to("meta"), region_mask, [3, 2])
    texts = model.encode_texts(ids.to("meta"), word_mask, [4, 2])
    score = model.score(images, texts)
    score.sum().backward()
    assert score.shape == (5, 6)


def test_lowered_precision_keeps_items_and_scores_in_float32() -> None:
    model = make().float().eval()
    (values, region_mask), (ids, word_mask) = batch()
    with torch.no_grad():
        exact = model.score(model.encode_images(values.float(), region_mask), model.encode_texts(ids, word_mask))
        model.precision = torch.bfloat16
        images, texts = model.encode_images(values.float(), region_mask), model.encode_texts(ids, word_mask)
        low = model.score(images, texts)
    assert {t.dtype for t in (images.vector, images.parts, texts.vector, texts.parts, low)} == {torch.float32}
    assert not torch.equal(low, exact)
    torch.testing.assert_close(low, exact, rtol=0, atol=0.02)


def test_parameters_have_the_names_and_sizes_of_the_specification() -> None:
    with torch.device("meta"):
        model = Sgr(RegionParts(2048, 1024, 36, 0.0, 0.4), WordParts(8481, 300, 1024, 0.4, 0.4))
    attention = 2 * (1024 * 1024 + 1024) + 1024 + 1
    expected = {
        "image.fc": 2048 * 1024 + 1024,
        "image.attention": attention + 2 * 36 + 2 * 1024,
        "text.embed": 8481 * 300,
        "text.cap_rnn": 2 * 3 * (1024 * 300 + 1024 * 1024 + 2 * 1024),
        "text.attention": attention,
        "whole": 1024 * 256 + 256,
        "local": 1024 * 256 + 256,
        "head": 256 + 1,
        "steps": 3 * 3 * (256 * 256 + 256),
    }
    found = dict.fromkeys(expected, 0)
    for name, parameter in model.named_parameters():
        found[next(prefix for prefix in expected if name.startswith(prefix))] += parameter.numel()
    assert found == expected
    assert {name for name, _ in model.named_buffers() if "num_batches" not in name} == {
        f"image.attention.{norm}.running_{what}" for norm in ("part_norm", "whole_norm") for what in ("mean", "var")
    }


def test_initial_weights() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Sgr(RegionParts(64, 32, R, 0.0, 0.4), WordParts(50, WORD, 32, 0.4, 0.4), similarity_dim=16)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
            assert 0.8 * bound < layer.weight.abs().max() <= bound, name
            assert not layer.bias.any(), name
    assert 0.09 < model.text.embed.weight.abs().max() <= 0.1
    assert not model.text.embed.weight[0].any()


def test_region_norm_equals_batch_norm_without_mask_and_on_the_real_regions_with_one() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = RegionNorm(3), nn.BatchNorm1d(3)
    values = torch.randn(6, 3, 5, generator=generator) * 2 + 1
    torch.testing.assert_close(ours(values), theirs(values))
    for name, buffer in theirs.named_buffers():
        if "num_batches" not in name:
            torch.testing.assert_close(ours.get_buffer(name), buffer)
    mask = torch.tensor([[True, False, False], [True, True, False]] * 3)
    before = ours.running_mean.clone()
    found = ours(values, mask)
    having = mask[:, 1]
    expected = functional.batch_norm(values[having, 1].reshape(-1, 1), None, None, training=True).view(-1, 5)
    torch.testing.assert_close(found[having, 1], expected)
    torch.testing.assert_close(ours.running_mean[1], 0.9 * before[1] + 0.1 * values[having, 1].mean())
    assert ours.running_mean[2] == before[2]  # no image has this region
    assert torch.isfinite(found).all()


def test_row_norm_of_parts() -> None:
    values = torch.arange(12.0).view(6, 2)
    norm, other = RowNorm(2), RowNorm(2)
    torch.testing.assert_close(
        per_batch(norm, [4, 2], values), torch.cat([other(values[:4]), other(values[4:])]), rtol=0, atol=0
    )
    assert torch.isfinite(RowNorm(2)(values[:1])).all()
