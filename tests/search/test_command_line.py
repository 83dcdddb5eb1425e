"""`in2r index` and `in2r search` from photos to results."""

import csv
import io
import json
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import in2r
from in2r.cli.main import main


@pytest.fixture(scope="module")
def index(shop: Path, shop_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("indexed") / "index"
    assert main(["index", str(shop_model), str(shop / "data"), "--out", str(out), "--device", "cpu"]) == 0
    return out


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_search_prints_a_table_json_and_csv(
    index: Path, encoder: str, shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    opened = in2r.Index.open(index, encoder=encoder, device="cpu")
    [hits] = opened.search(["a cab"], 3).hits
    table = said(capsys, "search", index, "a cab", "--encoder", encoder, "--top", 3, "--device", "cpu")
    rows = [line.split("│")[1:-1] for line in table.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        [str(rank), f"{hit.score:.4f}", hit.id, "; ".join(hit.columns["caption"])] for rank, hit in enumerate(hits, 1)
    ]
    assert table.startswith("a cab")
    assert table.endswith("exact among 12 images\n")

    words = ["--encoder", encoder, "--format", "json", "--top", 3]
    record = json.loads(said(capsys, "search", index, *words, "a cab"))  # a text may come last
    assert record["how"] == "exact among 12 images"
    assert record["queries"] == [
        {
            "query": "a cab",
            "hits": [
                {"rank": rank, "id": hit.id, "score": hit.score, "columns": hit.columns}
                for rank, hit in enumerate(hits, 1)
            ],
        }
    ]

    (shop / "queries.txt").write_text("a cab\na, dog\n", encoding="utf-8")
    named = ["--encoder", encoder, "--format", "csv"]
    found = said(capsys, "search", index, "--queries", shop / "queries.txt", *named, "--where", "kind=hats")
    lines = list(csv.DictReader(io.StringIO(found)))
    assert [(line["query"], line["rank"], line["kind"]) for line in lines] == [
        (query, str(rank), "hats") for query in ("a cab", "a, dog") for rank in range(1, 5)
    ]
    assert list(lines[0]) == ["query", "rank", "id", "score", "image", "caption", "kind", "price"]


def test_search_by_an_image_and_by_vectors(
    index: Path, encoder: str, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = shop / "photos" / "5.png"
    record = json.loads(said(capsys, "search", index, "--image", photo, "--encoder", encoder, "--format", "json"))
    [query] = record["queries"]
    assert (query["query"], query["hits"][0]["id"]) == (str(photo), "5.png")
    opened = in2r.Index.open(index, encoder=encoder, device="cpu")
    by_file, by_content = opened.search_images([photo, photo.read_bytes()]).hits
    assert by_file == by_content
    with pytest.raises(in2r.errors.InputError, match=r"^the image: not an image"):
        opened.search_images([b"no image"])
    features, out = shop / "data" / "images.npy", tmp_path / "v.npy"
    model = json.loads((index / "config.json").read_text(encoding="utf-8"))["model"]["path"]
    assert main(["encode", model, "--images", str(features), "--out", str(out), "--device", "cpu"]) == 0
    record = json.loads(said(capsys, "search", index, "--vector", out, "--top", 1, "--format", "json"))
    assert [query["query"] for query in record["queries"]] == [f"v.npy:{row}" for row in range(12)]
    assert [query["hits"][0]["id"] for query in record["queries"]] == [f"{row}.png" for row in range(12)]


def test_export_has_the_vectors_and_the_columns(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = in2r.Index.open(index)
    items = list(opened)
    assert said(capsys, "index", "export", index, "--out", tmp_path / "v.npy").splitlines() == [
        f"{tmp_path / 'v.npy'}: 12 images", f"{tmp_path / 'v.csv'}: 12 images",
    ]  # fmt: skip
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), opened.vectors)
    with (tmp_path / "v.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["item"] for row in rows] == [name for name, _ in items]
    assert rows[1]["price"] == "one\n1"
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (in2r[parquet])")
    said(capsys, "index", "export", index, "--out", tmp_path / "v.parquet")
    table = parquet.read_table(tmp_path / "v.parquet").to_pylist()
    assert [row["item"] for row in table] == [name for name, _ in items]
    np.testing.assert_array_equal([row["vector"] for row in table], opened.vectors)
    assert [row["caption"].split("\n") for row in table] == [columns["caption"] for _, columns in items]


def test_an_index_is_replaced_and_added_to_by_request_alone(
    shop: Path, shop_model: Path, make_part: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, one, two = tmp_path / "index", make_part(tmp_path / "one", 0, 7), make_part(tmp_path / "two", 7, 12)
    make = ["index", str(shop_model), str(one), "--out", str(out), "--device", "cpu"]
    assert main(make) == 0
    assert main(make) == 2
    assert f"{out}: holds an index; `in2r index add` adds to it, --force replaces it" in capsys.readouterr().err
    assert said(capsys, *make, "--force", "--side", "captions").startswith(
        f"{out}: 10 captions, exact, vectors of 16 ("
    )
    assert main(["index", "add", str(out), str(two), "--device", "cpu"]) == 2  # rows are counted in each table
    assert f"{out}: has an item '0' already" in capsys.readouterr().err
    said(capsys, *make, "--force")
    assert said(capsys, "index", "add", out, two, "--device", "cpu") == f"{out}: 12 images now\n"


def test_mistakes_are_one_line(
    index: Path, encoder: str, shop: Path, shop_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, (empty, taken) = shop / "data", (tmp_path / "q.txt", tmp_path / "taken")
    empty.write_text("red\n\nblue\n", encoding="utf-8")
    shutil.copytree(shop / "photos", taken)
    for words, expected in (
        (["search", tmp_path, "red"], f"{tmp_path}: no index here (no config.json); `in2r index` makes one"),
        (["search", shop_model, "red"], f"{shop_model / 'config.json'}: not the description of an index"),
        (["search", index, "--top", 3], "what is looked for is missing; expected TEXT, --queries, --image or --vector"),
        (["search", index, "red", "--where", "kind"], "--where 'kind': expected COLUMN=VALUE"),
        (["search", index, "red", "--where", "kind=a", "--where", "kind=b"], "--where names 'kind' twice; expected"),
        (["search", index, "red", "--top", 0, "--encoder", encoder], "k is 0; expected 1 to 12"),
        (["search", index, "--queries", empty], f"{empty}: line 2 is empty; expected a query on every line"),
        (
            ["search", index, "--image", shop / "shop.csv", "--encoder", encoder],
            f"{shop / 'shop.csv'}: not an image (begins with",
        ),
        (
            ["search", index, "--vector", data / "captions.npy"],
            f"{data / 'captions.npy'}: query vectors: float16 (18, 8)",
        ),
        (["index", shop_model, data], "--out is missing: the folder of the new index"),
        (
            ["index", shop_model],
            f"`in2r index {shop_model}`: expected in2r index MODEL DATA (--out INDEX | --to URL) [options], ",
        ),
        (
            ["index", shop_model, data, "--out", taken],
            f"{taken}: holds 0.png, which is no index's; choose another --out",
        ),
        (
            ["index", shop_model, data, "--out", tmp_path / "n", "--split", "all"],
            "split 'all': expected one of train, dev",
        ),
        (["index", "add", index, data, "--out", tmp_path], "--out belongs to a new index"),
        (
            ["index", "export", index, "--out", tmp_path / "v.txt"],
            f"{tmp_path / 'v.txt'}: expected a name that ends in",
        ),
    ):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert expected in said
        assert said.startswith("in2r: ")
        assert said.count("\n") == 1
    assert not (tmp_path / "n").exists()


def test_the_page_runs(
    index: Path, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "search.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shutil.copytree(index, tmp_path / "myindex")
    monkeypatch.chdir(tmp_path)
    example = example.replace('"myindex"', f'"myindex", encoder="{encoder}"')
    exec(compile(example, "search.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[-1] == "exact among 12 images"


def test_the_page_shows_the_record_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(checkout / "benchmarks")
    script = runpy.run_path(str(checkout / "benchmarks" / "search.py"))
    table = script["table"](json.loads(script["RESULTS"].read_text(encoding="utf-8")))
    assert table in (checkout / "docs" / "search.md").read_text(encoding="utf-8")


def test_the_benchmark_measures_what_the_index_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    script = runpy.run_path(str(folder / "search.py"))
    items, queries = script["make"](2000)
    assert items.dtype == queries.dtype == np.float32
    np.save(tmp_path / "vectors.npy", items)
    exact, plain = (script["opened"](way, tmp_path) for way in ("exact", "plain NumPy"))
    for query in queries[:20]:
        assert exact(query).tolist() == plain(query).tolist()
