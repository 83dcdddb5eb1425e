"""Rectification as the released code has it: the prototype is the positive of a contrastive loss."""

from typing import Literal

import torch
from torch import Tensor

from in2r.losses.checks import check_positive, check_square, reduce
from in2r.losses.sce import sce_rows
from in2r.transfer import at_least_float32


def prototype_contrast_loss(
    image_to_prototype: Tensor,
    text_to_prototype: Tensor,
    temperature: float = 0.05,
    ce_weight: float = 1.0,
    rce_weight: float = 1.0,
    epsilon: float = 1e-7,
    reduction: Literal["mean", "none"] = "mean",
    ignore: Tensor | None = None,
) -> Tensor:
    """Released variant of the rectification loss: each sample's own prototype is the positive among all.

    1/2 [L_sce(y, softmax_j(v_i . t_hat_j / tau)) + L_sce(y, softmax_j(u_i . v_hat_j / tau))], y one-hot on
    the diagonal, L_sce of Eq. (1).

    Args:
        image_to_prototype: (B, B) v_i . t_hat_j.
        text_to_prototype: (B, B) u_i . v_hat_j (rows = texts).
        temperature: tau > 0.
        ce_weight: alpha >= 0.
        rce_weight: beta >= 0.
        epsilon: smoothing of the one-hot target in the reverse term, > 0.
        reduction: "mean" over the batch or "none".
        ignore: (B,) bool; prototypes that are no sample's negative.

    Returns:
        A scalar, or (B,). Gradients flow to embeddings and prototypes alike.

    Raises:
        ValueError: if the similarities are not square and of one shape, a value is out of range, or an option unknown.
    """
    check_square(image_to_prototype, None)
    check_positive(temperature, epsilon)
    if text_to_prototype.shape != image_to_prototype.shape:
        shapes = f"{tuple(image_to_prototype.shape)} and {tuple(text_to_prototype.shape)}"
        raise ValueError(f"both similarities must have one shape, got {shapes}")
    sims = [at_least_float32(s) / temperature for s in (image_to_prototype, text_to_prototype)]
    own = torch.eye(len(image_to_prototype), dtype=sims[0].dtype, device=sims[0].device)
    absent = None if ignore is None else ignore[None, :] & (own == 0)
    i2t, t2i = (sce_rows(own, s, ce_weight, rce_weight, epsilon, absent) for s in sims)
    return reduce((i2t + t2i) / 2, reduction)
