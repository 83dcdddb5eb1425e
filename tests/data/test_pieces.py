"""Features in pieces: read as one array, whatever the cuts; each piece that does not belong is named."""

import os
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import in2r.data.features as module
from in2r.cli.main import main
from in2r.data.check import check_data
from in2r.data.features import Features, mean_regions, open_file_or_pieces
from in2r.data.fingerprint import SAMPLE_BYTES, SAMPLES
from in2r.data.pieces import Pieces, piece_files
from in2r.data.sources import open_data
from in2r.errors import InputError


def cut(folder, array, sizes, name="images-{:03}.npy"):
    """Write an array as pieces of so many rows."""
    folder.mkdir(parents=True)
    for number, part in enumerate(np.split(array, np.cumsum(sizes)[:-1])):
        np.save(folder / name.format(number), part)


@given(st.data(), st.sampled_from([np.float16, np.float32, np.float64]))
def test_pieces_are_read_as_the_whole_array_is(data, dtype):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    whole = np.random.default_rng(0).normal(size=(sum(sizes), 2, 3)).astype(dtype)
    rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=20)))
    lengths = data.draw(st.none() | st.just(1 + rows % 2))
    one = Features(whole, rows, lengths)
    other = Features(Pieces(np.split(whole, np.cumsum(sizes)[:-1])), rows, lengths)
    assert (len(other), other.regions, other.dim, other.dtype, other.nbytes) == (len(one), 2, 3, one.dtype, one.nbytes)
    items = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)), dtype=torch.int64)
    for some, same in (
        (other, one),
        (other.resident(), one.resident()),
        (other.select(slice(1, 4)), one.select(slice(1, 4))),
    ):
        chosen = items[items < len(some)]
        assert torch.equal(some.gather(chosen)[0], same.gather(chosen)[0])
    assert torch.equal(mean_regions(other), mean_regions(one))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", data.draw(st.integers(1, 300)))
        blocks, expected = list(other.blocks()), list(one.blocks())
    for (found, values), (wanted, theirs) in zip(blocks, expected, strict=True):
        assert found.tolist() == wanted.tolist()
        assert np.array_equal(values, theirs)
        assert values.dtype == theirs.dtype


def test_rows_beyond_the_pieces_are_refused():
    pieces = Pieces([np.ones((2, 1, 3), np.float32), np.ones((1, 1, 3), np.float32)])
    for rows in ([3], [0, -1]):
        with pytest.raises(IndexError, match="there are 0 to 2"):
            Features(pieces, np.array(rows)).gather(torch.arange(len(rows)))


def test_numbers_and_not_letters_say_the_order(tmp_path):
    for number in range(12):
        np.save(tmp_path / f"p{number}.npy", np.full((1, 2), number, np.float32))
    (tmp_path / "readme.txt").touch()
    (tmp_path / ".tmp-p3.x.npy").touch()  # what a killed process left
    features = Features(open_file_or_pieces(tmp_path), np.arange(12))
    assert features.gather(torch.arange(12))[0][:, 0, 0].tolist() == list(range(12))


