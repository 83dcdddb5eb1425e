"""Rows of files called from the disk: which pages, that they come, and that no others do."""

import ctypes
import mmap
import os
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.data.features import Features, open_array, open_file_or_pieces
from in2r.data.mapped import call_rows, map_below, page_runs

PAGE = mmap.PAGESIZE


def resident(path):
    """Return which pages of a file are in memory, by the system's own account."""
    size = path.stat().st_size
    found = (ctypes.c_ubyte * -(-size // PAGE))()
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        view = ctypes.c_char.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), found)
        del view
        assert not failed
    return np.frombuffer(found, np.uint8) % 2 == 1


def put_out(path):
    """Take a file out of memory; skip where its file system does not let go of it."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("no posix_fadvise")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(path).any():
        pytest.skip("the file system keeps its files in memory")


def awaited(path, pages):
    """Wait until pages are in memory; return all that are."""
    for _ in range(500):
        if resident(path)[pages].all():
            break
        time.sleep(0.01)
    return np.flatnonzero(resident(path))


def big(path, rows=3000, dim=512):
    np.save(path, np.arange(rows * dim, dtype=np.float32).reshape(rows, dim) % 1000)
    return path


@given(
    st.integers(0, 3 * PAGE),
    st.integers(1, 3 * PAGE),
    st.lists(st.integers(0, 200), min_size=1, max_size=40),
)
def test_runs_are_the_pages_of_the_rows_and_no_two_touch(start, size, rows):
    first, end = page_runs(start, size, np.array(rows))
    expected = {byte // PAGE for row in rows for byte in (start + row * size, start + (row + 1) * size - 1)}
    expected |= {page for page in range(201 * 4 + 4) for row in rows
                 if start + row * size <= page * PAGE < start + (row + 1) * size}  # fmt: skip
    found = [page for one, other in zip(first, end, strict=True) for page in range(one // PAGE, other // PAGE)]
    assert found == sorted(expected)
    assert (first[1:] > end[:-1]).all()


def test_runs_by_hand():
    # rows of half a page that begin 128 bytes into the file: row 1 lies in pages 0 and 1
    first, end = page_runs(128, PAGE // 2, np.array([7, 1, 7]))
    assert (first.tolist(), end.tolist()) == ([0, 3 * PAGE], [2 * PAGE, 5 * PAGE])
    first, end = page_runs(128, 64, np.arange(1000))  # one run
    assert (first.tolist(), end.tolist()) == ([0], [-(-(128 + 64000) // PAGE) * PAGE])


def test_called_rows_come_and_no_others(tmp_path):
    path = big(tmp_path / "ims.npy")
    put_out(path)
    array = open_array(path)
    header = resident(path)  # what opening has read
    call_rows(array[1000:], np.array([1900, 20, 500]))
    pages = [page for row in (2900, 1020, 1500)
             for page in range((128 + row * 2048) // PAGE, (128 + (row + 1) * 2048 - 1) // PAGE + 1)]  # fmt: skip
    found = awaited(path, pages)
    assert set(found) == set(pages) | set(np.flatnonzero(header))


def test_rows_that_follow_each_other_are_left_to_the_system(tmp_path):
    path = big(tmp_path / "ims.npy")
    put_out(path)
    array = open_array(path)
    header = resident(path)
    call_rows(array, np.arange(1000, 1400))
    time.sleep(0.1)
    assert np.array_equal(resident(path), header)


def test_a_gather_of_files_that_are_not_in_memory_is_exact_and_reads_little_around(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    files = [big(folder / f"images-{number}.npy") for number in range(2)]
    for file in files:
        put_out(file)
    features = Features(open_file_or_pieces(folder), np.arange(6000))
    opened = sum(resident(file).sum() for file in files)
    items = np.random.default_rng(0).integers(0, 6000, 50)
    values, _ = features.gather(torch.as_tensor(items))
    expected = (np.arange(512) + 512 * (items[:, None] % 3000)) % 1000
    assert np.array_equal(values[:, 0].numpy(), expected.astype(np.float32))
    assert sum(resident(file).sum() for file in files) - opened <= 2 * 50  # a row lies in two pages at most


@pytest.mark.parametrize("order", ["F", "C"])
def test_what_cannot_be_called_is_left_alone(tmp_path, order):
    values = np.asarray(np.arange(12.0).reshape(4, 3), order=order)
    path = tmp_path / "ims.npy"
    np.save(path, values)
    for array in (values, np.load(path, mmap_mode="r")[:, ::2], np.load(path, mmap_mode="r")):
        call_rows(array, np.array([3, 0]))
        call_rows(array, np.array([], np.int64))


def test_the_map_below_an_array(tmp_path):
    path = big(tmp_path / "ims.npy", rows=4)
    mapped = np.load(path, mmap_mode="r")
    assert map_below(np.asarray(mapped)[1:, None, ::2]).base is mapped.base
    assert map_below(np.array(mapped)) is None
    assert map_below(np.frombuffer(bytes(8))) is None
