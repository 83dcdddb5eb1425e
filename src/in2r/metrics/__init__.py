"""Measures: retrieval ranks and recalls; detection of the pairs that do not belong together."""

from in2r.metrics.detection import auroc, calibration_error, precision_recall
from in2r.metrics.ranks import (
    SAME_SIMILARITY,
    TILE_CAPTIONS,
    TILE_IMAGES,
    chance_recalls,
    fold_mean,
    ranks_from_embeddings,
    ranks_from_similarity,
    recall_at_k,
    recalls_from_ranks,
    split_copies,
    split_folds,
)
from in2r.metrics.relevance import Copies, count_copies

__all__ = [
    "SAME_SIMILARITY",
    "TILE_CAPTIONS",
    "TILE_IMAGES",
    "Copies",
    "auroc",
    "calibration_error",
    "chance_recalls",
    "count_copies",
    "fold_mean",
    "precision_recall",
    "ranks_from_embeddings",
    "ranks_from_similarity",
    "recall_at_k",
    "recalls_from_ranks",
    "split_copies",
    "split_folds",
]
