"""Parts of the server by themselves: rates, lanes, kept pictures, the token, which picture an item has."""

import asyncio
import json
import os
import runpy
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from PIL import Image

pytest.importorskip("fastapi", reason="FastAPI is not installed (in2r[serve])")

import in2r
from in2r.errors import InputError, UnavailableError
from in2r.search.approximate import FOUND
from in2r.search.rerank import RERANKED
from in2r.serve.app import Api
from in2r.serve.buckets import Buckets
from in2r.serve.catalogue import Catalogue, Window
from in2r.serve.lanes import BusyError, Lane
from in2r.serve.limits import (
    BODY_SECONDS,
    BURST_SECONDS,
    CLIENTS,
    FURTHEST,
    GRACE_SECONDS,
    LARGEST_PAGE,
    MIB,
    PAGE,
    PICTURES_BYTES,
    TEXT_LENGTH,
    WAITING,
    Limits,
)
from in2r.serve.run import _listening
from in2r.serve.thumbs import Thumbnails, make_thumbnail
from in2r.serve.token import Token, make_token, read_token


@given(
    rate=some.floats(0.1, 50), pauses=some.lists(some.floats(0, 5), max_size=200), clients=some.integers(1, 3)
)  # fmt: skip
def test_nobody_asks_more_than_the_rate_in_any_time(rate: float, pauses: list[float], clients: int) -> None:
    now, taken = 0.0, []
    buckets = Buckets(rate, lambda: now)
    for number, pause in enumerate(pauses):
        now += pause
        wait = buckets.take(str(number % clients))
        if number % clients == 0:
            assert wait >= 0
            if not wait:
                taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            most = max(1, rate * BURST_SECONDS) + rate * (taken[last] - taken[first])
            assert last - first + 1 <= most + 1e-6


def test_who_waits_as_long_as_told_may_go_on() -> None:
    now = 0.0
    buckets = Buckets(2, lambda: now)
    assert [buckets.take("a") for _ in range(20)] == [0] * 20
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0
    now += 0.5
    assert buckets.take("a") == 0
    for number in range(CLIENTS + 5):
        buckets.take(f"other {number}")
    assert len(buckets._left) == CLIENTS


