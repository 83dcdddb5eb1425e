"""Which file a table's image value means: by path, else without its extension, else by its bare name."""

import os
import re
import unicodedata
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from in2r.data.verdicts import MISSING, Verdict
from in2r.errors import InputError
from in2r.raw.places import FilePlace, Item

_WEB = re.compile(r"https?://", re.IGNORECASE)
_EXTENSION = re.compile(r"\.(?:jpe?g|jfif|png|gif|webp|avif|bmp|dib|tiff?|jp2|jpx|p[gpn]m|ico|pcx|qoi)$")
"""Of images: a folder may hold a text of the same name, and `photo 1.5` has none."""

WAYS = {
    "extension": "by the path without its extension",
    "name": "by the bare file name",
}
"""How a value that is no path to a file was understood."""


def is_image_name(name: str) -> bool:
    """Say whether a file's name ends as those of images do."""
    return _EXTENSION.search(name.lower()) is not None


class Finder:
    """Finds image files below a folder; the folder is listed only when a value is no path to a file.

    Attributes:
        ways: how many values were understood in each of `WAYS`.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; give the folder that holds the images")
        self._folder = folder
        self._known: dict[str, dict[str, str | None]] | None = None
        self.ways: Counter[str] = Counter()

    def find(self, value: str) -> Item:
        """Return where the image of a table's value lies, or why it is not there."""
        if not value:
            return Item(value, None, Verdict(value, MISSING, "the table names no image here"))
        if "\n" in value or "\0" in value:
            return Item(value, None, Verdict(value, MISSING, "the value holds a line break or a zero byte"))
        path = _as_path(value)
        direct = self._folder / path  # an absolute path stays as it is
        if os.path.lexists(direct):
            return Item(value, FilePlace(str(direct)))
        return self._near(value, path)

    def _near(self, value: str, path: str) -> Item:
        if self._known is None:
            self._known = _index(self._folder)
        key = _key(path)
        name = key.rpartition("/")[2]
        tries = (
            ("extension", self._known["paths"], key),
            ("extension", self._known["paths"], _EXTENSION.sub("", key)),
            ("name", self._known["names"], name),
            ("name", self._known["stems"], name),
            ("name", self._known["stems"], _EXTENSION.sub("", name)),
        )
        several = False
        for way, known, wanted in tries:
            found = known.get(wanted, "")
            several = several or found is None
            if found:
                self.ways[way] += 1
                return Item(value, FilePlace(found))
        detail = "several files have this name" if several else "no such file"
        if _WEB.match(value) and not several:
            detail = "a web address: download the images first, for instance with img2dataset"
        return Item(value, None, Verdict(value, MISSING, detail))


def _as_path(value: str) -> str:
    """Return the path that a value means: a file URL's, that of a web address, else itself with slashes."""
    if value.lower().startswith("file://"):
        return unquote(urlsplit(value).path)
    if _WEB.match(value):
        return unquote(urlsplit(value).path).lstrip("/")
    return value if os.sep == "\\" else value.replace("\\", "/")


def _key(path: str) -> str:
    """Return a relative path without differences of case and Unicode form."""
    return unicodedata.normalize("NFC", path).casefold().removeprefix("./").strip("/")


def _index(folder: Path) -> dict[str, dict[str, str | None]]:
    """List a folder: path without extension, bare name, bare name without extension → the one file; None = several."""
    known: dict[str, dict[str, str | None]] = {"paths": {}, "names": {}, "stems": {}}
    for parent, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(parent, name)
            key = _key(os.path.relpath(full, folder).replace(os.sep, "/"))
            bare = key.rpartition("/")[2]
            entries = [("names", bare)]
            if is_image_name(key):
                entries += [("paths", _EXTENSION.sub("", key)), ("stems", _EXTENSION.sub("", bare))]
            for kind, entry in entries:
                known[kind][entry] = None if entry in known[kind] else full
    return known
