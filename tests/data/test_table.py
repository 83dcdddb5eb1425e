"""Pair tables: every format, ragged captions, splits given or drawn, and each fault by file and line."""

import csv
import gzip
import json
import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.data.pairs import require_usable
from in2r.data.sources import open_data
from in2r.errors import InputError

RAGGED = [  # images with 1, 2 and 7 captions, mixed, and an image of another split
    ("c", "c one", "train"),
    ("a", "a one", "train"),
    ("c", "c two", "train"),
    ("x", "x one", "test"),
    *[("b", f"b {k}", "train") for k in range(7)],
]
IDS = ["a", "b", "c", "x", "unused"]


def write(folder, rows=RAGGED, *, kind="csv", ids=IDS, images=5, regions=2, names=("image", "caption", "split")):
    folder.mkdir(exist_ok=True)
    array = np.arange(images * regions * 3, dtype=np.float32).reshape(images, regions, 3)
    np.save(folder / "images.npy", array)
    if ids is not None:
        (folder / "image_ids.txt").write_text("".join(f"{name}\n" for name in ids))
    path = folder / f"pairs.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=False))) + "\n" for row in rows))
    elif kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = [list(column) for column in zip(*rows, strict=True)]
        parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=False))), path)
    else:
        separator = "\t" if kind == "tsv" else ","
        lines = [separator.join(names[: len(rows[0]) if rows else 3]), *[separator.join(row) for row in rows]]
        path.write_text("".join(f"{line}\n" for line in lines))
    return array


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_ragged_captions_in_every_format(tmp_path, kind):
    array = write(tmp_path, kind=kind)
    data = open_data(tmp_path)
    pairs = data.split("train")
    assert data.split_names == ("train", "test")
    assert pairs.image_ids == ["a", "b", "c"]
    assert pairs.image_of_caption.tolist() == [0] + [1] * 7 + [2, 2]
    assert pairs.captions == ["a one", *[f"b {k}" for k in range(7)], "c one", "c two"]
    assert np.array_equal(pairs.images.gather(torch.tensor([2]))[0][0].numpy(), array[2])
    assert data.split("test").image_ids == ["x"]
    assert data.split("testall").captions == ["x one"]
    line = {"csv": 4, "tsv": 4, "jsonl": 3, "parquet": 3}[kind]
    assert data.caption_places("train", [9]) == [f"pairs.{kind} line {line}"]
    assert data.caption_rows("train")[9] == line - (2 if kind in ("csv", "tsv") else 1)
    require_usable(pairs)


def test_rows_of_the_feature_file_serve_as_ids(tmp_path):
    write(tmp_path, [(2, "two", "train"), (0, "zero", "train")], kind="jsonl", ids=None)
    pairs = open_data(tmp_path).split("train")
    assert (pairs.captions, pairs.image_ids, pairs.images.rows.tolist()) == (
        ["zero", "two"],
        ["0", "2"],
        [0, 2],
    )


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_the_separator_is_found_and_quoted_fields_are_read(tmp_path, separator, kind):
    write(tmp_path)
    (tmp_path / "pairs.csv").unlink()
    rows = [
        ["caption", "image", "split", "note"],
        [f'"a{separator} ""b""\nand more"', "a", "train", ""],
        ["", "b", "train", "-"],
    ]
    text = "\ufeff" + "".join(separator.join(row) + "\r\n" for row in rows)
    (tmp_path / f"pairs.{kind}").write_bytes(text.encode())
    data = open_data(tmp_path)
    assert data.split("train").captions == [f'a{separator} "b"\nand more', ""]
    assert data.caption_places("train", [1]) == [f"pairs.{kind} line 4"]
    assert data.caption_rows("train") == [0, 1]


TEXT = "Image\tCAPTION\tSplit\nä,b\tcafé|;\tTrain\nb\t犬\ttrain\nx\tz\ttest\n"


