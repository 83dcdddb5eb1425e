"""`in2r eval --eccv`: recalls and mAP@R on MS-COCO with the right pairs that its captions leave out."""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from in2r.data.coco_matches import Matches
from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import PackedTokens
from in2r.metrics import SAME_SIMILARITY
from in2r.metrics.matches import match_figures, right_positions
from in2r.metrics.relevance import Ints
from in2r.models.base import Backbone
from in2r.models.blocks import SAME_LOG_ODDS, log_odds, logit_blocks
from in2r.models.encode import encode_images, encode_texts

log = logging.getLogger(__name__)

QUERIES = 256
"""queries whose similarities are brought together at a time: columns one by one would be read at random"""

Figures = dict[str, dict[str, dict[str, float]]]
"""eccv or cxc → network or "ensemble" → figure, such as i2t_map_at_r, in percent"""


def evaluate_matches(
    backbones: Mapping[str, Backbone],
    split: PairSet,
    texts: Features | PackedTokens,
    device: torch.device,
    matches: Mapping[str, Matches],
) -> Figures:
    """Return R@K, R-precision and mAP@R of both directions; the whole split are the candidates.

    The similarities of all pairs are held in memory: 0.5 GB for each network on COCO's 5,000 images.

    Args:
        backbones: the networks by name; the ensemble's similarity is their mean.
        split: the images and captions.
        texts: the captions as the encoders take them.
        device: where to compute.
        matches: the right pairs, by set.
    """
    nets = list(backbones.values())
    images = [encode_images(net, split.images, device) for net in nets]
    captions = [encode_texts(net, texts, device) for net in nets]
    logits = torch.empty(len(nets), len(split.images), len(split.image_of_caption))
    log.info("%s: %.1f GiB of similarities", split.name, logits.nbytes / 2**30)
    for rows, columns, values in logit_blocks(nets, images, captions):
        logits[:, rows, columns] = values.cpu()
    chosen = {name: logits[number : number + 1] for number, name in enumerate(backbones)} | {"ensemble": logits}
    bounded = nets[0].bounded
    return {
        name: {row: _figures(values, right, bounded) for row, values in chosen.items()}
        for name, right in matches.items()
    }


def _figures(logits: Tensor, right: Matches, bounded: bool) -> dict[str, float]:
    """Return the figures of the mean of networks, from their logits (networks, images, captions)."""
    both = {
        "i2t": _positions(logits, right.captions_of, bounded),
        "t2i": _positions(logits.transpose(1, 2), right.images_of, bounded),
    }
    return {
        f"{direction}_{name}": value
        for direction, found in both.items()
        for name, value in match_figures(found).items()
    }


def _positions(logits: Tensor, right: Mapping[int, Ints], bounded: bool) -> list[Ints]:
    """Return the positions of the right items of each query, from logits (networks, queries, items)."""
    found: list[Ints] = []
    tolerance = SAME_LOG_ODDS if bounded else SAME_SIMILARITY
    for top in range(0, logits.shape[1], QUERIES):
        some = logits[:, top : top + QUERIES].contiguous()
        mean = (log_odds(some) if bounded else some.mean(0)).numpy()
        queries = [query for query in range(top, top + len(mean)) if query in right]
        found += [right_positions(mean[query - top], right[query], tolerance) for query in queries]
    return found
