"""The computed bound: every matrix product that a piece of work needs, each shape timed alone, summed.

Counted is what no way of writing can leave out: forward products, gradients of weights and of those inputs that have
one; the recurrence step by step (the first has no state to multiply), its weight gradient as one product over all
steps. Left out: GPO's small GRU, the products within attention (K × K), softmaxes, sorting, the optimiser. Products of
all views of a step are taken together, which is the fastest form.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import torch
from timing import fastest
from torch import Tensor
from workload import CAPTIONS, WORD_DIM, Size

NEIGHBORS = 5
ITEMS = 256
"""items of a forward pass without gradients"""


class Product(NamedTuple):
    """(rows, inner) @ (inner, columns)."""

    rows: int
    inner: int
    columns: int

    @property
    def flop(self) -> int:
        return 2 * self.rows * self.inner * self.columns


Products = Counter[Product]


def linear(rows: int, inner: int, outer: int, *, training: bool = True, to_input: bool = True) -> Products:
    """Products of a linear layer: forward, gradient of the weight, gradient of the input."""
    found = Products({Product(rows, inner, outer): 1})
    if training:
        found[Product(outer, rows, inner)] += 1
        if to_input:
            found[Product(rows, outer, inner)] += 1
    return found


def images(size: Size, regions: int, training: bool = True) -> Products:
    """Products of the image encoder over so many regions in all."""
    found = linear(regions, size.region_dim, size.dim, training=training, to_input=False)
    found += linear(regions, size.region_dim, size.hidden, training=training, to_input=False)
    return found + linear(regions, size.hidden, size.dim, training=training)


def texts(size: Size, lengths: Tensor, training: bool = True) -> Products:
    """Products of the text encoder over captions of so many tokens (n,), of those over vectors where size has them."""
    if size.vector_dim:
        found = linear(len(lengths), size.vector_dim, size.hidden, training=training, to_input=False)
        return found + linear(len(lengths), size.hidden, size.dim, training=training)
    tokens, gates = int(lengths.sum()), 3 * size.dim
    found = linear(tokens, WORD_DIM, 2 * gates, training=training)
    for step in range(1, int(lengths.max())):
        active = int((lengths > step).sum())
        found[Product(active, size.dim, gates)] += 2  # two directions
        if training:
            found[Product(active, gates, size.dim)] += 2
    if training and tokens > len(lengths):
        found[Product(gates, tokens - len(lengths), size.dim)] += 2
    found += linear(tokens, size.dim, size.dim, training=training)
    found += linear(tokens, size.dim, size.hidden, training=training)
    return found + linear(tokens, size.hidden, size.dim, training=training)


def step(size: Size, regions: int, lengths: Tensor, neighbors: int = NEIGHBORS) -> Products:
    """Products of one training step of one network.

    Args:
        size: the sizes.
        regions: all valid regions of the three views (the clean batch twice, the noisy batch).
        lengths: tokens of each caption of the three views.
        neighbors: K.
    """
    batch, dim = size.batch, size.dim
    found = images(size, regions) + texts(size, lengths)
    found[Product(batch, dim, size.memory)] += 2  # the search by image and by text
    refined = 2 * batch * neighbors
    found += linear(refined, dim, 3 * dim, to_input=False) + linear(refined, dim, dim)
    similarities = 3 + 1  # inter, two intra; of the noisy batch
    targets = 2  # the gradient goes to one side only
    found[Product(batch, dim, batch)] += similarities + targets
    found[Product(batch, batch, dim)] += 2 * similarities + targets
    return found


def encoding(size: Size, count: int, lengths: Tensor) -> Products:
    """Products of encoding so many images and captions once, in blocks, the captions sorted by length."""
    found = Products()
    full, rest = divmod(count, ITEMS)
    for items, times in ((ITEMS, full), (rest, 1)):
        if items and times:
            found += scaled(images(size, items * size.regions, training=False), times)
    for some in lengths.sort().values.split(ITEMS):
        found += texts(size, some, training=False)
    return found


def partition(size: Size, count: int, lengths: Tensor) -> Products:
    """Products of scoring all pairs of so many images: encoding, and the similarities of the loss batches."""
    found = encoding(size, count, lengths)
    found[Product(size.batch, size.dim, size.batch)] += -(-count * CAPTIONS // size.batch)
    return found


def validation(size: Size, count: int, lengths: Tensor) -> Products:
    """Products of validating both networks: encoding, and one similarity each (the ensemble's is their mean)."""
    found = scaled(encoding(size, count, lengths), 2)
    found[Product(count, size.dim, count * CAPTIONS)] += 2
    return found


def scaled(products: Products, times: int) -> Products:
    return Products({product: times * count for product, count in products.items()})


def flop(products: Mapping[Product, int]) -> int:
    """Floating-point operations of all of them."""
    return sum(count * product.flop for product, count in products.items())


class Bound:
    """Seconds of products on a device, each shape timed once."""

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.device, self.dtype = device, dtype
        self.times: dict[Product, float] = {}

    def seconds(self, products: Mapping[Product, int]) -> float:
        return sum(count * self._time(product) for product, count in products.items())

    def _time(self, product: Product) -> float:
        if product not in self.times:
            a = torch.randn(product.rows, product.inner, device=self.device).to(self.dtype)
            b = torch.randn(product.inner, product.columns, device=self.device).to(self.dtype)
            out = torch.empty(product.rows, product.columns, device=self.device, dtype=self.dtype)
            self.times[product] = fastest(lambda: torch.mm(a, b, out=out), self.device)
        return self.times[product]

    def record(self, products: Mapping[Product, int], ours: float, times: float = 1.0) -> dict[str, float]:
        """What a row says of the bound: its seconds, the share of it that `ours` reaches, operations.

        Args:
            products: the products of one unit of the work.
            ours: seconds of the toolkit.
            times: units that `ours` covers.
        """
        bound, operations = times * self.seconds(products), times * flop(products)
        return {
            "bound_seconds": bound,
            "bound_share": bound / ours,
            "flop": operations,
            "flop_per_second": operations / ours,
        }
