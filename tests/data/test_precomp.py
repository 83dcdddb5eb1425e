"""Precomp folders: redundancy per split, dev rules, caption files as the field reads them, fingerprints."""

import shutil

import numpy as np
import pytest
import torch

from in2r.data.check import check_data
from in2r.data.fingerprint import changed_splits
from in2r.data.pairs import require_usable
from in2r.data.sources import open_data
from in2r.errors import InputError


def write_split(folder, name, images, *, redundant=False, captions=None, regions=2, dim=3, dtype=np.float32):
    folder.mkdir(exist_ok=True)
    array = np.random.default_rng(images).normal(size=(images, regions, dim)).astype(dtype)
    np.save(folder / f"{name}_ims.npy", array.repeat(5, axis=0) if redundant else array)
    captions = captions or [f"{name} caption {k}" for k in range(5 * images)]
    (folder / f"{name}_caps.txt").write_text("".join(f"{caption}\n" for caption in captions), encoding="utf-8")
    return array


@pytest.mark.parametrize("redundant", [False, True])
def test_images_are_read_once_in_either_storage(tmp_path, redundant):
    array = write_split(tmp_path, "train", 4, redundant=redundant)
    pairs = open_data(tmp_path).split("train")
    assert pairs.image_of_caption.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    assert pairs.image_of_caption.dtype == np.int64
    assert np.array_equal(pairs.images.gather(torch.arange(4))[0].numpy(), array)
    assert pairs.captions[7] == "train caption 7"
    assert pairs.caption_vectors is None
    assert list(pairs.image_ids) == ["train:0", "train:1", "train:2", "train:3"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a", "b", "c", "d", "", " ", ""], ["a", "b", "c", "d"]),
        ([name for name in "abcd" for _ in range(5)], ["a", "b", "c", "d"]),
        (["a", "", "c", "d"], ["a", "", "c", "d"]),
    ],
)
def test_image_ids_for_each_image_or_caption(tmp_path, caplog, lines, expected):
    write_split(tmp_path, "train", 4)
    (tmp_path / "train_ids.txt").write_text("".join(f"{line}\n" for line in lines))
    assert open_data(tmp_path).split("train").image_ids == expected
    assert caplog.text == ""


def test_image_ids_that_do_not_fit_are_said(tmp_path, caplog):
    write_split(tmp_path, "train", 4)
    (tmp_path / "train_ids.txt").write_text("a\nb\nc\n")
    assert open_data(tmp_path).split("train").image_ids == ["train:0", "train:1", "train:2", "train:3"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/train_ids.txt: 3 ids, but 4 images with 20 captions; not used, so the images are named train:0, "
        "train:1, ..."
    ]


def test_redundancy_is_judged_for_each_split(tmp_path):
    write_split(tmp_path, "train", 4)
    write_split(tmp_path, "dev", 3, redundant=True)
    data = open_data(tmp_path)
    assert (len(data.split("train").images), len(data.split("dev").images)) == (4, 3)
    assert data.split_names == ("train", "dev")


@pytest.mark.parametrize(
    ("rule", "redundant", "images"),
    [
        ("scan", True, 1000),
        ("scan", False, 1000),
        ("ncr", True, 200),
        ("ncr", False, 1000),
        ("full", True, 1014),
    ],
)
def test_dev_rules_on_flickr30k_s_1014_images(tmp_path, rule, redundant, images):
    array = write_split(tmp_path, "dev", 1014, redundant=redundant, regions=1, dim=1)
    (tmp_path / "dev_ids.txt").write_text("".join(f"{i}.jpg\n" for i in range(1014)))
    pairs = open_data(tmp_path, dev_rule=rule).split("dev")
    assert (len(pairs.images), len(pairs.image_of_caption), len(pairs.captions)) == (
        images,
        5 * images,
        5 * images,
    )
    assert pairs.image_of_caption[-1] == images - 1
    assert pairs.image_ids[-1] == f"{images - 1}.jpg"
    assert pairs.images.gather(torch.tensor([images - 1]))[0].item() == array[images - 1].item()


