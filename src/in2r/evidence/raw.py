"""Evidence without learning: a caption is like the other captions of its image, and like those of similar images.

Legend: n = images, N = captions, d = width of a text vector, f = of an image vector; c = cosine of two captions, p =
`prob`, how likely each pair belongs together so far, T = `temperature`. Vectors are taken less their mean over the set.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from in2r.evidence.vectors import (
    BLOCK_BYTES,
    blocks,
    centred,
    check_index,
    check_matrix,
    check_positive,
    check_weights,
    check_whole,
)
from in2r.transfer import full_precision

COPIES = 4
"""Of a block of cosines: the cosines, their kernel, and what is made of them."""
MOST_ROWS = 256
"""Captions compared at a time with those of their own images: more of them meet more captions of other images."""
WIDTH = 128
"""Captions of neighbours looked at in one go; typically all that an image has."""
DEPTH = 8
"""Captions of an image judged in one go."""


def has_other_captions(image_of_text: Tensor) -> Tensor:
    """Return (N,) bool: whether another caption has the same image. Where none has, `own_caption_evidence` is empty."""
    image = image_of_text.sort().values
    first, end = (torch.searchsorted(image, image_of_text, right=right) for right in (False, True))
    return end - first > 1


@torch.no_grad()
def own_caption_evidence(
    texts: Tensor,
    image_of_text: Tensor,
    prob: Tensor,
    temperature: float = 0.1,
    floor: float = 1e-5,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return how much the other captions of its image support each caption.

    log(floor + sum_t' p_t' e^((c_tt' - 1) / T)), over the other captions t' of t's image.

    Args:
        texts: (N, d) vectors of the captions, of any length.
        image_of_text: (N,) int64, any numbers.
        prob: (N,) p >= 0.
        temperature: T > 0.
        floor: > 0, what counts as no support at all.
        block_bytes: memory beside a centred copy of the texts and small columns, unless one row needs more.

    Returns:
        (N,) in at least float32; log(floor) for a caption that is its image's only one (see `has_other_captions`).

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature=temperature, floor=floor, block_bytes=block_bytes)
    check_matrix("texts", texts)
    check_index("image_of_text", image_of_text, len(texts))
    check_weights("prob", prob, len(texts))
    # In order of their images, the captions of an image follow each other: a block of rows meets one range of columns.
    image, order = image_of_text.sort(stable=True)
    x = centred(texts)
    p = prob.to(x.dtype)
    first, end = (torch.searchsorted(image, image, right=right) for right in (False, True))
    most = int((end - first).max()) if len(x) else 0
    support = torch.zeros_like(p)
    row_bytes = (COPIES * (2 * most + MOST_ROWS) + 2 * x.shape[1]) * x.element_size()
    for rows in blocks(len(x), row_bytes, block_bytes, MOST_ROWS):
        columns = slice(int(first[rows.start]), int(end[rows.stop - 1]))
        others = image[rows, None] == image[columns]
        others.diagonal(rows.start - columns.start).fill_(False)  # a caption does not support itself
        with full_precision(x.device):
            kernel = ((x[order[rows]] @ x[order[columns]].T - 1) / temperature).exp()
            support[order[rows]] = (kernel * others) @ p[order[columns]]
    return (floor + support).log()


@torch.no_grad()
def neighbor_evidence(
    images: Tensor,
    texts: Tensor,
    image_of_text: Tensor,
    prob: Tensor,
    neighbors: int = 20,
    temperature: float = 0.1,
    floor: float = 1e-6,
    placed: Tensor | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return how much the captions of similar images support each caption.

    log(floor + sum_t' w_t' e^((c_tt' - 1) / T) / sum_t' w_t'), over the captions t' of the images j nearest to t's
    image i, itself left out; w_t' = p_t' e^(cos_ij / T). Which of equally near images are taken is not said.

    Args:
        images: (n, f) what is known of the images without learning, such as the mean of the regions.
        texts: (N, d) vectors of the captions, of any length.
        image_of_text: (N,) int64 in [0, n).
        prob: (N,) p >= 0.
        neighbors: images that are looked at, >= 1; all others if there are fewer.
        temperature: T > 0, of the captions and of the images.
        floor: > 0, what counts as no support at all.
        placed: (N,) int64 in [0, N), the caption that is judged in the place of each; None: itself. A random order says
            how mismatched pairs look.
        block_bytes: memory beside centred copies of the inputs and small columns, unless one row needs more.

    Returns:
        (N,) in at least float32; log(floor) where the neighbours' captions have no weight.

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature=temperature, floor=floor, block_bytes=block_bytes)
    check_whole(neighbors=neighbors)
    check_matrix("images", images)
    check_matrix("texts", texts)
    check_index("image_of_text", image_of_text, len(texts), len(images))
    check_weights("prob", prob, len(texts))
    if placed is not None:
        check_index("placed", placed, len(texts), len(texts))
    x = centred(texts)
    p = prob.to(x.dtype)
    near, closeness = _nearest(centred(images), neighbors, temperature, block_bytes)
    closeness = closeness.to(x.dtype)
    order = image_of_text.argsort(stable=True)
    counts = image_of_text.bincount(minlength=len(images))
    first = counts.cumsum(0) - counts  # image i has the captions order[first_i : first_i + counts_i]
    result = torch.empty_like(p)
    row_bytes = ((WIDTH + DEPTH) * x.shape[1] + COPIES * WIDTH * DEPTH) * x.element_size()
    for rows in blocks(len(images), row_bytes, block_bytes):
        near_first, near_counts = first[near[rows]], counts[near[rows]]  # (b, k)
        for own, judged, _ in _in_turn(first[rows, None], counts[rows, None], DEPTH):  # (b, R)
            y = x[order[own] if placed is None else placed[order[own]]]
            seen, total = y.new_zeros(own.shape), y.new_zeros(len(own), 1)
            for position, valid, place in _in_turn(near_first, near_counts, WIDTH):  # (b, W)
                other = order[position]
                weight = p[other] * closeness[rows].gather(1, place) * valid
                with full_precision(x.device):
                    kernel = ((y @ x[other].mT - 1) / temperature).exp()  # (b, R, W)
                    seen += (kernel @ weight[:, :, None]).squeeze(2)
                total += weight.sum(dim=1, keepdim=True)
            mean = seen / total.clamp(min=torch.finfo(x.dtype).tiny)
            result[order[own[judged]]] = (floor + mean).log()[judged]
    return result


def _nearest(x: Tensor, neighbors: int, temperature: float, block_bytes: int) -> tuple[Tensor, Tensor]:
    """Return the k images of largest cosine to each other image (n, k), and e^((cos - the largest cos) / T)."""
    k = max(0, min(neighbors, len(x) - 1))
    near, cosine = torch.empty(len(x), k, dtype=torch.int64, device=x.device), x.new_empty(len(x), k)
    for rows in blocks(len(x), COPIES * len(x) * x.element_size(), block_bytes):
        with full_precision(x.device):
            cosines = x[rows] @ x.T
        cosines.diagonal(rows.start).fill_(-torch.inf)
        cosine[rows], near[rows] = cosines.topk(k)
    # Only ratios matter; relative to the nearest one they do not underflow.
    return near, ((cosine - cosine[:, :1]) / temperature).exp()


def _in_turn(first: Tensor, counts: Tensor, width: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Walk through the positions first_s, ..., first_s + counts_s - 1 of all segments s of each row, `width` at a time.

    Args:
        first: (b, k) int64.
        counts: (b, k) int64 >= 0.
        width: positions of a row in one go.

    Yields:
        (b, W <= width) positions, whether the row has that many, and their segments; 0 stands for absent positions.
    """
    ends = counts.cumsum(dim=1)
    most = int(ends.max()) if ends.numel() else 0
    for start in range(0, most, width):
        number = torch.arange(start, min(start + width, most), device=first.device).expand(len(first), -1).contiguous()
        segment = torch.searchsorted(ends, number, right=True)
        valid = segment < counts.shape[1]
        segment = segment.clamp(max=counts.shape[1] - 1)
        position = number + (first - ends + counts).gather(1, segment)
        yield position.masked_fill(~valid, 0), valid, segment