@pytest.mark.parametrize(
    ("encoding", "stated"),
    [
        ("utf-8", False),
        ("utf-8-sig", False),
        ("utf-16", False),  # "Unicode text" of spreadsheets
        ("utf-32", False),
        ("utf-16-be", True),
        ("gb18030", True),
        ("utf-8-sig", True),
    ],
)
@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.csv.gz", "pairs.txt"])
def test_every_encoding_and_packing_gives_the_same_rows(tmp_path, encoding, stated, name):
    write(tmp_path, kind="tsv")
    (tmp_path / "pairs.tsv").unlink()
    data = TEXT.replace("ä", "é").encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / "image_ids.txt").write_bytes("é,b\nb\nx\nd\ne\n".encode(encoding))
    settings = {"table": name} | ({"encoding": encoding} if stated else {})
    (tmp_path / "data.json").write_bytes(json.dumps(settings).encode("utf-8" if stated else encoding))
    data = open_data(tmp_path)
    assert data.split("train").captions == ["café|;", "犬"]
    assert data.split("train").image_ids == ["é,b", "b"]
    assert data.caption_places("test", [0]) == [f"{name} line 4"]


def test_windows_text_needs_its_encoding(tmp_path):
    write(tmp_path)
    text = "image,caption,split\na,plain,train\nb,caf\u00e9 \u2019,train\nx,z,test\n"
    (tmp_path / "pairs.csv").write_bytes(text.encode("cp1252"))
    with pytest.raises(InputError, match=r'pairs.csv: line 3 is not UTF-8; .*, such as {"encoding": "cp1252"}$'):
        open_data(tmp_path)
    (tmp_path / "data.json").write_text('{"encoding": "cp1252"}')
    data = open_data(tmp_path)
    assert data.split("train").captions == ["plain", "caf\u00e9 \u2019"]
    assert data.caption_columns("train", ["CAPTION"]) == {"CAPTION": ["plain", "caf\u00e9 \u2019"]}
    (tmp_path / "data.json").write_text('{"encoding": "latin-1"}')
    assert open_data(tmp_path).fingerprint()["hash"] != data.fingerprint()["hash"]
    (tmp_path / "data.json").write_text('{"encoding": "ascii"}')
    with pytest.raises(InputError, match=r"pairs.csv: line 3 is not ascii; "):
        open_data(tmp_path)
    (tmp_path / "data.json").unlink()
    (tmp_path / "pairs.csv").write_bytes("image,caption\na,b\n".encode("utf-16-le"))
    with pytest.raises(
        InputError, match=r"line 1 holds zero bytes, as UTF-16 without byte-order mark does; .*encoding"
    ):
        open_data(tmp_path)


@pytest.mark.parametrize("data", [b"plain", gzip.compress(b"image,caption\na,b\n" * 9)[:-12]], ids=["plain", "cut"])
def test_a_broken_gzip_file_is_named(tmp_path, data):
    write(tmp_path)
    (tmp_path / "pairs.csv").unlink()
    (tmp_path / "pairs.csv.gz").write_bytes(data)
    with pytest.raises(InputError, match=r"pairs.csv.gz: not a readable gzip file \("):
        open_data(tmp_path)


