"""An index in PostgreSQL gives what the same index in a folder gives, and keeps its promises with many writers."""

import json
import os
import re
import runpy
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import in2r
from in2r.cli.main import main
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.models.build import Inputs
from in2r.search.build import DataOptions, add_to_index, build_index
from in2r.search.connection import Place, is_url
from in2r.search.pgvector import Table, prepare, require_dims, vector_text
from in2r.serve.catalogue import Catalogue, Window

TEXTS = ["red dog", "a blue horse", "green"]


def query(url: str, text: str, *said: Any) -> list[Any]:
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute(text, said or None).fetchall()  # type: ignore[arg-type]


def by_id(index: in2r.Index) -> dict[str, tuple[bytes, dict[str, list[str]]]]:
    return {name: (vector.tobytes(), said) for (name, said), vector in zip(index, index.vectors, strict=True)}


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_the_results_are_those_of_a_folder(
    shop: Path, shop_model: Path, encoder: str, url: str, tmp_path: Path, precision: Any
) -> None:
    for out in (tmp_path / "i", f"{url}#shop"):
        config = build_index(shop_model, DataOptions(shop / "data"), out, precision=precision, device="cpu")
        assert (config.count, config.dim, config.kind, config.generation) == (12, 16, "exact", 1)
    folder, table = (in2r.Index.open(out, encoder=encoder, device="cpu") for out in (tmp_path / "i", f"{url}#shop"))
    assert table.config.columns == folder.config.columns
    assert (table.vectors.dtype, len(table)) == (precision, 12)
    assert by_id(table) == by_id(folder)
    assert [name for name, _ in table] == sorted(name for name, _ in folder)
    for (name, columns), vector in zip(folder, folder.vectors, strict=True):
        for index in (folder, table):
            said, found = index.find(name)
            assert said == columns
            np.testing.assert_array_equal(found, [vector])
    served = [Catalogue(index) for index in (folder, table)]
    assert served[0].like("3.png", Window(4)) == served[1].like("3.png", Window(4))
    assert [catalogue.picture("3.png") for catalogue in served] == [shop / "photos" / "3.png"] * 2
    for catalogue in served:
        with pytest.raises(KeyError):
            catalogue.like("none.png", Window())
    texts = ["a cab", "a bad dog", "c"]
    for where in (None, {"kind": "hats"}, {"price": "one", "kind": "shoes"}, {"price": "one", "kind": "hats"}):
        for k in (1, 5, 12, 50):
            assert table.search(texts, k, where) == folder.search(texts, k, where)
    photo = [shop / "photos" / "7.png"]
    assert table.search_images(photo, 3) == folder.search_images(photo, 3)
    assert table.search(folder.vectors, 4) == folder.search(folder.vectors, 4)
    with pytest.raises(InputError, match=r"^no column 'kinds'; the index has .*; did you mean kind\?$"):
        table.search(texts, 3, {"kinds": "hats"})
    with pytest.raises(InputError, match=r"^k is 0; expected 1 to 12$"):
        table.search(texts, 0)


def test_ties_and_near_ties_are_those_of_a_folder(data: Path, word_model: Path, url: str, tmp_path: Path) -> None:
    """Captions that differ in a number alone have equal vectors: more of them than a search asks for beyond k."""
    for out in (tmp_path / "i", f"{url}#ties"):
        build_index(word_model, DataOptions(data), out, side="captions", device="cpu")
    folder, table = (in2r.Index.open(out, device="cpu") for out in (tmp_path / "i", f"{url}#ties"))
    count = len(folder)
    query(
        url, "UPDATE in2r_ties_1 SET embedding = (SELECT embedding FROM in2r_ties_1 WHERE id = 'test:3') RETURNING id"
    )
    every = table.search(TEXTS, count).hits
    assert [[hit.id for hit in hits] for hits in every] == [sorted(name for name, _ in folder)] * 3
    assert len({hit.score for hit in every[0]}) == 1
    assert [hits[:1] for hits in every] == table.search(TEXTS, 1).hits


