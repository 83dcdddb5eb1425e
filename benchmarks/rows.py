"""The rows of the benchmark: each measures both versions in turns, checks that they agree, and knows its bound."""

import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import bound
import numpy as np
import plain
import torch
from sides import Ours, Plain, different_images, draw, search
from timing import compare, device_mb, in_turns, operators, seconds
from torch import Tensor, nn
from workload import CAPTIONS, CLEAN, Size, Workload, embeddings

from in2r.metrics import ranks_from_embeddings, ranks_from_similarity
from in2r.models.encode import encode_images, encode_texts
from in2r.training.order import EpochOrder

FOUND = 10
"""items that a retrieval returns"""
QUERIES = 128
STEPS = 5
"""timed steps for each turn of the longer rows: an epoch is mostly steps"""
Row = dict[str, Any]


class Rows:
    """Measures rows of one workload.

    Args:
        work: sizes and data.
        repeat: timed turns; of a step `STEPS` times as many.
        limits: what times products, in the precision of the toolkit's side.
    """

    def __init__(self, work: Workload, repeat: int, limits: bound.Bound) -> None:
        self.work, self.size, self.device = work, work.size, work.device
        self.repeat, self.limits = repeat, limits
        self.ours, self.plain = Ours(work), Plain(work)
        self.done: dict[str, Row] = {}

    def step(self) -> list[Row]:
        same = disagreement(self.ours, self.plain)
        sides = {"ours": self.ours, "plain": self.plain}
        # the first step also allocates the optimiser's state
        peaks = {f"device_mb_{name}": device_mb(partial(side.step, 0), self.device) for name, side in sides.items()}
        turns = STEPS * self.repeat
        numbers = {side: iter(range(1, turns + 1)) for side in sides.values()}
        calls = [lambda side=side: side.step(next(numbers[side])) for side in numbers]
        row = self._row("training step", *calls, self._step_products(), turns)
        pairs = draw(self.work, 0)
        load = in_turns(lambda: self.ours.load(*pairs, 0), lambda: self.plain.load(*pairs, 0), turns, self.device)
        whole, loading = row["seconds"], load["seconds"]
        ours, other = (whole[f"{side}_median"] - loading[f"{side}_median"] for side in sides)
        # what is left of the ratio where other processes load the field's batches
        alone = {"ratio_without_loading": other / max(ours, 1e-9)}
        return [{**row, **alone, **same, **peaks}, {"what": "its two batches", **load}]

    def partition(self) -> list[Row]:
        images = self.size.scored
        self.plain.adopt(self.ours)
        mine, theirs = self.ours.partition(images), self.plain.partition(images)
        products = bound.partition(self.size, images, self._lengths(images))
        what = f"partition pass, {images * CAPTIONS:,} pairs"
        row = self._row(what, lambda: self.ours.partition(images), lambda: self.plain.partition(images), products)
        difference = max(float((mine[name] - theirs[name]).abs().max()) for name in mine)
        return [{**row, "loss_difference": difference}]

    def validation(self) -> list[Row]:
        split, texts = self.work.dev()
        count = len(split.images)
        encoder = self.ours.nets["A"].encoder
        self.plain.adopt(self.ours)
        mine = encode_images(encoder, split.images, self.device), encode_texts(encoder, texts, self.device)
        v, u = self.plain.encode("A", count * CAPTIONS)
        theirs = v[::CAPTIONS], u
        difference = max(float(np.abs(a.cpu().numpy() - b).max()) for a, b in zip(mine, theirs, strict=True))
        products = bound.validation(self.size, count, self._lengths(count))
        what = f"validation, {count:,} images"
        row = self._row(what, self.ours.validate, self.plain.validate, products)
        return [{**row, "embedding_difference": difference}]

    def ranks(self, images: int, peak: Row) -> list[Row]:
        owner, shape = np.repeat(np.arange(images), CAPTIONS), f"{images:,} × {images * CAPTIONS:,}"
        same = same_ranks(images, self.size.dim)
        v, u = embeddings(images, self.size.dim)
        given = v.numpy() @ u.numpy().T
        calls = (lambda: ranks_from_similarity(given, owner)), (lambda: plain.ranks(given))
        from_given = in_turns(*calls, self.repeat, torch.device("cpu"))
        embedded = v.to(self.device), u.to(self.device)
        products = bound.Products({bound.Product(images, self.size.dim, images * CAPTIONS): 1})
        row = self._row(
            f"product and ranks, {shape}",
            lambda: ranks_from_embeddings(*embedded, owner),
            lambda: plain.ranks(v.numpy() @ u.numpy().T),
            products,
        )
        return [{"what": f"ranks, {shape}", **from_given, **same}, {**row, **peak}]

    def retrieval(self) -> list[Row]:
        items = embeddings(self.size.searched // CAPTIONS, self.size.dim)[1].to(self.device)
        return [self._search(items[:count].clone(), items) for count in (1, QUERIES)]

    def _search(self, queries: Tensor, items: Tensor) -> Row:
        equal = bool((search(queries, items, FOUND) == plain.search(queries, items, FOUND)).all())
        products = bound.Products({bound.Product(len(queries), self.size.dim, len(items)): 1})
        what = f"retrieval, {len(queries)} of {len(items):,} texts"
        calls = (lambda: search(queries, items, FOUND)), (lambda: plain.search(queries, items, FOUND))
        return {**self._row(what, *calls, products), "found_equal": equal}

    def epoch(self) -> list[Row]:
        """One epoch of both networks at 60 % noise."""
        clean = int(self.work.clean.sum()) if self.size.whole else round(CLEAN * self.size.train * CAPTIONS)
        steps = epoch_steps(clean, self.size.batch)
        if self.size.whole:
            times = in_turns(self.ours.epoch, self.plain.epoch, self.repeat, self.device)
            how = "run whole"
        else:
            times, how = composed_epoch(self.done, self.size, steps), "composed of the measured parts"
        pairs, scored = self.size.train * CAPTIONS, self.size.scored
        parts = [
            (self._step_products(), steps),
            (bound.partition(self.size, scored, self._lengths(scored)), 2 * self.size.train / scored),
            (bound.validation(self.size, self.size.dev, self._lengths(self.size.dev)), 1),
        ]
        mine = times["seconds"]["ours_median"]
        found = [self.limits.record(products, mine, count) for products, count in parts]
        limit = {name: sum(one[name] for one in found) for name in found[0]}
        what = f"epoch, {pairs:,} pairs, {steps} steps ({how})"
        return [{"what": what, **times, **limit}]

    def profile(self) -> Row:
        """The largest operators of a step of both sides."""
        sides = {"ours": self.ours, "plain": self.plain}
        for side in sides.values():
            side.step(0)
        return {name: operators(lambda side=side: side.step(1), self.device) for name, side in sides.items()}

    def measure(self, group: str, peaks: dict[int, Row]) -> list[Row]:
        """Measure a group of rows."""
        if group == "ranks":
            return [row for images, peak in peaks.items() for row in self.ranks(images, peak)]
        rows: list[Row] = getattr(self, group)()
        self.done[group] = rows[0]
        return rows

    def _row(self, what: str, ours: Any, other: Any, products: bound.Products, turns: int | None = None) -> Row:
        times = in_turns(ours, other, turns or self.repeat, self.device)
        return {"what": what, **times, **self.limits.record(products, times["seconds"]["ours_median"])}

    def _step_products(self) -> bound.Products:
        """Products of the first step, with the sizes of its batches."""
        clean, noisy = self.ours.load(*draw(self.work, 0), 0)
        views = (clean, clean, noisy)
        regions = sum(int(batch.image_mask.sum()) for batch in views)
        lengths = torch.cat([torch.ones(len(b.pairs)) if b.text_mask is None else b.text_mask.sum(1) for b in views])
        return bound.step(self.size, regions, lengths.long())

    def _lengths(self, images: int) -> Tensor:
        """Tokens of the captions of the first images."""
        if self.work.vocabulary is None:
            return torch.ones(images * CAPTIONS, dtype=torch.int64)
        return torch.as_tensor(np.diff(self.work.texts.offsets)[: images * CAPTIONS])


def epoch_steps(clean: int, batch: int) -> int:
    """Steps of both networks in an epoch with so many clean pairs."""
    return 2 * len(EpochOrder(torch.arange(clean), torch.arange(0), batch, 0))


def composed_epoch(done: dict[str, Row], size: Size, steps: int) -> Row:
    """Times of an epoch from its measured parts; the mixtures are fitted to as many losses as an epoch has.

    Args:
        done: the rows step, partition and validation.
        size: what they were measured at.
        steps: of both networks.
    """
    count = size.train * CAPTIONS
    torch.manual_seed(0)
    losses = {name: torch.randn(count).abs() + (torch.rand(count) < 0.5) * 3 for name in ("sce", "triplet-mean")}
    cpu = torch.device("cpu")
    fits = {"ours": seconds(lambda: Ours.fit(losses), cpu), "plain": seconds(lambda: Plain.fit(losses), cpu)}
    result = {}
    for number, clock in enumerate(("seconds", "cpu_seconds")):
        sides = {}
        for side in ("ours", "plain"):
            step, partition, validation = (
                done[name][clock][f"{side}_median"] for name in ("step", "partition", "validation")
            )
            scored = 2 * (partition * size.train / size.scored + fits[side][number])
            sides[side] = [steps * step + scored + validation]
        result[clock] = compare(sides["ours"], sides["plain"])
    return result


def same_ranks(images: int, dim: int) -> Row:
    """Whether all ranks are equal, from similarities, from embeddings, and sorted.

    In float64: rounding decides between the nearest of millions of float32 similarities.
    """
    owner = np.repeat(np.arange(images), CAPTIONS)
    v, u = embeddings(images, dim, torch.float64)
    similarity = (v @ u.T).numpy()
    expected = plain.ranks(similarity)
    ours = ranks_from_similarity(similarity, owner), ranks_from_embeddings(v, u, owner, tolerance=0.0)
    equal = all(np.array_equal(a, b) for found in ours for a, b in zip(found, expected, strict=True))
    return {"ranks_equal": equal, "mean_rank_t2i": float(expected[1].mean()) + 1}


def disagreement(ours: Ours, other: Plain) -> dict[str, float]:
    """Relative difference of loss and gradients of a step, without dropout and augmentation, BatchNorm frozen.

    (In training the plain version's padded rows take part in its BatchNorm, as in the field's code.)
    """
    pairs = different_images(ours.work, 16)
    losses, gradients = [], []
    for side in (ours, other):
        freeze(side.nets["A"])
        found, weights = side.losses(*pairs)
        losses.append(float(found["total"].detach()))
        gradients.append([gradient.flatten() for gradient in torch.autograd.grad(found["total"], weights)])
        side.nets["A"].train()
    mine, theirs = map(torch.cat, gradients)
    return {
        "loss_difference": abs(losses[0] - losses[1]) / abs(losses[1]),
        "gradient_difference": float((mine - theirs).norm() / theirs.norm()),
    }


def freeze(net: nn.Module) -> None:
    """Hold BatchNorm and dropout still; the recurrence stays in training: without, cuDNN has no gradient."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.Dropout):
            module.eval()


def peak_memory(images: int, dim: int, threads: int) -> dict[str, float]:
    """Peak resident memory of a fresh process: with the embeddings made, and after our ranks of them."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak_memory, images, dim, threads).result()


def _peak_memory(images: int, dim: int, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    v, u = embeddings(images, dim)
    before = _peak_mb()
    ranks_from_embeddings(v, u, np.repeat(np.arange(images), CAPTIONS))
    return {"peak_mb_before": before, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