@pytest.mark.parametrize(("first", "separator"), [("sep=;", ";"), ('"sep=|"', "|"), ("SEP=\t", "\t"), ("sep=/", "/")])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_first_line_that_names_the_separator(tmp_path, first, separator, end):
    write(tmp_path)
    rows = [[first], ["image", "caption, or: a,b,c", "split"], ["a", "x", "train"], ["b", "y", "test"]]
    (tmp_path / "pairs.csv").write_bytes("".join(separator.join(row) + end for row in rows).encode())
    (tmp_path / "data.json").write_text('{"columns": {"caption": "Caption, or: A,B,C"}}')
    data = open_data(tmp_path)
    assert data.split("train").captions == ["x"]
    assert data.caption_places("test", [0]) == ["pairs.csv line 4"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_empty_split_column_is_none(tmp_path, caplog, kind):
    rows = [(str(k), f"caption {k}", "" if kind == "csv" else None) for k in range(30)]
    write(tmp_path, rows, kind=kind, ids=None, images=30)
    with caplog.at_level(logging.INFO):
        data = open_data(tmp_path)
    assert f"pairs.{kind} has an empty split column: drew 24 images for train" in caplog.text
    assert [len(data.split(name).images) for name in ("train", "dev", "test")] == [24, 3, 3]
    write(tmp_path, [*rows[1:], ("0", "x", "train")], kind=kind, ids=None, images=30)
    with pytest.raises(InputError, match=r"(line|row) \d: split ''; expected train, dev, test"):
        open_data(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_case_counts_only_where_columns_differ_in_nothing_else(tmp_path, kind):
    write(tmp_path, [("a", "x", "test"), ("b", "y", "train")], kind=kind, names=("Image", "CAPTION", "Split"))
    assert open_data(tmp_path).split("train").captions == ["y"]
    rows = [("a", "x", "y"), ("b", "z", "w"), ("c", "t", "u")]
    write(tmp_path, rows, kind=kind, names=("image", "Caption", "caption"))
    data = open_data(tmp_path)
    assert {data.split(name).captions[0] for name in data.split_names} == {"y", "w", "u"}


def test_other_names_of_files_columns_and_splits(tmp_path):
    write(tmp_path, [("a", "cap", "val"), ("b", "cup", "train")], names=("file", "text", "part"))
    (tmp_path / "pairs.csv").rename(tmp_path / "mine.csv")
    (tmp_path / "images.npy").rename(tmp_path / "feats.npy")
    columns = {"image": "file", "caption": "text", "split": "part"}
    (tmp_path / "data.json").write_text(json.dumps({"table": "mine.csv", "features": "feats.npy", "columns": columns}))
    data = open_data(tmp_path)
    assert data.split("dev").captions == ["cap"]
    assert data.split_names == ("train", "dev")
    write(tmp_path / "testall", [("a", "cap", "testall"), ("b", "cup", "train")])
    assert open_data(tmp_path / "testall").split("test").captions == ["cap"]


@pytest.mark.parametrize("name", ["image_lengths.npy", "image_ids.txt"])
def test_a_link_that_leads_nowhere_is_not_taken_for_an_absent_file(tmp_path, name):
    write(tmp_path, ids=None if name == "image_lengths.npy" else IDS)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match=rf"{name}: no such file"):
        open_data(tmp_path)


def test_lengths_become_masks(tmp_path):
    write(tmp_path, [("b", "x", "train"), ("a", "y", "train")])
    np.save(tmp_path / "image_lengths.npy", np.array([2, 1, 2, 2, 2], np.int32))
    _, mask = open_data(tmp_path).split("train").images.gather(torch.tensor([0, 1]))
    assert mask.tolist() == [[True, True], [True, False]]


def test_caption_vectors_follow_the_table_rows(tmp_path):
    write(tmp_path)
    vectors = np.arange(11 * 2, dtype=np.float32).reshape(11, 2)
    np.save(tmp_path / "captions.npy", vectors)
    assert open_data(tmp_path).split("train").caption_vectors is None
    pairs = open_data(tmp_path, caption_vectors=True).split("train")
    assert pairs.captions[0] == "a one"
    assert pairs.caption_vectors.rows.tolist() == [1, 4, 5, 6, 7, 8, 9, 10, 0, 2]
    assert pairs.caption_vectors.gather(torch.tensor([0]))[0].tolist() == [[[2, 3]]]
    np.save(tmp_path / "other.npy", -vectors)
    other = open_data(tmp_path, caption_vectors="other").split("test").caption_vectors
    assert other.gather(torch.tensor([0]))[0].tolist() == [[[-6, -7]]]


def test_a_table_without_captions_uses_its_vectors(tmp_path):
    write(tmp_path, [(row[0], row[2]) for row in RAGGED], names=("image", "split"))
    np.save(tmp_path / "captions.npy", np.ones((11, 2), np.float32))
    pairs = open_data(tmp_path).split("train")
    assert pairs.captions is None
    assert len(pairs.caption_vectors) == 10


DEAD = [("gone.png", "lost", "train"), *RAGGED[:5], ("", "lost too", "train"), *RAGGED[5:]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_left_without_the_rows_that_have_no_image(tmp_path, kind):
    """The same as of a table that never had them; caption vectors keep to the rows of the table."""
    write(tmp_path / "whole", kind=kind)
    write(tmp_path / "dead", DEAD, kind=kind)
    vectors = np.arange(13 * 2, dtype=np.float32).reshape(13, 2)
    np.save(tmp_path / "dead" / "captions.npy", vectors)
    np.save(tmp_path / "whole" / "captions.npy", np.delete(vectors, [0, 6], axis=0))
    whole = open_data(tmp_path / "whole", caption_vectors=True, skip_missing=True)
    found = open_data(tmp_path / "dead", caption_vectors=True, skip_missing=True)
    assert whole.skipped == []
    assert len(found.skipped) == 2
    assert whole.split_names == found.split_names
    for name in whole.split_names:
        one, other = whole.split(name), found.split(name)
        assert one.captions == other.captions
        assert one.image_of_caption.tolist() == other.image_of_caption.tolist()
        assert one.image_ids == other.image_ids
        every = torch.arange(len(one.captions))
        assert torch.equal(one.caption_vectors.gather(every)[0], other.caption_vectors.gather(every)[0])
    assert found.images_without_caption() == whole.images_without_caption() == 1
    assert found.images_in_several_splits() == []
    lines = {"csv": "line 4", "parquet": "line 3"}  # "a one" is the third row
    assert found.caption_places("train", [0]) == [f"pairs.{kind} {lines[kind]}"]
    rows = found.caption_rows("train")
    assert rows[:2] == [2, 5]  # "a one" and "b 0" in the table as it is
    assert found.caption_columns("train", ["caption"])["caption"] == [DEAD[row][1] for row in rows]
    assert open_data(tmp_path / "whole").fingerprint() == open_data(tmp_path / "whole", skip_missing=True).fingerprint()


def test_a_drawn_split_and_shared_images_know_nothing_of_rows_left_out(tmp_path):
    rows = [(str(k % 30), f"caption {k}") for k in range(60)]
    write(tmp_path / "whole", rows, ids=None, images=30)
    write(tmp_path / "dead", [("30", "x"), *rows, ("-1", "y")], ids=None, images=30)
    whole, dead = (open_data(tmp_path / name, skip_missing=True) for name in ("whole", "dead"))
    for name in whole.split_names:
        assert whole.split(name).captions == dead.split(name).captions
    # the last image is what a row of -1 would be taken for
    write(tmp_path, [("e", "x", "train"), ("f", "y", "dev"), ("a", "z", "dev")])
    assert open_data(tmp_path, skip_missing=True).images_in_several_splits() == []


def test_a_table_without_any_image_is_refused_all_the_same(tmp_path):
    write(tmp_path, [("f", "x", "train"), ("g", "y", "train")])
    with pytest.raises(InputError, match=r"line 2: image 'f'; expected an id of image_ids.txt"):
        open_data(tmp_path, skip_missing=True)


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("photos/1.png", "1"),
        ("1", "photos/1.jpg"),
        ("photos\\1.png", "photos/1.png"),
        ("/photos/1.png", "./photos/1.png"),
        ("Photo_1.JPG", "photo_1.jpg"),
        ("cafe\u0301", "caf\u00e9"),
        ("3.0", "3"),
    ],
)
def test_the_near_id_is_named(tmp_path, given, own):
    write(tmp_path, [(given, "x", "train"), ("b", "y", "train")], ids=[own, "b", "photos/2.png", "d", "e"])
    form = ", the same text in another Unicode form" if given[:3] == "caf" else ""
    with pytest.raises(InputError) as caught:
        open_data(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/pairs.csv: line 2: image {given!r}; expected an id of image_ids.txt; did you mean {own!r}{form}?"
    )


