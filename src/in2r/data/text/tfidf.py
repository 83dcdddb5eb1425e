"""Vectors of captions without learning: TF-IDF weights of their words, reduced by a truncated SVD."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
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
    weighted = TfidfTransformer().fit_transform(_counts(tokens))
    directions = min(dim, *(size - 1 for size in weighted.shape))
    if directions < 1:
        return torch.from_numpy(weighted.toarray()).float()
    left, sizes, _ = randomized_svd(weighted, directions, random_state=SEED)
    return torch.from_numpy(left * sizes).float()


@dataclass(frozen=True, eq=False)
class Tfidf:
    """`tfidf_vectors` that further captions are given too.

    Attributes:
        vocabulary: the known words.
        weights: (words,) float32, how much each counts: 1 + ln((1 + N) / (1 + df)).
        directions: (words, at most dim) float32, the singular directions.
    """

    vocabulary: Vocabulary
    weights: Tensor
    directions: Tensor

    @classmethod
    def fit(cls, captions: Sequence[str], vocabulary: Vocabulary, dim: int) -> "Tfidf":
        """Find the words' weights and directions in two or more captions; dim is at least 1."""
        counts = _counts(vocabulary.encode(captions), len(vocabulary))
        transformer = TfidfTransformer().fit(counts)
        weighted = transformer.transform(counts)
        directions = min(dim, *(size - 1 for size in weighted.shape))
        _, _, right = randomized_svd(weighted, directions, random_state=SEED)
        weights = torch.from_numpy(transformer.idf_).float()
        return cls(vocabulary, weights, torch.from_numpy(right.T.copy()).float())

    def vectors(self, captions: Sequence[str]) -> Tensor:
        """Return (N, at most dim) float32; zeros for a caption without a known word."""
        counts = _counts(self.vocabulary.encode(captions), len(self.vocabulary))
        weighted = normalize(counts.multiply(self.weights.numpy()[None]).tocsr())
        return torch.from_numpy(weighted @ self.directions.double().numpy()).float()


def _counts(tokens: PackedTokens, width: int | None = None) -> csr_matrix:
    """Return how often each caption has each known word, (captions, width); width None: to the last word."""
    known = tokens.ids > Vocabulary.UNK
    ends = known.cumsum()
    rows = [0, *ends[tokens.offsets[1:] - 1].tolist()]
    ids = tokens.ids[known]
    shape = (len(tokens), width or int(ids.max(initial=0)) + 1)
    counts = csr_matrix((known[known].astype("float64"), ids, rows), shape=shape)
    counts.sum_duplicates()
    return counts
