"""Where the bytes of an image lie: a file, a member of a tar, a row of a data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from in2r.data.verdicts import MISSING, NOT_AN_IMAGE, Verdict
from in2r.raw.image import MAX_PIXELS, Picture, read_image

LARGEST_FILE = 2**31
"""bytes: no photo is as large, and its content would be held in memory"""


class Place(Protocol):
    """Something that can be read whole."""

    def read(self) -> bytes:
        """Return the content; `OSError` where it cannot be read."""
        ...

    def __str__(self) -> str:
        """Say where it is."""
        ...


@dataclass(frozen=True)
class FilePlace:
    """A file."""

    path: str

    def read(self) -> bytes:
        """Return the content."""
        path = Path(self.path)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError("a device or a pipe")  # one of them never ends
        if path.stat().st_size > LARGEST_FILE:
            raise OSError(f"more than {LARGEST_FILE >> 30} GiB")
        return path.read_bytes()

    def __str__(self) -> str:
        """Return the path."""
        return self.path


@dataclass(frozen=True)
class BytesPlace:
    """Content that is in memory already."""

    content: bytes
    name: str

    def read(self) -> bytes:
        """Return the content."""
        return self.content

    def __str__(self) -> str:
        """Return what messages call it."""
        return self.name


@dataclass(frozen=True)
class TarPlace:
    """A member of an unpacked tar, by its bytes."""

    tar: str
    name: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the content; shorter where the tar was cut off."""
        with Path(self.tar).open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    def __str__(self) -> str:
        """Return the tar's path and the member's name."""
        return f"{self.tar}:{self.name}"


@dataclass(frozen=True)
class RowPlace:
    """A row of a `datasets` set, whose column holds the bytes or the path of an image."""

    rows: Any
    column: str
    row: int
    where: str

    def read(self) -> bytes:
        """Return the content."""
        value = self.rows[self.row][self.column]
        if value is None:
            raise OSError("the row holds no image")
        return value["bytes"] if value.get("bytes") is not None else Path(value["path"]).read_bytes()

    def __str__(self) -> str:
        """Return the data set's path and the row."""
        return f"{self.where}:{self.row}"


@dataclass(frozen=True)
class Item:
    """An image that a table names: where it lies, or the verdict that is known without reading it."""

    name: str
    place: Place | None
    verdict: Verdict | None = None


def look_at(item: Item, pixels: int = MAX_PIXELS) -> Picture:
    """Read and decode an item; whatever happens, the answer is a verdict."""
    if item.place is None:
        return Picture(item.verdict or Verdict(item.name, MISSING, "no such file"))
    where = str(item.place)
    try:
        data = item.place.read()
    except IsADirectoryError:
        return Picture(Verdict(item.name, NOT_AN_IMAGE, "a folder", file=where))
    except FileNotFoundError:
        return Picture(Verdict(item.name, MISSING, "no such file", file=where))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return Picture(Verdict(item.name, MISSING, f"cannot be read ({reason})", file=where))
    picture = read_image(item.name, data, pixels)
    return Picture(picture.verdict.found_in(where), picture.image)
