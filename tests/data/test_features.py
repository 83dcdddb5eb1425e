"""Features: exact gathers, masks, blocks, files that cannot be used, files larger than memory."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import in2r.data.features as module
from in2r.data.features import Features, open_array, require_finite, unusable
from in2r.errors import InputError


def counting(rows, regions=2, dim=3, dtype=np.float32):
    return np.arange(rows * regions * dim, dtype=dtype).reshape(rows, regions, dim)


def test_gather_reads_the_rows_of_the_items_in_their_order():
    features = Features(counting(6), np.array([0, 3, 5]))
    values, mask = features.gather(torch.tensor([2, 0, 2]))
    assert mask is None
    assert values.tolist() == [counting(6)[5].tolist(), counting(6)[0].tolist(), counting(6)[5].tolist()]
    assert (len(features), features.regions, features.dim) == (3, 2, 3)


def test_half_precision_is_widened_and_the_batch_is_a_copy(tmp_path):
    path = tmp_path / "ims.npy"
    np.save(path, counting(4, dtype=np.float16))
    features = Features(open_array(path), np.arange(4))
    values, _ = features.gather(torch.tensor([1]))
    assert values.dtype == torch.float32
    values.zero_()
    assert features.gather(torch.tensor([1]))[0].tolist() == [[[6, 7, 8], [9, 10, 11]]]


def test_mask_marks_the_real_regions_of_each_item():
    features = Features(counting(3, regions=3), np.arange(3), np.array([1, 3, 2]))
    _, mask = features.gather(torch.tensor([1, 0, 2]))
    assert mask.tolist() == [[True, True, True], [True, False, False], [True, True, False]]
    _, mask = features.select(slice(1, 3)).gather(torch.tensor([1]))
    assert mask.tolist() == [[True, True, False]]


def test_what_lies_beyond_a_length_is_never_read():
    array = counting(4)
    array[1, 1], array[2, 1] = np.nan, np.inf
    features = Features(array, np.array([1, 2, 3]), np.array([1, 1, 2]))
    require_finite(features)
    for one in (features, features.resident()):
        values, mask = one.gather(torch.tensor([2, 0]))
        assert values.tolist() == [array[3].tolist(), [array[1, 0].tolist(), [0, 0, 0]]]
        assert mask.tolist() == [[True, True], [True, False]]
    array[2, 0, 1] = np.nan
    with pytest.raises(InputError, match=r"^features: row 2 "):
        require_finite(features)


def test_resident_keeps_the_items_and_drops_the_other_rows():
    features = Features(counting(10, dtype=np.float16), np.arange(0, 10, 5), np.array([2, 1]))
    resident = features.resident()
    whole = counting(10)
    whole[5, 1] = 0  # beyond its length
    assert resident.held.tolist() == whole[[0, 5]].tolist()
    assert resident.held.dtype == torch.float16
    assert features.nbytes == resident.nbytes == resident.held.nbytes == 2 * 2 * 3 * 2
    assert features.held is None
    values, mask = resident.gather(torch.tensor([1, 0, 1]))
    assert values.dtype == torch.float32
    assert values.tolist() == whole[[5, 0, 5]].tolist()
    assert mask.tolist() == [[True, False], [True, True], [True, False]]
    values.zero_()
    assert resident.gather(torch.tensor([1]))[0].tolist() == whole[[5]].tolist()
    assert resident.select(slice(1, 2)).gather(torch.tensor([0]))[0].tolist() == whole[[5]].tolist()


@given(st.integers(1, 40), st.integers(1, 200), st.sampled_from([np.float16, np.float32]))
def test_a_resident_copy_is_filled_block_by_block(items, block_bytes, dtype):
    features = Features(counting(items, dtype=dtype), np.arange(items)[::-1].copy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        resident = features.resident()
    everything = torch.arange(items)
    assert torch.equal(resident.gather(everything)[0], features.gather(everything)[0])


def test_two_axes_mean_one_region(tmp_path):
    np.save(tmp_path / "vectors.npy", np.ones((4, 7), np.float16))
    assert open_array(tmp_path / "vectors.npy").shape == (4, 1, 7)


@given(st.integers(1, 40), st.integers(1, 200))
def test_blocks_cover_every_item_once_in_order(items, block_bytes):
    features = Features(counting(items), np.arange(items)[::-1].copy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        blocks = list(features.blocks())
    assert np.concatenate([rows for rows, _ in blocks]).tolist() == features.rows.tolist()
    assert np.array_equal(np.concatenate([values for _, values in blocks]), counting(items)[::-1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_not_finite_is_unusable(dtype):
    special = np.array([0, -0.0, 1, -1, 65504, np.nan, np.inf, -np.inf, np.finfo(dtype).tiny], dtype)
    values = special[:, None, None].repeat(2, axis=1)
    values[:, 0] = 1
    assert unusable(values).tolist() == (~np.isfinite(special)).tolist()


def test_what_was_never_filled_is_unusable():
    values = np.ones((4, 1, 3), np.float32)
    values[1, 0, 2], values[2, 0, 0], values[3, 0, 1] = 2e12, -1e30, 1e12
    assert unusable(values).tolist() == [False, True, True, False]


def test_require_finite_names_file_and_row_of_the_items_only():
    array = counting(10)
    array[3, 1, 2] = np.nan
    require_finite(Features(array, np.arange(0, 10, 5)))
    array[5, 0, 0] = np.inf
    array[0, 0, 0] = np.inf
    with pytest.raises(
        InputError, match=r"^train_ims.npy: row 0 \(counted from 0\) holds NaN, infinity or a value beyond 1e12, 2 of 2"
    ):
        require_finite(Features(array, np.arange(0, 10, 5), source="train_ims.npy"))
    with pytest.raises(InputError, match=r"^features: row 5"):
        require_finite(Features(array, np.array([5])))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 2), np.int64), r"dtype int64; features are float16 or float32"),
        (np.ones((2, 2), np.complex64), r"dtype complex64"),
        (np.ones(3, np.float32), r"shape \(3,\); expected \(rows, regions, dim\) or \(rows, dim\)"),
        (np.ones((3, 0), np.float32), r"shape \(3, 0\)|not a readable npy"),
        (np.array([np.ones((2, 3)), np.ones((1, 3))], object), r"differ in shape; pad .* to image_lengths.npy"),
    ],
)
def test_unusable_arrays_are_refused_with_the_file(tmp_path, array, message):
    path = tmp_path / "ims.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(InputError, match=message) as caught:
        open_array(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(7, 2, 3), (7, 3)])
@pytest.mark.parametrize("dtype", ["f8", ">f4", "f4", "f2", ">f2", "g"])
def test_any_precision_and_order_is_read_as_the_plain_one_is(tmp_path, caplog, monkeypatch, order, shape, dtype):
    plain = np.random.default_rng(0).normal(size=shape).astype(np.float16 if "2" in dtype else np.float32)
    np.save(tmp_path / "ims.npy", plain.astype(dtype).copy(order=order))
    with caplog.at_level("INFO"):
        array = open_array(tmp_path / "ims.npy")
    monkeypatch.setattr(module, "BLOCK_BYTES", 2 * array[0].nbytes)
    assert ("converted block by block" in caplog.text) == (np.dtype(dtype) not in (np.float16, np.float32))
    assert ("stored in Fortran order" in caplog.text) == (order == "F")

    rows = np.array([6, 0, 3, 1])
    features, same = (Features(values, rows) for values in (array, plain.reshape(7, -1, 3)))
    assert (features.dtype, features.nbytes) == (plain.dtype, 4 * plain[0].nbytes)
    blocks = [values for _, values in features.blocks()]
    assert [len(values) for values in blocks] == [2, 2]
    assert all(values.flags.c_contiguous and values.dtype == plain.dtype for values in blocks)
    assert np.array_equal(np.concatenate(blocks), same.array[rows])
    for chosen in (features, features.resident()):
        assert torch.equal(chosen.gather(torch.tensor([2, 0]))[0], same.gather(torch.tensor([2, 0]))[0])


def test_only_the_rows_asked_for_are_converted(tmp_path):
    """A whole copy of the file would not fit into memory."""
    path = tmp_path / "huge.npy"
    shape = (200_000, 36, 2048)  # × 8 bytes: 118 GB, a hole
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        start = file.tell()
        try:
            file.truncate(start + int(np.prod(shape)) * 8)
        except OSError:
            pytest.skip("this disk has no sparse files")
        file.seek(-16, os.SEEK_END)
        file.write(np.array([1e300, 3.0]).tobytes())
    features = Features(open_array(path), np.arange(shape[0])[-2:])
    assert features.gather(torch.tensor([1]))[0][0, -1, -2:].tolist() == [np.inf, 3.0]
    with pytest.raises(InputError, match="row 199999"):
        require_finite(features)


def test_missing_cut_off_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "ims.npy"
    with pytest.raises(InputError, match="no such file"):
        open_array(path)
    np.save(path, np.ones((100, 100), np.float32))
    os.truncate(path, 20_000)
    with pytest.raises(InputError, match="not a readable npy array"):
        open_array(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="not a readable npy array"):
        open_array(path)
    path.write_text("no array at all")
    with pytest.raises(InputError, match=r"not a readable npy array \(no npy header\)"):
        open_array(path)
    with path.open("wb") as file:
        np.savez(file, a=np.ones(2))
    with pytest.raises(InputError, match="not an npy array"):
        open_array(path)


def test_a_file_far_larger_than_memory_is_opened_and_read(tmp_path):
    path = tmp_path / "huge.npy"
    rows = 1_800_000  # × 36 × 2048 × 2 bytes: 265 GB, nearly all of it a hole
    header = {"descr": "<f2", "fortran_order": False, "shape": (rows, 36, 2048)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        try:
            file.truncate(start + rows * 36 * 2048 * 2)
        except OSError:
            pytest.skip("this disk has no sparse files")
        file.seek(start + (rows - 1) * 36 * 2048 * 2)
        file.write(np.full(2, 3, np.float16).tobytes())
    features = Features(open_array(path), np.arange(rows))
    values, _ = features.gather(torch.tensor([rows - 1, 0]))
    assert values.sum((1, 2)).tolist() == [6, 0]


FILLING = """
import errno, sys
from pathlib import Path
import numpy as np
from in2r.data.features import create_npy

