"""Before any request reaches the API: host, origin, rate and token; after it: strict headers and a line in the log."""

import asyncio
import logging
import math
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from in2r.serve.buckets import Buckets
from in2r.serve.limits import BODY_SECONDS
from in2r.serve.token import Token

log = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""of every answer; blob: is the picture that a user drops, shown beside the query"""
LOGGED = 200
"""characters of a path that the log has: more than those of most ids"""
OPEN = ("/", "/api/login")
"""paths that need no token, beside those of `ASSETS`: the page, which asks for the token, shows nothing by itself"""
ASSETS = "/assets/"


def refusal(status: int, sentence: str, **headers: str) -> JSONResponse:
    """Return an error as every one is: JSON with one sentence."""
    return JSONResponse({"error": sentence}, status, {name.replace("_", "-"): value for name, value in headers.items()})


class Guard:
    """What stands before the API.

    Args:
        app: the API.
        hosts: names by which a request must call this server, without ports; None = any. A page of elsewhere whose
            name was made to lead here (DNS rebinding) calls it by its own name.
        token: what a client must show; None = nothing.
        buckets: how often a client may ask; None = any number of times.
        drained: bytes of a refused request that are read, so that a client that is sending sees the answer.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: frozenset[str] | None, token: Token | None, buckets: Buckets | None, drained: int
    ) -> None:
        self._app, self._hosts, self._token = app, hosts, token
        self._buckets, self._drained = buckets, drained

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        assert scope["type"] == "http"  # the server is started without websockets and lifespan
        begun, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            refused = self._refuse(scope)
            if refused is None:
                await self._app(scope, receive, answer)
            else:
                await _drain(receive, self._drained)
                await refused(scope, receive, answer)
        finally:
            path = scope["raw_path"][:LOGGED].decode("ascii", "replace")  # encoded, so one line; without the query
            took = 1e3 * (time.perf_counter() - begun)
            log.info("%s %s %s %d, %.0f ms", _client(scope), scope["method"], path, status, took)

    def _refuse(self, scope: Scope) -> JSONResponse | None:
        """Return why a request is not answered; None where it is."""
        headers = Headers(scope=scope)
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            return refusal(400, f"the Host header is no name of this server; expected {names}")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return refusal(403, "a page of another site asks; only this server's own page may")
        wait = 0.0 if self._buckets is None else self._buckets.take(_client(scope))
        if wait:
            seconds = math.ceil(wait)
            return refusal(429, f"too many requests; come again in {seconds} s", Retry_After=str(seconds))
        path = scope["path"]
        if self._token is None or path in OPEN or path.startswith(ASSETS):
            return None
        if self._token.admits(headers.get("authorization", ""), headers.get("cookie", "")):
            return None
        return refusal(401, "no token, or a wrong one; send Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None where it is longer than `most` bytes.

    Of a longer one as much again is read and dropped: a client that is still sending may not see an answer.

    Raises:
        TimeoutError: it has not come in `BODY_SECONDS`.
    """
    parts: list[bytes] = []
    size = 0

    def keep(part: bytes) -> None:
        nonlocal size
        size += len(part)
        if size <= most:
            parts.append(part)

    await _read(receive, keep, 2 * most)
    return b"".join(parts) if size <= most else None


async def _drain(receive: Receive, most: int) -> None:
    try:
        await _read(receive, lambda part: None, most)
    except TimeoutError:
        return


async def _read(receive: Receive, keep: Callable[[bytes], None], most: int) -> None:
    """Hand over the body in parts, until it ends, the client is gone, or `most` bytes have come."""
    size, more = 0, True
    async with asyncio.timeout(BODY_SECONDS):
        while more and size <= most:
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            keep(part)
            more = message.get("more_body", False)


def _client(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "unknown"


def _host_name(host: str) -> str:
    """Return a Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
