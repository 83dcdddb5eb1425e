from collections import OrderedDict, deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import in2r.memory
from in2r.memory import MemoryBank

REFERENCE = {k: torch.from_numpy(v) for k, v in np.load(Path(__file__).parent / "arrays" / "memory.npz").items()}


def vectors(count, dim=4, seed=0):
    drawn = torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=1)


def push(bank, ids, groups=None, seed=0):
    """Push pairs whose first image and text coordinates tell the id and the draw they came from."""
    ids = torch.as_tensor(ids, dtype=torch.int64)
    images, texts = vectors(len(ids), bank.dim, seed), vectors(len(ids), bank.dim, seed + 1)
    bank.push(images, texts, ids, None if groups is None else torch.as_tensor(groups))
    return list(zip(images, texts, ids.tolist(), strict=True))


def assert_holds(bank, expected):
    images, texts, ids, _ = bank.entries()
    assert ids.tolist() == [entry[2] for entry in expected]
    assert len(bank) == len(expected)
    for image, text, entry in zip(images, texts, expected, strict=True):
        assert torch.equal(image, entry[0])
        assert torch.equal(text, entry[1])


def filled(count=12, capacity=20, dim=4):
    bank = MemoryBank(capacity, dim)
    push(bank, range(100, 100 + count), [i // 3 for i in range(count)])
    return bank


def test_equals_the_reference():
    bank = MemoryBank(20, 8)
    for step, size in enumerate(REFERENCE["memory.in.batch_sizes"].tolist()):
        images, texts = REFERENCE[f"memory.in.image_{step}"], REFERENCE[f"memory.in.text_{step}"]
        bank.push(images, texts, torch.arange(size))
        if len(bank) == bank.capacity:  # the oldest entry makes room for the next one
            assert torch.equal(bank.entries()[0][0], bank.images[REFERENCE[f"memory.out.pointer_{step}"]])
    assert torch.equal(bank.images, REFERENCE["memory.out.image_bank"])
    assert torch.equal(bank.texts, REFERENCE["memory.out.text_bank"])
    query = REFERENCE["memory.in.query_image"]
    for by, side, name in [
        ("image", "texts", "memory.out.mean_text_prototype_top3_unit_norm"),
        ("text", "images", "memory.out.mean_image_prototype_top3_unit_norm_text_query"),
    ]:
        mean = getattr(bank.nearest(query, 3, by=by), side).mean(1)
        torch.testing.assert_close(mean / mean.norm(dim=1, keepdim=True), REFERENCE[name], rtol=1e-5, atol=1e-6)


def test_starts_empty():
    bank = MemoryBank(5, 4)
    assert len(bank) == 0
    assert bank.entries()[0].shape == (0, 4)


def test_wraps_and_keeps_the_last_of_a_large_batch():
    bank = MemoryBank(10, 4)
    push(bank, range(7))
    push(bank, range(7, 14))
    assert bank.entries()[2].tolist() == list(range(4, 14))
    push(bank, range(14, 39))
    assert bank.entries()[2].tolist() == list(range(29, 39))


@given(capacity=st.integers(1, 7), sizes=st.lists(st.integers(0, 12), max_size=8))
def test_is_a_fifo(capacity, sizes):
    bank, model = MemoryBank(capacity, 4), deque(maxlen=capacity)
    for step, size in enumerate(sizes):
        model.extend(push(bank, [step * 100 + i for i in range(size)], seed=step))
        assert_holds(bank, list(model))


@given(
    capacity=st.integers(1, 6),
    batches=st.lists(st.lists(st.integers(0, 8), max_size=9), min_size=1, max_size=8),
)
def test_unique_keeps_the_newest_entry_of_each_pair_by_last_push(capacity, batches):
    bank, model = MemoryBank(capacity, 4, unique=True), OrderedDict()
    for step, ids in enumerate(batches):
        for entry in push(bank, ids, seed=step):
            model.pop(entry[2], None)
            model[entry[2]] = entry
        while len(model) > capacity:
            model.popitem(last=False)
        assert_holds(bank, list(model.values()))


@pytest.mark.parametrize("by", ["image", "text"])
@given(count=st.integers(1, 20), k=st.integers(1, 20), seed=st.integers(0, 99))
def test_nearest_equals_brute_force(by, count, k, seed):
    k = min(k, count)
    bank = MemoryBank(15, 4)
    push(bank, range(count), seed=seed)
    k = min(k, len(bank))
    images, texts, ids, _ = bank.entries()
    query = vectors(3, seed=seed + 7)
    found = bank.nearest(query, k, by=by)
    for row in range(3):
        scores = torch.stack([query[row] @ key for key in (images if by == "image" else texts)])
        order = scores.argsort(descending=True)[:k]
        torch.testing.assert_close(found.scores[row], scores[order])
        assert found.ids[row].tolist() == ids[order].tolist()
        assert torch.equal(found.images[row], images[order])
        assert torch.equal(found.texts[row], texts[order])


def test_nearest_by_hand():
    bank = MemoryBank(3, 2)
    images = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    bank.push(images, images.flip(0), torch.tensor([7, 8, 9]), torch.tensor([1, 1, 2]))
    found = bank.nearest(torch.tensor([[0.8, 0.6]]), 2)
    torch.testing.assert_close(found.scores, torch.tensor([[0.96, 0.8]]))
    assert found.ids.tolist() == [[8, 7]]
    assert found.groups.tolist() == [[1, 1]]
    torch.testing.assert_close(found.texts, torch.tensor([[[0.6, 0.8], [0.0, 1.0]]]))


@given(
    excluded=st.lists(st.lists(st.integers(-1, 4), min_size=2, max_size=2), min_size=3, max_size=3),
    ids=st.lists(st.integers(-1, 112), min_size=3, max_size=3),
)
def test_excluded_entries_never_appear(excluded, ids):
    bank, query = filled(), vectors(3, seed=5)
    found = bank.nearest(query, 12, exclude_groups=torch.tensor(excluded), exclude_ids=torch.tensor(ids))
    everything = bank.nearest(query, 12)
    for row in range(3):
        groups = everything.groups[row].tolist()
        allowed = [j for j in range(12) if groups[j] not in excluded[row] and everything.ids[row, j] != ids[row]]
        assert found.ids[row, : len(allowed)].tolist() == everything.ids[row, allowed].tolist()
        assert torch.equal(found.scores[row, : len(allowed)], everything.scores[row, allowed])
        assert found.scores[row, len(allowed) :].eq(-torch.inf).all()


def test_minus_one_excludes_nothing_even_entries_without_a_group():
    bank = MemoryBank(4, 4)
    push(bank, [0, 1])
    none = torch.tensor([-1])
    found = bank.nearest(vectors(1), 2, exclude_groups=none, exclude_ids=none)
    assert found.scores.isfinite().all()
    assert found.groups.eq(-1).all()


def test_no_gradient_enters_or_leaves():
    bank = MemoryBank(4, 4)
    images = vectors(3).requires_grad_()
    bank.push(images, images * 2, torch.arange(3))
    assert not any(b.requires_grad for b in bank.buffers())
    found = bank.nearest(images, 2)
    assert not any(value.requires_grad for value in found)
    with torch.no_grad():
        images.zero_()
    assert bank.images[:3].ne(0).any()  # a copy, not a view


def test_state_survives_saving(tmp_path):
    bank = filled(count=18, capacity=10)
    torch.save(bank.state_dict(), tmp_path / "bank.pt")
    loaded = MemoryBank(10, 4)
    loaded.load_state_dict(torch.load(tmp_path / "bank.pt", weights_only=True))
    for one in (bank, loaded):
        push(one, [1, 2, 3], seed=9)
    assert all(torch.equal(a, b) for a, b in zip(bank.entries(), loaded.entries(), strict=True))


def test_half_precision_embeddings_are_stored_in_float32():
    bank = MemoryBank(4, 4)
    bank.push(vectors(2).half(), vectors(2).bfloat16(), torch.arange(2))
    assert bank.nearest(vectors(1).half(), 1).scores.dtype == torch.float32


@pytest.mark.parametrize("k", [0, -1, 13])
def test_a_wrong_number_of_neighbors_is_refused(k):
    with pytest.raises(ValueError, match=f"k must be between 1 and the 12 entries held, got {k}"):
        filled().nearest(vectors(2), k)


def test_a_query_that_is_not_finite_is_refused():
    query = vectors(3)
    query[1, 2] = torch.nan
    with pytest.raises(ValueError, match="query row 1 has a NaN or infinite value"):
        filled().nearest(query, 2)


@pytest.mark.parametrize("shape", [(2, 5), (4,), (2, 1, 4)])
def test_a_query_of_another_width_is_refused(shape):
    with pytest.raises(ValueError, match="query must be batch × 4, got " + "×".join(map(str, shape))):
        filled().nearest(torch.ones(shape), 2)


def test_an_unknown_side_is_refused():
    with pytest.raises(ValueError, match="by must be 'image' or 'text', got 'audio'"):
        filled().nearest(vectors(2), 2, by="audio")


def test_faulty_pushes_are_refused_and_change_nothing():
    bank = filled()
    with pytest.raises(ValueError, match="texts must be batch × 4, got 2×3"):
        bank.push(vectors(2), vectors(2, dim=3), torch.arange(2))
    with pytest.raises(ValueError, match="2 images, 2 texts, 3 ids, 3 groups"):
        bank.push(vectors(2), vectors(2), torch.arange(3))
    with pytest.raises(ValueError, match="images row 0 has a NaN"):
        bank.push(torch.full((1, 4), torch.inf), vectors(1), torch.arange(1))
    assert bank.entries()[2].tolist() == list(range(100, 112))


def test_an_impossible_size_is_refused():
    with pytest.raises(ValueError, match="capacity and dim must be at least 1, got 0 and 4"):
        MemoryBank(0, 4)


def test_a_bank_with_gaps_is_counted_and_filled_right_by_one_that_never_makes_any():
    unique, plain = MemoryBank(5, 2, unique=True), MemoryBank(5, 2)
    keys = torch.nn.functional.normalize(torch.randn(4, 2))
    unique.push(keys[:3], keys[:3], torch.tensor([0, 1, 2]))
    unique.push(keys[:1], keys[:1], torch.tensor([0]))
    unique.push(keys[:1], keys[:1], torch.tensor([0]))
    plain.load_state_dict(unique.state_dict())
    assert len(plain) == 3
    plain.push(keys, keys, torch.tensor([5, 6, 7, 8]))
    assert len(plain) == 5
    assert plain.entries()[2].tolist() == [0, 5, 6, 7, 8]


def test_neighbours_unpack_as_scores_images_texts_ids():
    bank = MemoryBank(4, 4)
    push(bank, [7, 8, 9])
    found = bank.nearest(vectors(2), 2, by="text")
    scores, images, texts, ids = found
    assert scores is found.scores
    assert images is found.images
    assert texts is found.texts
    assert ids is found.ids


def test_ids_of_any_integer_type_are_taken():
    bank = MemoryBank(4, 4)
    ids = torch.tensor([7, 8], dtype=torch.int32)
    bank.push(vectors(2), vectors(2), ids, groups=ids.to(torch.int16))
    assert [tensor.tolist() for tensor in bank.entries()[2:]] == [[7, 8], [7, 8]]


class Made(TorchDispatchMode):
    """Notes the most numbers that any new tensor has; views of a memory's buffers are none."""

    def __init__(self, bank):
        super().__init__()
        self.kept = {buffer.untyped_storage().data_ptr() for buffer in bank.buffers()}
        self.most = 0

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        made = operation(*given, **(named or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.kept:
                self.most = max(self.most, tensor.numel())
        return made


@pytest.mark.parametrize("precision", [torch.float32, torch.float16])
def test_a_search_in_blocks_finds_what_one_product_finds_and_makes_nothing_larger(monkeypatch, precision):
    bank = MemoryBank(700, 16, precision=precision)
    push(bank, range(600), [i // 3 for i in range(600)])
    query, excluded = vectors(20, 16, seed=5), torch.arange(40).reshape(20, 2)
    by_hand = query @ bank.images[:600].float().T
    by_hand[(bank.groups[:600] == excluded[:, :1]) | (bank.groups[:600] == excluded[:, 1:])] = -torch.inf
    expected = by_hand.topk(7)
    for numbers in (2**23, 3000, 60):  # one block; blocks of 150 entries; of 3, fewer than k
        monkeypatch.setattr(in2r.memory, "NUMBERS", numbers)
        with Made(bank) as made:
            near = bank.nearest(query, 7, exclude_groups=excluded)
        torch.testing.assert_close(near.scores, expected.values, rtol=0, atol=1e-6)
        assert torch.equal(near.ids, bank.ids[expected.indices])
        assert near.images.dtype == near.texts.dtype == torch.float32
        if numbers == 3000:
            assert made.most <= 3000  # one product would have made 20 × 600


@given(st.integers(0, 999), st.integers(1, 64))
def test_half_precision_moves_a_score_by_less_than_its_rounding(seed, dim):
    """By Cauchy-Schwarz: |q · (k - k16)| ≤ |k - k16| ≤ 2⁻¹¹ |k|, beside what is smaller than the smallest number."""
    banks = [MemoryBank(50, dim, precision=precision) for precision in (torch.float32, torch.float16)]
    for bank in banks:
        push(bank, range(50), seed=seed)
    query = vectors(9, dim, seed=seed + 7)
    exact, half = (bank.nearest(query, 50) for bank in banks)
    bound = 2**-11 + dim**0.5 * 2**-25 + 1e-6
    by_id = [near.scores.gather(1, near.ids.argsort(dim=1)) for near in (exact, half)]
    assert (by_id[0] - by_id[1]).abs().max() <= bound
    # so an entry may change its place only with one that is as near up to twice the bound
    assert (exact.scores - by_id[0].gather(1, half.ids)).abs().max() <= 2 * bound


def test_half_precision_takes_half_the_memory_and_survives_saving():
    full, half = (MemoryBank(1000, 64, precision=precision) for precision in (torch.float32, torch.float16))
    assert half.images.nbytes == full.images.nbytes // 2 == 1000 * 64 * 2
    push(half, range(1200))
    again = MemoryBank(1000, 64, precision=torch.float16)
    again.load_state_dict(half.state_dict())
    for kept, found in zip(half.entries(), again.entries(), strict=True):
        assert torch.equal(kept, found)
    assert again.entries()[0].dtype == torch.float16
