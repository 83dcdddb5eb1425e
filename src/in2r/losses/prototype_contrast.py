"""Rectification as the released code has it: the prototype is the positive of a contrastive loss."""

from typing import Literal

from torch import Tensor

from in2r.losses.sce import sce_loss


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
    """Released variant of the rectification loss: sample and own prototype are each other's positive among all.

    1/2 [L(v_i . t_hat_j) + L(u_i . v_hat_j)], L = the symmetric loss of Eq. (1), half of rows (a sample among the
    prototypes) and half of columns (a prototype among the samples), the diagonal as target.

    Args:
        image_to_prototype: (B, B) v_i . t_hat_j.
        text_to_prototype: (B, B) u_i . v_hat_j (rows = texts).
        temperature: tau > 0.
        ce_weight: alpha >= 0.
        rce_weight: beta >= 0.
        epsilon: smoothing of the one-hot target in the reverse term, > 0.
        reduction: "mean" over the batch or "none".
        ignore: (B,) bool; pairs without a prototype: they are no negatives of the others.

    Returns:
        A scalar, or (B,). Gradients flow to embeddings and prototypes alike.

    Raises:
        ValueError: if the similarities are not square and of one shape, a value is out of range, or an option unknown.
    """
    if text_to_prototype.shape != image_to_prototype.shape:
        shapes = f"{tuple(image_to_prototype.shape)} and {tuple(text_to_prototype.shape)}"
        raise ValueError(f"both similarities must have one shape, got {shapes}")
    absent = None if ignore is None else ignore[None, :] | ignore[:, None]
    i2t, t2i = (
        sce_loss(similarity, temperature, ce_weight, rce_weight, epsilon, reduction, absent)
        for similarity in (image_to_prototype, text_to_prototype)
    )
    return (i2t + t2i) / 2
