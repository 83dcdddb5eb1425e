"""How well the pairs of a batch match, by the network that is trained (NCR's adaptive prediction)."""

import torch
from torch import Tensor


def matching_probability(similarity: Tensor, margin: float = 0.2) -> Tensor:
    """Return p_i = clamp(q_i / τ, 0, 1), q_i = clamp(α - l_i / 2, 0, α).

    l_i = 1/B Σ_j [α + S_ij - S_ii]_+ + 1/B Σ_k [α + S_ki - S_ii]_+, the diagonal counted as zero; τ is the mean of the
    ⌊B/10⌋ + 1 largest q of the batch.

    Args:
        similarity: S (B, B), rows = images, the diagonal is the given pair.
        margin: α.

    Returns:
        (B,) in [0, 1]. All zero where every q is zero, as of a collapsed network: 0 / 0 in the formula.

    Raises:
        ValueError: if `similarity` is not square.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"similarity must be a square matrix (B, B), got shape {tuple(similarity.shape)}")
    positive = similarity.diagonal()
    diagonal = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    i2t = (margin + similarity - positive[:, None]).clamp(min=0).masked_fill(diagonal, 0)
    t2i = (margin + similarity - positive[None, :]).clamp(min=0).masked_fill(diagonal, 0)
    quality = (margin - (i2t.mean(dim=1) + t2i.mean(dim=0)) / 2).clamp(0, margin)
    best = quality.topk(len(quality) // 10 + 1).values.mean()
    return (quality / best.clamp(min=torch.finfo(quality.dtype).tiny)).clamp(0, 1)
