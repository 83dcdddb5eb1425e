"""Pseudo-classes of images and captions: cross-entropy, entropy, and how far a prediction has moved (PC², PCSR)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from in2r.losses.checks import check_choice
from in2r.transfer import at_least_float32

EntropyOf = Literal["batch", "pair"]

LEAST_PROBABILITY = 1e-8
"""inside a logarithm (released code): a softmax may underflow"""


def pseudo_class_loss(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Cross-entropy to the class that the other side's item is given: mean_i -log P_i,c, c = argmax Q_i.

    Args:
        logits: (B, C) of one side; P is their softmax.
        target_logits: (B, C) of the other side; no gradient flows to them.

    Returns:
        A scalar.
    """
    return functional.cross_entropy(at_least_float32(logits), target_logits.detach().argmax(1))


def entropy(logits: Tensor, of: EntropyOf = "batch") -> Tensor:
    """Entropy of predicted classes, H(P) = -Σ_c P_c log P_c, in nats.

    Args:
        logits: (B, C).
        of: "batch": of the mean prediction of the batch, which is largest where the batch is spread over all classes;
            "pair": the mean of each item's entropy, which is largest where every prediction is flat (released code).

    Returns:
        A scalar in [0, log C].

    Raises:
        ValueError: for an unknown option.
    """
    check_choice("of", of, ("batch", "pair"))
    p = at_least_float32(logits).softmax(1)
    p = p.mean(0, keepdim=True) if of == "batch" else p
    return -(p * p.clamp(min=LEAST_PROBABILITY).log()).sum(1).mean()


def oscillation(now: Tensor, before: Tensor) -> Tensor:
    """How far a prediction has moved: KL(now || before) = Σ_c P_c (log P_c - log B_c), in nats.

    Args:
        now: P (B, C), probabilities.
        before: B (B, C), probabilities; a row of zeros where nothing is known.

    Returns:
        (B,) not negative; 0 where nothing is known of before.
    """
    log_now, log_before = (p.clamp(min=LEAST_PROBABILITY).log() for p in (now, before))
    moved = (now * (log_now - log_before)).sum(1).clamp(min=0)
    return torch.where(before.sum(1) > 0, moved, torch.zeros_like(moved))
