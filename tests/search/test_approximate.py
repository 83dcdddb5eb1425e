"""hnsw and ivf: most of the nearest are found, alone as in a batch, and again after the file was read."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from in2r.errors import InputError
from in2r.search.approximate import KINDS, build_approximate, require_faiss
from in2r.search.approximate import Approximate as Opened


def test_without_faiss_the_install_command_is_named() -> None:
    if find_spec("faiss") is not None:
        pytest.skip("FAISS is installed")
    with pytest.raises(InputError, match=r'needs FAISS: pip install "in2r\[search\]"; exact needs nothing$'):
        require_faiss()


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_most_of_the_nearest_are_found(tmp_path: Path, kind: str, precision: str) -> None:
    pytest.importorskip("faiss", reason="FAISS is not installed (in2r[search])")
    draws = np.random.default_rng(0)
    topics = draws.standard_normal((40, 32))
    values = topics[draws.integers(40, size=3000)] + 0.5 * draws.standard_normal((3000, 32))
    vectors = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(precision)
    build_approximate(kind, vectors, tmp_path / "index")  # type: ignore[arg-type]
    opened = Opened(kind, tmp_path / "index")  # type: ignore[arg-type]
    queries = vectors[:50].astype(np.float32)
    found = [opened.candidates(query) for query in queries]
    nearest = np.argsort(-(queries @ vectors.astype(np.float32).T), axis=1)[:, :10]
    recall = np.mean([len(np.intersect1d(one, other)) for one, other in zip(found, nearest, strict=True)]) / 10
    assert recall > 0.9
    assert max(len(rows) for rows in found) <= 256
    assert all(np.array_equal(np.unique(rows), rows) for rows in found)
    (tmp_path / "index").write_bytes(b"no index")
    with pytest.raises(InputError, match="index: FAISS cannot read it"):
        Opened(kind, tmp_path / "index")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_fewer_vectors_than_are_looked_for(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("faiss", reason="FAISS is not installed (in2r[search])")
    vectors = np.eye(3, 8, dtype=np.float32)
    build_approximate(kind, vectors, tmp_path / "index")  # type: ignore[arg-type]
    found = Opened(kind, tmp_path / "index").candidates(vectors[1])  # type: ignore[arg-type]
    assert 1 in found
    assert set(found.tolist()) <= {0, 1, 2}