def test_a_full_lane_refuses_and_empties_again() -> None:
    gate = threading.Event()

    async def ask() -> list[object]:
        lane = Lane(threads=1, waiting=2)
        running = [asyncio.ensure_future(lane.run(gate.wait, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await lane.run(gate.wait)
        gate.set()
        done = await asyncio.gather(*running)
        with pytest.raises(ZeroDivisionError):
            await lane.run(lambda: 1 / 0)
        done += [await lane.run(pow, 2, 3) for _ in range(4)]
        lane.close()
        return done

    assert asyncio.run(ask()) == [True, True, True, 8, 8, 8, 8]


def test_an_item_that_is_not_found_yet_holds_up_nobody() -> None:
    """As one of a database that does not answer."""
    gate = threading.Event()

    class Waiting:
        side = "images"

        def picture(self, name: str) -> None:
            gate.wait(2)

    async def ask() -> bool:
        catalogue: Any = Waiting()
        api = Api([catalogue], Limits(), None)
        asked = asyncio.ensure_future(api.thumb("a"))
        await asyncio.sleep(0.1)
        waits = not asked.done()
        gate.set()
        await asked
        api.close()
        return waits

    assert asyncio.run(ask())


def test_a_database_that_does_not_answer_is_no_fault_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    class Gone:
        side = "images"

        def by_text(self, text: str, window: Window) -> None:
            raise UnavailableError("postgresql://me@host/photos#mine: no connection (refused)")

    catalogue: Any = Gone()
    api = Api([catalogue], Limits(), None)
    sent: list[Any] = []

    async def ask() -> None:
        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/api/search", "query_string": b"q=a", "headers": []}
        await api.app()(scope, receive, send)

    asyncio.run(ask())
    api.close()
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"]) == {"error": "the index cannot be read now; the log of this server says why"}
    assert [line.getMessage() for line in caplog.records if line.levelname == "ERROR"] == [
        "postgresql://me@host/photos#mine: no connection (refused)"
    ]


def test_pictures_are_kept_up_to_a_bound() -> None:
    kept = Thumbnails(room=10)
    for name in "abc":
        kept.keep(Path(name), name.encode() * 4)
    assert kept.get(Path("a")) is None
    assert kept.get(Path("b")) == b"bbbb"
    kept.keep(Path("d"), b"d" * 4)  # b was asked for after c
    assert [kept.get(Path(name)) is None for name in "bcd"] == [False, True, False]
    kept.keep(Path("d"), b"d" * 6)  # another picture of the same file takes the place of the old one
    assert [len(kept.get(Path(name)) or b"") for name in "bd"] == [4, 6]
    kept.keep(Path("e"), b"e" * 11)
    assert [kept.get(Path(name)) for name in "bde"] == [None, None, None]


def test_a_picture_is_made_of_images_alone(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_text("root:x:0:0", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    for name in ("secret.png", "pipe.png", "folder.png", "none.png"):
        assert make_thumbnail(tmp_path / name) is None
    Image.new("RGB", (900, 300), "red").save(tmp_path / "photo.png")
    jpeg = make_thumbnail(tmp_path / "photo.png")
    assert jpeg is not None
    assert jpeg.startswith(b"\xff\xd8\xff")


def test_a_token_is_read_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IN2R_TOKEN", raising=False)
    assert read_token(None) is None
    made = make_token()
    assert made != make_token()
    monkeypatch.setenv("IN2R_TOKEN", f" {made}\n")
    assert read_token(None) == made
    file = tmp_path / "token"
    file.write_text("another-token-of-a-file\n", encoding="utf-8")
    assert read_token(file) == "another-token-of-a-file"
    for wrong in ("", "short", "one token of several words", "tökentökentökentöken", "a" * 20 + "\n" + "b" * 20):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError, match="cannot be a token"):
            read_token(file)
    token = Token(made, 8017)
    cookie = token.cookie(secure=True).split(";")[0]
    assert token.admits("", cookie)
    assert token.admits(f"bearer {made}", "")
    assert not Token(make_token(), 8017).admits("", cookie)


def test_cookies_of_other_programs_on_this_machine_change_nothing() -> None:
    text = make_token()
    token, beside = Token(text, 8017), Token(make_token(), 8018)
    cookie, other = (one.cookie(secure=False).split(";")[0] for one in (token, beside))
    for more in ('prefs={"theme":"dark"}', "a b=1", "x=\xe9", "a[b]=1", "c", "=", "in2r-8017=wrong", other):
        assert token.admits("", f"{more}; {cookie}")
        assert token.admits("", f"{cookie}; {more}")
        assert not token.admits("", more)
    assert cookie.split("=")[0] != other.split("=")[0]  # else logging in to one server logs out of the other


def test_pictures_come_from_a_folder_by_name_where_one_is_given(both: list[Path], encoder: str, tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "3.jpg")
    images, captions = (Catalogue(in2r.Index.open(path, encoder=encoder, device="cpu"), tmp_path) for path in both)
    assert images.info.pictures == 1
    assert images.picture("3.png") is None  # the ids end in .png, and a folder has names with or without ending
    Image.new("RGB", (9, 9)).save(tmp_path / "3.png")
    images, captions = (Catalogue(in2r.Index.open(path, encoder=encoder, device="cpu"), tmp_path) for path in both)
    assert [images.picture(name) for name in ("3.png", "4.png")] == [tmp_path / "3.png", None]
    assert [captions.picture(name) for name in ("4", "5", "6")] == [tmp_path / "3.png", tmp_path / "3.png", None]
    found = images.like("4.png", Window(12)).items
    assert [item.id for item in found if item.picture] == ["3.png"]
    with pytest.raises(KeyError):
        images.picture("../3.png")


def test_paging_ends_where_a_search_does(both: list[Path], encoder: str) -> None:
    """As with an index that finds no more than so many."""
    index = in2r.Index.open(both[0], encoder=encoder, device="cpu")
    images = Catalogue(index)
    images._furthest = 5
    expected = [hit.id for hit in index.search(["a cab"], 5).hits[0]]
    pages = [images.by_text("a cab", Window(k, offset)) for k, offset in ((2, 0), (2, 2), (2, 3), (5, 0))]
    assert [[item.id for item in page.items] for page in pages] == [
        expected[:2], expected[2:4], expected[3:], expected,
    ]  # fmt: skip
    assert [page.more for page in pages] == [True, True, False, False]
    with pytest.raises(InputError, match=r"^offset \+ k is 6; expected at most 5$"):
        images.by_text("a cab", Window(2, 4))
    assert len(images.like("5.png", Window(5)).items) == 4


def test_the_page_shows_the_record_of_the_benchmark() -> None:
    checkout = Path(__file__).parents[2]
    script = runpy.run_path(str(checkout / "benchmarks" / "serve.py"))
    record = json.loads(script["RESULTS"].read_text(encoding="utf-8"))
    assert script["table"](record) in (checkout / "docs" / "serve.md").read_text(encoding="utf-8")
    assert all(found["errors"] == 0 for measured in record.values() for found in measured["clients"].values())


def test_the_page_has_the_limits_of_the_server() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    own = Limits()
    for said in (
        f"| `--rate` | {own.rate:g} |", f"| `--searches` | {own.searches} | searches at the same time; {WAITING} more",
        f"| `--image-mib` | {own.image_mib} |", f"at most {TEXT_LENGTH:,} characters", f"ends at item {FURTHEST:,}",
        f"at item {FOUND} of an hnsw", f"at item {RERANKED} of an interaction",
        f"Pictures of {PICTURES_BYTES // MIB} MiB",
        f"up to {GRACE_SECONDS} seconds", f"within {BODY_SECONDS} seconds", f"`k` ({PAGE}; at most {LARGEST_PAGE})",
    ):  # fmt: skip
        assert said in page


def test_an_answer_is_sent_at_once() -> None:
    """Otherwise its body waits for the client to acknowledge its head: 40 ms more for each answer."""
    with _listening("127.0.0.1", 0, None) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