def test_what_several_ids_are_near_is_no_hint(tmp_path):
    write(tmp_path, [("1", "x", "train"), ("b", "y", "train")], ids=["1.png", "1.jpg", "u/2.png", "v/2.png", "b"])
    with pytest.raises(InputError, match=r"image '1'; expected an id of image_ids.txt; data.skip_missing=true"):
        open_data(tmp_path)
    write(tmp_path, [("v/2", "x", "train"), ("2", "y", "train")], ids=["1.png", "1.jpg", "u/2.png", "v/2.png", "b"])
    with pytest.raises(InputError) as caught:
        open_data(tmp_path)
    assert caught.value.faults[0].endswith("; did you mean 'v/2.png'?")
    assert "did you mean" not in caught.value.faults[1]


def test_a_split_is_drawn_by_image_and_said(tmp_path, caplog):
    rows = [(str(k % 30), f"caption {k}") for k in range(77)]
    write(tmp_path, rows, ids=None, images=30)
    with caplog.at_level(logging.INFO):
        data = open_data(tmp_path, split_seed=1)
    assert "no split column: drew 24 images for train, 3 for dev, 3 for test (split_seed 1)" in caplog.text
    parts = [set(data.split(name).image_ids) for name in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [24, 3, 3]
    assert set.union(*parts) == {str(k) for k in range(30)}
    assert open_data(tmp_path, split_seed=1).split("dev").image_ids == data.split("dev").image_ids
    other = open_data(tmp_path, split_seed=2)
    assert other.split("dev").image_ids != data.split("dev").image_ids
    assert other.fingerprint()["hash"] != data.fingerprint()["hash"]


@given(images=st.integers(3, 25), seed=st.integers(0, 5))
def test_a_drawn_split_has_an_image_in_each_part(tmp_path_factory, images, seed):
    folder = tmp_path_factory.mktemp("drawn")
    write(folder, [(str(k), "x") for k in range(images)], ids=None, images=images)
    data = open_data(folder, split_seed=seed)
    counts = [len(data.split(name).images) for name in ("train", "dev", "test")]
    assert sum(counts) == images
    assert min(counts) >= 1


def test_the_fingerprint_knows_the_table_and_the_columns(tmp_path):
    write(tmp_path)
    before = open_data(tmp_path).fingerprint()
    assert set(before["splits"]) == {"train", "test"}
    path = tmp_path / "pairs.csv"
    path.write_text(path.read_text().replace("c two", "c too"))
    assert open_data(tmp_path).fingerprint()["hash"] != before["hash"]


def replace(name, text):
    def change(folder):
        (folder / name).write_text(text, encoding="utf-8")

    return change


def save(name, array):
    return lambda folder: np.save(folder / name, array)


def test_blank_lines_are_no_rows(tmp_path):
    write(tmp_path)
    with (tmp_path / "image_ids.txt").open("a") as file:
        file.write("\n  \n")
    (tmp_path / "pairs.csv").write_text("image,caption,split\n\na,x,train\n   \nb,y,train\n \t \n")
    data = open_data(tmp_path)
    assert data.split("train").captions == ["x", "y"]
    assert data.caption_places("train", [1]) == ["pairs.csv line 5"]


def test_two_tables_need_a_choice(tmp_path):
    write(tmp_path)
    write(tmp_path, kind="tsv")
    with pytest.raises(InputError, match=r"found pairs.csv and pairs.tsv; expected one of"):
        open_data(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace("pairs.csv", "file,text\na,b\n"), r"no column 'image', 'caption'; found 'file', 'text'"),
        (replace("pairs.csv", "image/caption\na/b\n"), r"no column .*; found 'image/caption'"),
        (replace("pairs.csv", "IMAGE,Image,caption\na,b,c\n"), r"several columns may be 'image' \('IMAGE', 'Image'\)"),
        (replace("data.json", '{"encoding": "cp1253x"}'), r"data.json: encoding 'cp1253x' is not known; expected a"),
        (replace("data.json", '{"encoding": "hex"}'), r"data.json: encoding 'hex' is not known"),
        (replace("data.json", '{"table": "images.npy"}'), r"unknown kind of table '.npy'; expected .csv"),
        (replace("pairs.csv", "image,caption,split\n"), r"pairs.csv: 0 pairs: 5 images without caption"),
        (replace("pairs.csv", ""), r"pairs.csv: no column 'image'"),
        (replace("pairs.csv", "image,caption\na,a dog, running\n"), r"line 2 has 3 fields .* 2 .*; put a field"),
        (replace("pairs.csv", "image,caption\na\nb,x\n"), r"line 2 has 1 field but the header 2 .*; write the missing"),
        (replace("pairs.csv", 'image,caption\na,x\nb,"say "hi"\n'), r"line 3: .*a quote is written twice"),
        (replace("pairs.csv", 'image,caption\na,x\nb,"open\nc,y\n'), r"line 3: unexpected end of data"),
        (replace("pairs.csv", "image,caption\na,x\nzebra,y\n"), r"line 3: image 'zebra'; expected an id"),
        (replace("pairs.csv", "image,caption,split\na,x,held\n"), r"line 2: split 'held'; expected train"),
        (replace("pairs.csv", "image,caption\na,x\nb,y\n"), r"2 images; a split can be drawn from 3 or more"),
        (replace("image_ids.txt", "a\nb\n"), r"image_ids.txt: 2 ids but 5 rows in images.npy"),
        (replace("image_ids.txt", "a\nb\na\nd\ne\n"), r"image_ids.txt: line 3 repeats 'a' of line 1"),
        (replace("data.json", '{"tabel": "x"}'), r"data.json: unknown key tabel; expected table, columns, "),
        (replace("data.json", '{"table": "a",\n "features": "b",\n "table": "c"}'), r'"table" stands twice .* line 3'),
        (replace("data.json", '{"columns": {"img": "x"}}'), r"unknown key columns.img; expected image, "),
        (replace("data.json", '{"columns": ["x"]}'), r"data.json: columns is not an object"),
        (replace("data.json", '{"table": 3}'), r"data.json: table is 3; expected a name"),
        (replace("data.json", '{"table": "no.csv"}'), r"no.csv: no such file"),
        (replace("data.json", '{"table": "image_ids.txt"}'), r"image_ids.txt: no column 'image', 'caption'; found 'a'"),
        (replace("data.json", '{"lengths": "no.npy"}'), r"data.json: lengths: no file no.npy in the folder"),
        (save("image_lengths.npy", np.array([1, 2, 0, 1, 1])), r"image_lengths.npy: row 2 \(from 0\) is 0"),
        (save("image_lengths.npy", np.array([1, 2, 1, 1, 3])), r"row 4 \(from 0\) is 3; lengths are 1 to 2"),
        (save("image_lengths.npy", np.ones(4, int)), r"expected one integer for each of the 5 images"),
        (save("image_lengths.npy", np.ones(5)), r"float64 \(5,\); expected one integer"),
    ],
)  # fmt: skip
def test_faults_are_named_by_file_and_line(tmp_path, change, message):
    write(tmp_path)
    change(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        open_data(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"pairs.jsonl: line 2 is not valid JSON \(Expecting property name"),
        (r'{"image": 0, "caption": "a", "a\ud800": 1}', r"line 2: 'a\\ud800' holds half of a surrogate pair; rename"),
        (
            '{"image": "a", "caption": "x", "caption": "y"}',
            r'line 2 is not valid JSON \(the key "caption" stands twice in an object, column 32\)',
        ),
        ("[1]", r"pairs.jsonl: line 2 is not an object like"),
        ('{"image": "a", "text": "x"}', r"pairs.jsonl: line 2: no column 'caption'; found 'image', 'text'"),
        ('{"image": "a", "caption": "x"}', r"line 2 has the columns \['image', 'caption'\], the first line"),
    ],
)
def test_json_lines_are_named(tmp_path, line, message):
    write(tmp_path, kind="jsonl")
    first = (tmp_path / "pairs.jsonl").read_text().split("\n")[0]
    (tmp_path / "pairs.jsonl").write_text(f"{first}\n{line}\n")
    with pytest.raises(InputError, match=message):
        open_data(tmp_path)


