"""Learnt evidence: how well a caption finds its image, and the image its caption, among all of the training set."""

import torch
from torch import Tensor

from in2r.evidence.vectors import BLOCK_BYTES, blocks, check_finite, check_index, check_matrix, check_positive
from in2r.transfer import at_least_float32, full_precision

COPIES = 3
"""Of a block of logits: the logits, and what a log-sum-exp keeps beside them."""


@torch.no_grad()
def whole_set_log_posterior(
    images: Tensor, texts: Tensor, image_of_text: Tensor, temperature: float = 0.05, block_bytes: int = BLOCK_BYTES
) -> Tensor:
    """Return log p(i | t) + log p(t | i) of each given pair, both softmaxes over the whole set.

    p(i | t) = exp(u_t . v_i / tau) / sum_i' exp(u_t . v_i' / tau) over all n images, p(t | i) alike over all N texts.
    One pass over blocks of captions: an image's sum over the captions is carried on as a log-sum-exp.

    Args:
        images: (n, D) embeddings v.
        texts: (N, D) embeddings u.
        image_of_text: (N,) int64 in [0, n).
        temperature: tau > 0.
        block_bytes: memory beside inputs and result, unless one caption's n logits need more. It changes the result by
            rounding only.

    Returns:
        (N,) <= 0, in at least float32; larger = more likely to belong together.

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature=temperature, block_bytes=block_bytes)
    check_matrix("images", images)
    check_matrix("texts", texts, images.shape[1])
    check_finite("images", images)
    check_finite("texts", texts)
    check_index("image_of_text", image_of_text, len(texts), len(images))
    v = at_least_float32(images)
    own, over_images = (v.new_empty(len(texts)) for _ in range(2))
    over_texts = v.new_full((len(images),), -torch.inf)
    with full_precision(v.device):
        for rows in blocks(len(texts), COPIES * len(images) * v.element_size(), block_bytes):
            logits = texts[rows].to(v.dtype) @ v.T / temperature
            own[rows] = logits.gather(1, image_of_text[rows, None]).squeeze(1)
            over_images[rows] = logits.logsumexp(dim=1)
            over_texts = torch.logaddexp(over_texts, logits.logsumexp(dim=0))
    return (own - over_images) + (own - over_texts[image_of_text])
