"""Partial optimal transport: which images and texts of a batch belong together at the lowest cost (L2RM)."""

import torch
from torch import Tensor
from torch.nn import functional

ITERATIONS_PER_LOOK = 8
"""The loop asks the device after this many iterations whether it is done: each question waits for the answer."""


def partial_transport(
    cost: Tensor,
    mass: float = 0.1,
    reg: float = 0.07,
    given: Tensor | None = None,
    max_iter: int = 1000,
    tol: float = 1e-3,
) -> Tensor:
    """Match a share of the images with a share of the texts by entropic partial optimal transport.

    Minimises <plan, C> - reg H(plan) with total mass s, where each image may give 1/Q and each text take 1/B at most.
    A dummy image and a dummy text take what stays unmatched: costs C~ = [[C, xi], [xi, 2 xi + A]], A = max C,
    xi = 100 A, marginals p = (1/Q, ..., 1 - s) and q = (1/B, ..., 1 - s). Sinkhorn iterations with the potentials
    u = reg f and v = reg g, from 0: f_i = log p_i - log sum_j exp(g_j - C~_ij / reg), then
    g_j = log q_j - log sum_i exp(f_i - C~_ij / reg), until ||u - u_before||_2 < tol.

    Args:
        cost: (Q, B) C >= 0, finite, images × texts, Q, B >= 1; no gradient flows to it.
        mass: s in (0, 1), the share that is matched.
        reg: > 0, weight of the entropy, in units of the cost.
        given: (Q, B) bool; entries that stay zero, such as pairs that are given and mismatched.
        max_iter: iterations at most.
        tol: bound on the change of u in one iteration.

    Returns:
        (Q, B) float32 >= 0, computed in float64. The iteration ends on texts, so that a column's sum is at most 1/B; a
        row's sum is at most 1/Q up to what `tol` leaves. The sum of all is s up to that, plus the mass that the dummies
        exchange: none to speak of while max C is well above `reg`. NaN where the cost has one.

    Raises:
        ValueError: if `cost` is no matrix with at least one entry, `given` is not bool of its shape, or a value is out
            of range.
    """
    _check(cost, given, mass, reg)
    kernel = _log_kernel(cost.detach().double(), given) / reg
    log_p, log_q = (_marginal(size, mass, kernel).log() for size in cost.shape)
    f, g = torch.zeros_like(log_p), torch.zeros_like(log_q)
    done = torch.zeros((), dtype=torch.bool, device=cost.device)
    for iteration in range(1, max_iter + 1):
        new_f = log_p - torch.logsumexp(kernel + g, dim=1)
        new_g = log_q - torch.logsumexp(kernel + new_f[:, None], dim=0)
        moved = reg * torch.linalg.vector_norm(new_f - f)
        # Once done, f and g are kept: the result is that of the very iteration in which `tol` was met.
        f, g = torch.where(done, f, new_f), torch.where(done, g, new_g)
        done = done | (moved < tol)
        if iteration % ITERATIONS_PER_LOOK == 0 and done:
            break
    return (kernel + f[:, None] + g).exp()[:-1, :-1].float()


def _check(cost: Tensor, given: Tensor | None, mass: float, reg: float) -> None:
    if cost.ndim != 2 or not cost.numel():
        raise ValueError(f"cost must be a matrix (Q, B) with Q, B >= 1, got shape {tuple(cost.shape)}")
    if given is not None and (given.shape != cost.shape or given.dtype != torch.bool):
        found = f"{given.dtype} of shape {tuple(given.shape)}"
        raise ValueError(f"given must be torch.bool of cost's shape {tuple(cost.shape)}, got {found}")
    if not 0 < mass < 1:
        raise ValueError(f"mass must be between 0 and 1, both excluded, got {mass}")
    if not reg > 0:
        raise ValueError(f"reg must be positive, got {reg}")


def _log_kernel(cost: Tensor, given: Tensor | None) -> Tensor:
    """Return -C~ (Q + 1, B + 1), with -inf where forbidden."""
    most = cost.max()
    extended = functional.pad(cost, (0, 1, 0, 1))
    extended[:-1, -1] = extended[-1, :-1] = 100 * most
    extended[-1, -1] = 201 * most
    if given is not None:
        extended[:-1, :-1].masked_fill_(given, torch.inf)
    return -extended


def _marginal(size: int, mass: float, like: Tensor) -> Tensor:
    """Return (1/size, ..., 1/size, 1 - mass)."""
    return functional.pad(like.new_full((size,), 1 / size), (0, 1), value=1 - mass)