@given(st.integers(0, 2**32), st.integers(1, 200), st.sampled_from([1, 3, 64, 700]), st.sampled_from(["f4", "f2"]))
def test_vectors_go_to_the_database_and_back_unchanged(seed: int, count: int, dim: int, kind: str) -> None:
    draws = np.random.default_rng(seed)
    values = draws.standard_normal((count, dim)).astype(kind)
    precision: Any = "float32" if kind == "f4" else "float16"
    big = f">{kind}"
    sent = [np.array([dim, 0], ">i2").tobytes() + row.astype(big).tobytes() for row in values]
    back = Table("t", dim, precision).vectors(sent)
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    text = vector_text(values[0].astype(np.float32))
    np.testing.assert_array_equal(np.array(text[1:-1].split(","), np.float32), values[0])


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_hnsw_finds_the_nearest_and_orders_them_exactly(
    data: Path, word_model: Path, url: str, tmp_path: Path, precision: Any
) -> None:
    options: Any = {"side": "captions", "precision": precision, "device": "cpu"}
    build_index(word_model, DataOptions(data), tmp_path / "i", **options)
    build_index(word_model, DataOptions(data), f"{url}#near", kind="hnsw", **options)
    whole, near = (in2r.Index.open(out, device="cpu") for out in (tmp_path / "i", f"{url}#near"))
    results, every = near.search(TEXTS, 100), whole.search(TEXTS, 100)
    assert results.how == "approximate (hnsw) among 100 captions"
    for hits, best in zip(results.hits, every.hits, strict=True):
        found = {hit.id for hit in hits}
        assert len(found) > 90
        assert hits == [hit for hit in best if hit.id in found]
    assert [hits[:4] for hits in results.hits] == near.search(TEXTS, 4).hits
    assert near.search(TEXTS, 5, {"split": "test"}) == whole.search(TEXTS, 5, {"split": "test"})
    [[used]] = query(
        url, "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'in2r_near%embedding%'"
    )
    assert used > 0


@pytest.mark.parametrize("iterative", [True, False])  # as of pgvector 0.8, and as of 0.7
def test_rows_that_nobody_sees_hide_no_items_from_hnsw(
    data: Path, word_model: Path, url: str, monkeypatch: pytest.MonkeyPatch, iterative: bool
) -> None:
    import psycopg

    import in2r.search.postgres as module

    if not iterative:
        monkeypatch.setattr(module, "ITERATIVE", (99,))
    build_index(word_model, DataOptions(data), f"{url}#near", side="captions", kind="hnsw", device="cpu")
    index = in2r.Index.open(f"{url}#near", device="cpu")
    wanted, before = index.vectors[:2], index.search(index.vectors[:2], 100)
    close = wanted[0] + np.random.default_rng(0).normal(0, 0.01, (600, wanted.shape[1])).astype(np.float32)
    with psycopg.connect(url) as connection:
        connection.cursor().executemany(
            "INSERT INTO in2r_near_1 SELECT %s, columns, data, split, place, %s::vector FROM in2r_near_1 LIMIT 1",
            [(f"new {number}", vector_text(vector)) for number, vector in enumerate(close)],
        )
        assert index.search(wanted, 100) == before
        connection.rollback()  # a killed add leaves such rows too, until the database is vacuumed
    assert index.search(wanted, 100) == before
    assert [hits[0] for hits in before.hits] == [hits[0] for hits in index.search(wanted, 1).hits]