def test_dev_rule_leaves_the_other_splits_whole(tmp_path):
    write_split(tmp_path, "test", 1001, regions=1, dim=1)
    assert len(open_data(tmp_path).split("test").images) == 1001


def test_testall_is_the_test_split_where_it_exists(tmp_path):
    write_split(tmp_path, "test", 2)
    write_split(tmp_path, "testall", 3)
    data = open_data(tmp_path)
    assert len(data.split("test").images) == len(data.split("testall").images) == 3
    assert list(data.fingerprint()["splits"]["test"]["files"]) == ["testall_ims.npy", "testall_caps.txt"]


def test_only_line_feeds_end_a_caption_and_captions_stay_as_they_are(tmp_path):
    captions = ["a\u2028b", "c\x0bd", "", "…", '"quoted', "é 🙂", "tab\there", "x", "y", "  padded  "]
    write_split(tmp_path, "train", 2, captions=captions)
    assert open_data(tmp_path).split("train").captions == [*captions[:-1], "padded"]
    path = tmp_path / "train_caps.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert open_data(tmp_path).split("train").captions == [*captions[:-1], "padded"]


def test_caption_vectors_come_beside_the_texts(tmp_path):
    write_split(tmp_path, "dev", 1002, regions=1, dim=1)
    vectors = np.random.default_rng(0).normal(size=(5010, 4)).astype(np.float16)
    np.save(tmp_path / "dev_caps_minilm.npy", vectors)
    pairs = open_data(tmp_path, caption_vectors="caps_minilm").split("dev")
    assert (pairs.captions[3], len(pairs.caption_vectors), pairs.caption_vectors.regions) == (
        "dev caption 3",
        5000,
        1,
    )
    assert np.array_equal(pairs.caption_vectors.gather(torch.tensor([4999]))[0][0, 0].numpy(), vectors[4999])
    (tmp_path / "dev_caps.txt").unlink()
    alone = open_data(tmp_path, caption_vectors="caps_minilm", dev_rule="full").split("dev")
    assert alone.captions is None
    assert alone.image_of_caption.tolist() == [k // 5 for k in range(5010)]


def write_tsv(folder, lines, rows):
    folder.mkdir(exist_ok=True)
    np.save(folder / "train_ims.npy", np.arange(rows * 2, dtype=np.float32).reshape(rows, 2))
    (folder / "train_caps.tsv").write_text("".join(lines), encoding="utf-8")


def test_cc152k_tsv_has_one_caption_an_image_and_default_quoting(tmp_path):
    write_tsv(tmp_path, ["1\ta dog\n", '2\t"a ""big"" cat"\n', '3\tsays "hi"\n'], 3)
    data = open_data(tmp_path)
    pairs = data.split("train")
    assert pairs.captions == ["a dog", 'a "big" cat', 'says "hi"']
    assert pairs.image_of_caption.tolist() == [0, 1, 2]
    assert pairs.image_ids == ["1", "2", "3"]
    assert data.caption_places("train", [2]) == ["train_caps.tsv line 3"]


@pytest.mark.parametrize("rows", [5, 3])
def test_a_tsv_quote_that_swallows_lines_is_refused_whatever_the_count(tmp_path, rows):
    write_tsv(tmp_path, ["1\tone\n", '2\t"two\n', "3\tthree\n", '4\tfour" five\n', "5\tfive\n"], rows)
    with pytest.raises(InputError, match=r"train_caps.tsv: line 2: a quote that opens here closes in line 4; expected"):
        open_data(tmp_path).split("train")


def test_every_tsv_line_without_two_fields_is_named(tmp_path):
    write_tsv(tmp_path, ["1\tone\n", "\n", "two\n", "3\ta man\twith a dog\n", '4\t"a tab\tquoted"\n', '5\t"open\n'], 5)
    expected = "; expected two: image id, tab, caption (a caption that holds a tab in double quotes)"
    with pytest.raises(InputError) as caught:
        open_data(tmp_path).split("train")
    assert caught.value.faults[:2] == (
        f"{tmp_path}/train_caps.tsv: line 3 has 1 field{expected}",
        f"{tmp_path}/train_caps.tsv: line 4 has 3 fields{expected}",
    )
    errors = [str(fault) for fault in check_data(tmp_path).faults if fault.level == "error"]
    assert errors[: len(caught.value.faults)] == list(caught.value.faults)
    write_tsv(tmp_path, ["1\tone\n", '4\t"a tab\tquoted"\n', "   \n"], 2)
    assert open_data(tmp_path).split("train").captions == ["one", "a tab\tquoted"]


def test_captions_that_do_not_fit_the_features_are_refused_with_both_counts(tmp_path):
    write_split(tmp_path, "train", 4, captions=[f"c{k}" for k in range(19)])
    with pytest.raises(InputError, match=r"train_ims.npy: 4 rows but 19 captions in train_caps.txt; expected 5"):
        open_data(tmp_path).split("train")


def test_one_caption_an_image_in_caps_txt_is_not_taken_for_repeated_rows(tmp_path):
    np.save(tmp_path / "train_ims.npy", np.arange(20, dtype=np.float32).reshape(10, 2))
    (tmp_path / "train_caps.txt").write_text("a caption\n" * 10)
    with pytest.raises(InputError, match=r"as many rows as captions, but rows 0 to 4 differ.*write train_caps.tsv"):
        open_data(tmp_path).split("train")


@pytest.mark.parametrize("test", ["test", "testall"])
def test_captions_that_are_there_as_vectors_only_have_a_way_out(tmp_path, test):
    np.save(tmp_path / "train_ims.npy", np.ones((4, 2), np.float32))
    np.save(tmp_path / f"{test}_ims.npy", np.ones((4, 2), np.float32))
    for split in ("train", test):
        np.save(tmp_path / f"{split}_clip_b32.npy", np.ones((20, 2), np.float32))
    for name, split in (("train", "train"), ("test", test)):
        way = rf"{split}_clip_b32.npy: .* give data.caption_vectors=clip_b32 \(--caption-vectors clip_b32 "
        with pytest.raises(InputError, match=way):
            open_data(tmp_path).split(name)
        assert open_data(tmp_path, caption_vectors="clip_b32").split(name).caption_vectors is not None


def test_images_without_texts(tmp_path):
    np.save(tmp_path / "train_ims.npy", np.ones((70, 2), np.float32))
    with pytest.raises(InputError, match=r"train_caps.txt: no such file; 0 pairs: 70 rows of images without caption"):
        open_data(tmp_path).split("train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dev_rule": "first"}, r"dev_rule 'first': expected one of scan, ncr, full"),
        ({"layout": "coco"}, r"layout 'coco': expected one of auto, precomp, table"),
        ({"caption_vectors": True}, r"needs the suffix .* found train_caps_x.npy"),
    ],
)
def test_wrong_settings(tmp_path, options, message):
    write_split(tmp_path, "train", 2)
    np.save(tmp_path / "train_caps_x.npy", np.ones((10, 2), np.float32))
    with pytest.raises(InputError, match=message):
        open_data(tmp_path, **options)


