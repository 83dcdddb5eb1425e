"""PostgreSQL by a URL: read it, connect, and say in one line what went wrong, never with a password."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from in2r.errors import InputError, UnavailableError

EXPECTED = "postgresql://USER@HOST/DATABASE#NAME"
DEFAULT_NAME = "index"
_SCHEME = re.compile(r"postgres(?:ql)?://")
_MEANT = re.compile(r"\s*postgres[\w+.-]*:/", re.IGNORECASE)
"""what is meant as a URL, perhaps as another program has it: no message may repeat it as the name of a folder"""
_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?P<authority>[^/?#]*)(?P<path>[^?#]*)\??(?P<query>[^#]*)#?(?P<name>.*)"
)
PATIENCE = {"connect_timeout": 10, "tcp_user_timeout": 30_000}
"""seconds until a server must have taken a connection, and milliseconds until it must have acknowledged what was sent;
less than that is a slow network, more holds up whoever waits. A URL may say otherwise"""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""with what stands around it in the name of a table, shorter than PostgreSQL's 63 bytes"""
_SECRET = re.compile(r"(password|sslpassword|oauth_client_secret|scram_(client|server)_key)=", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Say whether a text is meant as the URL of a database, and not as a folder."""
    return _MEANT.match(text) is not None


@dataclass(frozen=True)
class Place:
    """A database and the name of an index in it.

    Attributes:
        url: as libpq reads it, with what it says of a password.
        name: of the index.
        shown: the URL without passwords, for messages and commands.
    """

    url: str = field(repr=False)
    name: str
    shown: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Read `EXPECTED`; without `#NAME`, the name is `DEFAULT_NAME`.

        Raises:
            InputError: another form. What may be a part of a password is not repeated.
        """
        if not _SCHEME.match(text):
            raise InputError(f"not the URL of an index; expected {EXPECTED}")
        found = _URL.fullmatch(text)
        if found is None or not text.isprintable() or any("@" in found[part] for part in ("path", "query", "name")):
            raise InputError(
                f"the URL of an index has a character that must be written as %XX; expected {EXPECTED}. A password is "
                "better kept in PGPASSWORD or ~/.pgpass"
            )
        user, at, hosts = found["authority"].rpartition("@")
        query = "&".join(part for part in found["query"].split("&") if part and not _SECRET.match(unquote(part)))
        name = found["name"] or DEFAULT_NAME
        where = found["scheme"] + user.split(":")[0] + at + hosts + found["path"] + ("?" + query if query else "")
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{where}: name of the index {name!r}; expected lower-case letters, digits and _, a letter first, at "
                "most 40"
            )
        return cls(text.partition("#")[0], name, f"{where}#{name}")

    def __str__(self) -> str:
        """Return how messages name it."""
        return self.shown


def require_psycopg() -> Any:
    """Return the module psycopg, or raise `InputError` with the install command."""
    try:
        import psycopg
        import psycopg.sql
    except ImportError:
        raise InputError('an index in PostgreSQL needs psycopg: pip install "in2r[postgres]"') from None
    return psycopg


@contextmanager
def connected(place: Place, read_only: bool = False) -> Iterator[Any]:
    """Connect for one transaction, which is kept if the block ends well.

    Args:
        place: the database.
        read_only: all that is read is of one moment, and nothing can be written.

    Raises:
        InputError: no connection; what the server refuses in the block.
    """
    psycopg = require_psycopg()
    try:
        own = {name: value for name, value in PATIENCE.items() if name not in place.url}
        connection = psycopg.connect(place.url, **own)
    except psycopg.ProgrammingError:  # of a URL that libpq cannot read; its text may hold a password
        raise InputError(f"{place}: PostgreSQL cannot read this URL; expected {EXPECTED}") from None
    except psycopg.Error as error:
        raise UnavailableError(f"{place}: no connection ({_line(error)})") from None
    try:
        with connection:
            if read_only:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
            yield connection
    except psycopg.Error as error:
        raise UnavailableError(f"{place}: the database says: {_line(error)}") from None


def _line(error: Exception) -> str:
    said: Any = getattr(getattr(error, "diag", None), "message_primary", None)
    return " ".join(str(said or error).split())
