"""Symmetric cross-entropy (Eq. 1) where an image may have several captions in the batch."""

from torch import Tensor

from in2r.losses.checks import check_positive
from in2r.losses.sce import sce_rows
from in2r.losses.soft_contrast import owner_targets
from in2r.transfer import at_least_float32


def group_sce_loss(
    similarity: Tensor,
    owner: Tensor,
    temperature: float = 0.05,
    ce_weight: float = 1.0,
    rce_weight: float = 1.0,
    epsilon: float = 1e-7,
) -> Tensor:
    """Symmetric cross-entropy to the given image of each caption and to all given captions of each image.

    1/2 [mean_t L_sce(h_t, p_t) + mean_i L_sce(h_i, p_i)], L_sce of Eq. (1), p_t the softmax of S / tau over the images,
    p_i over the captions. h_t is one-hot. An image's cross-entropy is to the uniform distribution over its captions.
    In its reverse term log q is log(1 + epsilon) on each of them and log(epsilon) elsewhere: the term is
    -log(epsilon) (1 - p_own) up to log(1 + epsilon), p_own their sum, so it does not matter which of them is found.
    Equals `sce_loss` when each image has one caption, in order.

    Args:
        similarity: (n, m) S, images × captions, n, m >= 1.
        owner: (m,) int64 in [0, n), the image of each caption. An image without a caption adds no gradient.
        temperature: tau > 0.
        ce_weight: alpha >= 0, weight of the cross-entropy.
        rce_weight: beta >= 0, weight of the reverse cross-entropy.
        epsilon: smoothing of the target in the reverse term, > 0.

    Returns:
        A scalar.

    Raises:
        ValueError: if the shapes do not fit, a value is out of range or, on the CPU, an owner is.
    """
    check_positive(temperature, epsilon)
    if similarity.ndim != 2 or not similarity.numel() or owner.shape != similarity.shape[1:]:
        shapes = f"{tuple(similarity.shape)} and {tuple(owner.shape)}"
        raise ValueError(f"similarity must be (n, m) with n, m >= 1, and owner (m,), got {shapes}")
    logits = at_least_float32(similarity) / temperature
    own = owner_targets(owner, len(similarity)).to(logits.dtype)
    uniform = own / own.sum(dim=0).clamp(min=1)
    t2i = sce_rows(own, logits.T, ce_weight, rce_weight, epsilon)
    i2t = sce_rows(uniform.T, logits, ce_weight, 0, epsilon) + sce_rows(own.T, logits, 0, rce_weight, epsilon)
    return (t2i.mean() + i2t.mean()) / 2
