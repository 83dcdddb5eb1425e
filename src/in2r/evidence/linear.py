"""Evidence of linear maps: how alike an image and a caption are in the directions that both sides share.

The maps are those of a canonical correlation analysis, fitted in closed form. Each judges only pairs of images on which
it was not fitted (cross-fitting), so that no pair speaks for itself.

Legend: n = images, f = width of an image vector, d = of a text vector, k = min(f, d); x, y = the vectors of a pair less
their means; w = weight of a pair, how far it is believed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.evidence.vectors import (
    BLOCK_BYTES,
    TINY,
    blocks,
    check_finite,
    check_index,
    check_matrix,
    check_positive,
    check_weights,
    mean_row,
)
from in2r.transfer import at_least_float32, full_precision


@dataclass(frozen=True)
class LinearMaps:
    """Both sides' way into the shared directions.

    Attributes:
        image_mean: (f,).
        text_mean: (d,).
        image_map: (f, k), whitened directions times their canonical correlations.
        text_map: (d, k), likewise.
        correlations: (k,) in [0, 1], falling.
    """

    image_mean: Tensor
    text_mean: Tensor
    image_map: Tensor
    text_map: Tensor
    correlations: Tensor

    def embed_images(self, images: Tensor) -> Tensor:
        """Return (n, k) of unit norm for images (n, f)."""
        return _embed(images, self.image_mean, self.image_map)

    def embed_texts(self, texts: Tensor) -> Tensor:
        """Return (N, k) of unit norm for texts (N, d)."""
        return _embed(texts, self.text_mean, self.text_map)


def _embed(values: Tensor, mean: Tensor, directions: Tensor) -> Tensor:
    with full_precision(values.device):
        embedded = (values.to(mean) - mean) @ directions
    unit: Tensor = embedded / torch.linalg.vector_norm(embedded, dim=1, keepdim=True).clamp(min=TINY)
    return unit


@dataclass
class _Moments:
    """Sums over pairs: w, w x, w y, w x xᵀ, w y yᵀ, w x yᵀ, in float64."""

    parts: list[Tensor]

    def __add__(self, other: "_Moments") -> "_Moments":
        return _Moments([a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def __sub__(self, other: "_Moments") -> "_Moments":
        return _Moments([a - b for a, b in zip(self.parts, other.parts, strict=True)])


@torch.no_grad()
def fit_linear_maps(
    images: Tensor,
    texts: Tensor,
    image_of_pair: Tensor,
    fold_of_pair: Tensor,
    folds: int,
    weight: Tensor | None = None,
    ridge: float = 0.3,
    block_bytes: int = BLOCK_BYTES,
) -> list[LinearMaps]:
    """Fit maps for each fold, on the pairs of all other folds.

    With C = E[w x yᵀ] / E[w] and likewise C_x, C_y: (C_x + a_x I)^(-1/2) C (C_y + a_y I)^(-1/2) = U diag(r) Vᵀ, where
    a = ridge · mean of the diagonal. The maps are (C_x + a_x I)^(-1/2) U diag(r), and likewise with V: a direction
    counts as far as the other side can foretell it.

    Args:
        images: (n, f), of any length.
        texts: (N, d), the text of each pair.
        image_of_pair: (N,) int64 in [0, n).
        fold_of_pair: (N,) int64 in [0, folds); the pairs of an image belong into one fold.
        folds: 2 or more.
        weight: (N,) w >= 0; None: all 1.
        ridge: > 0, share of the mean variance that is added to each.
        block_bytes: memory beside the moments, unless one pair needs more.

    Returns:
        Maps for each fold, in float32, on the vectors' device.

    Raises:
        ValueError: if a shape does not fit, a value is out of range, or a fold holds all of the weight.
    """
    check_positive(ridge=ridge, block_bytes=block_bytes)
    check_matrix("images", images)
    check_matrix("texts", texts)
    check_finite("images", images)
    check_finite("texts", texts)
    check_index("image_of_pair", image_of_pair, len(texts), len(images))
    check_index("fold_of_pair", fold_of_pair, len(texts), folds)
    w = texts.new_ones(len(texts)) if weight is None else weight
    check_weights("weight", w, len(texts))
    # About their means, sums of squares keep their digits.
    centre = (mean_row(images), mean_row(texts))
    each = []
    for fold in range(folds):
        members = (fold_of_pair == fold).nonzero().squeeze(1)
        each.append(_moments(images, texts, image_of_pair, members, w, centre, block_bytes))
    total = each[0]
    for part in each[1:]:
        total = total + part
    return [_solve(total - part, centre, ridge) for part in each]


def _moments(
    images: Tensor,
    texts: Tensor,
    image_of_pair: Tensor,
    members: Tensor,
    weight: Tensor,
    centre: tuple[Tensor, Tensor],
    block_bytes: int,
) -> _Moments:
    """Add up over some pairs."""
    f, d = images.shape[1], texts.shape[1]
    sums = _Moments(
        [
            torch.zeros(shape, dtype=torch.float64, device=images.device)
            for shape in ((), (f,), (d,), (f, f), (d, d), (f, d))
        ]
    )
    for rows in blocks(len(members), 4 * 4 * (f + d), block_bytes):
        chosen = members[rows]
        x = at_least_float32(images[image_of_pair[chosen]]) - centre[0]
        y = at_least_float32(texts[chosen]) - centre[1]
        w = weight[chosen].to(x.dtype)
        with full_precision(x.device):
            xw, yw = x * w[:, None], y * w[:, None]
            parts = [w.sum(), xw.sum(dim=0), yw.sum(dim=0), xw.T @ x, yw.T @ y, xw.T @ y]
        sums = sums + _Moments([part.double() for part in parts])
    return sums


def _solve(sums: _Moments, centre: tuple[Tensor, Tensor], ridge: float) -> LinearMaps:
    """Find the shared directions of the pairs that were added up."""
    w, x, y, xx, yy, xy = sums.parts
    if not float(w) > 0:
        raise ValueError("one fold holds all of the weight; the maps need pairs of other folds")
    x, y = x / w, y / w
    left, right = _whitening(xx / w - x.outer(x), ridge), _whitening(yy / w - y.outer(y), ridge)
    u, r, v = torch.linalg.svd(left @ (xy / w - x.outer(y)) @ right, full_matrices=False)
    return LinearMaps(
        image_mean=(centre[0] + x).float(),
        text_mean=(centre[1] + y).float(),
        image_map=(left @ u * r).float(),
        text_map=(right @ v.T * r).float(),
        correlations=r.float(),
    )


def _whitening(covariance: Tensor, ridge: float) -> Tensor:
    """Return (covariance + a I)^(-1/2); directions without any variance are left out."""
    values, vectors = torch.linalg.eigh(covariance)
    shrunk = values.clamp(min=0) + ridge * values.mean().clamp(min=0)
    scale = torch.where(shrunk > TINY * shrunk.max(), shrunk, torch.inf).rsqrt()
    root: Tensor = vectors * scale @ vectors.T
    return root


@torch.no_grad()
def linear_similarity(
    maps: Sequence[LinearMaps],
    fold_of_image: Tensor,
    images: Tensor,
    texts: Tensor,
    image_of_pair: Tensor,
    text_of_pair: Tensor,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return the cosine of image and text of each pair, by the maps of the image's fold.

    Args:
        maps: of each fold, as `fit_linear_maps` returns them.
        fold_of_image: (n,) int64; -1: an image of no fold, judged by the mean of all maps' cosines.
        images: (n, f).
        texts: (N, d).
        image_of_pair: (P,) int64 in [0, n), any pairs.
        text_of_pair: (P,) int64 in [0, N).
        block_bytes: memory beside inputs and result, unless one pair needs more.

    Returns:
        (P,) in [-1, 1], float32.
    """
    return by_folds(
        lambda of_fold, pairs, v, u: (v * u).sum(dim=1),
        maps, fold_of_image, images, texts, image_of_pair, text_of_pair, block_bytes,
    )  # fmt: skip


