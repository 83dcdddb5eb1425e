"""The user's own table: rows written byte for byte as they stood, in every format; why rows have no features."""

import codecs
import gzip
import json
import logging

import numpy as np
import pytest

from in2r.data.sources import open_data
from in2r.data.verdicts import Verdict, write_verdicts

IDS = ["a", "b", "c"]


def folder(path, name, content, *, encoding=None, ids=IDS, **settings):
    """Make a data folder of three images around a table's bytes, and return its user table."""
    path.mkdir(exist_ok=True)
    np.save(path / "images.npy", np.ones((len(ids), 2), np.float32))
    (path / "image_ids.txt").write_bytes("".join(f"{one}\n" for one in ids).encode(encoding or "utf-8"))
    (path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    settings |= {"table": name} | ({} if encoding is None else {"encoding": encoding})
    (path / "data.json").write_text(json.dumps(settings))
    return open_data(path, skip_missing=True).user_table()


def kept(table, path, rows):
    """Return what is written of some rows."""
    chosen = np.zeros(len(table), dtype=bool)
    chosen[rows] = True
    target = path / f"kept{table.ending}"
    table.write_rows(target, chosen)
    data = target.read_bytes()
    return gzip.decompress(data) if target.suffix == ".gz" else data


PLAIN = ["image,caption,note\n", 'a,"two\nlines, ""so""",x\n', "b,  spaces  ,\n", "\n", "c,é ’,last"]
TABLES = {  # header and the pieces that belong to each row; all that follows a row up to the next belongs to it
    "lf": ("pairs.csv", "utf-8", b"", [PLAIN[0], PLAIN[1], PLAIN[2] + PLAIN[3], PLAIN[4]]),
    "crlf": ("pairs.csv", "utf-8", b"", ["image,caption\r\n", 'a,"x\r\ny\nz"\r\n', "b,y\r\n", 'c,"z"\r\n']),
    "cr": ("pairs.csv", "utf-8", b"", ["image,caption\r", 'a,"x\ry"\r', "b,y\r", "c,z\r"]),
    "unicode's other line ends": ("pairs.csv", "utf-8", b"", ["image,caption\n", "a,x\u2028y\n", "b,\x85\n", "c,\f\n"]),
    "mark": ("pairs.csv", "utf-8", codecs.BOM_UTF8, ["image,caption\n", "a,x\n", "b,é\n", "c,z\n"]),
    "utf-16-le": ("pairs.tsv", "utf-16-le", codecs.BOM_UTF16_LE, ["image\tcaption\n", "a\tx\n", "b\t犬\n", "c\tz\n"]),
    "utf-16-be": ("pairs.tsv", "utf-16-be", codecs.BOM_UTF16_BE, ["image\tcaption\n", "a\tx\n", "b\t犬\n", "c\tz\n"]),
    "utf-32-be": ("pairs.tsv", "utf-32-be", codecs.BOM_UTF32_BE, ["image\tcaption\n", "a\tx\n", "b\t犬\n", "c\tz\n"]),
    "packed": ("pairs.csv.gz", "utf-8", b"", [PLAIN[0], PLAIN[1], PLAIN[2] + PLAIN[3], PLAIN[4]]),
    "tabs": ("pairs.tsv.gz", "utf-8", b"", ["image\tcaption\n", "a\tx, y\n", 'b\t"y\n\tz"\n', "c\tz\n"]),
    "named separator": ("pairs.csv", "utf-8", b"", ["sep=;\r\nimage;caption\r\n", "a;x,y,z\r\n", "b;y\r\n", "c;z\r\n"]),
    "json": ("pairs.jsonl", "utf-8", b"", [
        "\n", '{"image": "a", "caption": "x\u2028y\\n"}\r\n', '{"caption":"\\u00e9",  "image":"b"}\n\n\n',
        '{"image": "c", "caption": "z"}'
    ]),
    "packed json": ("pairs.jsonl.gz", "utf-8", b"", ["", *(f'{{"image": "{k}", "caption": "x"}}\n' for k in "abc")]),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_rows_are_kept_byte_for_byte(tmp_path, kind):
    name, encoding, mark, pieces = TABLES[kind]
    table = folder(tmp_path, name, mark + "".join(pieces).encode(encoding))
    assert len(table) == 3
    assert table.columns["image"] == IDS
    for rows in ([0, 1, 2], [1], [0, 2], []):
        expected = mark + "".join([pieces[0], *(pieces[1 + row] for row in rows)]).encode(encoding)
        assert kept(table, tmp_path, rows) == expected


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-8-sig", "utf-16"])
def test_rows_are_kept_in_the_encoding_that_data_json_names(tmp_path, encoding):
    pieces = [
        piece.encode(encoding.replace("-sig", "")) for piece in ("image,caption\n", "a,é ’\n", "b,“y”\n", "c,z\n")
    ]
    pieces = [piece.removeprefix(codecs.BOM_UTF16_LE) for piece in pieces]  # no mark at the start of the file
    table = folder(tmp_path, "pairs.csv", b"".join(pieces), encoding=encoding)
    assert table.columns == {"image": IDS, "caption": ["é ’", "“y”", "z"]}
    assert kept(table, tmp_path, [1]) == pieces[0] + pieces[2]


def test_a_written_table_is_read_again(tmp_path):
    content = "".join(PLAIN) + "\na,4,5"
    table = folder(tmp_path / "one", "pairs.csv", content.encode())
    again = folder(tmp_path / "two", "pairs.csv", kept(table, tmp_path, [0, 1, 2]))
    assert again.columns == {name: values[:3] for name, values in table.columns.items()}
    assert (table.lines, again.lines) == ([2, 4, 6, 7], [2, 4, 6])


def test_parquet_rows_keep_their_columns_and_types(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"image": IDS, "Caption": ["x", None, "z"], "boxes": [[1, 2], [], None]}
    whole = pyarrow.table(columns | {"area": pyarrow.array([1, 2, 3], "int16")})
    whole = whole.replace_schema_metadata({"made": "by hand"})
    path = tmp_path / "note=x"  # no column, though the folder's name looks like one
    path.mkdir()
    parquet.write_table(whole, path / "pairs.parquet")
    before = parquet.ParquetFile(path / "pairs.parquet").read()
    table = folder(path, "pairs.parquet", (path / "pairs.parquet").read_bytes())
    table.write_rows(path / "kept.parquet", np.array([True, False, True]))
    found = parquet.ParquetFile(path / "kept.parquet").read()
    assert found.schema.equals(before.schema, check_metadata=True)
    assert found.to_pylist() == [whole.to_pylist()[0], whole.to_pylist()[2]]


# What is read of it


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pairs.csv", b"File,ID,part,TEXT\na,1,train, x \nb,02,test,y\n"),
        (
            "pairs.jsonl",
            b'{"File": "a", "ID": 1, "part": "train", "TEXT": " x "}\n'
            b'{"TEXT": "y", "File": "b", "ID": "02", "part": "test"}\n',
        ),
    ],
)
def test_columns_have_the_tables_own_names(tmp_path, name, content):
    table = folder(tmp_path, name, content, columns={"image": "file", "caption": "text", "split": "part"})
    assert (table.image, table.caption, table.ending) == ("File", "TEXT", name.removeprefix("pairs"))
    assert list(table.columns) == ["File", "ID", "part", "TEXT"]
    assert table.columns["ID"] == ["1", "02"]
    assert table.columns["TEXT"] == ["x", "y"]