def test_the_widest_that_pgvector_takes_is_taken_and_more_is_refused(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        prepare(connection, Place.parse(url))
        for kind, dim in (("hnsw", 4000), ("exact", 16_000)):
            require_dims(kind, dim, Place.parse(url))  # type: ignore[arg-type]
            table = Table(f"in2r_{kind}_1", dim, "float32")
            vectors = np.eye(3, dim, dtype=np.float32)
            items = [{"id": name, "columns": {}, "at": [0, "all", 0]} for name in "abc"]
            table.make(connection)
            table.fill(connection, items, "data", vectors)
            table.index(connection, kind)  # type: ignore[arg-type]
            sent = connection.cursor(binary=True).execute(table.sql("SELECT embedding FROM {table}")).fetchall()
            np.testing.assert_array_equal(table.vectors([value for (value,) in sent]), vectors)
    for kind, dim, said in (
        ("hnsw", 4001, r"#index: vectors of 4,001 numbers; pgvector takes at most 4,000 \(hnsw\): take one network "
         r"\(--network A\) or --kind exact$"),
        ("exact", 16_001, r"pgvector takes at most 16,000 \(exact\): take one network \(--network A\)$"),
        ("ivf", 8, r"#index: an index in PostgreSQL is exact or hnsw, not ivf$"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            require_dims(kind, dim, Place.parse(url))  # type: ignore[arg-type]


def test_an_interaction_model_scores_candidates_again(
    data: Path, make_model: Callable[..., Path], url: str, tmp_path: Path
) -> None:
    words = Vocabulary.build(["red blue green black dog cat horse"], 1)
    config = {"backbone": "sgr", "sgr_dim": 4, "dim": 8}
    model = make_model(Inputs(8, "words", len(words), regions=3), words, config=config)
    for out in (tmp_path / "i", url):
        build_index(model, DataOptions(data, split="dev"), out, device="cpu")
    table = in2r.Index.open(url, device="cpu")
    assert table.search(TEXTS, 2) == in2r.Index.open(tmp_path / "i", device="cpu").search(TEXTS, 2)
    for out in (tmp_path / "i", url):
        add_to_index(out, DataOptions(data, split="train"), device="cpu")
    results = table.search(TEXTS, 16)  # opened before: the data that was added is read as well
    assert results == in2r.Index.open(tmp_path / "i", device="cpu").search(TEXTS, 16)
    assert results.how.startswith("global vectors: exact among 16 images; the best 100 scored again")


def test_what_postgresql_cannot_hold_is_found_nowhere(shop: Path, shop_model: Path, url: str, tmp_path: Path) -> None:
    places = [tmp_path / "i", url]
    for place in places:
        build_index(shop_model, DataOptions(shop / "data"), place, device="cpu")
    folder, table = map(in2r.Index.open, places)
    for text in ("1.png\0", "\ud800"):
        for index in (folder, table):
            with pytest.raises(KeyError):
                index.find(text)
        found = table.search(folder.vectors[:2], 3, {"kind": text})
        assert found == folder.search(folder.vectors[:2], 3, {"kind": text})
        assert (found.hits, found.how) == ([[], []], "exact among the 0 of 12 images that match")
    assert table.search(folder.vectors[:2], 10**20) == folder.search(folder.vectors[:2], 10**20)


def test_a_zero_byte_is_refused_before_anything_is_encoded(
    shop: Path, shop_model: Path, make_part: Callable[..., Path], url: str, tmp_path: Path
) -> None:
    one = make_part(tmp_path / "one", 0, 1)
    (one / "pairs.csv").unlink()
    (one / "pairs.jsonl").write_text(json.dumps({"image": "0.png", "caption": "a\0b"}) + "\n", encoding="utf-8")
    data = (one / "data.json").read_text(encoding="utf-8").replace("pairs.csv", "pairs.jsonl")
    (one / "data.json").write_text(data, encoding="utf-8")
    told: list[int] = []
    options: Any = {"device": "cpu", "progress": lambda done, total: told.append(done)}
    assert build_index(shop_model, DataOptions(one), tmp_path / "i", **options).count == 1
    told.clear()
    build_index(shop_model, DataOptions(make_part(tmp_path / "two", 1, 2)), f"{url}#two", device="cpu")
    for write, place in ((partial(build_index, shop_model), f"{url}#one"), (add_to_index, f"{url}#two")):
        words: Any = (place, DataOptions(one)) if write is add_to_index else (DataOptions(one), place)
        with pytest.raises(InputError, match=rf"^{one}: the item '0\.png' has a zero byte or half of a surrogate"):
            write(*words, **options)
    assert told == []


def test_adding_and_replacing(
    shop: Path, shop_model: Path, encoder: str, make_model: Callable[..., Path], make_part: Callable[..., Path],
    url: str, tmp_path: Path,
) -> None:  # fmt: skip
    one, two, place = make_part(tmp_path / "one", 0, 7), make_part(tmp_path / "two", 7, 12), f"{url}#shop"
    build_index(shop_model, DataOptions(shop / "data"), tmp_path / "all", device="cpu")
    build_index(shop_model, DataOptions(one), place, kind="hnsw", device="cpu")
    held = in2r.Index.open(place, encoder=encoder, device="cpu")
    assert held.search(["a cab"]).how == "approximate (hnsw) among 7 images"
    config = add_to_index(place, DataOptions(two), device="cpu")
    assert (config.count, config.generation, len(config.data)) == (12, 1, 2)
    assert held.search(["a cab"]).how == "approximate (hnsw) among 12 images"
    assert by_id(held) == by_id(in2r.Index.open(tmp_path / "all"))
    with pytest.raises(InputError, match=r"#shop: has an item '\d+\.png' already; add new items only"):
        add_to_index(place, DataOptions(two), device="cpu")
    with pytest.raises(InputError, match=r"#shop: holds an index; `in2r index add` adds to it, --force replaces it"):
        build_index(shop_model, DataOptions(one), place, device="cpu")
    other = make_model(Inputs(5, "vectors", 8), seed=1)
    with pytest.raises(InputError, match=rf"^{other}: not the model that made the vectors of postgresql:"):
        add_to_index(place, DataOptions(two), model=other, device="cpu")
    assert build_index(other, DataOptions(one), place, device="cpu", force=True).generation == 2
    with pytest.raises(InputError, match=r"#shop: was replaced since it was opened; open it again"):
        held.search(["a cab"])
    tables = query(url, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'in2r\\_%' ORDER BY 1")
    assert tables == [("in2r_indexes",), ("in2r_shop_2",)]


def add(place: str, data: Path) -> None:
    add_to_index(place, DataOptions(data), device="cpu")


def add_and_die(place: str, data: Path) -> None:
    """Die when all rows are sent, and the transaction is not done."""
    import in2r.search.postgres as module

    def die(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    module.grown = die
    add(place, data)


def test_a_killed_add_leaves_the_index(
    shop_model: Path, make_part: Callable[..., Path], url: str, tmp_path: Path, killed: Callable[..., None]
) -> None:
    one, two = make_part(tmp_path / "one", 0, 7), make_part(tmp_path / "two", 7, 12)
    build_index(shop_model, DataOptions(one), url, device="cpu")
    before = by_id(in2r.Index.open(url))
    killed(add_and_die, url, two)
    assert by_id(in2r.Index.open(url)) == before
    assert len(in2r.Index.open(url)) == 7
    assert add_to_index(url, DataOptions(two), device="cpu").count == 12


def test_many_add_at_once(
    shop: Path, shop_model: Path, make_part: Callable[..., Path], url: str, tmp_path: Path, children: Any
) -> None:
    build_index(shop_model, DataOptions(make_part(tmp_path / "first", 0, 2)), url, device="cpu")
    parts = [make_part(tmp_path / f"part{n}", n, n + 5) for n in (2, 7)]
    twice = make_part(tmp_path / "twice", 11, 12)
    writers = [children.Process(target=add, args=(url, part)) for part in [*parts, twice]]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    codes = [writer.exitcode for writer in writers]
    assert (codes[0], sorted(codes[1:])) == (0, [0, 1])  # of two with the same id one is refused
    if codes[1]:
        add(url, make_part(tmp_path / "left", 7, 11))
    index = in2r.Index.open(url)
    assert len(index) == len(index.vectors) == 12
    build_index(shop_model, DataOptions(shop / "data"), tmp_path / "all", device="cpu")
    every = in2r.Index.open(tmp_path / "all")
    assert dict(index) == dict(every)
    order = np.argsort([name for name, _ in every])
    np.testing.assert_allclose(
        index.vectors, every.vectors[order], atol=1e-6
    )  # an item encoded alone: another rounding


def test_an_id_that_another_writer_adds_meanwhile_is_refused(
    shop_model: Path, make_part: Callable[..., Path], url: str, tmp_path: Path
) -> None:
    one, two = make_part(tmp_path / "one", 0, 7), make_part(tmp_path / "two", 7, 12)
    build_index(shop_model, DataOptions(one), url, device="cpu")
    other: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        if not other:
            other.append(add_to_index(url, DataOptions(two), device="cpu").count)

    with pytest.raises(InputError, match=r"#index: has an item '7\.png' already; add new items only"):
        add_to_index(url, DataOptions(two), device="cpu", progress=meanwhile)
    assert other == [12]
    assert len(in2r.Index.open(url)) == len(in2r.Index.open(url).vectors) == 12


def test_of_two_writers_that_wait_for_each_other_one_is_told_why(
    shop_model: Path, make_part: Callable[..., Path], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They add the same ids in opposite orders, each having written the half that the other one writes next."""
    build_index(shop_model, DataOptions(make_part(tmp_path / "one", 0, 4)), url, device="cpu")
    both, whole = threading.Barrier(2), Table.fill

    def fill(self: Table, connection: Any, records: Any, data: str, vectors: Any) -> None:
        items = list(records)[:: 1 if threading.current_thread().name == "forwards" else -1]
        whole(self, connection, items[:4], data, vectors[:4])
        both.wait(30)
        whole(self, connection, items[4:], data, vectors[4:])

    said: list[str] = []

    def write() -> None:
        try:
            add(url, two)
        except InputError as error:
            said.append(str(error))

    two = make_part(tmp_path / "two", 4, 12)
    monkeypatch.setattr(Table, "fill", fill)
    writers = [threading.Thread(target=write, name=name) for name in ("forwards", "backwards")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert len(said) == 1
    assert said[0].endswith("#index: another process is adding some of these items; add new items only")
    assert len(in2r.Index.open(url)) == 12


def test_the_benchmark_searches_as_the_index_does(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    script = runpy.run_path(str(folder / "search_postgres.py"))
    draws = np.random.default_rng(0)
    vectors = draws.standard_normal((300, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    server = script["Server"](url)
    for way in script["SERVED"]:
        assert server.build(way, vectors) > 0
        search = server.opened(way, 10)
        found = [search(query).tolist() for query in vectors[:20]]
        assert found == np.argsort(-(vectors[:20] @ vectors.T), axis=1)[:, :10].tolist()  # all but 44 are candidates
        assert server.size(way) > vectors.nbytes
    server.close(script["SERVED"])


# --- the URL


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("postgresql://me:pw@host:5/db#shop", "shop", "postgresql://me@host:5/db#shop"),
        ("postgres://me:p%40w@host/db", "index", "postgres://me@host/db#index"),
        ("postgresql://h1:1,h2:2/db?password=pw&sslmode=disable&sslpassword=pw#a_1", "a_1",
         "postgresql://h1:1,h2:2/db?sslmode=disable#a_1"),
        ("postgresql://me@h/db?pass%77ord=pw&oauth_client_secret=pw&scram_client_key=pw&scram_server_key=pw", "index",
         "postgresql://me@h/db#index"),
        ("postgresql:///db?host=/tmp/x", "index", "postgresql:///db?host=/tmp/x#index"),
        ("postgresql://", "index", "postgresql://#index"),
        ("postgresql://me:a@pw@host/db", "index", "postgresql://me@host/db#index"),
    ],
)  # fmt: skip
def test_a_place_is_shown_without_its_password(text: str, name: str, shown: str) -> None:
    place = Place.parse(text)
    assert is_url(text)
    assert (place.name, str(place), place.url) == (name, shown, text.partition("#")[0])
    assert "pw" not in repr(place)


def test_what_may_be_a_part_of_a_password_is_not_repeated() -> None:
    for text in ("postgresql://me:p#w@host/db", "postgresql://me:p/w@host/db", "postgresql://me:p?w@h/db#x"):
        with pytest.raises(
            InputError, match=r"^the URL of an index has a character that must be written as %XX; "
        ) as e:
            Place.parse(text)
        assert "w@h" not in str(e.value)
    with pytest.raises(InputError, match=r"^postgresql://me@host/db: name of the index 'My-Shop'; expected lower-case"):
        Place.parse("postgresql://me:pw@host/db#My-Shop")
    for text in (
        "postgresql+psycopg://me:pw@h/db",
        "POSTGRESQL://me:pw@h/db",
        " postgresql://me:pw@h/db",
        "postgres:/me:pw@h",
    ):
        for opened in (Place.parse, in2r.Index.open):
            with pytest.raises(
                InputError, match=r"^not the URL of an index; expected postgresql://USER@HOST/DATABASE#NAME$"
            ):
                opened(text)
    assert not is_url("postgresql")
    assert not is_url("folder/postgresql://x")


def test_a_password_is_taken_from_the_environment_and_never_said(
    url: str, shop: Path, shop_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.environ.get("IN2R_TEST_POSTGRES"):
        pytest.skip("the server that IN2R_TEST_POSTGRES names has rules of its own")
    import psycopg

    build_index(shop_model, DataOptions(shop / "data"), url, device="cpu")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE ROLE locked LOGIN PASSWORD 's3cret'")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO locked")
    locked = url.replace("//me@", "//locked@")
    vector = str(shop / "vector.npy")
    np.save(vector, in2r.Index.open(url).vectors[:1])
    for place, password, said in (
        (locked, None, "no connection (connection failed: "),
        (locked, "wr0ng", 'password authentication failed for user "locked"'),
        (locked.replace("locked@", "locked:wr0ng@"), None, 'password authentication failed for user "locked"'),
    ):
        monkeypatch.delenv("PGPASSWORD", raising=False)
        if password is not None:
            monkeypatch.setenv("PGPASSWORD", password)
        assert main(["search", place, "--vector", vector]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"in2r: {locked}#index: no connection (")
        assert said in error
        assert "wr0ng" not in error
        assert error.count("\n") == 1
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    assert main(["search", locked, "--vector", vector, "--top", "1"]) == 0
    assert main(["index", str(shop_model), str(shop / "data"), "--to", f"{locked}#other", "--device", "cpu"]) == 2
    said = "".join(capsys.readouterr())
    assert "#other: the database says: permission denied for " in said
    assert "s3cret" not in said + Path(shop_model, "config.json").read_text(encoding="utf-8")
    assert "s3cret" not in str(query(url, "SELECT config FROM in2r_indexes"))


def test_errors_of_the_database_are_one_line_without_a_password(url: str, tmp_path: Path) -> None:
    for text, said in (
        (f"{url}#gone", r"#gone: no index of this name here; `in2r index \.\.\. --to` makes one$"),
        (
            f"postgresql://me:pw@/db?host={tmp_path}",
            rf"^postgresql://me@/db\?host={tmp_path}#index: no connection \(",
        ),
        (
            re.sub("(//[^/]*)/[^?]*", r"\1/nowhere", url) + "#x",
            r'/nowhere.*#x: no connection \(.*"nowhere" does not exist',
        ),
        (
            "postgresql://me:pw@host/db?nothing=1",
            r"^postgresql://me@host/db\?nothing=1#index: PostgreSQL cannot read",
        ),
    ):
        with pytest.raises(InputError, match=said) as error:
            in2r.Index.open(text)
        assert "pw" not in str(error.value)
        assert "\n" not in str(error.value)
        assert error.value.__cause__ is None
