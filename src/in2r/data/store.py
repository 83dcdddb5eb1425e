"""A folder on this machine, or in an object store through the library fsspec: its files, read and written."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from in2r.errors import InputError
from in2r.files import is_temporary, naming

Moved = Callable[[int], None]
"""is told how many bytes of a file have been moved so far"""
VERSION = ("size", "ETag", "etag", "generation", "LastModified", "last_modified", "Last-Modified", "mtime", "created")
"""by which names the file systems of fsspec tell one content of a file from the next"""
SILENCE = 60
"""seconds after which a silent web server is given up; aiohttp's own limit is five minutes for a whole file"""
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Source(Protocol):
    """What files are copied from."""

    def shown(self, file: str = "") -> str:
        """Return the address of the folder, or of a file in it, without what logs in."""
        ...

    def files(self) -> dict[str, int | None]:
        """Return the bytes of each file (None: not known yet) by its name below the folder; {}: no such folder."""
        ...

    def version(self, file: str) -> dict[str, Any]:
        """Return `size` in bytes, and what else differs once the file is written anew."""
        ...

    def open(self, file: str) -> AbstractContextManager[Any]:
        """Open a file for reading."""
        ...

    def fetch(self, file: str, path: Path, moved: Moved) -> None:
        """Copy a file to a path of this machine."""
        ...


