import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from in2r.data.augment import augment_words, drop_regions
from in2r.data.text.vocabulary import Vocabulary

SIZE, MASK_ID = 50, 7  # <mask> in the middle: random words must step over it


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def captions(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """<start>, `length` distinct ordinary words, <end>, zeros."""
    ids = torch.zeros(len(lengths), max(lengths) + 2, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, : length + 2] = torch.tensor([Vocabulary.START, *range(10, 10 + length), Vocabulary.END])
    return ids, ids != 0


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_captions_stay_well_formed(lengths, rate, seed):
    ids, mask = captions(lengths)
    before = ids.clone()
    new, kept = augment_words(ids, mask, generator(seed), SIZE, MASK_ID, rate)
    assert torch.equal(ids, before)
    assert new.shape == kept.shape == ids.shape
    assert torch.equal(kept, torch.arange(ids.shape[1]) < kept.sum(1, keepdim=True))  # moved to the left
    assert (new[~kept] == 0).all()
    for row, length in enumerate(lengths):
        tokens = new[row, kept[row]].tolist()
        assert tokens[0] == Vocabulary.START
        assert tokens[-1] == Vocabulary.END
        assert min(length, 1) + 2 <= len(tokens) <= length + 2
        assert all(Vocabulary.UNK < token < SIZE for token in tokens[1:-1])
        survivors = [token for token in tokens[1:-1] if 10 <= token < 10 + length]
        if rate == 0:
            assert survivors == list(range(10, 10 + length))


def test_each_kind_of_touch_has_its_share():
    ids = torch.full((2000, 50), 30)
    new, kept = augment_words(ids, torch.ones_like(ids, dtype=torch.bool), generator(), SIZE, MASK_ID, 0.2)
    total = ids.numel()
    masked = (new == MASK_ID).sum().item() / total
    exchanged = (kept & (new != MASK_ID) & (new != 30)).sum().item() / total
    deleted = (~kept).sum().item() / total
    assert masked == pytest.approx(0.1, abs=0.005)
    assert exchanged == pytest.approx(0.02, abs=0.003)
    assert deleted == pytest.approx(0.08, abs=0.005)


def test_random_words_are_all_ordinary_words_but_mask():
    ids = torch.full((4000, 10), 30)
    new, kept = augment_words(ids, torch.ones_like(ids, dtype=torch.bool), generator(), 10, MASK_ID, 1.0)
    assert set(new[kept].unique().tolist()) == {4, 5, 6, 7, 8, 9}


def test_deleted_words_leave_the_order_of_the_others():
    ids, mask = captions([12] * 200)  # words 10, 11, ..., so that exchanged ones (4 to 9) can be told from them
    new, kept = augment_words(ids, mask, generator(3), 10, MASK_ID, 0.5)
    for row in new.tolist():
        survivors = [token for token in row if token >= 10]
        assert survivors == sorted(set(survivors))
    assert kept.sum() < mask.sum()


def test_one_word_captions_never_become_empty():
    ids, mask = captions([1] * 5000)
    _, kept = augment_words(ids, mask, generator(), SIZE, MASK_ID, 0.9)
    assert (kept.sum(1) == 3).all()
    bare = torch.full((5000, 2), 10)  # without <start> and <end> too
    _, kept = augment_words(bare, torch.ones_like(bare, dtype=torch.bool), generator(), SIZE, MASK_ID, 0.9)
    assert kept.any(1).all()
    assert not kept.all()


@given(st.integers(1, 6), st.integers(1, 9), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_regions_stay_real_and_at_least_one(rows, regions, rate, seed):
    lengths = torch.randint(1, regions + 1, (rows, 1), generator=generator(seed))
    mask = torch.arange(regions) < lengths
    kept = drop_regions(mask, (rows, regions), generator(seed), rate)
    assert kept.dtype == torch.bool
    assert (kept & ~mask).sum() == 0
    assert kept.any(1).all()
    if rate == 0:
        assert torch.equal(kept, mask)
    if rate == 1:
        assert torch.equal(kept.sum(1), torch.ones(rows, dtype=torch.int64))


def test_regions_are_dropped_at_the_rate_and_a_single_one_never():
    kept = drop_regions(None, (2000, 36), generator(), 0.2)
    assert kept.float().mean().item() == pytest.approx(0.8, abs=0.005)
    assert drop_regions(None, (500, 1), generator(), 0.9).all()


@given(st.integers(1, 9), st.integers(1, 12), st.floats(0, 1), st.integers(0, 99))
def test_exactly_a_share_of_each_images_regions_is_left_out(rows, regions, rate, seed):
    lengths = torch.randint(0, regions + 1, (rows, 1), generator=generator(seed))
    mask = torch.arange(regions) < lengths
    kept = drop_regions(mask, (rows, regions), generator(seed), rate, exact=True)
    assert (kept & ~mask).sum() == 0
    wanted = torch.tensor([min(n, max(1, round((1 - rate) * n))) for n in lengths[:, 0].tolist()])
    assert torch.equal(kept.sum(1), wanted)


def test_each_region_is_left_out_as_often_as_the_others():
    kept = drop_regions(None, (4000, 10), generator(), 0.6, exact=True)
    assert torch.equal(kept.sum(1), torch.full((4000,), 4))
    torch.testing.assert_close(kept.float().mean(0), torch.full((10,), 0.4), rtol=0, atol=0.04)


def test_same_generator_state_gives_the_same_gaps():
    ids, mask = captions([5, 9])
    first = augment_words(ids, mask, generator(4), SIZE, MASK_ID, 0.5)
    again = augment_words(ids, mask, generator(4), SIZE, MASK_ID, 0.5)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(drop_regions(None, (9, 9), generator(1)), drop_regions(None, (9, 9), generator(2)))
