"""The hinge triplet loss with a margin for each pair, which its soft label gives (NCR)."""

from typing import Literal

import torch
from torch import Tensor

from in2r.losses.checks import check_choice, check_square
from in2r.losses.triplet import hinges
from in2r.transfer import at_least_float32

Curve = Literal["exponential", "linear", "sine"]
Margins = Literal["own", "released"]


def soft_margin(
    labels: Tensor,
    margin: float = 0.2,
    curve: Curve = "exponential",
    base: float = 10.0,
    through_labels: bool = False,
) -> Tensor:
    """Turn soft labels into margins.

    alpha_i = alpha (m^y_i - 1) / (m - 1) for "exponential", alpha y_i for "linear",
    alpha (sin(pi y_i - pi/2) + 1) / 2 for "sine". Label 0 gives margin 0, label 1 gives alpha.

    Args:
        labels: y of any shape, in [0, 1].
        margin: alpha, in units of cosine similarity.
        curve: which of the three.
        base: m > 1 of the exponential curve. The larger it is, the smaller is the margin of a doubtful pair.
        through_labels: a gradient flows to the labels (a slip of PC²'s released code: lower labels lower the loss).

    Returns:
        Margins in [0, alpha], in the shape of `labels`, in at least float32.

    Raises:
        ValueError: for an unknown curve, or a base that is not above 1.
    """
    check_choice("curve", curve, ("exponential", "linear", "sine"))
    if not base > 1:
        raise ValueError(f"base must be greater than 1, got {base}")
    y = at_least_float32(labels if through_labels else labels.detach())
    if curve == "exponential":
        share = (base**y - 1) / (base - 1)
    elif curve == "linear":
        share = y
    else:
        share = (torch.sin(torch.pi * (y - 0.5)) + 1) / 2
    return margin * share


def soft_margin_triplet_loss(
    similarity: Tensor,
    labels: Tensor,
    margin: float = 0.2,
    curve: Curve = "exponential",
    base: float = 10.0,
    margins: Margins = "own",
    reduction: Literal["sum", "none"] = "sum",
    ignore: Tensor | None = None,
    through_labels: bool = False,
) -> Tensor:
    """Hinge loss against the hardest in-batch negatives, both directions, each pair with its own margin.

    sum_i [alpha_i - S_ii + max_{j != i} S_ij]_+ + [alpha_i - S_ii + max_{k != i} S_ki]_+, alpha_i the margin of label
    y_i. Equals `triplet_loss` when every label is 1.

    The released code gives the hinge of text i the margins of its negative images in place of its own:
    max_{k != i} [alpha_k - S_ii + S_ki]_+. That is margins = "released".

    Args:
        similarity: (B, B), the diagonal is the given pair.
        labels: (B,) y in [0, 1].
        margin: alpha, the margin of label 1.
        curve: how a label becomes a margin, see `soft_margin`.
        base: m > 1 of the exponential curve.
        margins: "own" (paper) or "released".
        reduction: "sum" over the batch, or "none".
        ignore: (B, B) bool; off-diagonal entries that are no negatives, e.g. other captions of one image.
        through_labels: a gradient flows to the labels, see `soft_margin`.

    Returns:
        A scalar, or (B,): the cost of row i plus the cost of column i. Zero for a batch of one.

    Raises:
        ValueError: if `similarity` is not square, `labels` are not (B,), the base is not above 1, or for an unknown
            option.
    """
    check_choice("margins", margins, ("own", "released"))
    check_choice("reduction", reduction, ("sum", "none"))
    check_square(similarity, ignore)
    if labels.shape != similarity.shape[:1]:
        # (B, 1) would broadcast, and give text i the margins of other pairs: the fault of the released code
        raise ValueError(f"labels must have shape {tuple(similarity.shape[:1])}, got {tuple(labels.shape)}")
    alpha = soft_margin(labels, margin, curve, base, through_labels)
    hinge_i2t, hinge_t2i = hinges(similarity, alpha[:, None], alpha if margins == "own" else alpha[:, None], ignore)
    cost = hinge_i2t.amax(dim=1) + hinge_t2i.amax(dim=0)
    return cost.sum() if reduction == "sum" else cost
