"""The API: addresses → searches, pictures and the page."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

import in2r
from in2r.errors import InputError, UnavailableError
from in2r.search.conditions import read_conditions
from in2r.search.store import Side
from in2r.serve.catalogue import Answer, Catalogue, IndexInfo, Window
from in2r.serve.guard import read_body, refusal
from in2r.serve.lanes import BusyError, Lane
from in2r.serve.limits import (
    CONDITIONS,
    FURTHEST,
    LARGEST_PAGE,
    LOGIN_BYTES,
    MIB,
    PAGE,
    PICTURE_SECONDS,
    PICTURES_BYTES,
    PICTURES_WAITING,
    RETRY_SECONDS,
    TEXT_LENGTH,
    UPLOADS,
    WAITING,
    Limits,
)
from in2r.serve.thumbs import Thumbnails, make_thumbnail
from in2r.serve.token import Token

log = logging.getLogger(__name__)

ASSETS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""files of the page beside page.html → type"""
NO_PICTURE = "no-picture.svg"


@dataclass(frozen=True)
class Info:
    """What is served: each index, the first one being asked by default, and the largest image that is taken.

    Attributes:
        started: another text for each start. The page has it in the addresses of pictures, so that a browser shows none
            that it keeps of another index that was served here.
    """

    in2r: str
    started: str
    indexes: list[IndexInfo]
    image_bytes: int


PARAMETERS = ("q", "k", "offset", "where", "side")
"""of a search; a misspelt one would give other results without a word"""


async def read_window(
    request: Request,
    k: Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="how many items")] = PAGE,
    offset: Annotated[int, Query(ge=0, lt=FURTHEST, description="how many items come before them")] = 0,
    where: Annotated[list[str], Query(max_length=CONDITIONS, description="COLUMN=VALUE; may be repeated")] = [],  # noqa: B006 (FastAPI copies it)
) -> Window:
    """Return which results a request asks for; refuse a parameter that there is not."""
    for name in request.query_params:
        if name not in PARAMETERS:
            raise InputError(f"{name[:50]!r} is no parameter of a search; expected {', '.join(PARAMETERS)}")
    return Window(k, offset, read_conditions(where, "where"))


AskedWindow = Annotated[Window, Depends(read_window)]
AskedSide = Annotated[Side | None, Query(description="which index, where two are served; default: the first")]


