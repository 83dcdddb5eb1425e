"""The work on a data folder until it is whole: what is done, whose it is, who works on it.

DATA/unfinished/progress.json     settings, images and captions done
DATA/unfinished/images.npy        rows so far; captions.npy likewise
DATA/unfinished/verdicts.jsonl    a line for each image so far
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from in2r.data.made_from import read_made_from
from in2r.data.pieces import has_pieces
from in2r.data.table_layout import file_or_pieces
from in2r.data.verdicts import Verdict
from in2r.errors import InputError
from in2r.files import read_json, write_json
from in2r.form import read

FORMAT = 1
BEGUN = ("progress.json", "pieces.json")
"""Files of which one is there while a folder is unfinished: that of one process, that of several (`shared.py`)."""


@dataclass
class Progress:
    """How far the work is.

    Attributes:
        settings: what decides the result, as plain values.
        looked_at: images that have a verdict.
        rows: rows of images.npy.
        shape: shape of such a row, or empty before the first.
        regions: how its regions were pooled.
        verdict_bytes: length of verdicts.jsonl.
        captions: rows of captions.npy.
        caption_dim: their length, or 0 before the first.
    """

    settings: dict[str, object]
    looked_at: int = 0
    rows: int = 0
    shape: tuple[int, ...] = ()
    regions: str = ""
    verdict_bytes: int = 0
    captions: int = 0
    caption_dim: int = 0


class Unfinished:
    """The folder of unfinished work in a data folder; `progress` is what of it counts."""

    def __init__(self, out: Path) -> None:
        self.out, self.path = out, out / "unfinished"
        self._file = self.path / "progress.json"
        self.images, self.captions = self.path / "images.npy", self.path / "captions.npy"
        self._verdicts = self.path / "verdicts.jsonl"
        self.progress = Progress({})

    @contextmanager
    def begun(self, settings: Mapping[str, object]) -> Iterator["Unfinished"]:
        """Hold the folder for this process, begin the work or take up what was done with the same settings.

        Raises:
            InputError: the folder holds something else, other settings began it, or another process works here.
        """
        if not self._file.is_file():
            refuse_others(self.out, self._file.name)
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"{self.out}: another process is making this folder") from None
            except OSError:  # a file system without locks
                pass
            if self._file.is_file():
                self._take_up(settings)
            else:
                self.progress = Progress(dict(settings))
                self.keep()
            yield self

    def _take_up(self, settings: Mapping[str, object]) -> None:
        values = read_json(self._file)
        if not isinstance(values, dict) or values.get("format_version") != FORMAT:
            raise InputError(f"{self._file}: of another version of in2r; remove {self.out} and start again")
        self.progress = read(Progress, values, str(self._file))
        other = changed(self.progress.settings, settings)
        if other and not self.progress.looked_at:  # nothing was done: an encoder that failed at once, for instance
            self.progress = Progress(dict(settings))
            self.keep()
        elif other:
            raise InputError(
                f"{self.out}: was begun with other settings: {', '.join(other)}; give the same command again, or a new "
                "folder"
            )

    def keep(self) -> None:
        """Write down how far the work is."""
        write_json(self._file, {"format_version": FORMAT, **asdict(self.progress)})

    def add_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Append verdicts and bring them to disk; they count when `keep` is called."""
        lines = "".join(json.dumps(asdict(verdict)) + "\n" for verdict in verdicts).encode()
        with self._verdicts.open("r+b" if self._verdicts.exists() else "w+b") as file:
            file.truncate(self.progress.verdict_bytes)
            file.seek(0, os.SEEK_END)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.progress.verdict_bytes += len(lines)
        self.progress.looked_at += len(verdicts)

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts so far, in the order of the images."""
        if not self._verdicts.is_file():
            return
        with self._verdicts.open(encoding="utf-8") as file:
            for _ in range(self.progress.looked_at):
                yield Verdict(**json.loads(file.readline()))

    def place(self) -> None:
        """Give the arrays their places in the data folder; one that has its is left alone."""
        for part in (self.captions, self.images):
            if part.is_file():
                part.replace(self.out / part.name)

    def remove(self) -> None:
        """Remove what is left, the progress last."""
        for name in ("verdicts.jsonl", "images.npy", "captions.npy", "lock", "progress.json"):
            (self.path / name).unlink(missing_ok=True)
        for rest in self.path.iterdir():
            rest.unlink()
        self.path.rmdir()


def was_made(out: Path, settings: Mapping[str, object]) -> bool:
    """Tell whether a folder was finished with these settings, in pieces or not.

    Raises:
        InputError: with other settings.
    """
    is_unfinished = any((out / "unfinished" / name).is_file() for name in BEGUN)
    found = None if is_unfinished else read_made_from(out)
    if found is None or not file_or_pieces(out / "images.npy").exists():
        return False
    other = changed(found.settings, settings)
    if other:
        raise InputError(
            f"{out}: was made with other settings: {', '.join(other)}; give a new folder, or remove this one"
        )
    return True


def refuse_others(out: Path, begun: str) -> None:
    """Refuse to begin work in a folder that holds something else, or work of the other kind.

    Args:
        out: the data folder.
        begun: of `BEGUN`, the file of the work that may be there.
    """
    for name, how in zip(BEGUN, ("without", "with"), strict=True):
        if name != begun and (out / "unfinished" / name).is_file():
            raise InputError(f"{out}: was begun {how} --pieces; give the same command again, or a new folder")
    names = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    foreign = [name for name in names if name != "unfinished"]
    if "images.npy" in foreign or has_pieces(out / "images"):
        raise InputError(f"{out}: holds features already; give a new folder, or remove this one")
    if foreign or (out.exists() and not out.is_dir()):
        raise InputError(f"{out}: holds {foreign[0] if foreign else 'a file'}; give a new folder")


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return what differs between two settings, with both values."""
    return [
        f"{name} (was {_short(before.get(name))}, now {_short(now.get(name))})"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
