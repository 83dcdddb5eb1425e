"""Measures: retrieval ranks and recalls; detection of the pairs that do not belong together."""

from in2r.metrics.detection import auroc, precision_recall
from in2r.metrics.ranks import (
    SAME_SIMILARITY,
    TILE_CAPTIONS,
    TILE_IMAGES,
    chance_recalls,
    fold_mean,
    ranks_from_embeddings,
    ranks_from_similarity,
    ranks_from_tiles,
    recall_at_k,
    recalls_from_ranks,
    split_folds,
)

__all__ = [
    "SAME_SIMILARITY",
    "TILE_CAPTIONS",
    "TILE_IMAGES",
    "auroc",
    "chance_recalls",
    "fold_mean",
    "precision_recall",
    "ranks_from_embeddings",
    "ranks_from_similarity",
    "ranks_from_tiles",
    "recall_at_k",
    "recalls_from_ranks",
    "split_folds",
]