def test_columns_of_one_name_stay_in_the_file(tmp_path, caplog):
    content = b"Image,caption,split,note,note\na,x,train,1,2\nb,y,test,3,4\n"
    with caplog.at_level(logging.WARNING):
        table = folder(tmp_path, "pairs.csv", content)
    assert "; only the columns of image, caption and split are carried along" in caplog.text
    assert table.columns == {"Image": ["a", "b"], "caption": ["x", "y"], "split": ["train", "test"]}
    assert (table.image, table.caption) == ("Image", "caption")
    assert kept(table, tmp_path, [0, 1]) == content


def test_lists_and_records_become_json_and_what_a_line_lacks_is_empty(tmp_path, caplog):
    content = (
        '{"Image": "a", "caption": "x", "split": "train", "all": ["x", "é"], "shop": "s", "price": 2.50, "new": true}\n'
        '{"image": "b", "caption": "y", "split": "test", "all": [], "only": {"here": null}, "price": null}\n'
    ).encode()
    with caplog.at_level(logging.WARNING):
        table = folder(tmp_path, "pairs.jsonl", content)
    assert caplog.text == ""
    assert table.columns == {
        "Image": ["a", "b"],
        "caption": ["x", "y"],
        "split": ["train", "test"],
        "all": ['["x", "é"]', "[]"],
        "shop": ["s", ""],
        "price": ["2.5", ""],
        "new": ["true", ""],
        "image": ["", "b"],
        "only": ["", '{"here": null}'],
    }
    assert kept(table, tmp_path, [0, 1]) == content


def test_a_parquet_table_with_lists_and_pictures_keeps_its_columns(tmp_path, caplog):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = [
        {"image": "a", "split": "train", "all": ["x", "z"], "picture": {"bytes": b"123", "path": None}, "raw": b"12"},
        {"image": "b", "split": "test", "all": None, "picture": None, "raw": None},
    ]
    rows = [{"caption": text, **row} for text, row in zip("xy", rows, strict=True)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "made.parquet")
    table = folder(tmp_path, "pairs.parquet", (tmp_path / "made.parquet").read_bytes())
    assert table.columns == {
        "image": ["a", "b"],
        "caption": ["x", "y"],
        "split": ["train", "test"],
        "all": ['["x", "z"]', ""],
        "picture": ['{"bytes": "3 bytes", "path": null}', ""],
        "raw": ["2 bytes", ""],
    }


def test_a_table_of_vectors_has_no_column_of_captions(tmp_path):
    np.save(tmp_path / "captions.npy", np.ones((2, 3), np.float32))
    table = folder(tmp_path, "pairs.csv", b"image,split\na,train\nb,test\n")
    assert (table.image, table.caption) == ("image", None)


def test_rows_without_features_say_why(tmp_path):
    verdicts = [Verdict("cut.png", "truncated"), Verdict("c", "ok"), Verdict("lost.png", "ok"), Verdict("a", "missing")]
    write_verdicts(tmp_path / "image_verdicts.csv", verdicts)
    content = b"image,caption\ncut.png,x\na,y\ngone.png,z\nc,z\nlost.png,w\nb,v\n"
    table = folder(tmp_path, "pairs.csv", content)
    assert table.left_out == {0: "truncated", 2: "missing", 4: "missing"}
    assert kept(table, tmp_path, [0, 4]) == b"image,caption\ncut.png,x\nlost.png,w\n"
    (tmp_path / "image_verdicts.csv").unlink()
    assert open_data(tmp_path, skip_missing=True).user_table().left_out == dict.fromkeys((0, 2, 4), "missing")


def test_nothing_is_left_behind_when_the_choice_does_not_fit(tmp_path):
    table = folder(tmp_path, "pairs.csv", b"image,caption\na,x\nb,y\nc,z\n")
    with pytest.raises(ValueError, match="zip"):
        table.write_rows(tmp_path / "kept.csv", np.ones(4, dtype=bool))
    assert not (tmp_path / "kept.csv").exists()