def test_wrong_folders_and_splits(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        open_data(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"found notes.txt; expected train_ims.npy"):
        open_data(tmp_path)
    write_split(tmp_path, "train", 2)
    with pytest.raises(InputError, match=r"split 'valid': expected one of train, dev, test"):
        open_data(tmp_path).split("valid")
    with pytest.raises(InputError, match=r"test_ims.npy: no such file"):
        open_data(tmp_path).split("test")
    (tmp_path / "pairs.csv").write_text("image,caption\n")
    with pytest.raises(InputError, match=r"say which by data.layout=precomp or data.layout=table"):
        open_data(tmp_path)


def test_caption_file_that_is_not_utf8_is_named_by_line(tmp_path):
    write_split(tmp_path, "train", 2)
    (tmp_path / "train_caps.txt").write_bytes(b"good\n" * 6 + b"caf\xe9\n" + b"good\n" * 3)
    with pytest.raises(InputError, match=r"train_caps.txt: line 7 is not UTF-8"):
        open_data(tmp_path).split("train")


def test_vectors_that_do_not_fit_the_captions(tmp_path):
    write_split(tmp_path, "train", 2)
    np.save(tmp_path / "train_v.npy", np.ones((9, 2), np.float32))
    with pytest.raises(InputError, match=r"train_v.npy: 9 rows but 10 captions"):
        open_data(tmp_path, caption_vectors="v").split("train")
    np.save(tmp_path / "train_v.npy", np.ones((10, 2, 2), np.float32))
    with pytest.raises(InputError, match=r"caption vectors are \(captions, dim\)"):
        open_data(tmp_path, caption_vectors="v").split("train")


def test_only_the_split_asked_for_is_opened(tmp_path):
    write_split(tmp_path, "train", 2)
    (tmp_path / "test_ims.npy").write_bytes(b"broken")
    assert len(open_data(tmp_path).split("train").images) == 2


def test_require_usable(tmp_path):
    write_split(tmp_path, "train", 1)
    pairs = open_data(tmp_path).split("train")
    with pytest.raises(InputError, match=r"train_ims.npy: 1 image in train; at least 2 are needed"):
        require_usable(pairs)
    write_split(tmp_path, "train", 2)
    pairs = open_data(tmp_path).split("train")
    require_usable(pairs)
    pairs.captions.pop()
    with pytest.raises(InputError, match=r"9 captions but 10 pairs in train"):
        require_usable(pairs)


def test_fingerprint_is_the_same_elsewhere_and_moves_with_the_data(tmp_path):
    first = tmp_path / "first"
    write_split(first, "train", 300, regions=36, dim=64)
    write_split(first, "test", 3)
    shutil.copytree(first, tmp_path / "second")
    before = open_data(first).fingerprint()
    assert open_data(tmp_path / "second").fingerprint() == before
    full = open_data(first).fingerprint(full=True)
    assert (before["full"], full["full"], full["hash"] != before["hash"]) == (False, True, True)

    (first / "test_caps.txt").write_text("new\n" * 15)
    after = open_data(first).fingerprint()
    assert after["hash"] != before["hash"]
    assert after["splits"]["train"] == before["splits"]["train"]
    array = np.load(first / "train_ims.npy")
    array[-1, -1, -1] += 1
    np.save(first / "train_ims.npy", array)
    assert open_data(first).fingerprint()["splits"]["train"]["hash"] != before["splits"]["train"]["hash"]


def test_full_fingerprint_sees_a_change_between_the_sampled_blocks(tmp_path):
    write_split(tmp_path, "train", 1000, regions=36, dim=64)
    sampled, full = open_data(tmp_path).fingerprint(), open_data(tmp_path).fingerprint(full=True)
    path = tmp_path / "train_ims.npy"
    place = (path.stat().st_size - 2**16) // 15 - 1000  # just before the second block
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))
    assert open_data(tmp_path).fingerprint() == sampled
    assert open_data(tmp_path).fingerprint(full=True) != full


def test_a_split_that_was_added_is_no_change_but_one_that_differs_is() -> None:
    before = {"splits": {"train": {"hash": "a"}, "dev": {"hash": "b"}}}
    assert changed_splits(before, {"splits": {**before["splits"], "test": {"hash": "c"}}}) == []
    assert changed_splits(before, {"splits": {"train": {"hash": "a"}, "dev": {"hash": "x"}}}) == ["dev"]
    assert changed_splits(before, {"splits": {"dev": {"hash": "b"}}}) == ["train"]
