"""`in2r serve` by HTTP: the same results as `in2r search`, limits, tokens, headers, an orderly end."""

import http.client
import json
import socket
import struct
import time
import zlib
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image
from serving import PATIENCE, Served

import in2r
from in2r.cli.main import main


def hits(index: in2r.Index, results: in2r.search.Results, first: int = 1) -> list[dict[str, object]]:
    return [
        {"rank": rank, "id": hit.id, "score": hit.score, "columns": hit.columns, "picture": True}
        for rank, hit in enumerate(results.hits[0], start=first)
    ]


def png(width: int, height: int) -> bytes:
    """Return a PNG whose header promises a size, with the data of one row."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(width + 1)))


def raw(served: Served, method: str, target: str, **headers: str) -> tuple[int, dict[str, str]]:
    """Send a request target as it is; a client library would tidy it up."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    connection.putrequest(method, target, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, json.loads(body) if body else {}


def test_info_says_what_is_served(server: Served, guarded: Served, both: list[Path]) -> None:
    status, info, _ = server.ask("/api/info")
    assert (status, info["image_bytes"]) == (200, 20 * 2**20)
    images, captions = info["indexes"]
    opened = in2r.Index.open(both[0])
    assert {key: images[key] for key in ("side", "count", "kind", "dim", "columns", "caption_column", "pictures")} == {
        "side": "images", "count": 12, "kind": "exact", "dim": 16, "columns": ["image", "caption", "kind", "price"],
        "caption_column": "caption", "pictures": 12,
    }  # fmt: skip
    assert info["started"] != guarded.ask("/api/info", X_Forwarded_For="192.0.2.30", **guarded.shown)[1]["started"]
    assert images["fingerprint"] == opened.config.model.fingerprint
    assert images["text_queries"] == images["image_queries"] == {"works": True, "why": ""}
    assert (captions["side"], captions["count"], captions["pictures"]) == ("captions", 18, 12)
    assert server.said[0] == "12 images (exact), 12 pictures known"


def test_results_are_those_of_a_search(server: Served, both: list[Path], encoder: str, shop: Path) -> None:
    images, captions = (in2r.Index.open(path, encoder=encoder, device="cpu") for path in both)
    status, found, _ = server.ask(f"/api/search?q={quote('a cab')}&k=5")
    assert (status, found["how"], found["more"]) == (200, "exact among 12 images", True)
    assert found["items"] == hits(images, images.search(["a cab"], 5))
    pages = [server.ask(f"/api/search?q=a+cab&k=5&offset={offset}")[1] for offset in (0, 5, 10, 15)]
    assert [item for page in pages for item in page["items"]] == hits(images, images.search(["a cab"], 12))
    assert [page["more"] for page in pages] == [True, True, False, False]
    _, some, _ = server.ask("/api/search?q=a+cab&where=kind%3Dhats&where=price%3D3")
    assert some["items"] == hits(images, images.search(["a cab"], 9, {"kind": "hats", "price": "3"}))
    assert some["how"] == "exact among the 1 of 12 images that match"
    photo = shop / "photos" / "5.png"
    _, by_image, _ = server.ask("/api/search?k=4&side=captions", photo.read_bytes())
    assert by_image["items"] == hits(captions, captions.search_images([photo], 4))
    assert by_image["side"] == "captions"


def test_items_like_an_item_leave_it_out(server: Served, both: list[Path]) -> None:
    opened = in2r.Index.open(both[0])
    row = [name for name, _ in opened].index("5.png")
    expected = [hit.id for hit in opened.search(opened.vectors[row : row + 1], 12).hits[0] if hit.id != "5.png"]
    status, found, _ = server.ask("/api/items/5.png/similar?k=20")
    assert (status, [item["id"] for item in found["items"]], found["more"]) == (200, expected, False)
    assert [item["rank"] for item in found["items"]] == list(range(1, 12))
    _, second, _ = server.ask("/api/items/5.png/similar?k=2&offset=2")
    assert ([item["id"] for item in second["items"]], second["more"]) == (expected[2:4], True)


def test_pictures_are_small_jpegs_of_the_items(server: Served, shop: Path) -> None:
    for path, file in (("/thumb/3.png", "3.png"), ("/thumb/4?side=captions", "3.png")):
        status, jpeg, headers = server.ask(path)
        assert (status, headers["Content-Type"], headers["Cache-Control"]) == (
            200,
            "image/jpeg",
            "private, max-age=3600",
        )
        with Image.open(BytesIO(jpeg)) as small, Image.open(shop / "photos" / file) as photo:
            assert (small.format, small.size) == ("JPEG", photo.size)
            difference = abs(small.convert("L").resize((1, 1)).getpixel((0, 0)) - photo.resize((1, 1)).getpixel((0, 0)))  # type: ignore[operator]
            assert difference < 4


