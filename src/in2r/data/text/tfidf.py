"""Vectors of captions without learning: TF-IDF weights of their words, reduced by a truncated SVD."""

import torch
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from in2r.data.text.vocabulary import PackedTokens, Vocabulary

SEED = 0
"""of the SVD's random start; the vectors belong to the data, not to a run"""


def tfidf_vectors(tokens: PackedTokens, dim: int) -> Tensor:
    """Return a vector (N, at most dim) float32 of each caption; captions of few common words are far apart.

    Words weigh tf · (1 + ln((1 + N) / (1 + df))), rows have unit norm, then the `dim` largest singular directions
    are kept (latent semantic analysis). A caption without a known word has a vector of zeros.

    Args:
        tokens: N captions; <unk> and the marks of beginning and end are left out.
        dim: at least 1.
    """
    known = tokens.ids > Vocabulary.UNK
    ends = known.cumsum()
    rows = [0, *ends[tokens.offsets[1:] - 1].tolist()]
    ids = tokens.ids[known]
    width = int(ids.max(initial=0)) + 1
    counts = csr_matrix((known[known].astype("float64"), ids, rows), shape=(len(tokens), width))
    counts.sum_duplicates()
    weighted = TfidfTransformer().fit_transform(counts)
    directions = min(dim, *(size - 1 for size in weighted.shape))
    if directions < 1:
        return torch.from_numpy(weighted.toarray()).float()
    left, sizes, _ = randomized_svd(weighted, directions, random_state=SEED)
    return torch.from_numpy(left * sizes).float()