file = Path(sys.argv[1], "x.npy")
try:
    create_npy(file, np.float32, (10**6,))
except OSError as error:
    assert (error.errno, error.filename) == (errno.ENOSPC, str(file))
else:
    raise AssertionError
file.unlink()
create_npy(Path(sys.argv[1], "y.npy"), np.float32, (1000, 2))[:] = 3
assert np.load(Path(sys.argv[1], "y.npy")).sum() == 6000
"""


def test_a_file_to_be_filled_has_its_space_or_is_refused(tmp_path):
    """On a disk of one MiB: a write to space that is not there would end the process by a signal."""
    mount = f"mount -t tmpfs -o size=1m none {tmp_path}"
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if not hasattr(os, "posix_fallocate") or shutil.which("unshare") is None:
        pytest.skip("no small disk can be made here")
    if subprocess.run([*small, mount], capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be made here")
    script = f'{mount} && exec "$0" -c "$1" "$2"'
    subprocess.run([*small, script, sys.executable, FILLING, str(tmp_path)], check=True)


def cut_at(path, values):
    np.save(path, values)
    array = open_array(path)
    os.truncate(path, path.stat().st_size - 1)
    return array


@pytest.mark.parametrize(
    ("shape", "dtype", "order"),
    [((10, 2, 3), "float32", "C"), ((10, 3), "float32", "C"), ((10, 2, 3), "float64", "C"), ((10, 3), "float32", "F")],
)
def test_a_file_that_is_cut_short_while_it_is_open_is_named(tmp_path, shape, dtype, order):
    """A read past its end would end this process by a signal."""
    array = cut_at(tmp_path / "ims.npy", np.ones(shape, dtype, order=order))
    size = 128 + array.nbytes
    features = Features(array, np.arange(10)).select(slice(2, 5))
    for read in (lambda: features.gather(torch.tensor([0])), features.resident, lambda: list(features.blocks())):
        with pytest.raises(OSError, match=f"was cut short while it was in use, from {size} to {size - 1} bytes") as cut:
            read()
        assert cut.value.filename == str(tmp_path / "ims.npy")


def test_what_is_in_memory_or_was_grown_or_removed_is_whole(tmp_path):
    for values in (np.ones((2, 1, 3), np.float32), np.frombuffer(bytes(24), np.float32).reshape(2, 1, 3)):
        assert len(list(Features(values, np.arange(2)).blocks())) == 1
    path = tmp_path / "ims.npy"
    np.save(path, np.ones((2, 1, 3), np.float32))
    features = Features(open_array(path), np.arange(2))
    with path.open("ab") as file:
        file.write(b"more")
    path.unlink()
    assert features.gather(torch.tensor([1]))[0].sum() == 3
