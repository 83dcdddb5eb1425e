"""What an audit reads of a folder, against what was written there."""

import re

import numpy as np
import pytest
import torch

from in2r.audit.pairs import fit_words, read_pairs, same_rows, same_words
from in2r.audit.result import audit_pairs
from in2r.audit.settings import AuditConfig
from in2r.data.verdicts import Verdict, write_verdicts
from in2r.errors import InputError
from planted_pairs import COPY_ROW, EMPTY_ROW, TORN_ROW, plain_folder, planted, planted_folder


def test_rows_of_a_table_keep_their_order_and_columns(tmp_path):
    made = planted_folder(tmp_path)
    pairs = read_pairs(tmp_path, text_dim=300)
    assert pairs.name == f"{tmp_path.name}/pairs.csv"
    assert pairs.images == made["images"]
    assert pairs.captions == [text.strip() for text in made["captions"]]
    assert list(pairs.columns) == ["Bild", "Text", "score", "shop"]
    assert pairs.columns["shop"] == made["shops"]
    assert pairs.unjudged == {EMPTY_ROW: "empty caption", TORN_ROW: "truncated"}
    assert pairs.judged.tolist() == [row for row in range(300) if row not in (EMPTY_ROW, TORN_ROW)]
    vectors = pairs.vectors
    of_pair = vectors.images[vectors.image_of_pair].numpy()
    owner = [int(re.findall(r"\d+", made["images"][row])[0]) for row in pairs.judged]
    np.testing.assert_array_equal(of_pair, made["features"][owner])
    assert len(vectors.images) == len(set(owner))
    copy, original = np.flatnonzero(np.isin(pairs.judged, (COPY_ROW, 16)))
    assert pairs.same_caption[copy] == pairs.same_caption[original]  # upper case has the same words
    assert len(set(pairs.same_caption.tolist())) == len(pairs.judged) - 1
    assert set(pairs.fingerprint) == {"hash", "full", "splits"}


def test_texts_stand_at_their_rows_whatever_the_split(tmp_path):
    """Rows of one split are read by image; the table has them in another order."""
    data = planted(images=40)
    order = np.random.default_rng(0).permutation(80)
    data["owner"], data["captions"] = data["owner"][order], [data["captions"][row] for row in order]
    folder = plain_folder(tmp_path, data, captions=True)
    given = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)
    by_words = read_pairs(folder, text_dim=300)
    np.save(folder / "captions.npy", given)
    unasked = read_pairs(folder, text_dim=300)
    np.testing.assert_array_equal(unasked.vectors.texts.numpy(), given)
    (folder / "captions.npy").rename(folder / "other.npy")
    named = read_pairs(folder, text_dim=300, caption_vectors="other")
    np.testing.assert_array_equal(named.vectors.texts.numpy(), given)
    for pairs in (by_words, unasked, named):
        assert pairs.captions == data["captions"]
        np.testing.assert_array_equal(
            pairs.vectors.images[pairs.vectors.image_of_pair].numpy(), data["features"][data["owner"]]
        )
    distances = torch.pdist(by_words.vectors.texts)
    # SVD directions have any sign and splits another order of rows: distances alone are the same.
    whole = fit_words(data["captions"], 300).vectors(data["captions"])
    torch.testing.assert_close(distances, torch.pdist(whole), atol=1e-4, rtol=0)


def test_vectors_in_half_precision_stay_so_and_are_judged_alike(tmp_path):
    """The same values in float16 and in float32: every digit of the judgement that a block of a mean leaves."""
    found = {}
    for kind in ("float16", "float32"):
        folder = plain_folder(tmp_path / kind, planted(images=60), captions=True)
        features = (300 * np.load(folder / "images.npy")).astype(np.float16)  # sums of a row leave float16's range
        features[7] = features[3]
        np.save(folder / "images.npy", features.astype(kind))
        pairs = read_pairs(folder, text_dim=300)
        assert pairs.vectors.images.dtype == getattr(torch, kind)
        found[kind] = pairs.vectors.group_of_image.tolist(), audit_pairs(pairs, AuditConfig(draws=2)).judgement.evidence
    assert found["float16"][0] == found["float32"][0]
    assert len(set(found["float16"][0])) == 59
    torch.testing.assert_close(found["float16"][1], found["float32"][1], atol=1e-4, rtol=1e-4, equal_nan=True)


def test_captions_that_are_vectors_alone(tmp_path):
    data = planted(images=40)
    vectors = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)
    vectors[5] = vectors[4]
    np.save(plain_folder(tmp_path, data, captions=False) / "captions.npy", vectors)
    pairs = read_pairs(tmp_path, text_dim=300)
    assert pairs.captions == [""] * 80
    assert pairs.unjudged == {}
    assert pairs.same_caption[4] == pairs.same_caption[5]
    assert len(set(pairs.same_caption.tolist())) == 79


