"""What speaks for a pair, over the whole training set: two kinds of evidence, trust made of them, and other images."""

from in2r.evidence.changed_share import changed_share, log_odds_of
from in2r.evidence.clean_model import CleanModel, fit_clean_model, share_of_matching
from in2r.evidence.lemon import Side, lemon
from in2r.evidence.linear import LinearMaps, by_folds, fit_linear_maps, linear_similarity
from in2r.evidence.posterior import whole_set_log_posterior
from in2r.evidence.raw import has_other_captions, neighbor_evidence, own_caption_evidence
from in2r.evidence.recalibrated import Recalibration, recalibrate
from in2r.evidence.references import agreement, closeness, cosines_with, nearest_references
from in2r.evidence.rematch import best_other_image
from in2r.evidence.strangers import lead_over_strangers
from in2r.evidence.trust import ScoreMixture, anchored_posterior, matching_share, mixture_posterior, standardize

__all__ = [
    "CleanModel",
    "LinearMaps",
    "Recalibration",
    "ScoreMixture",
    "Side",
    "agreement",
    "anchored_posterior",
    "best_other_image",
    "by_folds",
    "changed_share",
    "closeness",
    "cosines_with",
    "fit_clean_model",
    "fit_linear_maps",
    "has_other_captions",
    "lead_over_strangers",
    "lemon",
    "linear_similarity",
    "log_odds_of",
    "matching_share",
    "mixture_posterior",
    "nearest_references",
    "neighbor_evidence",
    "own_caption_evidence",
    "recalibrate",
    "share_of_matching",
    "standardize",
    "whole_set_log_posterior",
]
