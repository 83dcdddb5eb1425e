"""Slow loops over items, parts and pairs, that backbones which compare words with regions are held against."""

import torch
from torch import Tensor, nn

from in2r.models.interaction import Interaction
from in2r.models.similarity_vectors import SimilarityVectors

INPUT, WORD, D, S, R, VOCABULARY = 7, 6, 8, 5, 4, 30
LENGTHS = [5, 2, 7, 1, 3, 7]
REGION_COUNTS = [4, 3, 1, 4, 2]


@torch.no_grad()
def unlike_initial(model: Interaction) -> None:
    """Give biases, statistics and affines values that show."""
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        if "norm" in name and values.is_floating_point():
            values.uniform_(0.5, 1.5)
        elif "bias" in name:
            values.uniform_(-0.5, 0.5)


def batch(seed: int = 1) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(REGION_COUNTS), R, INPUT, generator=generator, dtype=torch.float64)
    region_mask = torch.arange(R) < torch.tensor(REGION_COUNTS)[:, None]
    ids = torch.randint(4, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    word_mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return (values, region_mask), (ids * word_mask, word_mask)


def unit(x: Tensor) -> Tensor:
    return x / x.norm().clamp(min=1e-9)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    return layer.weight @ x + layer.bias


def oracle_norm(norm: nn.BatchNorm1d, entries: list[Tensor], channel: int, training: bool) -> list[Tensor]:
    """Normalise what one channel holds in a batch."""
    everything = torch.cat([entry.reshape(-1) for entry in entries])
    mean, var = norm.running_mean[channel], norm.running_var[channel]
    if training:
        mean = everything.mean()
        var = ((everything - mean) ** 2).mean()
    return [(x - mean) / (var + norm.eps).sqrt() * norm.weight[channel] + norm.bias[channel] for x in entries]


def oracle_attention(module: nn.Module, sets: list[list[Tensor]], training: bool) -> list[Tensor]:
    """Return the global vector of each set of unit vectors."""
    part = [[linear(module.part, x) for x in one] for one in sets]
    whole = [linear(module.whole, sum(one) / len(one)) for one in sets]
    if module.part_norm is not None:
        for r in range(R):
            having = [i for i, one in enumerate(sets) if len(one) > r]
            for i, x in zip(
                having, oracle_norm(module.part_norm, [part[i][r] for i in having], r, training), strict=True
            ):
                part[i][r] = x
        columns = [oracle_norm(module.whole_norm, [w[d] for w in whole], d, training) for d in range(D)]
        whole = [torch.stack([column[i] for column in columns]) for i in range(len(sets))]
    vectors = []
    for one, a, b in zip(sets, part, whole, strict=True):
        score = torch.stack([linear(module.weight, x.tanh() * b.tanh())[0] for x in a])
        weights = score.exp() / score.exp().sum()
        vectors.append(unit(sum(weight * x for weight, x in zip(weights, one, strict=True))))
    return vectors


def region_sets(model: Interaction, values: Tensor, mask: Tensor) -> list[list[Tensor]]:
    return [[unit(linear(model.image.fc, x)) for x in rows[real]] for rows, real in zip(values, mask, strict=True)]


def word_sets(model: Interaction, captions: list[Tensor]) -> list[list[Tensor]]:
    sets = []
    for ids in captions:
        states = model.text.cap_rnn(model.text.embed(ids)[None])[0][0]
        sets.append([unit((state[:D] + state[D:]) / 2) for state in states])
    return sets


def oracle_images(
    model: Interaction, values: Tensor, mask: Tensor, training: bool
) -> list[tuple[list[Tensor], Tensor]]:
    sets = region_sets(model, values, mask)
    return list(zip(sets, oracle_attention(model.image.attention, sets, training), strict=True))


def oracle_texts(model: Interaction, captions: list[Tensor]) -> list[tuple[list[Tensor], Tensor]]:
    sets = word_sets(model, captions)
    return list(zip(sets, oracle_attention(model.text.attention, sets, False), strict=True))


def oracle_nodes(
    model: SimilarityVectors, image: tuple[list[Tensor], Tensor], text: tuple[list[Tensor], Tensor], offset: float = 0.0
) -> list[Tensor]:
    """Return the similarity vectors of a pair, that of the whole first."""
    (regions, g), (words, t) = image, text
    nodes = [unit(linear(model.whole, (g - t) ** 2 + offset))]
    for w, weights in zip(words, oracle_weights(regions, words, 9.0), strict=True):
        context = unit(sum(weight * v for weight, v in zip(weights, regions, strict=True)))
        nodes.append(unit(linear(model.local, (context - w) ** 2 + offset)))
    return nodes


def oracle_weights(contexts: list[Tensor], queries: list[Tensor], smoothing: float) -> list[Tensor]:
    """Return, for each part of a query, its weights of the context's parts."""
    rows = []
    for x in contexts:
        cosines = torch.stack([x @ y for y in queries])
        rows.append(unit(torch.where(cosines > 0, cosines, 0.1 * cosines)))
    scores = [torch.stack([smoothing * row[place] for row in rows]) for place in range(len(queries))]
    return [each.exp() / each.exp().sum() for each in scores]
