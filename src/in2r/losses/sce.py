"""Symmetric cross-entropy (Eq. 1), the warm-up loss: cross-entropy plus reverse cross-entropy to the given pair.

Legend: `similarity` is S, rows = images, columns = texts, S[i, i] the given pair; B = pairs in the batch,
C = candidates, D = dimension; tau = `temperature`, alpha = `ce_weight`, beta = `rce_weight`.
It is computed in float32 log-space for half inputs: exp(1 / 0.05) overflows float16.
"""

from typing import Literal

import torch
from torch import Tensor

from in2r.losses.checks import check_positive, check_square, reduce
from in2r.transfer import at_least_float32


def sce_loss(
    similarity: Tensor,
    temperature: float = 0.05,
    ce_weight: float = 1.0,
    rce_weight: float = 1.0,
    epsilon: float = 1e-7,
    reduction: Literal["mean", "none"] = "mean",
    ignore: Tensor | None = None,
) -> Tensor:
    """Warm-up loss: symmetric cross-entropy to the given pair, half of both directions.

    Eq. (1): L_sce(q, p) = alpha * H(q, p) + beta * H(p, q), H(a, b) = -sum a log b. The warm-up loss is
    1/2 [L_sce(y, p_i2t) + L_sce(y, p_t2i)], y one-hot on the diagonal, p = softmax(S / tau) over rows and
    over columns. In the reverse term log q is log(y + epsilon).

    Args:
        similarity: (B, B), the diagonal is the given pair.
        temperature: tau > 0.
        ce_weight: alpha >= 0, weight of the cross-entropy (InfoNCE).
        rce_weight: beta >= 0, weight of the reverse cross-entropy.
        epsilon: smoothing of the one-hot target in the reverse term, > 0.
        reduction: "mean" over the batch or "none".
        ignore: (B, B) bool; off-diagonal entries that leave both softmaxes.

    Returns:
        A scalar, or (B,): half of (row i + column i). Finite for a batch of one.

    Raises:
        ValueError: if `similarity` is not square, a value out of range, or an unknown option.
    """
    check_square(similarity, ignore)
    check_positive(temperature, epsilon)
    sims = at_least_float32(similarity)
    target = torch.eye(len(sims), dtype=sims.dtype, device=sims.device)
    ignore_t2i = None
    if ignore is not None:
        ignore = ignore & (target == 0)
        ignore_t2i = ignore.T
    i2t = sce_rows(target, sims / temperature, ce_weight, rce_weight, epsilon, ignore)
    t2i = sce_rows(target, sims.T / temperature, ce_weight, rce_weight, epsilon, ignore_t2i)
    return reduce((i2t + t2i) / 2, reduction)


def sce_rows(
    target: Tensor,
    logits: Tensor,
    ce_weight: float,
    rce_weight: float,
    epsilon: float,
    ignore: Tensor | None = None,
) -> Tensor:
    """Eq. (1) for each row: (B, C) target and logits to (B,); ignored entries leave the softmax."""
    if ignore is not None:
        logits = logits.masked_fill(ignore, float("-inf"))
    log_p = torch.log_softmax(logits, dim=1)
    p = log_p.exp()
    if ignore is not None:
        log_p = log_p.masked_fill(ignore, 0)  # 0 * -inf would be NaN
    forward = -(target * log_p).sum(dim=1)
    reverse = -(p * (target + epsilon).log()).sum(dim=1)
    return ce_weight * forward + rce_weight * reverse
