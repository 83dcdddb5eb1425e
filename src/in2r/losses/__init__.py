"""Losses, one file each: pure functions of similarities, per sample first and reduced last."""

from in2r.losses.prototype_contrast import prototype_contrast_loss
from in2r.losses.pseudo_class import entropy, oscillation, pseudo_class_loss
from in2r.losses.sce import sce_loss
from in2r.losses.sce_groups import group_sce_loss
from in2r.losses.soft_contrast import distilled, image_targets, owner_targets, soft_contrast_loss, text_soft_targets
from in2r.losses.soft_margin import soft_margin, soft_margin_triplet_loss
from in2r.losses.soft_target import rectification_loss, soft_target
from in2r.losses.symmetric_kl import symmetric_kl_loss
from in2r.losses.triplet import triplet_loss

__all__ = [
    "distilled",
    "entropy",
    "group_sce_loss",
    "image_targets",
    "oscillation",
    "owner_targets",
    "prototype_contrast_loss",
    "pseudo_class_loss",
    "rectification_loss",
    "sce_loss",
    "soft_contrast_loss",
    "soft_margin",
    "soft_margin_triplet_loss",
    "soft_target",
    "symmetric_kl_loss",
    "text_soft_targets",
    "triplet_loss",
]
