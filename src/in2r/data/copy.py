"""Copy a folder to or from a store, several files at a time; what is there already is not copied again."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

from in2r.claims import claim, holder
from in2r.data.fingerprint import SAMPLE_BYTES, SAMPLES, sampled
from in2r.data.store import Folder, Moved, Source, Store, place
from in2r.errors import InputError
from in2r.files import atomic_path, remove_temporaries, require_free_space

log = logging.getLogger(__name__)

WORKERS = 8
"""Files at a time: one stream of a store gives about 100 MB/s, and eight fill a network of 10 Gbit/s."""
ARRAYS = (".npy", ".safetensors")
"""Large files that are written as a whole: two of them differ nearly everywhere, or not at all."""
BLOCK = 2**24
"""Bytes of a file that are held at a time."""
CLAIM = ".copying"
"""The file by which a process claims a folder that it copies into."""

Progress = Callable[[str, int, int], None]
"""is told what is done ("compare": files; "copy": bytes), how much, and of how much"""
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Copied:
    """What was done."""

    files: int
    size: int
    """bytes of these files"""
    kept: int
    """files that were there already"""


def copy_folder(source: str, target: str, *, workers: int = WORKERS, progress: Progress = lambda *_: None) -> Copied:
    """Copy all files below a folder; one of both is a folder of this machine, the other one a URL or a folder too.

    A file that is there is kept where `digest` finds the same on both sides. On this machine a file is whole or absent;
    what a store shows of an upload that was interrupted is up to it, and has another size. Nothing is removed.

    Args:
        source: a path, or a URL that fsspec knows.
        target: likewise.
        workers: files at a time, from 1.
        progress: is told how far it is.

    Raises:
        InputError: no such folder; both are in stores; a file that changes meanwhile, ends too early or cannot be
            read or written; a name that leads out of the folder; too little space; another process copies into it.
    """
    there = place(target)
    here = place(source)
    if isinstance(here, Store) and isinstance(there, Store):
        raise InputError(f"{here.shown()} to {there.shown()}: one of both must be a folder of this machine")
    _refuse_inside(here, there)
    sizes = {file: size for file, size in here.files().items() if file != CLAIM}
    if not sizes:
        raise InputError(f"{here.shown()}: no such folder, or no file in it")
    for file in sizes:
        _refuse_outside(file, here)
    with nullcontext() if isinstance(there, Store) else _claimed(there.path):
        return _Copying(here, there, workers, progress).copy(sizes)


def digest(stream: Any, file: str, size: int) -> str | None:
    """Hash what is compared of a file: every byte; of an array above 1 MiB the 16 blocks that a fingerprint looks at.

    Args:
        stream: the open file.
        file: its name.
        size: bytes.

    Returns:
        SHA-256 in hexadecimal; None where a web server cannot send a part of a file.
    """
    found = hashlib.sha256(str(size).encode())
    try:
        if file.endswith(ARRAYS) and size > SAMPLES * SAMPLE_BYTES:
            for start in sampled(size):
                stream.seek(start)
                found.update(stream.read(SAMPLE_BYTES))
        else:
            while block := stream.read(BLOCK):
                found.update(block)
    except ValueError:  # fsspec's, of a seek or a range
        return None
    return found.hexdigest()


class _Copying:
    """One copy."""

    def __init__(self, source: Source, target: Folder | Store, workers: int, progress: Progress) -> None:
        self.source, self.target, self.workers, self.progress = source, target, workers, progress
        self._stopped, self._lock = Event(), Lock()
        self._moved, self._total = 0, 0

    def copy(self, sizes: dict[str, int | None]) -> Copied:
        """Compare, then copy what is not there, the largest first: small tables come after the arrays they name."""
        there = self.target.files()
        left = {}
        for done, (file, size, kept) in enumerate(self._each(lambda file: self._compare(file, sizes, there), [*sizes])):
            self.progress("compare", done + 1, len(sizes))
            if not kept:
                left[file] = size
        self._warn_of_others(set(there) - set(sizes))
        self._total = sum(left.values())
        if isinstance(self.target, Folder):
            require_free_space(self.target.path, self._total)
            for file in left:
                (self.target.path / file).parent.mkdir(parents=True, exist_ok=True)
        for _ in self._each(self._copy, sorted(left, key=left.__getitem__, reverse=True)):
            pass
        return Copied(len(left), self._total, len(sizes) - len(left))

    def _each(self, work: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
        """Yield the results of threads as they come; the first error, or ^C, stops them all."""
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                for future in as_completed([pool.submit(work, item) for item in items]):
                    yield future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _compare(self, file: str, sizes: dict[str, int | None], there: dict[str, int | None]) -> tuple[str, int, bool]:
        """Return a file, its size, and whether the target has the same."""
        known = sizes[file]
        size = int(self.source.version(file)["size"]) if known is None else known
        if file not in there or there[file] not in (size, None):
            return file, size, False
        own = self._digest(self.source, file, size)
        return file, size, own is not None and own == self._digest(self.target, file, size)

    def _digest(self, side: Source, file: str, size: int) -> str | None:
        with side.open(file) as stream:
            return digest(stream, file, size)

    def _copy(self, file: str) -> None:
        before = self.source.version(file)
        moved = self._count()
        if isinstance(self.target, Folder):
            self._download(self.target, file, before, moved)
        else:
            assert isinstance(self.source, Folder)
            self._upload(self.source, self.target, file, before, moved)
        moved(before["size"])  # not every file system says how far it is

    def _download(self, target: Folder, file: str, before: dict[str, Any], moved: Moved) -> None:
        with atomic_path(target.path / file) as temporary:
            self.source.fetch(file, temporary, moved)
            self._require_same(file, before, temporary.stat().st_size, Folder(temporary.parent), temporary.name)

    def _upload(self, source: Folder, target: Store, file: str, before: dict[str, Any], moved: Moved) -> None:
        target.send(source.path / file, file, moved)
        try:
            self._require_same(file, before, int(target.version(file)["size"]), target, file)
        except InputError:
            target.remove(file)  # else it might be taken for whole, by its size and blocks
            raise

    def _require_same(self, file: str, before: dict[str, Any], size: int, side: Source, name: str) -> None:
        """Raise `InputError` unless what was written is what was to be read."""
        if self.source.version(file) != before:
            raise InputError(
                f"{self.source.shown(file)}: changed while it was copied; copy again when nothing writes to it"
            )
        if size != before["size"]:
            raise InputError(f"{self.source.shown(file)}: {before['size']:,} bytes, but {size:,} arrived; copy again")
        own = self._digest(self.source, file, size)
        if own is not None and own != self._digest(side, name, size):
            raise InputError(f"{self.target.shown(file)}: what was written differs from {self.source.shown(file)}")

    def _count(self) -> Moved:
        """Return what is told the bytes of one file that have been moved, and ends its copy once another one failed."""
        last = 0

        def moved(value: int) -> None:
            nonlocal last
            if self._stopped.is_set():
                raise InterruptedError("stopped")
            with self._lock:
                self._moved += value - last
                last = value
                self.progress("copy", self._moved, self._total)

        return moved

    def _warn_of_others(self, others: set[str]) -> None:
        others.discard(CLAIM)
        if others:
            log.warning(
                "%s: holds %d files that %s does not hold, such as %s; they stay",
                self.target.shown(), len(others), self.source.shown(), min(others),
            )  # fmt: skip


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Hold a folder that is copied into; remove what a killed copy left half written."""
    folder.mkdir(parents=True, exist_ok=True)
    held = claim(folder / CLAIM)
    if held is None:
        raise InputError(
            f"{folder}: {holder(folder / CLAIM) or 'another process'} copies into it; "
            f"if it is gone, remove {folder / CLAIM}"
        )
    try:
        for each in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            remove_temporaries(each)
        yield
    finally:
        held.release()


def _refuse_inside(source: Source, target: Source) -> None:
    if isinstance(source, Folder) and isinstance(target, Folder):
        whole, within = source.path.resolve(), target.path.resolve()
        if within.is_relative_to(whole):
            raise InputError(f"{target.shown()}: lies in {source.shown()}, which is to be copied")


def _refuse_outside(file: str, source: Source) -> None:
    if any(part in ("", ".", "..") for part in file.split("/")) or "\0" in file:
        raise InputError(f"{source.shown()}: holds a file named {file!r}, which leads out of a folder")