class Folder:
    """A folder of this machine; links are followed.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def shown(self, file: str = "") -> str:
        """See `Source`."""
        return str(self.path / file)

    def files(self) -> dict[str, int | None]:
        """See `Source`; what `files.atomic_path` has not finished does not count."""
        if self.path.is_file():
            raise InputError(f"{self.path}: a file; expected a folder")
        found: dict[str, int | None] = {}
        for folder, _, names in os.walk(self.path, followlinks=True):
            for path in (Path(folder, name) for name in names if not is_temporary(name)):
                if path.is_file():
                    found[path.relative_to(self.path).as_posix()] = path.stat().st_size
        return found

    def version(self, file: str) -> dict[str, Any]:
        """See `Source`."""
        found = (self.path / file).stat()
        return {"size": found.st_size, "mtime": found.st_mtime_ns, "inode": found.st_ino}

    def open(self, file: str) -> AbstractContextManager[Any]:
        """See `Source`."""
        return (self.path / file).open("rb")

    def fetch(self, file: str, path: Path, moved: Moved) -> None:
        """See `Source`."""
        with naming(path):
            shutil.copyfile(self.path / file, path)


class Store:
    """A folder in a file system of fsspec, such as s3://bucket/f30k.

    Args:
        url: as fsspec takes it.

    Raises:
        InputError: fsspec, or its package for this kind of URL, is not installed; no such kind.
    """

    def __init__(self, url: str) -> None:
        self._url, self._is_web = url.rstrip("/"), url.startswith(("http://", "https://"))
        try:
            import fsspec
        except ImportError:
            raise InputError(f'{self.shown()}: stores need fsspec: pip install "in2r[store]"') from None
        with self._said():
            # nothing is remembered: files may change under this process
            options = {"use_listings_cache": False, "skip_instance_cache": True, **self._web_options()}
            self._system, self._root = fsspec.url_to_fs(self._url, **options)

    def shown(self, file: str = "") -> str:
        """See `Source`."""
        return without_login(f"{self._url}/{file}" if file else self._url)

    def files(self) -> dict[str, int | None]:
        """See `Source`; of a web server, the links of its pages that lead below the folder."""
        with self._said():
            try:
                info = self._system.info(self._root)
            except FileNotFoundError:
                return {}
            if info["type"] == "file" and not (self._is_web and info.get("mimetype") == "text/html"):
                raise InputError(f"{self.shown()}: a file; expected a folder")
            return dict(self._below(self._root))

    def version(self, file: str) -> dict[str, Any]:
        """See `Source`."""
        with self._said(file):
            info = self._system.info(self._path(file))
        if info.get("size") is None:
            raise InputError(f"{self.shown(file)}: the server does not say how large it is")
        return {key: info[key] for key in VERSION if key in info}

    @contextmanager
    def open(self, file: str) -> Iterator[Any]:
        """See `Source`; blocks are read as they are asked for, and none ahead."""
        with self._said(file), self._system.open(self._path(file), "rb", cache_type="none") as stream:
            yield stream

    def fetch(self, file: str, path: Path, moved: Moved) -> None:
        """See `Source`."""
        with self._said(file):
            self._system.get_file(self._path(file), str(path), callback=_callback(moved))

    def send(self, path: Path, file: str, moved: Moved) -> None:
        """Copy a file of this machine here."""
        with self._said(file):
            self._system.put_file(str(path), self._path(file), callback=_callback(moved))

    def remove(self, file: str) -> None:
        """Remove a file."""
        with self._said(file):
            self._system.rm_file(self._path(file))

    def _path(self, file: str) -> str:
        return f"{self._root}/{file}"

    def _below(self, folder: str) -> Iterator[tuple[str, int | None]]:
        for entry in self._system.ls(folder, detail=True):
            path = str(entry["name"]).rstrip("/")
            name = path.removeprefix(self._root).lstrip("/")
            if path == folder.rstrip("/") and entry["type"] == "directory" and not self._is_web:
                raise InputError(f"{self.shown(name)}: a name with an empty part, as in a//b; no file can have it here")
            if path == folder.rstrip("/") or (self._is_web and re.search("[?#]", name)):
                continue  # a store's mark of an empty folder; a page's link to itself in another order
            if entry["type"] == "directory":
                yield from self._below(entry["name"])
            elif not is_temporary(name.rpartition("/")[2]):
                yield (unquote(name) if self._is_web else name), entry["size"]

    def _web_options(self) -> dict[str, Any]:
        if not self._is_web:
            return {}
        import fsspec
        from fsspec.config import conf

        fsspec.get_filesystem_class("http")  # says which package it lacks
        from fsspec.implementations.http import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
        own = conf.get(self._url.partition(":")[0], {}).get("client_kwargs", {})
        return {"client_kwargs": {"timeout": timeout, **own}}

    @contextmanager
    def _said(self, file: str = "") -> Iterator[None]:
        """Turn what a store's library raises, which has no common base, into one line; a full disk is the caller's."""
        try:
            yield
        except (InputError, MemoryError):
            raise
        except FileNotFoundError:
            raise InputError(f"{self.shown(file)}: no such file or folder") from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _FULL:
                raise
            text = " ".join((getattr(error, "strerror", None) or str(error)).split()) or type(error).__name__
            raise InputError(f"{self.shown(file)}: {without_login(text, _login(self._url))}") from None


def place(text: str) -> "Folder | Store":
    """Return the folder of a path or of a URL."""
    if "://" in text and not text.startswith("file://"):
        return Store(text)
    return Folder(Path(text.removeprefix("file://")))


def without_login(text: str, secrets: Sequence[str] = ()) -> str:
    """Return a text in which the URLs show neither user and password nor a query, which may hold a signature.

    Args:
        text: any text.
        secrets: what is hidden wherever it stands, also outside of URLs.
    """
    for secret in secrets:
        text = text.replace(secret, "***")
    text = re.sub(r"(://)[^/\s]*@", r"\1***@", text)
    return re.sub(r"(://[^\s?'\"]*\?)[^\s'\"]+", r"\1***", text)


def _login(url: str) -> list[str]:
    """Return what logs in by a URL, the longest first: a library may quote any part of it."""
    user = re.search(r"://([^/\s]*)@", url)
    parts = [user[1], user[1].partition(":")[2]] if user else []
    parts += url.split("?", 1)[1:]
    return sorted({form for part in parts for form in (part, unquote(part)) if form}, key=len, reverse=True)


def _callback(moved: Moved) -> Any:
    from fsspec.callbacks import Callback

    return Callback(hooks={"moved": lambda size, value, **_: moved(value)})
