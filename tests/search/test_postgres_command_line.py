"""`in2r index` and `in2r search` with an index in PostgreSQL print what they print with one in a folder."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import in2r
from in2r.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


@pytest.fixture
def place(
    shop_model: Path, make_part: Callable[..., Path], tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> str:
    one, two, out = make_part(tmp_path / "one", 0, 7), make_part(tmp_path / "two", 7, 12), f"{url}#my_shop"
    first = said(capsys, "index", shop_model, one, "--to", out, "--device", "cpu")
    assert first == (
        f"{out}: 7 images, exact, vectors of 16 (float32)\nsearch it: in2r search '{out}' 'two dogs in snow'\n"
    )
    assert said(capsys, "index", "add", out, two, "--device", "cpu") == f"{out}: 12 images now\n"
    return out


def test_a_search_prints_what_that_of_a_folder_prints(
    place: str, shop: Path, shop_model: Path, encoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "index"
    said(capsys, "index", shop_model, shop / "data", "--out", folder, "--device", "cpu")
    (tmp_path / "queries.txt").write_text("a cab\na, dog\n", encoding="utf-8")
    np.save(tmp_path / "v.npy", in2r.Index.open(folder).vectors[:3])
    named = ["--encoder", encoder, "--device", "cpu"]
    for words in (
        ["a cab", "--top", "3", *named],
        ["a cab", "--where", "kind=hats", "--format", "json", *named],
        ["--queries", tmp_path / "queries.txt", "--format", "csv", *named],
        ["--image", shop / "photos" / "5.png", "--format", "json", *named],
        ["--vector", tmp_path / "v.npy", "--format", "csv"],
    ):
        assert said(capsys, "search", place, *words) == said(capsys, "search", folder, *words)


def test_an_export_is_in_the_order_of_ids(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = in2r.Index.open(place)
    files = [tmp_path / "v.npy", tmp_path / "v.csv"]
    printed = said(capsys, "index", "export", place, "--out", files[0])
    assert printed.splitlines() == [f"{file}: 12 images" for file in files]
    np.testing.assert_array_equal(np.load(files[0]), opened.vectors)
    names = [line.split(",")[0] for line in files[1].read_text(encoding="utf-8").splitlines()[1:] if ".png" in line]
    assert [name for name in names if name.endswith(".png")] == sorted(f"{number}.png" for number in range(12))
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (in2r[parquet])")
    said(capsys, "index", "export", place, "--out", tmp_path / "v.parquet")
    table = parquet.read_table(tmp_path / "v.parquet").to_pylist()
    assert [row["item"] for row in table] == [name for name, _ in opened]
    np.testing.assert_array_equal([row["vector"] for row in table], opened.vectors)
    assert [row["caption"].split("\n") for row in table] == [columns["caption"] for _, columns in opened]


def test_mistakes_are_one_line(
    place: str, shop: Path, shop_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, secret, vector = shop / "data", place.replace("//me@", "//me:s3cret@"), tmp_path / "vector.npy"
    np.save(vector, in2r.Index.open(place).vectors[:1])
    for words, expected in (
        (["index", shop_model, data, "--to", secret, "--device", "cpu"], f"{place}: holds an index; `in2r index add`"),
        (["index", shop_model, data, "--to", secret, "--out", tmp_path], "--out and --to are given; expected one of"),
        (["index", shop_model, data, "--out", secret], "--out names a folder; expected --to before the URL of a"),
        (["index", shop_model, secret], f"`in2r index {shop_model} '{place}'`: expected in2r index MODEL DATA ("),
        (["index", "add", secret, data, "--to", place], "--to belongs to a new index; `in2r index add INDEX DATA`"),
        (["index", shop_model, data, "--to", "here"], "not the URL of an index; expected postgresql://USER@HOST/"),
        (
            ["search", secret, "--vector", vector, "--where", "x=1"],
            "no column 'x'; the index has image, caption, kind, price",
        ),
        (
            ["search", f"{secret}2", "a"],
            f"{place}2: no index of this name here; there are my_shop; `in2r index ... --to` makes one",
        ),
    ):
        assert main([str(word) for word in words]) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.startswith("in2r: ")
        assert error.count("\n") == 1
        assert "s3cret" not in error
    found = json.loads(said(capsys, "search", secret, "--vector", vector, "--top", "1", "--format", "json"))
    assert found["queries"][0]["hits"][0]["id"] == "0.png"