def test_pieces_far_larger_than_memory_are_opened_and_read(tmp_path):
    shape = (600_000, 36, 2048)  # × 2 bytes: 88 GB each, nearly all of it a hole
    for number in range(3):
        with (tmp_path / f"{number}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
            try:
                file.truncate(file.tell() + int(np.prod(shape)) * 2)
            except OSError:
                pytest.skip("this disk has no sparse files")
            file.seek(-4, os.SEEK_END)
            file.write(np.full(2, number + 1, np.float16).tobytes())
    pieces = open_file_or_pieces(tmp_path)
    features = Features(pieces, np.arange(len(pieces)))
    values, _ = features.gather(torch.tensor([len(pieces) - 1, 0, shape[0] - 1]))
    assert values.sum((1, 2)).tolist() == [6, 0, 2]


WHOLE = np.random.default_rng(1).normal(size=(30, 4, 16)).astype(np.float16)
VECTORS = np.random.default_rng(2).normal(size=(60, 8)).astype(np.float16)


@pytest.fixture
def folders(tmp_path):
    """The same data twice: in files, and in pieces."""
    for name in ("files", "pieces"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pairs.csv").write_text("image,caption\n" + "".join(f"{row // 2},text {row}\n" for row in range(60)))
        np.save(folder / "image_lengths.npy", 1 + np.arange(30) % 4)
    np.save(tmp_path / "files" / "images.npy", WHOLE)
    np.save(tmp_path / "files" / "captions.npy", VECTORS)
    cut(tmp_path / "pieces" / "images", WHOLE, [11, 1, 18])
    cut(tmp_path / "pieces" / "captions", VECTORS, [59, 1])
    return tmp_path / "files", tmp_path / "pieces"


@pytest.mark.parametrize("vectors", [None, True, "captions"])
def test_a_folder_of_pieces_is_the_data_of_the_files(folders, vectors):
    one, other = (open_data(folder, caption_vectors=vectors) for folder in folders)
    assert other.fingerprint() == one.fingerprint()
    assert other.fingerprint(full=True) == one.fingerprint(full=True)
    for name in one.split_names:
        ours, theirs = other.split(name), one.split(name)
        for mine, its in ((ours.images, theirs.images), (ours.caption_vectors, theirs.caption_vectors)):
            assert (mine is None) == (its is None)
            if mine is not None:
                assert torch.equal(mine.gather(torch.arange(len(mine)))[0], its.gather(torch.arange(len(its)))[0])
    assert (other.unread_vectors() is None) == (vectors is not None)
    assert [str(split) for split in check_data(other).splits] == [str(split) for split in check_data(one).splits]


@pytest.mark.parametrize("shape", [(600, 10, 120), (700, 1000)])
def test_a_fingerprint_does_not_depend_on_the_cuts_nor_on_small_files(tmp_path, shape):
    """Beyond a MiB, blocks are sampled: those of the file that the pieces would make together."""
    whole = np.random.default_rng(0).normal(size=shape).astype(np.float16)
    assert whole.nbytes > SAMPLES * SAMPLE_BYTES
    hashes = []
    for number, sizes in enumerate([None, [1, shape[0] - 1], [shape[0] // 4] * 4]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "pairs.csv").write_text("image,caption,split\n0,a,train\n1,b,train\n")
        if sizes is None:
            np.save(folder / "images.npy", whole)
        else:
            cut(folder / "images", whole, sizes)
        data = open_data(folder)
        hashes.append((data.fingerprint(), data.fingerprint(full=True)))
    assert hashes[1] == hashes[2] == hashes[0]
    changed = np.load(tmp_path / "2" / "images" / "images-003.npy")
    changed[-1, ..., -1] += 1
    np.save(tmp_path / "2" / "images" / "images-003.npy", changed)
    assert open_data(tmp_path / "2").fingerprint() != hashes[0][0]


def test_names_in_data_json_may_be_folders(folders):
    _, folder = folders
    (folder / "images").rename(folder / "resnet")
    (folder / "captions").rename(folder / "sentences")
    (folder / "data.json").write_text('{"features": "resnet", "caption_vectors": "sentences"}')
    train = open_data(folder, caption_vectors=True).split("train")
    assert (train.images.array.shape, train.images.source) == ((30, 4, 16), "resnet")
    assert train.caption_vectors is not None


def test_a_folder_of_photos_beside_the_file_is_no_folder_of_pieces(folders):
    folder, _ = folders
    (folder / "images").mkdir()
    (folder / "images" / "photo.jpg").touch()
    assert open_data(folder).split("train").images.source == "images.npy"


def replaced(number, array, order="C"):
    return lambda folder: np.save(folder / f"images-{number:03}.npy", np.array(array, order=order))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "images-001.npy").unlink(), r"images: piece 1 of 3 is missing: the numbers"),
        (lambda folder: (folder / "images-000.npy").unlink(), r"images: piece 0 of 3 is missing"),
        (lambda folder: (folder / "images-001.npy").rename(folder / "b.npy"), r"b\.npy: no number at the end of its n"),
        (lambda folder: (folder / "images-001.npy").rename(folder / "x1.npy"), r"x1\.npy: named otherwise than"),
        (lambda folder: shutil.copy(folder / "images-001.npy", folder / "images-01.npy"), r"images-01\.npy: has the"),
        (lambda folder: os.truncate(folder / "images-002.npy", 500), r"images-002\.npy: not a readable npy array"),
        (replaced(1, np.ones((1, 4, 15), "f2")), r"images-001\.npy: rows of 4 × 15 float16, but .* has 4 × 16 f"),
        (replaced(2, np.ones((1, 3, 16), "f2")), r"images-002\.npy: rows of 3 × 16 float16, but"),
        (replaced(1, np.ones((1, 4, 16), "f4")), r"images-001\.npy: rows of 4 × 16 float32, but .* × 16 float16"),
        (replaced(1, np.ones((1, 4, 16), "i4")), r"images-001\.npy: dtype int32; features are float16 or float32"),
        (replaced(2, np.ones((18, 4, 16), "f2"), "F"), r"images-002\.npy: stored in Fortran order, but"),
        (lambda folder: np.save(folder.with_suffix(".npy"), WHOLE), r"images: a folder of npy files beside images\."),
        (lambda folder: (folder / "images-002.npy").unlink(), r"image_lengths\.npy: int64 \(30,\); expected .* 12 i"),
    ],
)  # fmt: skip
def test_a_piece_that_does_not_belong_is_named(folders, spoil, message):
    _, folder = folders
    spoil(folder / "images")
    with pytest.raises(InputError, match=message):
        open_data(folder)


def test_a_piece_that_is_cut_short_while_it_is_read_is_named(folders):
    _, folder = folders
    images = open_data(folder).split("train").images
    os.truncate(folder / "images" / "images-002.npy", 500)
    with pytest.raises(OSError, match="was cut short while it was in use") as cut_short:
        list(images.blocks())
    assert cut_short.value.filename == str(folder / "images" / "images-002.npy")


def test_more_pieces_than_files_may_be_open_is_said(folders, monkeypatch):
    resource = pytest.importorskip("resource")
    _, folder = folders
    shutil.rmtree(folder / "images")
    cut(folder / "images", WHOLE, [1] * 30)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    try:
        with pytest.raises(
            InputError, match=r"npy: this process may not hold more files open; cut features into fewer"
        ):
            open_data(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_feature_that_is_unusable_is_found_by_the_row_of_all(folders):
    _, folder = folders
    spoilt = WHOLE[11:12].copy()
    spoilt[0, 0, 0] = np.nan
    np.save(folder / "images" / "images-001.npy", spoilt)
    [fault] = [fault for fault in check_data(folder).faults if fault.level == "error"]
    assert str(fault) == "images: rows (from 0) with NaN, infinity or a value beyond 1e12: 1 (images row 11)"
    assert len(piece_files(folder / "images")) == 3


def test_training_and_an_index_do_not_see_the_cuts(folders, tmp_path, capsys):
    small = ["data.caption_vectors=auto", "model.dim=8", "train.epochs=1", "train.device=cpu"]
    found = []
    for folder in folders:
        run = tmp_path / f"{folder.name}_run"
        assert main(["train", "sce", f"data.path={folder}", *small, "--out", str(run)]) == 0
        assert main(["data", "check", str(folder)]) == 0
        fingerprint = capsys.readouterr().out.splitlines()[-1]
        index = tmp_path / f"{folder.name}_index"
        assert main(["index", str(run), str(folder), "--out", str(index), "--device", "cpu"]) == 0
        assert main(["index", "export", str(index), "--out", str(index.with_suffix(".npy"))]) == 0
        found.append((np.load(index.with_suffix(".npy")).tobytes(), fingerprint))
    assert found[0] == found[1]
    assert found[0][1].startswith("fingerprint: ")
    piece = folders[1] / "images" / "images-001.npy"
    np.save(piece, np.load(piece) + 1)
    assert main(["search", str(tmp_path / "pieces_index"), "--vector", str(tmp_path / "pieces_index.npy")]) == 2
    assert f"{folders[1] / 'images'}: changed since it was indexed; index it again" in capsys.readouterr().err
