"""Small pictures of items, kept in memory up to a bound."""

from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path

from in2r.report.thumbnails import thumbnail
from in2r.serve.limits import PICTURE_SIDE


class Thumbnails:
    """JPEGs by file; of too many, those that were asked for the longest ago are dropped.

    Args:
        room: bytes that are kept together.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept: OrderedDict[Path, bytes] = OrderedDict()

    def get(self, file: Path) -> bytes | None:
        """Return what is kept of a file."""
        if file not in self._kept:
            return None
        self._kept.move_to_end(file)
        return self._kept[file]

    def keep(self, file: Path, jpeg: bytes) -> None:
        """Keep a file's picture."""
        self._room += len(self._kept.pop(file, b"")) - len(jpeg)
        self._kept[file] = jpeg
        while self._room < 0:
            self._room += len(self._kept.popitem(last=False)[1])


def make_thumbnail(file: Path) -> bytes | None:
    """Return a file as a small JPEG; None where it cannot be read, is no image or is suspiciously large."""
    if find_spec("PIL") is None or not file.is_file():  # a pipe or a device would never end
        return None
    return thumbnail(file, PICTURE_SIDE)
