"""FAISS indexes that look at a part of the vectors; exact search needs no FAISS (docs/search.md has the figures)."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from in2r.errors import InputError
from in2r.search.nearest import BLOCK_BYTES, Rows

Kind = Literal["exact", "hnsw", "ivf"]
KINDS: tuple[Kind, ...] = ("exact", "hnsw", "ivf")

FOUND = 256
"""Vectors that one search finds, whatever k is: so a larger k only makes a list longer. No result list is longer."""
LINKS = 32
"""hnsw: links of a vector (M; twice as many in the lowest layer), as FAISS has it"""
BUILD_EFFORT = 80
"""hnsw: vectors that are weighed when one is added (efConstruction): twice FAISS's 40, for half again the time"""
LISTS_PER_ROOT = 4
"""ivf: lists per square root of the number of vectors, as FAISS's guide has it (4 to 16)"""
PROBED = 1 / 8
"""ivf: share of the lists that a search reads: a third of the time of exact search (docs/search.md has the recall)"""
TRAINED_ON = 64
"""ivf: vectors per list by which the centroids are found; FAISS warns below 39 and ignores more than 256"""


def require_faiss() -> Any:
    """Return the module faiss, or raise `InputError` with the install command."""
    try:
        import faiss
    except ImportError:
        raise InputError('an hnsw or ivf index needs FAISS: pip install "in2r[search]"; exact needs nothing') from None
    return faiss


def build_approximate(kind: Kind, vectors: NDArray[Any], file: Path) -> None:
    """Build an index of all vectors and write it.

    Args:
        kind: hnsw or ivf.
        vectors: (N, D) float16 or float32, read block by block.
        file: where to.

    Raises:
        InputError: FAISS is not installed.
    """
    faiss = require_faiss()
    count, dim = vectors.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BUILD_EFFORT
    else:
        lists = max(1, min(count, round(LISTS_PER_ROOT * math.sqrt(count))))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.spherical = True  # centroids of unit norm, as the vectors
        index.cp.min_points_per_centroid = 1  # no warning of few vectors: then every list is short anyway
        spread = np.unique(np.linspace(0, count - 1, min(count, TRAINED_ON * lists)).astype(np.int64))
        index.train(np.ascontiguousarray(vectors[spread], np.float32))
    step = max(1, BLOCK_BYTES // (4 * dim))
    for start in range(0, count, step):
        index.add(np.ascontiguousarray(vectors[start : start + step], np.float32))
    faiss.write_index(index, str(file))


class Approximate:
    """An hnsw or ivf index, opened; the lists of ivf stay on disk.

    Args:
        kind: hnsw or ivf.
        file: what `build_approximate` wrote.

    Raises:
        InputError: FAISS is not installed, or cannot read the file.
    """

    def __init__(self, kind: Kind, file: Path) -> None:
        faiss = require_faiss()
        try:
            self._index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP if kind == "ivf" else 0)
        except RuntimeError as error:
            raise InputError(f"{file}: FAISS cannot read it ({str(error).splitlines()[0][:200]})") from None
        if kind == "hnsw":
            self._index.hnsw.efSearch = FOUND
        else:
            self._index.nprobe = max(1, math.ceil(PROBED * self._index.nlist))

    def candidates(self, query: NDArray[np.float32]) -> Rows:
        """Return up to `FOUND` rows that are probably the nearest to a query (D,), ascending."""
        _, rows = self._index.search(np.ascontiguousarray(query[None]), FOUND)
        found: Rows = np.sort(rows[0][rows[0] >= 0]).astype(np.int64)
        return found
