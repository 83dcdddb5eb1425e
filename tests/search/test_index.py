"""Indexes by the Python interface: the results are the model's own; what does not belong together is refused."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import in2r
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.models.build import Inputs
from in2r.search.build import DataOptions, add_to_index, build_index
from in2r.search.index import Results
from in2r.search.store import writing
from in2r.testing.tiny import make_data

TEXTS = ["red dog", "a blue horse", "green"]


def ids(results: Results) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in results.hits]


def ranked(sims: Any, names: list[str]) -> list[list[str]]:
    """Order (queries, items) similarities as an index does."""
    return [
        [names[row] for row in sorted(range(len(names)), key=lambda row: (-round(float(line[row]), 6), names[row]))]
        for line in sims
    ]


def test_words_find_the_images_that_the_model_scores_highest(data: Path, word_model: Path, tmp_path: Path) -> None:
    config = build_index(word_model, DataOptions(data), tmp_path / "index", device="cpu")
    assert (config.count, config.dim, config.kind) == (20, 16, "exact")
    index = in2r.Index.open(tmp_path / "index", device="cpu")
    model = in2r.load(word_model, "cpu")
    features = np.concatenate([np.load(data / f"{split}_ims.npy") for split in ("train", "dev", "test")])
    names = [f"{split}:{n}" for split, count in (("train", 12), ("dev", 4), ("test", 4)) for n in range(count)]
    sims = model.score(features, TEXTS).T
    results = index.search(TEXTS, 20)
    assert ids(results) == ranked(sims, names)
    best = results.hits[0][0]
    assert best.score == pytest.approx(sims[0].max(), abs=1e-5)
    assert best.columns["image"] == [best.id]
    assert len(best.columns["caption"]) == 5
    assert results.how == "exact among 20 images"
    for k in (1, 7, 50):
        assert index.search(TEXTS, k).hits == [hits[:k] for hits in results.hits]


def test_captions_by_vectors_in_half_precision_and_one_network(data: Path, word_model: Path, tmp_path: Path) -> None:
    options = DataOptions(data, split="test")
    build_index(word_model, options, tmp_path / "i", side="captions", precision="float16", network="B", device="cpu")
    index = in2r.Index.open(tmp_path / "i", device="cpu")
    assert index.vectors.dtype == np.float16
    assert [name for name, _ in index] == [f"test:{row}" for row in range(20)]
    queries = in2r.load(word_model, "cpu", "B").encode_images(np.load(data / "test_ims.npy"))
    expected = np.argsort(-(queries @ index.vectors.astype(np.float32).T), axis=1)[:, 0]
    # captions that differ in a number, which the vocabulary lacks, are equal: the first id as text is the best
    found = [hits[0].columns["caption"][0].rsplit(" ", 1)[0] for hits in index.search(queries, 3).hits]
    texts = (data / "test_caps.txt").read_text(encoding="utf-8").splitlines()
    assert found == [texts[row].rsplit(" ", 1)[0] for row in expected]
    tied = index.search(queries, 5).hits[0]
    assert [hit.id for hit in tied if hit.score == tied[0].score] == sorted(
        hit.id for hit in tied if hit.score == tied[0].score
    )


def test_texts_and_images_are_encoded_as_the_data_were(
    shop: Path, shop_model: Path, encoder: str, tmp_path: Path
) -> None:
    build_index(shop_model, DataOptions(shop / "data"), tmp_path / "i", device="cpu")
    index = in2r.Index.open(tmp_path / "i", encoder=encoder, device="cpu")
    model = in2r.load(shop_model, "cpu", data=shop / "data")
    vectors = np.load(shop / "data" / "captions.npy")
    table = (shop / "shop.csv").read_text(encoding="utf-8").splitlines()[1:]
    names = [f"{number}.png" for number in range(12)]
    sims = model.score(np.load(shop / "data" / "images.npy"), vectors).T
    assert ids(index.search([line.split(",")[1] for line in table], 12)) == ranked(sims, names)
    for number in (0, 7):
        [hits] = index.search_images([shop / "photos" / f"{number}.png"], 2).hits
        assert (hits[0].id, hits[0].score) == (f"{number}.png", pytest.approx(1.0, abs=1e-6))


def test_filters_are_those_of_the_table(shop: Path, shop_model: Path, encoder: str, tmp_path: Path) -> None:
    build_index(shop_model, DataOptions(shop / "data"), tmp_path / "i", device="cpu")
    index = in2r.Index.open(tmp_path / "i", encoder=encoder, device="cpu")
    [every] = index.search(["a cab"], 12).hits
    results = index.search(["a cab"], 12, {"kind": "hats"})
    assert results.hits == [[hit for hit in every if hit.columns["kind"] == ["hats"]]]
    assert [hit.id for hit in results.hits[0]] == [hit.id for hit in every if int(hit.id[:-4]) % 3 == 0]
    assert results.how == "exact among the 4 of 12 images that match"
    for price in ("1", "one"):  # an image has the values of all its rows
        assert ids(index.search(["a cab"], 3, {"price": price, "kind": "shoes"})) == [["1.png"]]
    assert index.search(["a cab"], 3, {"price": "one", "kind": "hats"}).hits == [[]]
    with pytest.raises(InputError, match=r"^no column 'kinds'; the index has .*; did you mean kind\?$"):
        index.search(["a cab"], 3, {"kinds": "hats"})


def halves(make_part: Callable[..., Path], folder: Path) -> tuple[Path, Path]:
    return make_part(folder / "one", 0, 7), make_part(folder / "two", 7, 12)


def content(index: Path) -> tuple[bytes, list[Any]]:
    opened = in2r.Index.open(index, device="cpu")
    return opened.vectors.tobytes(), list(opened)


def test_adding_gives_the_index_of_all(
    shop: Path, shop_model: Path, encoder: str, make_part: Callable[..., Path], tmp_path: Path
) -> None:
    one, two = halves(make_part, tmp_path)
    build_index(shop_model, DataOptions(shop / "data"), tmp_path / "all", device="cpu")
    build_index(shop_model, DataOptions(one), tmp_path / "i", device="cpu")
    held = in2r.Index.open(tmp_path / "i", encoder=encoder, device="cpu")
    before = held.search(["a cab"], 12)
    config = add_to_index(tmp_path / "i", DataOptions(two), device="cpu")
    assert (config.count, config.generation, len(config.data)) == (12, 2, 2)
    assert held.search(["a bad cab"], 12).how == "exact among 7 images"  # who opened the old one keeps it
    assert held.search(["a cab"], 12) == before
    assert content(tmp_path / "i") == content(tmp_path / "all")
    left = {path.name for path in (tmp_path / "i").iterdir()}
    assert left == {"config.json", "lock", "vectors-2.npy", "items-2.jsonl", "lines-2.npy"}
    with pytest.raises(InputError, match=r"i: has an item '7\.png' already; add new items only"):
        add_to_index(tmp_path / "i", DataOptions(two), device="cpu")
    assert content(tmp_path / "i") == content(tmp_path / "all")


def add_and_die(index: Path, data: Path) -> None:
    def die(done: int, total: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    add_to_index(index, DataOptions(data), device="cpu", progress=die)


def test_a_killed_append_leaves_the_index(
    shop_model: Path, make_part: Callable[..., Path], tmp_path: Path, killed: Callable[..., None]
) -> None:
    one, two = halves(make_part, tmp_path)
    build_index(shop_model, DataOptions(one), tmp_path / "i", device="cpu")
    before = content(tmp_path / "i")
    killed(add_and_die, tmp_path / "i", two)
    assert content(tmp_path / "i") == before
    assert len(list((tmp_path / "i").glob(".tmp-*"))) == 1
    (tmp_path / "i" / "items-2.jsonl").write_text("half", encoding="utf-8")  # killed a little later
    assert content(tmp_path / "i") == before
    assert add_to_index(tmp_path / "i", DataOptions(two), device="cpu").count == 12
    assert list((tmp_path / "i").glob(".tmp-*")) == []


@pytest.mark.parametrize("side", ["images", "captions"])
def test_an_interaction_model_scores_candidates_again(
    data: Path, make_model: Callable[..., Path], tmp_path: Path, side: Any
) -> None:
    """All 20 are candidates, so that the result is that of scoring every pair."""
    words = Vocabulary.build(["red blue green black dog cat horse"], 1)
    model = make_model(
        Inputs(8, "words", len(words), regions=3), words, config={"backbone": "sgr", "sgr_dim": 4, "dim": 8}
    )
    splits = "test" if side == "captions" else None
    build_index(model, DataOptions(data, split=splits), tmp_path / "i", side=side, device="cpu")
    index, loaded = in2r.Index.open(tmp_path / "i", device="cpu"), in2r.load(model, "cpu")
    assert index.config.interacts
    names = [name for name, _ in index]
    if side == "images":
        features = np.concatenate([np.load(data / f"{split}_ims.npy") for split in ("train", "dev", "test")])
        sims = loaded.score(features, TEXTS).T
        results = index.search(TEXTS, 20)
        for hits, line in zip(results.hits, sims, strict=True):
            found = {hit.id: hit.score for hit in hits}
            assert [found[name] for name in names] == pytest.approx(line.tolist(), abs=1e-5)
            scores = [hit.score for hit in hits]
            assert scores == sorted(scores, reverse=True)
        assert "the best 100 scored again by words and regions" in results.how
        assert [hits[:3] for hits in results.hits] == index.search(TEXTS, 3).hits
        shutil.move(tmp_path / "i", tmp_path / "j")
        config = json.loads((tmp_path / "j" / "config.json").read_text(encoding="utf-8"))
        config["data"][0]["path"] = str(tmp_path / "gone")
        (tmp_path / "j" / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with pytest.raises(InputError, match=r"so a search reads its data: .*gone: no such folder"):
            in2r.Index.open(tmp_path / "j", device="cpu").search(TEXTS)
    else:  # within one side, the global vectors are what is compared
        results = index.search(TEXTS, 3)
        assert results.how == "global vectors: exact among 20 captions"


def test_what_does_not_belong_together_is_refused(
    shop: Path, shop_model: Path, encoder: str, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(shop / "data", data)
    build_index(shop_model, DataOptions(data), tmp_path / "i", device="cpu")
    other = make_model(Inputs(5, "vectors", 8), seed=1)
    with pytest.raises(InputError, match=rf"^{other}: not the model that made the vectors of .*i \(fingerprint "):
        in2r.Index.open(tmp_path / "i", model=other).search(["a cab"])
    with pytest.raises(InputError, match=r"^the model of .*i: .*gone: no such folder; name its place with --model"):
        in2r.Index.open(tmp_path / "i", model=tmp_path / "gone").search(["a cab"])
    shutil.copytree(shop_model, tmp_path / "moved")
    assert in2r.Index.open(tmp_path / "i", model=tmp_path / "moved", encoder=encoder).search(["a cab"]).hits
    with pytest.raises(
        InputError, match=r"is not opened: it is a program, which would run with your rights; read python"
    ):
        in2r.Index.open(tmp_path / "i").search(["a cab"])

    (tmp_path / "grid.py").write_text((shop / "grid.py").read_text(encoding="utf-8") + "#", encoding="utf-8")
    changed = in2r.Index.open(tmp_path / "i", encoder=f"python:{tmp_path / 'grid.py'}:Grid", device="cpu")
    for search, side in (
        (lambda: changed.search(["a cab"]), "text"),
        (lambda: changed.search_images([shop / "photos" / "1.png"]), "image"),
    ):
        with pytest.raises(InputError, match=rf"^not the encoder of the index: the {side} encoder .*: other weights"):
            search()
    gone = in2r.Index.open(tmp_path / "i", encoder=f"python:{tmp_path / 'gone.py'}:Grid", device="cpu")
    with pytest.raises(
        InputError, match=r"^the text encoder \(python:.*grid\.py:Grid made the caption vectors\) is not "
    ):
        gone.search(["a cab"])

    (data / "images.npy").write_bytes((data / "images.npy").read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"data/images\.npy: changed since it was indexed; index it again"):
        in2r.Index.open(tmp_path / "i")
    shutil.rmtree(data)  # data that are elsewhere now are not needed
    in2r.Index.open(tmp_path / "i")
    items = tmp_path / "i" / "items-1.jsonl"
    lines = items.read_text(encoding="utf-8").splitlines(keepends=True)
    items.write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")
    with pytest.raises(InputError, match=r"items-1\.jsonl: not the file that was written with config\.json"):
        in2r.Index.open(tmp_path / "i")
    items.unlink()
    with pytest.raises(InputError, match=r"items-1\.jsonl: no such file, but config\.json names it"):
        in2r.Index.open(tmp_path / "i")


def test_features_of_another_encoder_are_not_indexed(shop: Path, shop_model: Path, tmp_path: Path) -> None:
    shutil.copytree(shop / "data", tmp_path / "data")
    record = json.loads((shop / "data" / "encoder.json").read_text(encoding="utf-8"))
    record["image"]["weights_sha256"] = "0"
    (tmp_path / "data" / "encoder.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(InputError, match=r"data: not from the encoder that the model was trained with: the image enc"):
        build_index(shop_model, DataOptions(tmp_path / "data"), tmp_path / "i", device="cpu")
    assert not (tmp_path / "i").exists()


def test_one_writer_at_a_time(data: Path, word_model: Path, tmp_path: Path) -> None:
    build_index(word_model, DataOptions(data), tmp_path / "i", device="cpu")
    with writing(tmp_path / "i"), pytest.raises(InputError, match=r"i: another process is writing this index; wait"):
        add_to_index(tmp_path / "i", DataOptions(data), device="cpu")
    assert len(in2r.Index.open(tmp_path / "i")) == 20


def test_an_id_of_two_images_is_refused(word_model: Path, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    for split, count in (("train", 12), ("dev", 4), ("test", 4)):
        names = "".join(f"{n if split == 'train' else 100 + n}\n" for n in range(count))
        (data / f"{split}_ids.txt").write_text(names, encoding="utf-8")
    with pytest.raises(InputError, match=r"data: dev and test have different images of the id '100'; index one with"):
        build_index(word_model, DataOptions(data), tmp_path / "i", device="cpu")
    for name in ("ims.npy", "caps.txt"):
        shutil.copy(data / f"dev_{name}", data / f"test_{name}")
    build_index(word_model, DataOptions(data), tmp_path / "i", device="cpu")
    items = dict(in2r.Index.open(tmp_path / "i"))
    assert len(items) == 16
    assert items["100"]["split"] == ["dev", "test"]


def test_queries_that_cannot_be_used(data: Path, word_model: Path, tmp_path: Path) -> None:
    build_index(word_model, DataOptions(data), tmp_path / "i", device="cpu")
    index = in2r.Index.open(tmp_path / "i", device="cpu")
    unit = np.eye(16, dtype=np.float32)
    for queries, k, said in (
        ("red dog", 3, "queries: one text; expected a list of texts, such as [text]"),
        (["red", " "], 3, "query 2 is empty; expected a text"),
        (["red"], 0, "k is 0; expected 1 to 20"),
        (unit[:, :8], 3, "query vectors: float32 (16, 8); expected (n, 16), float"),
        (3 * unit[:2], 3, "query vectors: row 0 (from 0) has the norm 3; expected vectors of norm 1, as "),
    ):
        with pytest.raises(InputError) as error:
            index.search(queries, k)
        assert str(error.value).startswith(said)
    with pytest.raises(InputError, match=r"^nothing says which image encoder made the features"):
        index.search_images([tmp_path / "a.png"])


def test_a_vectors_model_without_a_record_needs_the_encoder_named(
    shop: Path, make_model: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build_index(make_model(Inputs(5, "vectors", 8)), DataOptions(shop / "data"), tmp_path / "i", device="cpu")
    with pytest.raises(InputError, match=r"^nothing says which text encoder made the caption vectors"):
        in2r.Index.open(tmp_path / "i", device="cpu").search(["a cab"])
    named = in2r.Index.open(tmp_path / "i", encoder=f"python:{shop / 'grid.py'}:Grid", device="cpu")
    assert len(named.search(["a cab"]).hits[0]) == 10
    assert "nothing says that python:" in caplog.text


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_approximate_index_says_so(data: Path, word_model: Path, tmp_path: Path, kind: Any) -> None:
    pytest.importorskip("faiss", reason="FAISS is not installed (in2r[search])")
    exact, built = tmp_path / "exact", tmp_path / kind
    for out, which in ((exact, "exact"), (built, kind)):
        build_index(word_model, DataOptions(data), out, kind=which, side="captions", device="cpu")  # type: ignore[arg-type]
    approximate, whole = (in2r.Index.open(out, device="cpu") for out in (built, exact))
    every = whole.search(TEXTS, 100)
    results = approximate.search(TEXTS, 100)
    assert results.how == f"approximate ({kind}) among 100 captions"
    for hits, best in zip(results.hits, every.hits, strict=True):  # what is found has the exact score and order
        found = {hit.id for hit in hits}
        assert hits == [hit for hit in best if hit.id in found]
    assert [hits[:4] for hits in results.hits] == approximate.search(TEXTS, 4).hits
    assert approximate.search(TEXTS, 5, {"split": "test"}) == whole.search(TEXTS, 5, {"split": "test"})
