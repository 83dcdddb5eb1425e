"""Which pairs a step sees: every driving pair once an epoch, others cycled beside it, all from names alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.methods import Walk
from in2r.training.order import Batching, EpochOrder

WALKS = (Walk("clean"), Walk("noisy"))


def order(
    clean: int, noisy: int, batch: int, *names: str | int, seed: int = 0, walks: tuple[Walk, ...] = WALKS
) -> EpochOrder:
    """Clean pairs 0, 1, ...; noisy pairs 1000, 1001, ..."""
    sets = {"clean": torch.arange(clean), "noisy": 1000 + torch.arange(noisy)}
    return EpochOrder(walks, sets, Batching(batch), seed, *names)


@given(st.integers(2, 70), st.integers(2, 20), st.integers(0, 2**40))
def test_each_clean_pair_is_seen_once(clean: int, batch: int, seed: int) -> None:
    made = order(clean, 0, batch, "A", 0, seed=seed)
    batches = [made.batch("clean", step) for step in range(len(made))]
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
        left |= set(range(9)) - set(torch.cat([made.batch("clean", 0), made.batch("clean", 1)]).tolist())
    assert left == set(range(9))


@given(st.integers(2, 60), st.integers(2, 20), st.integers(1, 200))
def test_noisy_batches_are_full_and_hold_no_pair_twice(noisy: int, batch: int, steps: int) -> None:
    made = order(4, noisy, batch, "B", 3)
    size = min(batch, noisy)
    for step in range(steps):
        pairs = made.batch("noisy", step)
        assert pairs is not None
        assert len(set(pairs.tolist())) == len(pairs) == size
        assert set(pairs.tolist()) <= set(range(1000, 1000 + noisy))


@given(st.integers(2, 60), st.integers(2, 20))
def test_a_turn_holds_no_pair_twice_and_the_next_turn_is_reshuffled(noisy: int, batch: int) -> None:
    made = order(4, noisy, batch, "A", 0)
    size = min(batch, noisy)
    turn = noisy // size
    first = torch.cat([made.batch("noisy", step) for step in range(turn)]).tolist()  # type: ignore[misc]
    second = torch.cat([made.batch("noisy", turn + step) for step in range(turn)]).tolist()  # type: ignore[misc]
    assert len(set(first)) == len(first) == turn * size
    if noisy >= 10:
        assert first != second


def test_in_the_long_run_every_noisy_pair_comes_as_often() -> None:
    made = order(4, 7, 4, "A", 0)  # three of seven are left out of each turn
    counts = torch.bincount(torch.cat([made.batch("noisy", step) for step in range(700)]) - 1000)  # type: ignore[misc]
    assert counts.sum() == 2800
    assert ((counts > 320) & (counts < 480)).all()


@pytest.mark.parametrize("noisy", [0, 1])
def test_fewer_than_two_noisy_pairs_make_no_batch(noisy: int) -> None:
    assert order(4, noisy, 4, "A", 0).batch("noisy", 0) is None


def test_the_order_is_a_function_of_seed_and_names() -> None:
    def drawn(*names: str | int, seed: int = 0) -> list[int]:
        made = order(30, 20, 5, *names, seed=seed)
        return made.batch("clean", 0).tolist() + made.batch("noisy", 5).tolist()  # type: ignore[union-attr]

    torch.manual_seed(3)
    first = drawn("A", 0)
    torch.manual_seed(4)
    assert drawn("A", 0) == first
    others = [drawn("B", 0), drawn("A", 1), drawn("A", 0, seed=1)]
    assert all(first[:5] != other[:5] and first[5:] != other[5:] for other in others)


def test_any_step_can_be_asked_for_first() -> None:
    """A resumed run begins in the middle of an epoch."""
    straight, jumped = order(30, 11, 4, "A", 2), order(30, 11, 4, "A", 2)
    expected = [straight.batch("noisy", step).tolist() for step in range(9)]  # type: ignore[union-attr]
    for step in (8, 3, 4, 0):
        assert jumped.batch("noisy", step).tolist() == expected[step]  # type: ignore[union-attr]


# --- how a set may be passed over


@given(st.integers(2, 70), st.integers(2, 20))
def test_a_driving_set_of_whole_batches_leaves_the_rest_out(clean: int, batch: int) -> None:
    made = order(clean, 0, batch, "A", 0, walks=(Walk("clean", whole=True), Walk("noisy")))
    assert len(made) == max(1, clean // batch)  # where nothing fills a batch, there is one smaller one
    assert made.left_out == (clean % batch if clean >= batch else 0)
    size = min(batch, clean)
    assert all(len(made.batch("clean", step)) == size for step in range(len(made)))  # type: ignore[arg-type]


def test_a_set_that_is_not_cycled_is_passed_over_once_and_then_absent() -> None:
    once = order(40, 11, 4, "A", 2, walks=(Walk("clean"), Walk("noisy", again=False)))
    cycled = order(40, 11, 4, "A", 2)
    drawn = [once.batch("noisy", step) for step in range(5)]
    assert [None if pairs is None else pairs.tolist() for pairs in drawn] == [
        cycled.batch("noisy", 0).tolist(), cycled.batch("noisy", 1).tolist(), None, None, None,  # type: ignore[union-attr]
    ]  # fmt: skip


def test_a_set_of_whole_batches_beside_the_driving_one_needs_a_full_one() -> None:
    whole = (Walk("clean"), Walk("noisy", whole=True))
    assert order(8, 3, 4, "A", 0, walks=whole).batch("noisy", 0) is None
    made = order(8, 9, 4, "A", 0, walks=whole)
    assert [len(made.batch("noisy", step)) for step in range(5)] == [4] * 5  # type: ignore[arg-type]


def test_more_than_one_set_may_be_passed_over_beside_the_driving_one() -> None:
    walks = (*WALKS, Walk("others"))
    sets = {"clean": torch.arange(9), "noisy": 1000 + torch.arange(4), "others": 2000 + torch.arange(6)}
    made = EpochOrder(walks, sets, Batching(3), 0, "A")
    assert sorted(torch.cat([made.batch("others", step) for step in range(2)]).tolist()) == list(range(2000, 2006))  # type: ignore[misc]
    assert set(made.batch("noisy", 0).tolist()) < set(range(1000, 1004))  # type: ignore[union-attr]


# --- batches of images


@given(st.lists(st.integers(0, 12), min_size=2, max_size=60), st.integers(2, 6), st.integers(1, 4), st.integers(0, 99))
def test_an_epoch_passes_over_each_image_once_with_some_of_its_pairs(
    images: list[int], size: int, captions: int, seed: int
) -> None:
    of = torch.tensor(images)
    made = EpochOrder((Walk("all"),), {"all": torch.arange(len(of))}, Batching(size, of, captions), seed, "A", 0)
    batches = [made.batch("all", step) for step in range(len(made))]
    seen = torch.cat(batches) if batches else of[:0]  # type: ignore[arg-type]
    assert len(set(seen.tolist())) == len(seen) == len(of) - made.left_out
    for batch in batches:
        assert batch is not None
        assert 2 <= len(set(of[batch].tolist())) <= size
    distinct = len(set(images))
    expected = distinct - (distinct % size == 1)
    assert len(set(of[seen].tolist())) == expected
    for image in set(of[seen].tolist()):
        assert int((of[seen] == image).sum()) == min(captions, images.count(image))


def test_pairs_of_an_image_are_drawn_by_their_weights_and_those_of_weight_zero_last() -> None:
    of, weights = torch.arange(3000) // 3, torch.tensor([3.0, 1.0, 0.0]).repeat(1000)
    drawn = Batching(10, of, 1, weights).draw(torch.arange(3000), torch.Generator().manual_seed(0))
    counts = torch.bincount(drawn.pairs % 3, minlength=3).tolist()
    assert counts[2] == 0
    assert 700 < counts[0] < 800  # 750 expected, standard deviation 14
    both = Batching(10, of, 2, weights).draw(torch.arange(3000), torch.Generator().manual_seed(0))
    assert torch.bincount(both.pairs % 3, minlength=3).tolist() == [1000, 1000, 0]


def test_other_epochs_draw_other_pairs_and_another_order() -> None:
    of = torch.arange(40) // 4
    one, other = (
        EpochOrder((Walk("all"),), {"all": torch.arange(40)}, Batching(5, of, 2), 0, "A", epoch) for epoch in range(2)
    )
    first, second = one.batch("all", 0), other.batch("all", 0)
    assert first is not None
    assert second is not None
    assert of[first].unique().tolist() != of[second].unique().tolist()


@given(st.integers(2, 40), st.integers(2, 6), st.integers(1, 60))
def test_a_set_beside_the_driving_one_is_cycled_by_images(images: int, size: int, steps: int) -> None:
    of = torch.arange(10 + 3 * images) // 3
    sets = {"clean": torch.arange(6), "noisy": torch.arange(6, 3 * images)}
    made = EpochOrder(WALKS, sets, Batching(size, of, 2), 0, "A")
    for step in range(steps):
        batch = made.batch("noisy", step)
        count = len(of[sets["noisy"]].unique()) if len(sets["noisy"]) else 0
        if count < 2:
            assert batch is None
        else:
            assert batch is not None
            assert len(of[batch].unique()) == min(size, count)
            assert int(torch.bincount(of[batch]).max()) <= 2