def test_rows_out_of_range_and_splits_that_are_absent(tmp_path):
    write(tmp_path, [("0", "x", "train"), ("5", "y", "train")], ids=None)
    with pytest.raises(InputError, match=r"line 3: image '5'; expected a row of images.npy, 0 to 4"):
        open_data(tmp_path)
    write(tmp_path, [("0", "x", "train"), ("4", "y", "train")], ids=None)
    with pytest.raises(InputError, match=r"pairs.csv: no row belongs to dev; there are train"):
        open_data(tmp_path).split("dev")
    with pytest.raises(InputError, match=r"dev_rule=ncr belongs to precomp folders"):
        open_data(tmp_path, dev_rule="ncr")
    np.save(tmp_path / "captions.npy", np.ones((3, 2), np.float32))
    with pytest.raises(
        InputError, match=r"captions.npy: shape \(3, 1, 2\); expected one vector for each of the 2 rows"
    ):
        open_data(tmp_path, caption_vectors=True).split("train")


def test_parquet_nulls_are_empty_captions_and_broken_files_are_named(tmp_path):
    pytest.importorskip("pyarrow")
    write(tmp_path, [("a", None, "train"), ("b", "x", "train")], kind="parquet")
    assert open_data(tmp_path).split("train").captions == ["", "x"]
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1 this is none")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        open_data(tmp_path)


