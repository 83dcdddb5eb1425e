"""Which image a row may mean by an id that is not there."""

import re
import unicodedata
from collections.abc import Iterable

# of images and their features; .0 where a spreadsheet or a data frame made a number of a row's
_EXTENSION = re.compile(r"\.(?:jpe?g|png|gif|bmp|webp|tiff?|npy|npz|pt|0)$")


class NearIds:
    """Finds ids that differ in nothing but an extension, slashes, folders, case or Unicode form from what was given."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._by_path: dict[str, str | None] = {}
        self._by_name: dict[str, str | None] = {}
        for own in ids:
            for known, key in self._keys(own):
                known[key] = None if key in known else own  # one that two ids share says nothing

    def hint(self, given: str) -> str:
        """Return "; did you mean X?" where one id is near; else nothing."""
        found = next((known[key] for known, key in self._keys(given) if known.get(key)), None)
        if found is None:
            return ""
        same = unicodedata.normalize("NFC", found) == unicodedata.normalize("NFC", given)
        return f"; did you mean {found!r}{', the same text in another Unicode form' if same else ''}?"

    def _keys(self, name: str) -> list[tuple[dict[str, str | None], str]]:
        path = unicodedata.normalize("NFC", name).casefold().replace("\\", "/").removeprefix("./").strip("/")
        path = _EXTENSION.sub("", path)
        return [(self._by_path, path), (self._by_name, path.rpartition("/")[2])]
