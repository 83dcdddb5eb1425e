"""Which pairs a step sees: every clean pair once an epoch, noisy ones cycled, all from names alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.training.order import EpochOrder


def order(clean: int, noisy: int, batch: int, *names: str | int, seed: int = 0) -> EpochOrder:
    """Clean pairs 0, 1, ...; noisy pairs 1000, 1001, ..."""
    return EpochOrder(torch.arange(clean), 1000 + torch.arange(noisy), batch, seed, *names)


@given(st.integers(2, 70), st.integers(2, 20), st.integers(0, 2**40))
def test_each_clean_pair_is_seen_once(clean: int, batch: int, seed: int) -> None:
    made = order(clean, 0, batch, "A", 0, seed=seed)
    batches = [made.clean(step) for step in range(len(made))]
    seen = torch.cat(batches).tolist()
    assert len(set(seen)) == len(seen) == clean - made.left_out
    assert set(seen) <= set(range(clean))
    assert made.left_out == (1 if clean % batch == 1 else 0)
    assert [len(each) for each in batches[:-1]] == [batch] * (len(batches) - 1)
    assert 2 <= len(batches[-1]) <= batch


def test_a_last_batch_of_one_is_left_out_and_not_always_the_same_pair() -> None:
    assert len(order(9, 0, 4, "A", 0)) == 2
    assert len(order(10, 0, 4, "A", 0)) == 3
    left = set()
    for epoch in range(40):
        made = order(9, 0, 4, "A", epoch)
        left |= set(range(9)) - set(torch.cat([made.clean(0), made.clean(1)]).tolist())
    assert left == set(range(9))


@given(st.integers(2, 60), st.integers(2, 20), st.integers(1, 200))
def test_noisy_batches_are_full_and_hold_no_pair_twice(noisy: int, batch: int, steps: int) -> None:
    made = order(4, noisy, batch, "B", 3)
    size = min(batch, noisy)
    for step in range(steps):
        pairs = made.noisy(step)
        assert pairs is not None
        assert len(set(pairs.tolist())) == len(pairs) == size
        assert set(pairs.tolist()) <= set(range(1000, 1000 + noisy))


@given(st.integers(2, 60), st.integers(2, 20))
def test_a_turn_holds_no_pair_twice_and_the_next_turn_is_reshuffled(noisy: int, batch: int) -> None:
    made = order(4, noisy, batch, "A", 0)
    size = min(batch, noisy)
    turn = noisy // size
    first = torch.cat([made.noisy(step) for step in range(turn)]).tolist()  # type: ignore[misc]
    second = torch.cat([made.noisy(turn + step) for step in range(turn)]).tolist()  # type: ignore[misc]
    assert len(set(first)) == len(first) == turn * size
    if noisy >= 10:
        assert first != second


def test_in_the_long_run_every_noisy_pair_comes_as_often() -> None:
    made = order(4, 7, 4, "A", 0)  # three of seven are left out of each turn
    counts = torch.bincount(torch.cat([made.noisy(step) for step in range(700)]) - 1000)  # type: ignore[misc]
    assert counts.sum() == 2800
    assert ((counts > 320) & (counts < 480)).all()


@pytest.mark.parametrize("noisy", [0, 1])
def test_fewer_than_two_noisy_pairs_make_no_batch(noisy: int) -> None:
    assert order(4, noisy, 4, "A", 0).noisy(0) is None


def test_the_order_is_a_function_of_seed_and_names() -> None:
    def drawn(*names: str | int, seed: int = 0) -> list[int]:
        made = order(30, 20, 5, *names, seed=seed)
        return made.clean(0).tolist() + made.noisy(5).tolist()  # type: ignore[union-attr]

    torch.manual_seed(3)
    first = drawn("A", 0)
    torch.manual_seed(4)
    assert drawn("A", 0) == first
    others = [drawn("B", 0), drawn("A", 1), drawn("A", 0, seed=1)]
    assert all(first[:5] != other[:5] and first[5:] != other[5:] for other in others)


def test_any_step_can_be_asked_for_first() -> None:
    """A resumed run begins in the middle of an epoch."""
    straight, jumped = order(30, 11, 4, "A", 2), order(30, 11, 4, "A", 2)
    expected = [straight.noisy(step).tolist() for step in range(9)]  # type: ignore[union-attr]
    for step in (8, 3, 4, 0):
        assert jumped.noisy(step).tolist() == expected[step]  # type: ignore[union-attr]
