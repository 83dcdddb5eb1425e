"""What speaks for a pair, over the whole training set: two kinds of evidence, trust made of them, and other images."""

from in2r.evidence.posterior import whole_set_log_posterior
from in2r.evidence.raw import has_other_captions, neighbor_evidence, own_caption_evidence
from in2r.evidence.rematch import best_other_image
from in2r.evidence.trust import ScoreMixture, anchored_posterior, matching_share, mixture_posterior, standardize

__all__ = [
    "ScoreMixture",
    "anchored_posterior",
    "best_other_image",
    "has_other_captions",
    "matching_share",
    "mixture_posterior",
    "neighbor_evidence",
    "own_caption_evidence",
    "standardize",
    "whole_set_log_posterior",
]