class Api:
    """The addresses of a server.

    Args:
        catalogues: what is served; of one side at most one.
        limits: what the owner has set.
        token: what a browser logs in by; None = nothing.
    """

    def __init__(self, catalogues: Sequence[Catalogue], limits: Limits, token: Token | None) -> None:
        self._catalogues: Mapping[Side, Catalogue] = {one.side: one for one in catalogues}
        self._largest, self._token = limits.image_mib * MIB, token
        self._started = secrets.token_hex(4)
        self._uploads = UPLOADS
        self._searches = Lane(limits.searches, WAITING)
        self._lookups = Lane(limits.searches, PICTURES_WAITING)  # beside the event loop: a database may not answer
        self._pictures = Lane(1, PICTURES_WAITING)  # one thread: Pillow's limits and warnings are the process's own
        self._thumbnails = Thumbnails(PICTURES_BYTES)
        folder = files("in2r.serve") / "assets"
        self._assets = {name: (folder / name).read_bytes() for name in [*ASSETS, NO_PICTURE, "page.html"]}

    def app(self) -> FastAPI:
        """Return the application; its documentation pages would load scripts from elsewhere, so there are none."""
        app = FastAPI(title="in2r serve", version=in2r.__version__, docs_url=None, redoc_url=None)
        add = app.add_api_route
        add("/", self.page, include_in_schema=False)
        add("/assets/{name}", self.asset, include_in_schema=False)
        add("/api/login", self.login, methods=["POST"], include_in_schema=False)
        add("/api/info", self.info)
        add("/api/search", self.search)
        add("/api/search", self.search_by_image, methods=["POST"])
        add("/api/items/{item:path}/similar", self.similar)
        add("/thumb/{item:path}", self.thumb, response_class=Response)
        app.add_exception_handler(StarletteHTTPException, _say_http)
        app.add_exception_handler(RequestValidationError, _say_invalid)
        app.add_exception_handler(InputError, _say_input)
        app.add_exception_handler(UnavailableError, _say_unavailable)
        app.add_exception_handler(BusyError, _say_busy)
        app.add_exception_handler(TimeoutError, _say_late)
        app.add_exception_handler(Exception, _say_fault)
        return app

    def close(self) -> None:
        """Wait for the threads."""
        self._searches.close()
        self._lookups.close()
        self._pictures.close()

    async def info(self) -> Info:
        """Say what is served."""
        return Info(in2r.__version__, self._started, [one.info for one in self._catalogues.values()], self._largest)

    async def search(
        self,
        q: Annotated[str, Query(max_length=TEXT_LENGTH, description="the text")],
        window: AskedWindow,
        side: AskedSide = None,
    ) -> Answer:
        """Return the items that are most similar to a text."""
        return await self._searches.run(self._chosen(side).by_text, q, window)

    async def search_by_image(self, request: Request, window: AskedWindow, side: AskedSide = None) -> Answer:
        """Return the items that are most similar to an image, whose file is the body of the request."""
        chosen = self._chosen(side)
        if self._uploads == 0:
            raise BusyError
        self._uploads -= 1
        try:
            content = await read_body(request.receive, self._largest)
            if content is None:
                raise HTTPException(413, f"the image has more than {self._largest:,} bytes; send a smaller one")
            if not content:
                raise HTTPException(400, "the request has no body; send the image file as it is")
            return await self._pictures.run(chosen.by_image, content, window)
        finally:
            self._uploads += 1

    async def similar(self, item: str, window: AskedWindow, side: AskedSide = None) -> Answer:
        """Return the items that are most similar to an item."""
        chosen = self._chosen(side)
        try:
            return await self._searches.run(chosen.like, item, window)
        except KeyError:
            raise _no_item(item) from None

    async def thumb(self, item: str, side: AskedSide = None) -> Response:
        """Return a small picture of an item as JPEG; where none is known, a drawing that says so (SVG)."""
        try:
            file = await self._lookups.run(self._chosen(side).picture, item)
        except KeyError:
            raise _no_item(item) from None
        jpeg = None if file is None else await self._thumbnail(file)
        content, kind = (self._assets[NO_PICTURE], ASSETS["icon.svg"]) if jpeg is None else (jpeg, "image/jpeg")
        return Response(content, media_type=kind, headers={"Cache-Control": f"private, max-age={PICTURE_SECONDS}"})

    async def _thumbnail(self, file: Path) -> bytes | None:
        jpeg = self._thumbnails.get(file)
        if jpeg is None and (jpeg := await self._pictures.run(make_thumbnail, file)) is not None:
            self._thumbnails.keep(file, jpeg)
        return jpeg

    async def page(self) -> Response:
        """Return the page."""
        return Response(self._assets["page.html"], media_type="text/html; charset=utf-8")

    async def asset(self, name: str) -> Response:
        """Return a file of the page."""
        if name not in ASSETS:
            raise HTTPException(404)
        return Response(self._assets[name], media_type=ASSETS[name], headers={"Cache-Control": "no-cache"})

    async def login(self, request: Request) -> Response:
        """Log a browser in: the body is the token as text, the answer sets a cookie."""
        text = await read_body(request.receive, LOGIN_BYTES)
        if self._token is None:
            raise HTTPException(404, "this server needs no token")
        if text is None or not self._token.matches(text.decode("utf-8", "replace").strip()):
            raise HTTPException(401, "this is not the token", {"WWW-Authenticate": "Bearer"})
        return Response(status_code=204, headers={"Set-Cookie": self._token.cookie(request.url.scheme == "https")})

    def _chosen(self, side: Side | None) -> Catalogue:
        first = next(iter(self._catalogues))
        if (side or first) not in self._catalogues:
            raise HTTPException(404, f"no index of {side} is served; there is one of {first}")
        return self._catalogues[side or first]


def _no_item(item: str) -> HTTPException:
    return HTTPException(404, f"no item has the id {item[:200]!r}")


async def _say_http(request: Request, error: Any) -> JSONResponse:
    sentence = error.detail
    if sentence == HTTPStatus(error.status_code).phrase:  # nobody wrote a sentence
        sentence = {
            404: "nothing is at this address; /openapi.json lists what there is",
            405: f"this address does not take {request.method}",
        }.get(error.status_code, sentence)
    return JSONResponse({"error": sentence}, error.status_code, error.headers)


async def _say_invalid(_: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    name, said = first["loc"][-1], first["msg"]
    given = "" if first["type"] == "missing" else f", got {str(first['input'])[:50]!r}"
    return refusal(400, f"{name}: {said[0].lower()}{said[1:]}{given}")


async def _say_input(_: Request, error: Any) -> JSONResponse:
    return refusal(400, str(error))


async def _say_unavailable(_: Request, error: Any) -> JSONResponse:
    log.error("%s", error)  # with the place of the index, which is nothing for clients
    return refusal(503, "the index cannot be read now; the log of this server says why", Retry_After=str(RETRY_SECONDS))


async def _say_busy(_: Request, error: Any) -> JSONResponse:
    return refusal(503, "too many requests wait already; come again soon", Retry_After=str(RETRY_SECONDS))


async def _say_late(_: Request, error: Any) -> JSONResponse:
    return refusal(408, "the body of the request has not come in time")


async def _say_fault(_: Request, error: Any) -> JSONResponse:
    return refusal(500, "a fault of this server; its log has more")