@pytest.mark.parametrize(
    ("status", "path", "sentence"),
    [
        (400, "/api/search", "q: field required"),
        (400, "/api/search?q=", "query 1 is empty; expected a text"),
        (400, "/api/search?q=a&k=0", "k: input should be greater than or equal to 1, got '0'"),
        (400, "/api/search?q=a&k=101", "k: input should be less than or equal to 100, got '101'"),
        (400, "/api/search?q=a&offset=-1", "offset: input should be greater than or equal to 0, got '-1'"),
        (400, "/api/search?q=a&k=100&offset=950", "offset + k is 1,050; expected at most 1,000"),
        (400, f"/api/search?q={'a' * 2001}", "q: string should have at most 2000 characters, got '" + "a" * 50 + "'"),
        (400, "/api/search?q=a&where=kind", "where 'kind': expected COLUMN=VALUE"),
        (400, "/api/search?q=a&top=3", "'top' is no parameter of a search; expected q, k,"),
        (400, "/api/search?q=a&where=kinds%3Dx", "no column 'kinds'; the index has image, caption, kind, price; did"),
        (400, "/api/search?q=a&side=words", "side: input should be 'images' or 'captions', got 'words'"),
        (404, "/api/items/nothing/similar", "no item has the id 'nothing'"),
        (404, "/thumb/nothing", "no item has the id 'nothing'"),
        (404, "/docs", "nothing is at this address; /openapi.json lists what there is"),
    ],
)  # fmt: skip
def test_errors_are_json_with_a_sentence(server: Served, status: int, path: str, sentence: str) -> None:
    found, body, headers = server.ask(path)
    assert (found, list(body)) == (status, ["error"])
    assert body["error"].startswith(sentence)
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")


def test_a_body_that_is_no_image_is_refused(server: Served, shop: Path) -> None:
    photo = (shop / "photos" / "5.png").read_bytes()
    for body, sentence in (
        (b"", "the request has no body; send the image file as it is"),
        (b"no image", "the image: not an image (begins with b'no image'); expected an image"),
        (photo[: len(photo) // 2], "the image: truncated ("),
        (png(12_000, 12_000), "the image: too large (more than 100,000,000 pixels); expected an image"),
        (png(60_000, 60_000), "the image: too large (more than 200,000,000 pixels); expected an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "the image: not an image (begins with"),
    ):
        status, answer, _ = server.ask("/api/search", body)
        assert (status, list(answer)) == (400, ["error"])
        assert answer["error"].startswith(sentence)
    assert server.ask("/api/search", photo)[0] == 200


def test_few_images_are_received_at_a_time(server: Served, shop: Path) -> None:
    """Sixteen clients that send no more than the first byte; then another one."""
    image = (shop / "photos" / "3.png").read_bytes()
    begun = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 100\r\n\r\nx".encode()

    def become(status: int) -> dict[str, Any]:
        for _ in range(100):
            found, answer, _ = server.ask("/api/search", image)
            if found == status:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"never {status}, at last {found}")

    with ExitStack() as slow:
        for _ in range(16):
            slow.enter_context(socket.create_connection(("127.0.0.1", server.port))).sendall(begun)
        assert become(503) == {"error": "too many requests wait already; come again soon"}
    assert become(200)["items"]


def test_no_address_leaves_the_data(server: Served, shop: Path) -> None:
    for target in (
        "/thumb/../../../../etc/passwd", "/thumb/..%2f..%2f..%2fetc%2fpasswd", f"/thumb/{shop}/photos/1.png",
        f"/thumb/%2F{quote(str(shop), safe='')}%2Fshop.csv", "/thumb/%00", "/assets/../run.py", "/assets/..%2frun.py",
        "/assets/page.html", "/api/items/..%2f..%2f/similar",
    ):  # fmt: skip
        status, body = raw(server, "GET", target, Host=f"127.0.0.1:{server.port}")
        assert (status, list(body)) == (404, ["error"]), target


def test_other_names_and_other_sites_are_refused(server: Served) -> None:
    own = f"localhost:{server.port}"
    assert raw(server, "GET", "/api/info", Host=own)[0] == 200
    assert raw(server, "GET", "/api/info", Host=f"[::1]:{server.port}")[0] == 200
    for host in ("evil.example", f"127.0.0.1.evil.example:{server.port}", ""):
        status, body = raw(server, "GET", "/api/info", Host=host)
        assert (status, body["error"].split(";")[0]) == (400, "the Host header is no name of this server")
    for site, mode, status in (
        ("cross-site", "no-cors", 403), ("same-site", "cors", 403), ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200), ("none", "navigate", 200),
    ):  # fmt: skip
        assert raw(server, "GET", "/api/info", Host=own, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode)[0] == status
    _, _, headers = server.ask("/api/info", Origin="http://evil.example")
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert raw(server, "POST", "/api/info", Host=own)[0] == 405


def test_every_answer_has_strict_headers(server: Served) -> None:
    for path in ("/", "/assets/page.js", "/api/info", "/thumb/1.png", "/openapi.json", "/nothing"):
        _, _, headers = server.ask(path)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Frame-Options"] == "DENY"
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
        assert "Server" not in headers


def test_the_log_has_no_query(server: Served) -> None:
    server.ask("/api/search?q=secretwish&where=kind%3Dhats")
    log = server.log.read_text(encoding="utf-8")
    assert "INFO: 127.0.0.1 GET /api/search 200, " in log
    assert "secretwish" not in log
    assert "hats" not in log


# --- who may ask, and how often


def test_without_the_token_there_is_the_page_alone(guarded: Served) -> None:
    token = guarded.token
    for path in ("/api/info", "/api/search?q=a", "/thumb/1.png", "/api/items/1.png/similar", "/openapi.json", "/x"):
        for number, headers in enumerate((
            {}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}, {"Cookie": f"in2r={token}"},
            {"Authorization": "Bearer \xe9"}, {"Cookie": "in2r=\xe9; ;="},
        )):  # fmt: skip
            status, body, answered = guarded.ask(path, X_Forwarded_For=f"192.0.2.{number}", **headers)
            assert (status, body["error"].split(",")[0]) == (401, "no token")
            assert answered["WWW-Authenticate"] == "Bearer"
    assert guarded.ask(f"/api/info?token={token}")[0] == 401  # an address is no place for a secret
    assert guarded.ask("/")[0] == guarded.ask("/assets/page.js")[0] == 200
    assert guarded.ask("/api/info", **guarded.shown)[0] == 200
    assert raw(guarded, "GET", "/api/info", Host="search.example", **guarded.shown)[0] == 200


def test_a_browser_logs_in_by_the_token_and_keeps_a_cookie(guarded: Served) -> None:
    client = {"X_Forwarded_For": "192.0.2.20"}
    status, body, _ = guarded.ask("/api/login", b"wrong", **client)
    assert (status, body) == (401, {"error": "this is not the token"})
    assert guarded.ask("/api/login", b"x" * 5000, **client)[0] == 401
    status, _, headers = guarded.ask("/api/login", guarded.token.encode(), X_Forwarded_Proto="https", **client)
    cookie, *flags = headers["Set-Cookie"].split("; ")
    assert status == 204
    assert guarded.token not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"} <= set(flags)
    assert guarded.ask("/api/info", Cookie=f"other=1; {cookie}", **client)[0] == 200
    _, _, headers = guarded.ask("/api/login", guarded.token.encode(), **client)
    assert "Secure" not in headers["Set-Cookie"]


def test_a_client_that_asks_too_often_waits_alone(guarded: Served) -> None:
    often, other = ({"X_Forwarded_For": f"198.51.100.{number}", **guarded.shown} for number in (1, 2))
    answers = [guarded.ask("/assets/icon.svg", **often) for _ in range(100)]
    statuses = [status for status, _, _ in answers]
    assert statuses[:80] == [200] * 80
    _, body, headers = next(answer for answer in answers if answer[0] == 429)
    assert body["error"] == "too many requests; come again in 1 s"
    assert headers["Retry-After"] == "1"
    assert guarded.ask("/api/info", **other)[0] == 200


def test_an_image_that_is_too_large_is_refused_while_it_comes(guarded: Served) -> None:
    for size in (2**20 + 1, 3 * 2**19):
        status, body, _ = guarded.ask("/api/search", bytes(size), **guarded.shown)
        assert (status, body["error"]) == (413, "the image has more than 1,048,576 bytes; send a smaller one")
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=PATIENCE)
    parts = (bytes(2**16) for _ in range(20))
    connection.request("POST", "/api/search", parts, guarded.shown, encode_chunked=True)  # no length is given before
    assert connection.getresponse().status == 413
    connection.close()


