"""The hinge triplet loss (Eqs. 2-4): the hardest negative, or the mean over all of them; both directions."""

from typing import Literal

import torch
from torch import Tensor

from in2r.losses.checks import check_choice, check_square
from in2r.transfer import at_least_float32

Negatives = Literal["hardest", "mean"]


def triplet_loss(
    similarity: Tensor,
    margin: float = 0.2,
    negatives: Negatives = "hardest",
    reduction: Literal["sum", "none"] = "sum",
    ignore: Tensor | None = None,
) -> Tensor:
    """Hinge loss against in-batch negatives, both directions.

    Eq. (2): sum_i [m - S_ii + max_{j != i} S_ij]_+ + [m - S_ii + max_{j != i} S_ji]_+. Eqs. (3) and (4) are
    this loss on image-text, image-image and text-text similarities. "mean" takes the mean of the hinges in
    place of their maximum, divided by B: the diagonal and ignored entries count as zeros.

    Args:
        similarity: (B, B), the diagonal is the given pair.
        margin: m, in units of cosine similarity.
        negatives: "hardest" (Eq. 2) or "mean".
        reduction: "sum" over the batch as in Eq. (2), or "none".
        ignore: (B, B) bool; off-diagonal entries that are no negatives, e.g. other captions of one image.

    Returns:
        A scalar, or (B,): the cost of row i plus the cost of column i. Zero for a batch of one.

    Raises:
        ValueError: if `similarity` is not square, or for an unknown option.
    """
    check_choice("negatives", negatives, ("hardest", "mean"))
    check_choice("reduction", reduction, ("sum", "none"))
    check_square(similarity, ignore)
    hinge_i2t, hinge_t2i = hinges(similarity, margin, margin, ignore)
    if negatives == "hardest":
        cost = hinge_i2t.amax(dim=1) + hinge_t2i.amax(dim=0)
    else:
        cost = hinge_i2t.mean(dim=1) + hinge_t2i.mean(dim=0)
    return cost.sum() if reduction == "sum" else cost


def hinges(
    similarity: Tensor, margin_i2t: Tensor | float, margin_t2i: Tensor | float, ignore: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the hinges of both directions, [m_ij + S_ij - S_ii]_+ and [m'_ij + S_ij - S_jj]_+.

    Args:
        similarity: (B, B), the diagonal is the given pair.
        margin_i2t: m, a number or of a shape that broadcasts to (B, B).
        margin_t2i: m', alike.
        ignore: (B, B) bool; further entries that are no negatives.

    Returns:
        Two (B, B), in at least float32, zero on the diagonal and where ignored: a negative that keeps its distance has
        zero too, so that an excluded entry never wins the maximum.
    """
    sims = at_least_float32(similarity)
    positive = sims.diagonal()
    excluded = torch.eye(len(sims), dtype=torch.bool, device=sims.device)
    if ignore is not None:
        excluded = excluded | ignore
    hinge_i2t = (margin_i2t + sims - positive[:, None]).clamp(min=0).masked_fill(excluded, 0)
    hinge_t2i = (margin_t2i + sims - positive[None, :]).clamp(min=0).masked_fill(excluded, 0)
    return hinge_i2t, hinge_t2i
