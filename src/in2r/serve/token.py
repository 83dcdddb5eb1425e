"""The token that a client must show, in a header or as the cookie of a browser that has logged in."""

import hmac
import os
import secrets
from pathlib import Path

from in2r.errors import InputError
from in2r.serve.limits import LOGIN_DAYS, TOKEN_LENGTH

VARIABLE = "IN2R_TOKEN"
"""the environment variable that may hold a token"""
COOKIE = "in2r"
_PURPOSE = b"in2r serve: cookie"


class Token:
    """A token; comparisons take the same time wherever the texts differ.

    Args:
        text: printable ASCII without spaces.
        port: of the server. Browsers do not tell ports of a machine apart, so cookies of two servers need two names.
    """

    def __init__(self, text: str, port: int) -> None:
        self._name = f"{COOKIE}-{port}"
        self._text = text.encode()
        self._session = hmac.digest(self._text, _PURPOSE, "sha256").hex()

    def matches(self, text: str) -> bool:
        """Say whether a client's text is the token."""
        return hmac.compare_digest(text.encode(), self._text)

    def admits(self, authorization: str, cookie: str) -> bool:
        """Say whether headers of a request show the token, or the cookie that was made of it."""
        scheme, _, shown = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.matches(shown.strip())
        # http.cookies gives up at the first cookie that is not as it should be, which another program may have set.
        held = (pair.strip().partition("=") for pair in cookie.split(";"))
        return any(
            name == self._name and hmac.compare_digest(value.encode(), self._session.encode())
            for name, _, value in held
        )

    def cookie(self, secure: bool) -> str:
        """Return the header that logs a browser in; the token itself is not in it.

        Args:
            secure: the browser may send it by HTTPS alone.
        """
        age = LOGIN_DAYS * 24 * 3600
        return f"{self._name}={self._session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict" + "; Secure" * secure


def read_token(file: Path | None) -> str | None:
    """Return the token of a file, or of the environment variable; None where there is neither.

    Raises:
        InputError: the file cannot be read, or what is there cannot be a token.
    """
    if file is not None:
        try:
            text, place = file.read_text(encoding="utf-8").strip(), str(file)
        except UnicodeDecodeError:
            raise InputError(f"{file}: no text; expected a token in one line") from None
    elif VARIABLE in os.environ:
        text, place = os.environ[VARIABLE].strip(), VARIABLE
    else:
        return None
    if not (text.isascii() and text.isprintable()) or " " in text or len(text) < TOKEN_LENGTH:
        raise InputError(
            f"{place}: cannot be a token; expected one line of at least {TOKEN_LENGTH} letters, digits and signs, such "
            "as --make-token prints"
        )
    return text


def make_token() -> str:
    """Return a new token from the system's source of secrets."""
    return secrets.token_urlsafe(32)
