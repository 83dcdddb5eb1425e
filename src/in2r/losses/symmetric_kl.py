"""The divergence between a batch's softmaxes and a transport plan, both ways and both directions (L2RM)."""

import torch
from torch import Tensor

from in2r.losses.checks import check_positive
from in2r.transfer import at_least_float32

FLOOR = 1e-10
"""Smallest probability: log of zero is not finite (released code)."""


def symmetric_kl_loss(similarity: Tensor, plan: Tensor, temperature: float = 0.05) -> Tensor:
    """Return L_SKL = ½ [KL(qʳ‖pʳ) + KL(qᶜ‖pᶜ) + KL(pʳ‖qʳ) + KL(pᶜ‖qᶜ)], each a mean over its distributions.

    pʳ = softmax of S / τ over each row, pᶜ over each column; qʳ, qᶜ = the plan, floored and normalised over each row
    and column.

    Args:
        similarity: S (Q, B), images × captions; the gradient flows through it.
        plan: π (Q, B) ≥ 0; a constant.
        temperature: τ > 0.

    Returns:
        A scalar ≥ 0.

    Raises:
        ValueError: if the shapes differ, or the temperature is not positive.
    """
    check_positive(temperature)
    if similarity.shape != plan.shape or similarity.ndim != 2:
        shapes = f"{tuple(similarity.shape)} and {tuple(plan.shape)}"
        raise ValueError(f"similarity and plan must both be (Q, B), got {shapes}")
    logits = at_least_float32(similarity) / temperature
    floored = at_least_float32(plan.detach()).clamp(min=FLOOR)
    return (_both_ways(logits, floored) + _both_ways(logits.T, floored.T)) / 2


def _both_ways(logits: Tensor, plan: Tensor) -> Tensor:
    """Return KL(q‖p) + KL(p‖q), the mean over rows."""
    log_p = torch.log_softmax(logits, dim=1)
    p, q = log_p.exp(), plan / plan.sum(dim=1, keepdim=True)
    log_p, log_q = log_p.clamp(min=torch.tensor(FLOOR).log().item()), q.clamp(min=FLOOR).log()
    return ((q - p) * (log_q - log_p)).sum(dim=1).mean()
