"""The process: a socket, the server on it, and an orderly end."""

import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from in2r.errors import InputError
from in2r.search.index import Index
from in2r.serve.limits import GRACE_SECONDS, MIB, Limits
from in2r.serve.token import VARIABLE

log = logging.getLogger(__name__)

OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""of the loopback, in a Host header"""


def require_fastapi() -> None:
    """Raise `InputError` with the install command where a package is absent."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError('serving needs FastAPI and uvicorn: pip install "in2r[serve]"') from None


def serve(
    indexes: Sequence[Index],
    *,
    host: str = "127.0.0.1",
    port: int = 8017,
    token: str | None = None,
    pictures: Path | None = None,
    limits: Limits | None = None,
    proxy: bool = False,
    started: Callable[[str, list[str]], None] = lambda address, lines: None,
) -> None:
    """Answer requests until the process is told to end (SIGTERM, SIGINT); running requests are answered first.

    Args:
        indexes: one of images, one of captions, or both.
        host: an address or a name of this machine.
        port: 0 = any free one.
        token: what clients must show; only the loopback may go without.
        pictures: see `Catalogue`.
        limits: None = the defaults.
        proxy: take a client's address and scheme from X-Forwarded-For and -Proto of a proxy on this machine.
        started: is told the address, and a line about each index, before the first request is answered.

    Raises:
        InputError: no token where one is needed, an address that cannot be had, two indexes of one side; as
            `Catalogue`.
    """
    require_fastapi()
    import uvicorn

    from in2r.serve.app import Api
    from in2r.serve.buckets import Buckets
    from in2r.serve.catalogue import Catalogue
    from in2r.serve.guard import Guard
    from in2r.serve.token import Token

    limits = limits or Limits()
    sides = [index.config.side for index in indexes]
    if len(set(sides)) < len(sides):
        raise InputError(f"two indexes of {sides[0]}; serve one of images, one of captions, or both")
    with _listening(host, port, token) as listener:
        catalogues = [Catalogue(index, pictures) for index in indexes]
        known = None if token is None else Token(token, listener.getsockname()[1])
        api = Api(catalogues, limits, known)
        guard = Guard(
            api.app(),
            hosts=OWN_NAMES | {host} if token is None else None,
            token=known,
            buckets=Buckets(limits.rate) if limits.rate else None,
            drained=limits.image_mib * MIB,
        )
        config = uvicorn.Config(
            guard, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=proxy, forwarded_allow_ips=["127.0.0.1", "::1"],
            timeout_graceful_shutdown=GRACE_SECONDS,
        )  # fmt: skip
        server = uvicorn.Server(config)
        with _ending(server):
            started(_address(listener), [_line(catalogue) for catalogue in catalogues])
            server.run([listener])
            api.close()


@contextmanager
def _listening(host: str, port: int, token: str | None) -> Iterator[socket.socket]:
    """Yield a socket that listens; connections wait until the server is there."""
    if not 0 <= port < 2**16:
        raise InputError(f"--port is {port}; expected 0 to {2**16 - 1:,}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if token is None and not ipaddress.ip_address(address[0]).is_loopback:
            raise InputError(
                f"--host {host}: others can reach it, so a token is needed: --make-token, --token-file FILE, or the "
                f"environment variable {VARIABLE}"
            )
        listener = socket.create_server(address[:2], family=family)
    except UnicodeError:  # of a name with an empty part, or a part of more than 63 letters
        raise InputError(f"--host {host}: cannot be the name of a machine; choose another") from None
    except OSError as error:  # of an unknown name, or with an address in the system's words
        said = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise InputError(f"--host {host} --port {port}: {said}; choose others") from None
    with listener:
        # Connections inherit it. Without it the body of an answer waits 40 ms for the client to acknowledge its head:
        # asyncio sets it only on sockets whose protocol is named, which those of create_server are not.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


@contextmanager
def _ending(server: Any) -> Iterator[None]:
    """Let signals end the server; it raises them again when it has ended, and then they change nothing."""

    def end(number: int, frame: FrameType | None) -> None:
        if not server.should_exit:
            log.info("ending: requests that were read are answered first")
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:  # all addresses of this machine; none that others could open
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _line(catalogue: Any) -> str:
    info = catalogue.info
    line = f"{info.count:,} {info.side} ({info.kind}), {info.pictures:,} pictures known"
    line += "" if info.pictures else " (--pictures FOLDER names where they are)"
    for name, ability in (("text", info.text_queries), ("image", info.image_queries)):
        line += "" if ability.works else f"; no {name} queries: {ability.why}"
    return line
