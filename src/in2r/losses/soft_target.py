"""Rectification by a soft target: the target that a prototype gives (Eq. 10) and the loss towards it (Eq. 11).

Legend: `similarity` is S, rows = images, columns = texts, S[i, i] the given pair; B = pairs in the batch,
C = candidates, D = dimension; tau = `temperature`, alpha = `ce_weight`, beta = `rce_weight`.
"""

from typing import Literal

import torch
from torch import Tensor

from in2r.losses.checks import check_positive, reduce
from in2r.losses.sce import sce_rows
from in2r.transfer import at_least_float32, full_precision


def soft_target(prototype: Tensor, candidates: Tensor, temperature: float = 0.05) -> Tensor:
    """Distribution that a soft prototype gives over the candidates.

    Eq. (10): q_ij = softmax_j(t_hat_i . u_j / tau). The gradient reaches the prototype (and so the refiner);
    the candidates are detached, so that they are not drawn towards the target.

    Args:
        prototype: (B, D) unit-norm prototypes, t_hat or v_hat.
        candidates: (C, D) unit-norm embeddings of the candidates.
        temperature: tau > 0.

    Returns:
        (B, C) probabilities, each row sums to 1.

    Raises:
        ValueError: for a temperature that is not positive.
    """
    check_positive(temperature)
    # Autocast would take the product in half precision, and 1/tau magnifies that error twentyfold.
    with full_precision(prototype.device):
        logits = at_least_float32(prototype) @ at_least_float32(candidates.detach()).T
    return torch.softmax(logits / temperature, dim=1)


def rectification_loss(
    similarity: Tensor,
    target_i2t: Tensor,
    target_t2i: Tensor,
    temperature: float = 0.05,
    ce_weight: float = 1.0,
    rce_weight: float = 1.0,
    epsilon: float = 1e-7,
    reduction: Literal["mean", "none"] = "mean",
    similarity_t2i: Tensor | None = None,
) -> Tensor:
    """Symmetric cross-entropy to soft targets, half of both directions.

    Eq. (11): 1/2 [L_sce(q_i2t, p_i2t) + L_sce(q_t2i, p_t2i)]. Equals `sce_loss` when the targets are one-hot
    on the diagonal.

    Args:
        similarity: (B, C) images × candidate texts; C = B when the candidates are the batch itself.
        target_i2t: (B, C) q_i2t; row i belongs to image i, over the candidate texts.
        target_t2i: (B, C') q_t2i; row i belongs to text i, over the candidate images.
        temperature: tau > 0.
        ce_weight: alpha >= 0.
        rce_weight: beta >= 0.
        epsilon: smoothing of the target in the reverse term, > 0.
        reduction: "mean" over the batch or "none".
        similarity_t2i: (B, C') texts × candidate images, needed when there are more candidates than the
            batch; the transpose of `similarity` by default.

    Returns:
        A scalar, or (B,): half of (image i + text i). Gradients flow to the similarities and to the targets.

    Raises:
        ValueError: if a target's shape differs from its similarity's, a value is out of range, or an option unknown.
    """
    check_positive(temperature, epsilon)
    if similarity_t2i is None:
        similarity_t2i = similarity.T
    for name, target, sims in (
        ("target_i2t", target_i2t, similarity),
        ("target_t2i", target_t2i, similarity_t2i),
    ):
        if target.shape != sims.shape:
            raise ValueError(f"{name} has shape {tuple(target.shape)}, but its similarity has {tuple(sims.shape)}")
    i2t = at_least_float32(similarity) / temperature
    t2i = at_least_float32(similarity_t2i) / temperature
    cost = sce_rows(at_least_float32(target_i2t), i2t, ce_weight, rce_weight, epsilon)
    cost = cost + sce_rows(at_least_float32(target_t2i), t2i, ce_weight, rce_weight, epsilon)
    return reduce(cost / 2, reduction)