@pytest.mark.parametrize("name", ["image", "caption"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, name):
    write(tmp_path)
    (tmp_path / "pairs.csv").write_text(f"image,caption,{name}\na,x,y\n")
    with pytest.raises(InputError, match=rf"pairs.csv: several columns may be '{name}' \('{name}', '{name}'\)"):
        open_data(tmp_path)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(("value", "found"), [(["a", "b"], "list"), (True, "bool"), ({"text": "a"}, "dict")])
def test_a_caption_that_is_no_text_is_refused(tmp_path, kind, value, found):
    write(tmp_path, [("a", value, "train"), ("b", value, "train")], kind=kind)
    with pytest.raises(InputError, match=rf"pairs.{kind}: (line|row) 1: caption is {found} .*; expected text"):
        open_data(tmp_path)


def test_a_parquet_caption_of_bytes_is_refused(tmp_path):
    write(tmp_path, [("a", b"a dog", "train"), ("b", b"a cat", "train")], kind="parquet")
    with pytest.raises(InputError, match=r"pairs.parquet: row 1: caption is bytes b'a dog'; expected text"):
        open_data(tmp_path)


def test_nan_is_an_empty_caption_and_numbers_are_ids(tmp_path):
    write(tmp_path, [(0, float("nan"), "train"), (1, 7, "train")], kind="jsonl", ids=None)
    pairs = open_data(tmp_path).split("train")
    assert pairs.captions == ["", "7"]
    assert pairs.image_ids == ["0", "1"]


def test_half_a_character_is_replaced_and_said(tmp_path, caplog):
    write(tmp_path, [("a", "cut \ud83d", "train"), ("b", "x", "train")], kind="jsonl")
    assert open_data(tmp_path).split("train").captions == ["cut ?", "x"]
    assert "pairs.jsonl: line 1: caption holds half of a surrogate pair" in caplog.text


def test_a_quoted_field_over_several_lines_is_said(tmp_path, caplog):
    write(tmp_path)
    (tmp_path / "pairs.csv").write_text('image,caption,split\na,x,train\nb,"open,train\nc,y",train\nx,z,train\n')
    assert open_data(tmp_path).split("train").captions == ["x", "open,train\nc,y", "z"]
    assert "1 quoted fields run over several lines, first from line 3 to 4" in caplog.text


def test_a_damaged_parquet_page_is_named_in_one_line(tmp_path):
    write(tmp_path, kind="parquet")
    path = tmp_path / "pairs.parquet"
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"pairs.parquet: not a readable Parquet file") as caught:
        open_data(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_huge_caption_is_read(tmp_path):
    huge = " ".join(["word"] * 40_000)
    limit = csv.field_size_limit()
    write(tmp_path, [("a", huge, "train"), ("b", "b", "train")])
    assert open_data(tmp_path).split("train").captions == [huge, "b"]
    assert csv.field_size_limit() == limit