# --- the process


def test_mistakes_are_one_line(
    both: list[Path], encoder: str, server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short").write_text("secret\n", encoding="utf-8")
    for words, expected in (
        ([tmp_path], f"{tmp_path}: no index here (no config.json); `in2r index` makes one"),
        ([both[0], both[0]], "two indexes of images; serve one of images, one of captions, or both"),
        ([both[0], "--host", "0.0.0.0"], "--host 0.0.0.0: others can reach it, so a token is needed: --make-token"),
        ([both[0], "--port", server.port], f"--host 127.0.0.1 --port {server.port}: Address already in use; choose"),
        ([both[0], "--port", 99999], "--port is 99999; expected 0 to 65,535"),
        ([both[0], "--host", "nobody.invalid"], "--host nobody.invalid --port 0: "),
        ([both[0], "--host", ".x"], "--host .x: cannot be the name of a machine; choose another"),
        ([both[0], "--token-file", tmp_path / "short"], f"{tmp_path / 'short'}: cannot be a token; expected one line"),
        ([both[0], "--token-file", tmp_path / "none"], f"{tmp_path / 'none'}: No such file"),
        ([both[0], "--rate", "nan"], "--rate is nan; expected 0 or more"),
        ([both[0], "--searches", 0], "--searches is 0; expected 1 or more"),
        ([both[0], "--pictures", tmp_path / "none"], f"{tmp_path / 'none'}: no such folder of pictures"),
    ):
        port = [] if "--port" in words else ["--port", 0]
        assert main(["serve", *map(str, [*words, *port, "--encoder", encoder])]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"in2r: {expected}")
        assert said.count("\n") == 1
