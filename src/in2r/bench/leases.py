"""Leases: who works on which cell, among processes and machines that share nothing but a folder.

The claim of a cell is a file NAME.N; the highest N counts. It holds while its owner touches it now and then; to give it
back is to make it as old as can be. To take a cell whose lease has run out is to create NAME.N+1, which only one can.
Ages are reckoned by the folder's own clock, so that the clocks of several machines need not agree.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

from in2r.files import write_json

EXPIRES = 120.0
"""Seconds without a touch after which a lease has run out; touched four times in that span."""


@dataclass(frozen=True)
class Lease:
    """The N-th claim of a cell."""

    folder: Path
    name: str
    number: int
    expires: float
    """seconds without a touch after which it runs out"""

    @property
    def file(self) -> Path:
        """Its file."""
        return self.folder / f"{self.name}.{self.number}"

    def renew(self) -> bool:
        """Touch it; False when someone else has taken the cell meanwhile."""
        if _newest(self.folder, self.name) != self.number:
            return False
        try:
            os.utime(self.file)
        except FileNotFoundError:
            return False
        return True

    def release(self) -> None:
        """Give the cell back, as one that ran out long ago: that needs no space on the disk."""
        if self.renew():
            os.utime(self.file, (0, 0))


def claim(folder: Path, name: str, expires: float = EXPIRES) -> Lease | None:
    """Take a cell; None when someone holds it.

    Args:
        folder: where the leases of a grid lie.
        name: the cell.
        expires: seconds after which a lease that is not touched has run out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number, said = _look(folder, name, expires)
    if said is not None:
        return None
    lease = Lease(folder, name, number + 1, expires)  # next to what was looked at: if that is out of date, so is this
    try:
        os.close(os.open(lease.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return None
    if _newest(folder, name) != lease.number:  # it was claimed and its older files removed while this process looked
        lease.file.unlink(missing_ok=True)
        return None
    write_json(lease.file, {"host": socket.gethostname(), "pid": os.getpid(), "expires": expires})
    for number in _numbers(folder, name):
        if number < lease.number:
            replace(lease, number=number).file.unlink(missing_ok=True)
    return lease


def holder(folder: Path, name: str, expires: float = EXPIRES) -> dict[str, Any] | None:
    """Return what the holder of a cell says of itself, or None when nobody holds it."""
    return _look(folder, name, expires)[1]


def _look(folder: Path, name: str, expires: float) -> tuple[int, dict[str, Any] | None]:
    """Return the number of the newest claim (0 = none yet) and what its holder says, None when nobody holds it."""
    number = _newest(folder, name)
    if number is None:
        return 0, None
    file = Lease(folder, name, number, expires).file
    try:
        age = _now(folder) - file.stat().st_mtime
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _look(folder, name, expires)  # a newer claim has just removed it
    try:
        said = json.loads(text)
    except json.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        said = {}  # created a moment ago, or damaged
    # the owner's own span counts; a lease from the future is nobody's
    return number, None if abs(age) > said.get("expires", expires) else said


class Heartbeat:
    """Touches a lease until it is stopped.

    Args:
        lease: what is touched.
        lost: called once, when someone else has taken the cell or nobody wants it any more.
        wanted: asked at every beat.
    """

    def __init__(self, lease: Lease, lost: Callable[[], None], wanted: Callable[[], bool]) -> None:
        self._lease, self._lost, self._wanted = lease, lost, wanted
        self._stopped = Event()
        self._thread = Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        kept, every = time.monotonic(), self._lease.expires / 4
        while not self._stopped.wait(every):
            try:
                if not self._wanted() or not self._lease.renew():
                    break
                kept = time.monotonic()
            except OSError:  # a file system that does not answer may do so in time
                if time.monotonic() - kept > self._lease.expires:
                    break
        if not self._stopped.is_set():
            self._lost()

    def stop(self) -> None:
        """Stop touching."""
        self._stopped.set()
        self._thread.join()


def _numbers(folder: Path, name: str) -> list[int]:
    found = (file.rsplit(".", 1) for file in os.listdir(folder))
    return [int(parts[1]) for parts in found if len(parts) == 2 and parts[0] == name and parts[1].isdecimal()]


def _newest(folder: Path, name: str) -> int | None:
    return max(_numbers(folder, name), default=None) if folder.is_dir() else None


def _now(folder: Path) -> float:
    """Return the time by the clock of the folder's file system; by the own one where nothing can be written."""
    probe = folder / f".now-{secrets.token_hex(8)}"
    try:
        probe.touch()
    except OSError:
        return time.time()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
