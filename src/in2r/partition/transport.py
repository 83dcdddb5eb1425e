"""Partial optimal transport: the part of a batch that is matched anew, at the lowest cost (L2RM)."""

import torch
from torch import Tensor

FORBIDDEN = -1e6
"""log-kernel of a forbidden entry (released code)"""
TINY = 1e-10
"""added inside the logarithm of a sum (released code)"""


def partial_transport(
    cost: Tensor,
    mass: float = 0.1,
    regularisation: float = 0.07,
    given: Tensor | None = None,
    max_iter: int = 1000,
    tol: float = 1e-3,
) -> Tensor:
    """Return the plan π (Q, B) that moves a share of uniform mass between images and captions at the lowest cost.

    One dummy row and one dummy column take the mass that is not moved: C~ = [[C, ξ], [ξ, 2 ξ + A]], A = max C,
    ξ = 100 A, marginals [1/Q ..., 1 - s] and [1/B ..., 1 - s] with s = `mass`. Entropic regularisation ε, Sinkhorn in
    log-domain: u += ε (log p - LSE_j K), v += ε (log q - LSE_i K), K_ij = (-C~_ij + u_i + v_j) / ε, until
    ‖Δu‖₂ < `tol`.

    Args:
        cost: C (Q, B) ≥ 0, finite.
        mass: s in (0, 1].
        regularisation: ε > 0.
        given: (Q, B) bool, entries that are forbidden, such as the given false pairs; None = none.
        max_iter: largest number of rounds.
        tol: bound on the change of u at which it stops; each round looks at it, which waits for the device.

    Returns:
        (Q, B) float32 ≥ 0; it stops early, so that its sum is `mass` only about.

    Raises:
        ValueError: for a cost that is no matrix or not finite, or a value out of range.
    """
    if cost.ndim != 2 or (given is not None and given.shape != cost.shape):
        raise ValueError(f"cost must be (Q, B) and `given` of its shape, got {tuple(cost.shape)}")
    if not 0 < mass <= 1 or regularisation <= 0:
        raise ValueError(f"mass must be in (0, 1] and regularisation positive, got {mass} and {regularisation}")
    costs = cost.detach().double()
    if not costs.isfinite().all():
        raise ValueError("cost holds a value that is not finite")
    images, captions = costs.shape
    most = costs.max()
    dummy = 100 * most
    extended = torch.nn.functional.pad(costs, (0, 1, 0, 1))
    extended[:-1, -1], extended[-1, :-1], extended[-1, -1] = dummy, dummy, 2 * dummy + most
    allowed = extended.new_ones(extended.shape, dtype=torch.bool)
    if given is not None:
        allowed[:-1, :-1] = ~given
    rest = costs.new_full((1,), 1 - mass)
    log_p = torch.cat([costs.new_full((images,), 1 / images), rest]).log()
    log_q = torch.cat([costs.new_full((captions,), 1 / captions), rest]).log()
    u, v = torch.zeros_like(log_p), torch.zeros_like(log_q)

    def kernel() -> Tensor:
        return ((u[:, None] + v[None, :] - extended) / regularisation).masked_fill(~allowed, FORBIDDEN)

    for _ in range(max_iter):
        before = u
        u = u + regularisation * (log_p - _log_sum(kernel(), 1))
        v = v + regularisation * (log_q - _log_sum(kernel(), 0))
        if torch.linalg.vector_norm(u - before) < tol:
            break
    return kernel().exp()[:-1, :-1].float()


def _log_sum(values: Tensor, dim: int) -> Tensor:
    """Return max + log(Σ exp(x - max) + 1e-10) over a dimension."""
    most = values.amax(dim=dim, keepdim=True)
    return (most + ((values - most).exp().sum(dim=dim, keepdim=True) + TINY).log()).squeeze(dim)
