"""The hinge triplet loss with a margin of its own for each pair, from a soft label (NCR)."""

from typing import Literal

import torch
from torch import Tensor

from in2r.losses.checks import check_choice, check_square
from in2r.transfer import at_least_float32

Curve = Literal["exponential", "linear", "sine"]
Margins = Literal["own", "released"]


def soft_margin(labels: Tensor, margin: float = 0.2, curve: Curve = "exponential", base: float = 10.0) -> Tensor:
    """Turn soft labels into margins.

    α_i = α (m^{y_i} - 1) / (m - 1) ("exponential"), α y_i ("linear") or α/2 (sin(π y_i - π/2) + 1) ("sine").

    Args:
        labels: y, any shape, in [0, 1].
        margin: α, the margin of label 1.
        curve: which of the three.
        base: m > 1 of the exponential curve.

    Returns:
        Margins in [0, α], of the labels' shape.

    Raises:
        ValueError: for an unknown curve, or a base that is not above 1.
    """
    check_choice("curve", curve, ("exponential", "linear", "sine"))
    if base <= 1:
        raise ValueError(f"base must be greater than 1, got {base}")
    if curve == "exponential":
        return margin * (base**labels - 1) / (base - 1)
    if curve == "linear":
        return margin * labels
    return margin / 2 * (torch.sin(torch.pi * labels - torch.pi / 2) + 1)


def soft_margin_triplet_loss(
    similarity: Tensor,
    labels: Tensor,
    margin: float = 0.2,
    curve: Curve = "exponential",
    base: float = 10.0,
    margins: Margins = "own",
    reduction: Literal["sum", "none"] = "sum",
) -> Tensor:
    """Hinge loss against the hardest in-batch negatives, with each pair's own margin.

    Σ_i [α_i - S_ii + max_{j≠i} S_ij]_+ + [α_i - S_ii + max_{k≠i} S_ki]_+, α_i the margin of label y_i. With margins =
    "released" a caption's hinge has the margin of the negative image in place of its own pair's, as in the public code:
    max_{k≠i} [α_k - S_ii + S_ki]_+.

    Args:
        similarity: S (B, B), rows = images, the diagonal is the given pair.
        labels: y (B,) in [0, 1]; no gradient flows through them.
        margin: α, the margin of label 1.
        curve: how a label becomes a margin, see `soft_margin`.
        base: m of the exponential curve.
        margins: "own" or "released".
        reduction: "sum" over the batch, or "none".

    Returns:
        A scalar, or (B,): the cost of row i plus the cost of column i. Zero for a batch of one.

    Raises:
        ValueError: if `similarity` is not square, `labels` is not (B,), or for an unknown option.
    """
    check_choice("margins", margins, ("own", "released"))
    check_choice("reduction", reduction, ("sum", "none"))
    check_square(similarity, None)
    if labels.shape != (len(similarity),):
        raise ValueError(f"labels must be (B,) = ({len(similarity)},), got shape {tuple(labels.shape)}")
    sims = at_least_float32(similarity)
    alpha = soft_margin(at_least_float32(labels.detach()), margin, curve, base)
    positive = sims.diagonal()
    diagonal = torch.eye(len(sims), dtype=torch.bool, device=sims.device)
    of_captions = alpha[None, :] if margins == "own" else alpha[:, None]
    hinge_i2t = (alpha[:, None] + sims - positive[:, None]).clamp(min=0).masked_fill(diagonal, 0)
    hinge_t2i = (of_captions + sims - positive[None, :]).clamp(min=0).masked_fill(diagonal, 0)
    cost = hinge_i2t.amax(dim=1) + hinge_t2i.amax(dim=0)
    return cost.sum() if reduction == "sum" else cost
