"""The symmetric divergence between the batch's softmaxes and a transport plan (L2RM)."""

import torch
from torch import Tensor

from in2r.losses.checks import check_positive
from in2r.transfer import at_least_float32

FLOOR = 1e-10
"""Added to the plan's zeros before their logarithm (released code)."""


def symmetric_kl_loss(similarity: Tensor, plan: Tensor, temperature: float = 0.05) -> Tensor:
    """Symmetric Kullback-Leibler divergence between matching probabilities and a plan, half of both directions.

    L_SKL = 1/2 [J(q_i2t, p_i2t) + J(q_t2i, p_t2i)], J(q, p) = KL(q || p) + KL(p || q) = sum (q - p) (log q - log p).
    p_i2t = softmax of S / tau over each row, p_t2i over each column; q = max(plan, 1e-10), normalised over each row and
    over each column. A row or column of zeros in the plan becomes uniform. Each J is the mean over its rows or columns.

    Args:
        similarity: (Q, B) S, images × texts. They need be no pairs, so there is no cost per pair to return.
        plan: (Q, B) >= 0, such as `partition.partial_transport` returns; no gradient flows to it.
        temperature: tau > 0.

    Returns:
        A scalar >= 0.

    Raises:
        ValueError: if the shapes differ or are not (Q, B) of at least one image and one text, or the temperature is
            not positive.
    """
    check_positive(temperature)
    if similarity.ndim != 2 or similarity.shape != plan.shape or not similarity.numel():
        shapes = f"{tuple(similarity.shape)} and {tuple(plan.shape)}"
        raise ValueError(f"similarity and plan must have one shape (Q, B) with Q, B >= 1, got {shapes}")
    logits = at_least_float32(similarity) / temperature
    target = at_least_float32(plan.detach()).clamp(min=FLOOR)
    return (_divergence(logits, target, dim=1) + _divergence(logits, target, dim=0)) / 2


def _divergence(logits: Tensor, target: Tensor, dim: int) -> Tensor:
    """Return J of the distributions along `dim`, the mean over them."""
    log_p = torch.log_softmax(logits, dim)
    q = target / target.sum(dim, keepdim=True)
    return ((q - log_p.exp()) * (q.log() - log_p)).sum(dim).mean()
