import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import agreement, closeness, cosines_with, nearest_references
from in2r.evidence.vectors import Centred, centred


def drawn(*shape, seed=0):
    return centred(torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


# The nearest references


@given(
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(1, 25),
    st.integers(1, 4),
    st.integers(1, 999),
    st.integers(0, 99),
)
def test_the_nearest_are_those_of_a_full_search(queries, references, neighbors, groups, block_bytes, seed):
    v, r = drawn(queries, 5, seed=seed), drawn(references, 5, seed=seed + 1)
    own, theirs = torch.arange(queries) % groups, torch.arange(references) % groups
    found, cosine = nearest_references(v, r, own, theirs, neighbors, block_bytes)
    assert found.shape == cosine.shape == (queries, min(neighbors, references))
    for q in range(queries):
        order = sorted((k for k in range(references) if theirs[k] != own[q]), key=lambda k: -float(v[q] @ r[k]))
        there = min(len(order), found.shape[1])
        expected = [float(v[q] @ r[k]) for k in order[:there]]
        assert cosine[q, :there].tolist() == pytest.approx(expected)
        assert [float(v[q] @ r[k]) for k in found[q, :there]] == pytest.approx(expected)
        assert all(theirs[k] != own[q] for k in found[q, :there])
        assert (cosine[q, there:] == -torch.inf).all()


def test_centred_rows_are_those_of_a_centred_copy():
    values = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)) + 3
    rows, some = Centred(values), torch.tensor([8, 2, 2, 0])
    torch.testing.assert_close(rows[some], centred(values)[some], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(rows[3:6], centred(values)[3:6])
    exact = Centred(torch.tensor([[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]]))
    assert exact[:].tolist() == [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]  # the last one is the mean


def test_closeness_by_hand():
    found = closeness(torch.tensor([[0.9, 0.8, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]]), 0.2)
    torch.testing.assert_close(found, torch.tensor([[1.0, math.exp(-0.5), 0.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(closeness(torch.tensor([[0.5, 0.4]])), torch.tensor([[1.0, math.exp(-1)]]))


# The agreement


@given(st.integers(1, 12), st.integers(1, 20), st.integers(1, 6), st.integers(1, 999), st.integers(0, 99))
def test_cosines_equal_plain_loops_in_any_blocks(judged, references, neighbors, block_bytes, seed):
    x, r = drawn(judged, 4, seed=seed), drawn(references, 4, seed=seed + 1)
    near = torch.randint(references, (judged, neighbors), generator=torch.Generator().manual_seed(seed))
    found = cosines_with(x, r, near, block_bytes)
    expected = [[float(x[p] @ r[k]) for k in row] for p, row in enumerate(near.tolist())]
    assert found.tolist() == [pytest.approx(row) for row in expected]


def test_agreement_by_hand():
    cosine, weight = torch.tensor([[1.0, -1.0], [0.8, 0.0]]), torch.tensor([[0.5, 1.5], [1.0, 0.0]])
    first = (0.5 * 1 + 1.5 * math.exp(-4)) / 2
    found = agreement(cosine, weight, temperature=0.5, floor=0.01)
    torch.testing.assert_close(found, torch.tensor([first + 0.01, math.exp(-0.4) + 0.01]).log())


@given(st.lists(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 5)), min_size=3, max_size=3), min_size=1, max_size=9))
def test_agreement_equals_plain_loops(rows):
    cosine, weight = torch.tensor(rows, dtype=torch.float64).unbind(dim=2)
    for found, row in zip(agreement(cosine, weight).tolist(), rows, strict=True):
        total = sum(w for _, w in row)
        if total == 0:
            assert math.isnan(found)  # nobody can be asked
        elif total > 1e-300:
            support = sum(w * math.exp((c - 1) / 0.1) for c, w in row)
            assert found == pytest.approx(math.log(1e-6 + support / total))


def test_where_nobody_can_be_asked_it_is_not_known():
    weight = torch.tensor([[0.0, 0.0], [0.0, 1e-30], [1.0, 0.0]])
    assert agreement(torch.zeros(3, 2), weight).isnan().tolist() == [True, False, False]


def test_wrong_arguments_are_named():
    x, r, near = drawn(3, 4), drawn(5, 4, seed=1), torch.zeros(3, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"weight must have the cosines' shape \(3, 2\), got \(3, 1\)"):
        agreement(torch.zeros(3, 2), torch.ones(3, 1))
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        agreement(torch.zeros(3, 2), torch.ones(3, 2), temperature=0)
    with pytest.raises(ValueError, match=r"near must be \(3, neighbours\), got \(2, 2\)"):
        cosines_with(x, r, near[:2])
    with pytest.raises(ValueError, match=r"references must be a matrix \(rows, 4\), got shape \(5, 3\)"):
        cosines_with(x, r[:, :3], near)
    with pytest.raises(ValueError, match="neighbors must be a whole number of at least 1, got 0"):
        nearest_references(x, r, torch.arange(3), torch.arange(5), 0)
    with pytest.raises(ValueError, match=r"reference_group must be torch.int64 of shape \(5,\), got torch.int64 of"):
        nearest_references(x, r, torch.arange(3), torch.arange(4), 1)
