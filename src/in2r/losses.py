"""Losses of the method: hinge triplet (Eqs. 2-5), symmetric cross-entropy (Eq. 1), soft targets (Eqs. 10-11).

Legend: `similarity` is S, rows = images, columns = texts, S[i, i] the given pair; tau = `temperature`,
m = `margin`, alpha = `ce_weight`, beta = `rce_weight`; B = pairs in the batch, C = candidates, D = dimension.
Everything is computed per sample first and reduced last, in float32 log-space for half inputs (exp(1/0.05)
overflows float16) and in the input's own precision otherwise.
"""

from typing import Literal

import torch
from torch import Tensor

from in2r.transfer import at_least_float32, full_precision

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
    _check_choice("negatives", negatives, ("hardest", "mean"))
    _check_choice("reduction", reduction, ("sum", "none"))
    _check_square(similarity, ignore)
    sims = at_least_float32(similarity)
    positive = sims.diagonal()
    excluded = torch.eye(len(sims), dtype=torch.bool, device=sims.device)
    if ignore is not None:
        excluded = excluded | ignore
    # Hinge 0 is the value of a negative that keeps its distance, so an excluded entry never wins the maximum.
    hinge_i2t = (margin + sims - positive[:, None]).clamp(min=0).masked_fill(excluded, 0)
    hinge_t2i = (margin + sims - positive[None, :]).clamp(min=0).masked_fill(excluded, 0)
    if negatives == "hardest":
        cost = hinge_i2t.amax(dim=1) + hinge_t2i.amax(dim=0)
    else:
        cost = hinge_i2t.mean(dim=1) + hinge_t2i.mean(dim=0)
    return cost.sum() if reduction == "sum" else cost


def sce_loss(
    similarity: Tensor,
    temperature: float = 0.05,
    ce_weight: float = 1.0,
    rce_weight: float = 1.0,
    epsilon: float = 1e-7,
    reduction: Literal["mean", "none"] = "mean",
    ignore: Tensor | None = None,
) -> Tensor:
    """Warm-up loss: symmetric cross-entropy to the given pair, half of both directions.

    Eq. (1): L_sce(q, p) = alpha * H(q, p) + beta * H(p, q), H(a, b) = -sum a log b. The warm-up loss is
    1/2 [L_sce(y, p_i2t) + L_sce(y, p_t2i)], y one-hot on the diagonal, p = softmax(S / tau) over rows and
    over columns. In the reverse term log q is log(y + epsilon).

    Args:
        similarity: (B, B), the diagonal is the given pair.
        temperature: tau > 0.
        ce_weight: alpha >= 0, weight of the cross-entropy (InfoNCE).
        rce_weight: beta >= 0, weight of the reverse cross-entropy.
        epsilon: smoothing of the one-hot target in the reverse term, > 0.
        reduction: "mean" over the batch or "none".
        ignore: (B, B) bool; off-diagonal entries that leave both softmaxes.

    Returns:
        A scalar, or (B,): half of (row i + column i). Finite for a batch of one.

    Raises:
        ValueError: if `similarity` is not square, a value out of range, or an unknown option.
    """
    _check_square(similarity, ignore)
    _check_positive(temperature, epsilon)
    sims = at_least_float32(similarity)
    target = torch.eye(len(sims), dtype=sims.dtype, device=sims.device)
    ignore_t2i = None
    if ignore is not None:
        ignore = ignore & (target == 0)
        ignore_t2i = ignore.T
    i2t = _sce_rows(target, sims / temperature, ce_weight, rce_weight, epsilon, ignore)
    t2i = _sce_rows(target, sims.T / temperature, ce_weight, rce_weight, epsilon, ignore_t2i)
    return _reduce((i2t + t2i) / 2, reduction)


def soft_target(prototype: Tensor, candidates: Tensor, temperature: float = 0.05) -> Tensor:
    """Distribution that a soft prototype gives over the candidates.

    Eq. (10): q_ij = softmax_j(t_hat_i . u_j / tau). The gradient reaches the prototype (and so the refiner);
    the candidates are detached, so that they are not drawn towards the target.

    Args:
        prototype: (B, D) unit-norm prototypes, t_hat or v_hat.
        candidates: (C, D) unit-norm embeddings of the candidates.
        temperature: tau > 0.

    Returns:
        (B, C) probabilities, each row sums to 1.

    Raises:
        ValueError: for a temperature that is not positive.
    """
    _check_positive(temperature)
    # Autocast would take the product in half precision, and 1/tau magnifies that error twentyfold.
    with full_precision(prototype.device):
        logits = at_least_float32(prototype) @ at_least_float32(candidates.detach()).T
    return torch.softmax(logits / temperature, dim=1)


