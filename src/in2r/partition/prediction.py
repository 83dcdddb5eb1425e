"""How well the given pairs of a batch match, by the network that is trained (NCR's adaptive prediction)."""

import torch
from torch import Tensor

from in2r.transfer import at_least_float32


def matching_probability(similarity: Tensor, margin: float = 0.2) -> Tensor:
    """Predict from in-batch hinges how likely each given pair matches.

    p_i = clamp(q_i / tau, 0, 1), q_i = clamp(alpha - l_i / 2, 0, alpha),
    l_i = 1/B sum_{j != i} [alpha + S_ij - S_ii]_+ + 1/B sum_{k != i} [alpha + S_ki - S_ii]_+, tau the mean of the
    floor(B/10) + 1 largest q of the batch.

    Args:
        similarity: (B, B), rows = images, columns = texts, the diagonal is the given pair; B >= 1.
        margin: alpha > 0.

    Returns:
        (B,) p in [0, 1], in at least float32, without gradient; 1 for a batch of one. All zeros when tau = 0, where the
        formula is 0/0: no pair keeps any distance from its negatives. NCR's label w + (1 - w) p then is w.

    Raises:
        ValueError: if `similarity` is not (B, B) of at least one pair, or `margin` is not positive.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1] or not len(similarity):
        raise ValueError(f"similarity must be a square matrix (B, B), B >= 1, got shape {tuple(similarity.shape)}")
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}")
    sims = at_least_float32(similarity.detach())
    positive, own = sims.diagonal(), torch.eye(len(sims), dtype=torch.bool, device=sims.device)
    hinge_i2t = (margin + sims - positive[:, None]).clamp(min=0).masked_fill(own, 0)
    hinge_t2i = (margin + sims - positive[None, :]).clamp(min=0).masked_fill(own, 0)
    quality = (margin - (hinge_i2t.mean(dim=1) + hinge_t2i.mean(dim=0)) / 2).clamp(min=0)
    best = quality.topk(len(sims) // 10 + 1).values.mean()
    return (quality / best.clamp(min=torch.finfo(sims.dtype).tiny)).clamp(max=1)
