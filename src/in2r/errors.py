"""The one error class for mistakes that a user can fix, a list of several; hints: a near name, a command to paste."""

import difflib
import shlex
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

KEPT = 10
"""How many mistakes of one reading are kept in words; the others are counted."""


class InputError(ValueError):
    """Input that cannot be used: a file, a row, a value, a setting.

    The message is one line: the place, what was found and what was expected. The command line prints it without a
    traceback and exits with status 2; the API raises it.

    Attributes:
        faults: a line for each mistake, where one reading found several; else the message alone.
    """

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults) or (message,)


class UnavailableError(InputError):
    """What is asked is right, but its place, such as a database, does not answer or has something else now."""


class MethodError(InputError):
    """A method of a user's own returns, or asks for, what the engine cannot take."""


class Faults:
    """Mistakes gathered so that all of them can be named at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def add(self, line: str) -> None:
        """Note one of many alike, such as those of a file's rows: the first ones in words, all of them counted."""
        if len(self._lines) < KEPT:
            self._lines.append(line)
        else:
            self._more += 1

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Note all that the block raises as `InputError`, and continue after it with what does not depend on it."""
        try:
            yield
        except InputError as error:
            self._lines += error.faults

    def settle(self) -> None:
        """Raise one `InputError` for all that was noted, if anything was; its message is the first."""
        if not self._lines:
            return
        faults = [*self._lines, f"... and {self._more} more"] if self._more else self._lines
        more = " (not the only fault: `in2r data check` lists them)" if len(faults) > 1 else ""
        raise InputError(faults[0] + more, faults)


def command_line(*words: object) -> str:
    """Return words as a line to paste into a shell, each quoted where the shell would read it otherwise."""
    return shlex.join(map(str, words))


def near(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" with the known name that is most alike; nothing where none is."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


METHOD_MODULE = "in2r_method_"
"""how the module of a user's own method file is named"""


def own_line(error: BaseException) -> str:
    """Return "FILE, line N", the last line of a user's own method that an error went through; "" where it did not."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).startswith(METHOD_MODULE):
            found = f"{frame.f_code.co_filename}, line {line}"
    return found
