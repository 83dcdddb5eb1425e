"""Positions of several right items: by hand, against the definition, against the package of ECCV Caption."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from in2r.metrics.matches import match_figures, right_positions


def test_by_hand() -> None:
    """R = 2, at places 1 and 3: P(1) = 1 counts, P(3) does not. R = 3, at 2, 3 and 4: 1/2 and 2/3 count."""
    first = right_positions(np.float32([0.9, 0.8, 0.7, 0.6]), np.array([2, 0]))
    second = right_positions(np.float32([0.9, 0.8, 0.7, 0.6]), np.array([1, 2, 3]))
    assert (first.tolist(), second.tolist()) == ([1, 3], [2, 3, 4])
    figures = match_figures([first, second])
    assert figures["map_at_r"] == pytest.approx(100 * (1 / 2 + (1 / 2 + 2 / 3) / 3) / 2)
    assert figures["r_precision"] == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)
    assert (figures["r1"], figures["r5"], figures["r10"]) == (50, 100, 100)


def test_a_right_item_that_is_no_candidate_stands_behind_all() -> None:
    assert right_positions(np.float32([0.9, 0.8, 0.7]), np.array([-1, 1, -1])).tolist() == [2, 5, 6]


def test_a_wrong_item_that_ties_counts_as_before_it() -> None:
    ties = np.float32([0.5, 0.5, 0.5 - 1e-7, 0.1])
    assert right_positions(ties, np.array([0])).tolist() == [2]
    assert right_positions(ties, np.array([0]), tolerance=1e-6).tolist() == [3]
    assert right_positions(np.zeros(9, np.float32), np.array([0, 4])).tolist() == [8, 9]  # collapsed: the worst places


queries = st.integers(2, 12).flatmap(
    lambda n: st.tuples(st.permutations(range(n)), st.sets(st.integers(0, n - 1), min_size=1))
)


@given(st.lists(queries, min_size=1, max_size=4))
def test_figures_are_those_of_the_definition(some: list[tuple[list[int], set[int]]]) -> None:
    found, average, precision = [], [], []
    for order, right in some:
        places = -np.array(order, dtype=np.float32)  # item k stands at order[k], from 0
        found.append(right_positions(places, np.array(sorted(right))))
        hits = [order.index(place) in right for place in range(len(order))]
        r = len(right)
        average.append(sum(sum(hits[: k + 1]) / (k + 1) for k in range(r) if hits[k]) / r)
        precision.append(sum(hits[:r]) / r)
    figures = match_figures(found)
    assert figures["map_at_r"] == pytest.approx(100 * np.mean(average))
    assert figures["r_precision"] == pytest.approx(100 * np.mean(precision))


def test_figures_are_those_of_eccv_caption() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of optional packages
        theirs = pytest.importorskip("eccv_caption._metrics", reason='no eccv-caption (pip install "in2r[eccv]")')
    rng = np.random.default_rng(0)
    absent = 60  # a right item that is not among the candidates
    similarity = rng.random((40, 60), dtype=np.float32)
    right = {query: rng.choice(61, rng.integers(1, 20), replace=False) for query in range(40)}
    ranked = {query: np.argsort(-similarity[query]).tolist() for query in range(40)}
    items = {query: found.tolist() for query, found in right.items()}
    places = [np.where(right[query] == absent, -1, right[query]) for query in range(40)]
    figures = match_figures([right_positions(similarity[q], places[q]) for q in range(40)])
    expected = theirs.compute_eccv_metrics(ranked, items)
    assert figures["map_at_r"] == pytest.approx(100 * expected["eccv_map_at_r"])
    assert figures["r_precision"] == pytest.approx(100 * expected["eccv_rprecision"])
    for at in (1, 5, 10):
        assert figures[f"r{at}"] == pytest.approx(100 * theirs.compute_r_at_k(ranked, items, at))
