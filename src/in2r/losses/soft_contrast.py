"""Contrast against soft targets among the images and captions of a batch, where an image may have several captions.

Legend: n = distinct images of the batch, m = captions, d = width of a text vector; S (n, m) is `similarity`, rows =
images; H = one-hot owners, K = how alike the captions are, Q = a caption's target over the images, w = `weights` of the
captions, tau = `temperature`. Targets and weights get no gradient.
"""

import torch
from torch import Tensor
from torch.nn import functional

from in2r.losses.checks import check_positive
from in2r.transfer import at_least_float32, full_precision


def owner_targets(owner: Tensor, images: int) -> Tensor:
    """Return H: each caption's image as a one-hot row.

    Args:
        owner: (m,) int64 in [0, images), the caption's image among those of the batch.
        images: n.

    Returns:
        (m, n) float32 of zeros and ones.

    Raises:
        ValueError: if `owner` is not (m,) int64 or, on the CPU, names an image that is not there.
    """
    if owner.ndim != 1 or owner.dtype != torch.int64:
        raise ValueError(f"owner must be (m,) torch.int64, got {owner.dtype} of shape {tuple(owner.shape)}")
    # Elsewhere a look at the values would wait for the device.
    if owner.device.type == "cpu" and len(owner) and not 0 <= owner.min() <= owner.max() < images:
        raise ValueError(f"owner must be in [0, {images}), got {int(owner.min())} to {int(owner.max())}")
    return (owner[:, None] == torch.arange(images, device=owner.device)).float()


def text_soft_targets(
    targets: Tensor, texts: Tensor, softness: float = 0.3, temperature: float = 0.1, weights: Tensor | None = None
) -> Tensor:
    """Let a caption point to the images of captions like it as well.

    Q = (1 - softness) H + softness K H, K_tt' = softmax_t'(cos(text_t, text_t') / temperature + log w_t'), over all
    captions of the batch, t itself among them. The vectors are taken as they are, without centring.

    Args:
        targets: (m, n) H >= 0, such as `owner_targets` returns.
        texts: (m, d) vectors of the captions, of any length; a vector of zeros has cosine 0 with all.
        softness: in [0, 1], the share of K H.
        temperature: > 0.
        weights: (m,) w >= 0, how much each caption may be pointed to; all equal by default.

    Returns:
        (m, n) in at least float32; each row has sum 1 if the rows of H have.

    Raises:
        ValueError: if a shape does not fit or a value is out of range.
    """
    check_positive(temperature)
    _check_share("softness", softness)
    if texts.ndim != 2:
        raise ValueError(f"texts must be a matrix (m, d), got shape {tuple(texts.shape)}")
    _check_targets("targets", targets, (len(texts), *targets.shape[1:]))
    _check_weights(weights, len(texts))
    unit = functional.normalize(at_least_float32(texts.detach()), dim=1)
    with full_precision(texts.device):
        logits = unit @ unit.T / temperature
        if weights is not None:
            w = at_least_float32(weights.detach())
            logits = logits + w.clamp(min=torch.finfo(w.dtype).tiny).log()
        hard = at_least_float32(targets.detach())
        alike = torch.softmax(logits, dim=1).to(hard.dtype)
        return (1 - softness) * hard + softness * (alike @ hard)


def image_targets(targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Turn the captions' targets into the images': q_it = w_t Q_ti / sum_t' w_t' Q_t'i.

    Args:
        targets: (m, n) Q >= 0, one row per caption.
        weights: (m,) w >= 0; all equal by default.

    Returns:
        (n, m), one row per image, of sum 1; zeros for an image that nothing points to.

    Raises:
        ValueError: if a shape does not fit.
    """
    _check_targets("targets", targets, tuple(targets.shape))
    _check_weights(weights, len(targets))
    rows = at_least_float32(targets.detach()).T
    if weights is not None:
        rows = rows * at_least_float32(weights.detach())
    return rows / rows.sum(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def soft_contrast_loss(
    similarity: Tensor,
    target_t2i: Tensor,
    target_i2t: Tensor,
    temperature: float = 0.05,
    weights: Tensor | None = None,
    image_weights: Tensor | None = None,
) -> Tensor:
    """Cross-entropy from soft targets to the batch's softmaxes, half of both directions.

    -1/2 [sum_t w_t q_t . log softmax_i(S_it / tau) / sum_t w_t + the same over images with their weights]. With one-hot
    owners, their `image_targets` and no weights: the softmax loss with several positives, uniform over an image's own
    captions. For a learnt scale s give s S as `similarity`, and temperature 1.

    Args:
        similarity: (n, m) S, n, m >= 1.
        target_t2i: (m, n) q_t, over the images.
        target_i2t: (n, m) q_i, over the captions.
        temperature: tau > 0.
        weights: (m,) w >= 0, of the captions; only their ratios matter. All equal by default.
        image_weights: (n,) likewise of the images.

    Returns:
        A scalar. Gradients flow to the similarity alone.

    Raises:
        ValueError: if a shape does not fit or the temperature is not positive.
    """
    check_positive(temperature)
    if similarity.ndim != 2 or not similarity.numel():
        raise ValueError(f"similarity must be (n, m) with n, m >= 1, got shape {tuple(similarity.shape)}")
    images, captions = similarity.shape
    _check_targets("target_t2i", target_t2i, (captions, images))
    _check_targets("target_i2t", target_i2t, (images, captions))
    _check_weights(weights, captions)
    _check_weights(image_weights, images)
    logits = at_least_float32(similarity) / temperature
    t2i = -(target_t2i.detach() * torch.log_softmax(logits.T, dim=1)).sum(dim=1)
    i2t = -(target_i2t.detach() * torch.log_softmax(logits, dim=1)).sum(dim=1)
    return (_mean(t2i, weights) + _mean(i2t, image_weights)) / 2


def _mean(costs: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of costs (B,); 0 where all weights are."""
    if weights is None:
        return costs.mean()
    w = at_least_float32(weights.detach())
    return (costs * w).sum() / w.sum().clamp(min=torch.finfo(w.dtype).tiny)


def distilled(target: Tensor, teacher_similarity: Tensor, temperature: float = 0.05, share: float = 0.5) -> Tensor:
    """Mix a target with what a teacher sees: (1 - share) q + share softmax_c(teacher / tau), for each row.

    Args:
        target: (R, C) q, each row a distribution over the candidates.
        teacher_similarity: (R, C), the same rows and candidates.
        temperature: tau > 0.
        share: in [0, 1], the teacher's.

    Returns:
        (R, C) in at least float32, without gradient.

    Raises:
        ValueError: if the shapes differ or a value is out of range.
    """
    check_positive(temperature)
    _check_share("share", share)
    _check_targets("target", target, tuple(teacher_similarity.shape))
    teacher = torch.softmax(at_least_float32(teacher_similarity.detach()) / temperature, dim=1)
    return (1 - share) * at_least_float32(target.detach()) + share * teacher


def _check_share(name: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {share}")


def _check_targets(name: str, targets: Tensor, shape: tuple[int, ...]) -> None:
    if targets.ndim != 2 or tuple(targets.shape) != shape:
        raise ValueError(f"{name} must be a matrix of shape {shape}, got shape {tuple(targets.shape)}")


def _check_weights(weights: Tensor | None, count: int) -> None:
    if weights is not None and weights.shape != (count,):
        raise ValueError(f"weights must have shape ({count},), got {tuple(weights.shape)}")
