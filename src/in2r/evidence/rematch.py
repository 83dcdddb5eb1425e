"""Which other image a caption may belong to, where its given one is doubted."""

from collections.abc import Sequence

import torch
from torch import Tensor

from in2r.evidence.vectors import (
    BLOCK_BYTES,
    blocks,
    centred,
    check_finite,
    check_index,
    check_matrix,
    check_positive,
    check_whole,
)
from in2r.transfer import at_least_float32, full_precision

COPIES = 5
"""Of a block over the images, beside each network's similarities: their mean, R, the logits, a log-sum-exp."""


@torch.no_grad()
def best_other_image(
    images: Sequence[Tensor],
    texts: Sequence[Tensor],
    queries: Tensor,
    given: Tensor,
    vectors: Tensor,
    image_of_text: Tensor,
    trusted: Tensor,
    temperature: float = 0.05,
    raw_weight: float = 10.0,
    floor: float = -0.2,
    top: int = 5,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[Tensor, Tensor]:
    """Return the most likely images of captions, their given ones left out.

    P(i | t) = softmax_i(mean_k u_kt . v_ki / tau + raw_weight R(t, i)) over all images but the given one, k = networks;
    R(t, i) = max(floor, largest cosine of t with a trusted caption of image i), of raw vectors less their mean.

    Args:
        images: per network (n, D) embeddings v_k.
        texts: per network (N, D) embeddings u_k of all captions.
        queries: (q,) int64 in [0, N), the captions asked about.
        given: (q,) int64 in [0, n), the image to leave out for each.
        vectors: (N, d) raw vectors of all captions, of any length.
        image_of_text: (N,) int64 in [0, n), the given image of each caption.
        trusted: (N,) bool, whether that one is believed.
        temperature: tau > 0.
        raw_weight: weight of the raw evidence, >= 0; 0 leaves it out.
        floor: in [-1, 1], R of an image without a trusted caption, and the least of all.
        top: images per caption, >= 1.
        block_bytes: memory beside a centred copy of the vectors and the result, unless one query needs more.

    Returns:
        (q, k) int64 images, most likely first, and (q, k) their P(i | t) in at least float32; k = min(top, n - 1). What
        is missing to 1 lies with the images not named. Which of equally likely images are taken is not said.

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature=temperature, block_bytes=block_bytes)
    check_whole(top=top)
    if not (-1 <= floor <= 1 and 0 <= raw_weight < torch.inf):
        raise ValueError(f"floor must be in [-1, 1] and raw_weight at least 0, got {floor} and {raw_weight}")
    _check(images, texts, queries, given, vectors, image_of_text, trusted)
    count = len(images[0])
    v = [at_least_float32(side) for side in images]
    x = centred(vectors)
    owner, believed = image_of_text[trusted], x[trusted]
    k = min(top, count - 1)
    ids = torch.empty(len(queries), k, dtype=torch.int64, device=x.device)
    prob = v[0].new_empty(len(queries), k)
    row_bytes = ((COPIES + len(v)) * count + 2 * len(owner)) * v[0].element_size()
    for rows in blocks(len(queries), row_bytes, block_bytes):
        query = queries[rows]
        with full_precision(x.device):
            learnt = torch.stack([u[query].to(w.dtype) @ w.T for u, w in zip(texts, v, strict=True)]).mean(dim=0)
            cosines = x[query] @ believed.T
        raw = cosines.new_full(learnt.shape, floor)
        raw.scatter_reduce_(1, owner.expand_as(cosines), cosines, "amax")
        logits = learnt / temperature + raw_weight * raw
        logits.scatter_(1, given[rows, None], -torch.inf)
        best, ids[rows] = logits.topk(k)
        prob[rows] = (best - logits.logsumexp(dim=1, keepdim=True)).exp()
    return ids, prob


def _check(
    images: Sequence[Tensor],
    texts: Sequence[Tensor],
    queries: Tensor,
    given: Tensor,
    vectors: Tensor,
    image_of_text: Tensor,
    trusted: Tensor,
) -> None:
    if not images or len(images) != len(texts):
        raise ValueError(f"images and texts must be of the same networks, got {len(images)} and {len(texts)}")
    for v, u in zip(images, texts, strict=True):
        check_matrix("images", v)
        check_matrix("texts", u, v.shape[1])
        check_finite("images", v)
        check_finite("texts", u)
        if len(v) != len(images[0]) or len(u) != len(vectors):
            raise ValueError("all networks must encode the same images and captions, and vectors hold these captions")
    check_matrix("vectors", vectors)
    check_index("image_of_text", image_of_text, len(vectors), len(images[0]))
    check_index("queries", queries, len(queries), len(vectors))
    check_index("given", given, len(queries), len(images[0]))
    if trusted.shape != image_of_text.shape or trusted.dtype != torch.bool:
        found = f"{trusted.dtype} of shape {tuple(trusted.shape)}"
        raise ValueError(f"trusted must be torch.bool of shape {tuple(image_of_text.shape)}, got {found}")
