"""Losses, one file each: pure functions of similarities, per sample first and reduced last."""

from in2r.losses.prototype_contrast import prototype_contrast_loss
from in2r.losses.sce import sce_loss
from in2r.losses.soft_margin import soft_margin, soft_margin_triplet_loss
from in2r.losses.soft_target import rectification_loss, soft_target
from in2r.losses.symmetric_kl import symmetric_kl_loss
from in2r.losses.triplet import triplet_loss

__all__ = [
    "prototype_contrast_loss",
    "rectification_loss",
    "sce_loss",
    "soft_margin",
    "soft_margin_triplet_loss",
    "soft_target",
    "symmetric_kl_loss",
    "triplet_loss",
]
