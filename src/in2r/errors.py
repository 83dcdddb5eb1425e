"""The one error class for mistakes that a user can mend, a list of several, a hint for a wrong name."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

KEPT = 10
"""How many mistakes of one reading are kept in words; the others are counted."""


class InputError(ValueError):
    """Input that cannot be used: a file, a row, a value, a setting.

    The message is one line: the place, what was found and what was expected. The command line prints it without a
    traceback and exits with status 2; the API raises it.

    Attributes:
        faults: each mistake as a line of its own, where one reading found several; else the message alone.
    """

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults) or (message,)


class Faults:
    """Mistakes of one reading, gathered so that all of them can be named at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def add(self, *lines: str) -> None:
        """Note a mistake, or several."""
        self._lines += lines[: KEPT - len(self._lines)]
        self._count += len(lines)

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Note what the block raises as `InputError`, and go on behind it."""
        try:
            yield
        except InputError as error:
            self._lines += error.faults
            self._count += len(error.faults)

    def settle(self) -> None:
        """Raise one `InputError` for all that was noted, if anything was; its message is the first."""
        if not self._lines:
            return
        hidden = self._count - len(self._lines)
        faults = [*self._lines, f"... and {hidden} more"] if hidden else self._lines
        more = " (not the only fault: `in2r data check` lists them)" if len(faults) > 1 else ""
        raise InputError(self._lines[0] + more, faults)


def near(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" with the known name that is most alike; nothing where none is."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""
