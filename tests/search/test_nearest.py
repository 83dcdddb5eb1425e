"""Exact search: against a product in float64, for any k, any batch, equal scores and both precisions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from in2r.search import nearest
from in2r.search.nearest import best_first, exact_scores, nearest_candidates


def unit(values: NDArray[Any]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return found


def vectors_of(draws: np.random.Generator, count: int, dim: int) -> NDArray[np.float32]:
    """Unit vectors of which some are equal and some nearly so."""
    found = draws.standard_normal((count, dim))
    copies = draws.integers(count, size=count // 2)
    found[copies] = found[draws.integers(count, size=len(copies))]
    found[:: max(1, count // 5)] += 1e-7
    return unit(found)


def found(vectors: Any, queries: Any, k: int, rows: Any = None) -> list[list[tuple[int, float, str]]]:
    names = [f"{(7 * row) % 1000:03}" for row in range(len(vectors))]
    return [
        best_first(some, exact_scores(vectors, query, some), [names[row] for row in some], k)
        for query, some in zip(queries, nearest_candidates(vectors, queries, k, rows), strict=True)
    ]


@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([1, 3, 64, 700]), st.sampled_from(["f4", "f2"]))
def test_the_best_are_those_of_float64_for_every_k(seed: int, count: int, dim: int, precision: str) -> None:
    draws = np.random.default_rng(seed)
    vectors, queries = vectors_of(draws, count, dim).astype(precision), vectors_of(draws, 3, dim)
    whole = found(vectors, queries, count)
    for number, query in enumerate(queries):
        scores = [float(sum(a * b for a, b in zip(v.tolist(), query.tolist(), strict=True))) for v in vectors[:5]]
        by_row = {row: score for row, score, _ in whole[number]}
        assert [by_row[row] for row in range(len(scores))] == pytest.approx(scores, abs=1e-12)
        assert whole[number] == sorted(whole[number], key=lambda hit: (-hit[1], hit[2]))
    for k in {1, 2, max(1, count // 2), count + 5}:
        assert found(vectors, queries, k) == [hits[:k] for hits in whole]
        assert found(vectors, queries[1:2], k) == [whole[1][:k]]  # alone as in a batch


@given(st.integers(0, 2**32), st.integers(2, 40))
def test_a_search_of_some_rows_is_the_whole_one_without_the_others(seed: int, count: int) -> None:
    draws = np.random.default_rng(seed)
    vectors, queries = vectors_of(draws, count, 16), vectors_of(draws, 2, 16)
    rows = np.sort(draws.choice(count, draws.integers(0, count), replace=False)).astype(np.int64)
    whole = found(vectors, queries, count)
    assert found(vectors, queries, 3, rows) == [[hit for hit in hits if hit[0] in rows][:3] for hits in whole]


def test_equal_scores_are_in_the_order_of_ids_as_text() -> None:
    vectors = unit(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    some = next(nearest_candidates(vectors, vectors[:1], 1))
    assert some.tolist() == [0, 1, 3]  # k = 1, and all that are as near
    scores = exact_scores(vectors, vectors[0], some)
    assert best_first(some, scores, ["b", "10", "9"], 2) == [(1, 1.0, "10"), (3, 1.0, "9")]


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(0)
    vectors, queries = vectors_of(draws, 101, 24), vectors_of(draws, 7, 24)
    whole = found(vectors, queries, 9)
    monkeypatch.setattr(nearest, "BLOCK_BYTES", 24 * 4 * 10)
    monkeypatch.setattr(nearest, "SCORES", 2 * 101)
    assert found(vectors, queries, 9) == whole


def test_a_product_in_float32_alone_would_not_do() -> None:
    """Rows that differ by less than float32's rounding are ordered by float64: the margin must let both in."""
    draws = np.random.default_rng(3)
    base = draws.standard_normal(512)
    vectors = unit(base + 1e-7 * draws.standard_normal((300, 512)))
    query = unit(draws.standard_normal((1, 512)) + base)
    exact = vectors.astype(np.float64) @ query[0].astype(np.float64)
    order = [row for row, _, _ in found(vectors, query, 5)[0]]
    assert order == np.argsort(-exact, kind="stable")[:5].tolist()
    assert order != np.argsort(-(vectors @ query[0]), kind="stable")[:5].tolist()
