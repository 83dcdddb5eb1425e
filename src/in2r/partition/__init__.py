"""From per-sample losses to clean probabilities, and from these to the sets that a method trains on."""

from in2r.partition.belief import Fit, is_believable, mismatch_divergence
from in2r.partition.beta import TwoBetas, fit_two_betas
from in2r.partition.gaussian import TwoGaussians, fit_two_gaussians
from in2r.partition.histogram import HISTOGRAM_FROM
from in2r.partition.prediction import matching_probability
from in2r.partition.split import elite, elite_threshold, split_pairs
from in2r.partition.transport import partial_transport

__all__ = [
    "HISTOGRAM_FROM",
    "Fit",
    "TwoBetas",
    "TwoGaussians",
    "elite",
    "elite_threshold",
    "fit_two_betas",
    "fit_two_gaussians",
    "is_believable",
    "matching_probability",
    "mismatch_divergence",
    "partial_transport",
    "split_pairs",
]