def test_splits_of_a_precomp_folder_follow_each_other(data):
    pairs = read_pairs(data, text_dim=300)
    assert pairs.table is None
    assert pairs.name == data.name
    assert list(pairs.columns) == ["split", "image", "caption"]
    counts = {name: pairs.columns["split"].count(name) for name in ("train", "dev", "test")}
    for name, count in counts.items():
        assert count == len((data / f"{name}_caps.txt").read_text().splitlines())
    assert pairs.columns["split"] == [name for name, count in counts.items() for _ in range(count)]
    lines = [line for name in counts for line in (data / f"{name}_caps.txt").read_text().splitlines()]
    assert list(pairs.captions) == lines
    assert pairs.judged.tolist() == list(range(len(lines)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": 24}, "48 pairs can be judged; an audit needs 50 or more"),
        ({"features": 0}, "pairs of 1 different image can be judged; an audit compares images and needs 10 or more"),
        (
            {"images": 2, "captions": 40},
            "pairs of 2 different images can be judged; an audit compares images and needs 10 or more",
        ),
        (
            {"images": 1, "captions": 60},
            "pairs of 1 different image can be judged; an audit compares images and needs 10 or more",
        ),
    ],
)
def test_too_little_is_refused(tmp_path, changes, said):
    made = planted(images=changes.get("images", 40), captions=changes.get("captions", 2))
    made["features"] *= changes.get("features", 1)
    folder = plain_folder(tmp_path, made)
    with pytest.raises(InputError, match=f"^{re.escape(f'{folder}: {said}')}$"):
        read_pairs(folder, text_dim=300)


def test_unusable_features_are_refused(tmp_path):
    made = planted(images=40)
    made["features"][3, 1] = np.nan
    with pytest.raises(InputError, match=r"^images.npy: row 3 \(counted from 0\) holds NaN, .*; fix or remove them$"):
        read_pairs(plain_folder(tmp_path, made), text_dim=300)


def test_padding_is_not_read(tmp_path):
    made = planted(images=40)
    padded = np.full((40, 3, 16), np.nan, np.float32)
    padded[:, 0] = made["features"]
    folder = plain_folder(tmp_path, made | {"features": padded}, image_lengths=np.ones(40, np.int64))
    vectors = read_pairs(folder, text_dim=300).vectors
    np.testing.assert_array_equal(vectors.images[vectors.image_of_pair].numpy(), made["features"][made["owner"]])


def test_words_that_all_occur_once_are_refused():
    with pytest.raises(InputError, match=r"^no word occurs twice in all captions; give captions as vectors$"):
        fit_words(["a", "b"], 300)


def test_equal_words_and_equal_rows_by_hand():
    assert same_words(["A dog.", "a  dog .", "dog a", "", "a dog ."]).tolist() == [0, 0, 1, 2, 0]
    assert same_rows(torch.tensor([[1.0, 2], [2, 1], [1, 2]])).tolist() == [0, 1, 0]


def test_pictures_are_found_by_name(tmp_path):
    photos = tmp_path / "photos"
    for name in ("a/1.jpg", "1.jpg", "a/2.jpg", "a/3.jpg", "3.png", "4.x.jpg", "6"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(b"")
    made = planted(images=30)
    names = ["1.jpg", "a/2", "3", "4.x", "a/1.jpg", "6", *map(str, range(100, 124))]
    folder = plain_folder(tmp_path / "data", made)
    (folder / "image_ids.txt").write_text("".join(f"{name}\n" for name in names))
    rows = [f"{names[image]},{text}" for image, text in zip(made["owner"], made["captions"], strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    write_verdicts(
        folder / "image_verdicts.csv", [Verdict("3", "ok", file="elsewhere/3.jpg"), Verdict("4.x", "missing")]
    )
    found = {image: file.as_posix() for image, file in read_pairs(folder, text_dim=300).files.items()}
    assert found == {"3": "elsewhere/3.jpg"}
    files = read_pairs(folder, text_dim=300, pictures=photos).files
    assert {image: file.relative_to(photos).as_posix() for image, file in files.items()} == {
        "1.jpg": "1.jpg",  # not a/1.jpg, which comes first
        "a/2": "a/2.jpg",
        "3": "3.png",
        "4.x": "4.x.jpg",
        "a/1.jpg": "a/1.jpg",
        "6": "6",
    }
    with pytest.raises(InputError, match=f"^{re.escape(str(photos / 'b'))}: no such folder of pictures$"):
        read_pairs(folder, text_dim=300, pictures=photos / "b")
