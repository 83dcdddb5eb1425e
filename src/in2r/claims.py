"""Claims: which process works on what, among processes and machines that share a folder.

A claim is a file that only one process can create; it names host and process. The process holds a lock on it, which the
system releases when the process ends, however it ends. So a claim without a lock is free on the machine that made it.
On another machine nobody can know whether its process runs: there the claim counts until someone removes the file.
"""

import fcntl
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from in2r.files import naming


@dataclass(frozen=True)
class Holder:
    """Who claimed some work."""

    host: str
    process: int
    """0 and an empty host: the file does not say"""
    is_alive: bool
    """it is known to work; False = it works, or worked, on another machine"""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}" if self.host else "an unknown process"


class Claim:
    """A claim that this process holds; child processes that inherit its file hold it too.

    Args:
        path: the claim's file.
        file: the same file, open and locked.
    """

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path, self._file = path, file

    @property
    def descriptor(self) -> int:
        """The file descriptor that a child process inherits."""
        return self._file.fileno()

    def release(self) -> None:
        """Give the work back."""
        self.path.unlink(missing_ok=True)
        self._file.close()


def claim(path: Path) -> Claim | None:
    """Claim what a file stands for; None when someone else holds it.

    Args:
        path: the claim's file.

    Raises:
        FileNotFoundError: its folder is not there.
        OSError: the disk is full; nothing is claimed.
    """
    created, file = _open(path)
    if file is None:
        return None
    try:
        # whoever looks at a file that was just created holds its lock for a moment only
        fcntl.flock(file, fcntl.LOCK_EX if created else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if not created and (not _is_at(path, file) or _written(file)[0] != socket.gethostname()):
        file.close()
        return None
    held = Claim(path, file)
    try:
        with naming(path):
            file.seek(0)
            file.truncate()
            json.dump({"host": socket.gethostname(), "process": os.getpid()}, file)
            file.flush()
    except OSError:  # a full disk: a claim that names nobody would never be free
        with suppress(OSError):  # closing writes once more
            held.release()
        raise
    return held


def holder(path: Path) -> Holder | None:
    """Return who holds a claim; None when nobody does.

    Args:
        path: the claim's file.
    """
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_alive = False
        except BlockingIOError:
            is_alive = True
        host, process = _written(file)
        if not is_alive and host == socket.gethostname():
            return None
        return Holder(host, process, is_alive)


def _open(path: Path) -> tuple[bool, IO[str] | None]:
    """Open a claim's file; say whether it was created. None: it was removed at this moment."""
    try:
        return True, path.open("x+", encoding="utf-8")
    except FileExistsError:
        try:
            return False, path.open("r+", encoding="utf-8")
        except FileNotFoundError:
            return False, None


def _is_at(path: Path, file: IO[str]) -> bool:
    """Say whether an open file is still the one of this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _written(file: IO[str]) -> tuple[str, int]:
    """Return the host and the process that a claim names; nothing where it was not written to the end."""
    try:
        values = json.load(file)
        return str(values["host"]), int(values["process"])
    except (ValueError, KeyError, TypeError):
        return "", 0