def rectification_loss(
    similarity: Tensor,
    target_i2t: Tensor,
    target_t2i: Tensor,
    temperature: float = 0.05,
    ce_weight: float = 1.0,
    rce_weight: float = 1.0,
    epsilon: float = 1e-7,
    reduction: Literal["mean", "none"] = "mean",
    similarity_t2i: Tensor | None = None,
) -> Tensor:
    """Symmetric cross-entropy to soft targets, half of both directions.

    Eq. (11): 1/2 [L_sce(q_i2t, p_i2t) + L_sce(q_t2i, p_t2i)]. Equals `sce_loss` when the targets are one-hot
    on the diagonal.

    Args:
        similarity: (B, C) images × candidate texts; C = B when the candidates are the batch itself.
        target_i2t: (B, C) q_i2t; row i belongs to image i, over the candidate texts.
        target_t2i: (B, C') q_t2i; row i belongs to text i, over the candidate images.
        temperature: tau > 0.
        ce_weight: alpha >= 0.
        rce_weight: beta >= 0.
        epsilon: smoothing of the target in the reverse term, > 0.
        reduction: "mean" over the batch or "none".
        similarity_t2i: (B, C') texts × candidate images, needed when there are more candidates than the
            batch; the transpose of `similarity` by default.

    Returns:
        A scalar, or (B,): half of (image i + text i). Gradients flow to the similarities and to the targets.

    Raises:
        ValueError: if a target's shape differs from its similarity's, a value is out of range, or an option unknown.
    """
    _check_positive(temperature, epsilon)
    if similarity_t2i is None:
        similarity_t2i = similarity.T
    for name, target, sims in (
        ("target_i2t", target_i2t, similarity),
        ("target_t2i", target_t2i, similarity_t2i),
    ):
        if target.shape != sims.shape:
            raise ValueError(f"{name} has shape {tuple(target.shape)}, but its similarity has {tuple(sims.shape)}")
    i2t = at_least_float32(similarity) / temperature
    t2i = at_least_float32(similarity_t2i) / temperature
    cost = _sce_rows(at_least_float32(target_i2t), i2t, ce_weight, rce_weight, epsilon)
    cost = cost + _sce_rows(at_least_float32(target_t2i), t2i, ce_weight, rce_weight, epsilon)
    return _reduce(cost / 2, reduction)


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
    _check_square(image_to_prototype, None)
    _check_positive(temperature, epsilon)
    if text_to_prototype.shape != image_to_prototype.shape:
        shapes = f"{tuple(image_to_prototype.shape)} and {tuple(text_to_prototype.shape)}"
        raise ValueError(f"both similarities must have one shape, got {shapes}")
    sims = [at_least_float32(s) / temperature for s in (image_to_prototype, text_to_prototype)]
    own = torch.eye(len(image_to_prototype), dtype=sims[0].dtype, device=sims[0].device)
    absent = None if ignore is None else ignore[None, :] & (own == 0)
    i2t, t2i = (_sce_rows(own, s, ce_weight, rce_weight, epsilon, absent) for s in sims)
    return _reduce((i2t + t2i) / 2, reduction)


def _sce_rows(
    target: Tensor,
    logits: Tensor,
    ce_weight: float,
    rce_weight: float,
    epsilon: float,
    ignore: Tensor | None = None,
) -> Tensor:
    """Eq. (1) for each row: (B, C) target and logits to (B,); ignored entries leave the softmax."""
    if ignore is not None:
        logits = logits.masked_fill(ignore, float("-inf"))
    log_p = torch.log_softmax(logits, dim=1)
    p = log_p.exp()
    if ignore is not None:
        log_p = log_p.masked_fill(ignore, 0)  # 0 * -inf would be NaN
    forward = -(target * log_p).sum(dim=1)
    reverse = -(p * (target + epsilon).log()).sum(dim=1)
    return ce_weight * forward + rce_weight * reverse


def _reduce(cost: Tensor, reduction: str) -> Tensor:
    _check_choice("reduction", reduction, ("mean", "none"))
    return cost.mean() if reduction == "mean" else cost


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _check_positive(temperature: float, epsilon: float = 1.0) -> None:
    if temperature <= 0 or epsilon <= 0:
        raise ValueError(f"temperature and epsilon must be positive, got {temperature} and {epsilon}")


def _check_square(similarity: Tensor, ignore: Tensor | None) -> None:
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"similarity must be a square matrix (B, B), got shape {tuple(similarity.shape)}")
    if ignore is not None and ignore.shape != similarity.shape:
        raise ValueError(f"ignore has shape {tuple(ignore.shape)}, similarity {tuple(similarity.shape)}")