@torch.no_grad()
def by_folds(
    judge: Callable[[LinearMaps, Tensor, Tensor, Tensor], Tensor],
    maps: Sequence[LinearMaps],
    fold_of_image: Tensor,
    images: Tensor,
    texts: Tensor,
    image_of_pair: Tensor,
    text_of_pair: Tensor,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return what `judge` says of each pair, (P,) float32, by the maps of the image's fold.

    Args:
        judge: is given a fold's maps, the numbers (p,) of some pairs, their images and texts (p, k), of unit norm.
        maps: of each fold, as `fit_linear_maps` returns them.
        fold_of_image: (n,) int64; -1: an image of no fold, of which all maps judge, and the mean counts.
        images: (n, f).
        texts: (N, d).
        image_of_pair: (P,) int64 in [0, n), any pairs.
        text_of_pair: (P,) int64 in [0, N).
        block_bytes: memory beside inputs and result, unless one pair needs more.
    """
    check_index("fold_of_image", fold_of_image, len(images))
    check_index("image_of_pair", image_of_pair, len(image_of_pair), len(images))
    check_index("text_of_pair", text_of_pair, len(image_of_pair), len(texts))
    result = torch.zeros(len(image_of_pair), device=images.device)
    fold = fold_of_image[image_of_pair]
    width = images.shape[1] + texts.shape[1] + 4 * maps[0].correlations.numel()
    for number, of_fold in enumerate(maps):
        judged = ((fold == number) | (fold < 0)).nonzero().squeeze(1)
        for rows in blocks(len(judged), 4 * width, block_bytes):
            pairs = judged[rows]
            v = of_fold.embed_images(images[image_of_pair[pairs]])
            u = of_fold.embed_texts(texts[text_of_pair[pairs]])
            result[pairs] += judge(of_fold, pairs, v, u)
    return torch.where(fold < 0, result / len(maps), result)
