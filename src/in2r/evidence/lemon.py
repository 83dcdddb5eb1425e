"""LEMoN, a published score of mislabelled pairs, as a baseline (Zhang et al., ICML 2025, arXiv:2407.18941).

Legend: x, y = the image and the caption of a judged pair; d = 1 - cosine; n = the k pairs whose images are nearest to
x, m = the k pairs whose captions are nearest to y.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

NEIGHBORS = 30
"""k of the published fixed setting, which needs no labels; the constants below are of it too"""
BETA, GAMMA = 5.0, 5.0
"""weights of both sides"""
TAU_1, TAU_2 = 0.1, 5.0
"""how fast neighbours lose weight that are far, and neighbours whose own image and caption are"""


@dataclass(frozen=True)
class Side:
    """Neighbours of P judged pairs on one side, K >= k of them, the nearest first.

    Attributes:
        near: (P, K) cosine of the judged item and the neighbour's on this side; -inf where it may not be asked.
        cosine: (P, K) cosine of both on the other side.
        similarity: (P, K) cosine of the neighbour's own image and caption, in a space that both share.
    """

    near: Tensor
    cosine: Tensor
    similarity: Tensor


@torch.no_grad()
def lemon(similarity: Tensor, by_image: Side, by_text: Side) -> Tensor:
    """Return LEMoN's score of P pairs with its sign turned, (P,): larger = better.

    -[d(x, y) + β / k Σ_n d(y, y_n) e^(-τ₁ d(x, x_n)) e^(-τ₂ d(x_n, y_n))
              + γ / k Σ_m d(x, x_m) e^(-τ₁ d(y, y_m)) e^(-τ₂ d(x_m, y_m))]

    Departs from the paper: k is the number of neighbours that may be asked, where there are fewer than 30. Its authors'
    code has -cosine in place of d in the weight of τ₁, by which both sums are 1.1 times as large.

    Args:
        similarity: (P,) cosine of image and caption, in the space that both share.
        by_image: the neighbours n.
        by_text: the neighbours m.

    Returns:
        NaN where no neighbour may be asked on one side.
    """
    return -(1 - similarity + BETA * _distance(by_image) + GAMMA * _distance(by_text))


def _distance(side: Side) -> Tensor:
    asked = side.near > -torch.inf
    asked &= asked.cumsum(dim=1) <= NEIGHBORS
    weight = torch.exp(-TAU_1 * (1 - side.near)) * torch.exp(-TAU_2 * (1 - side.similarity)) * asked
    return ((1 - side.cosine) * weight).sum(dim=1) / asked.sum(dim=1)
