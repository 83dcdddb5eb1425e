"""Files that are whole or absent: temporary name, flush, rename; csv; hashes, free space and permission to write."""

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from in2r.errors import InputError

_TEMPORARY = ".tmp-"
_UMASK = Lock()
"""held while the mask is read: it can only be read by setting it, and two threads would leave it at 0"""


def expand_home(path: str) -> str:
    """Return a path with `~` or `~user` at its start replaced by the home folder, as a shell does.

    A shell leaves it alone behind an equals sign: in `--out=~/x` and in `data.path=~/x`.

    Raises:
        InputError: no such user.
    """
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        user = path.split("/", 1)[0]
        raise InputError(f"{path}: no home folder is known for {user}; write ./{path} if that is the name")
    return expanded


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file path in the target's folder; rename it onto `path` when the block succeeds.

    The temporary name keeps the suffix (`numpy.save` appends one otherwise). On any failure nothing is left and
    the old file, if there was one, stays as it was.
    """
    target = Path(path)
    try:
        temporary = _temporary_beside(target)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.filename is None or is_temporary(Path(str(error.filename)).name):  # else of a file that the block read
            _name(error, target)
        raise


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let an `OSError` of the block name a file: that of a full disk or of a failed read names none by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            _name(error, path)
        raise


def _name(error: OSError, path: str | os.PathLike[str]) -> None:
    error.strerror = error.strerror or str(error)  # a library's own text, which a file's name would take the place of
    error.filename, error.filename2 = str(path), None


def describe(error: OSError) -> str:
    """Say in one line which file an `OSError` is about, and what is wrong with it."""
    return f"{error.filename or 'file system'}: {error.strerror or error}"


def _temporary_beside(target: Path) -> Path:
    """Make the folder of a file and an empty temporary file in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{_TEMPORARY}{target.stem}.", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    return Path(name)


def is_temporary(name: str) -> bool:
    """Say whether a file's name is one that `atomic_path` gives."""
    return name.startswith(_TEMPORARY)


def remove_temporaries(folder: str | os.PathLike[str]) -> None:
    """Remove what killed processes left half written in a folder; nobody else may be writing there."""
    for path in Path(folder).glob(f"{_TEMPORARY}*"):
        path.unlink(missing_ok=True)


def _umask() -> int:
    with _UMASK:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def write_csv(
    path: str | os.PathLike[str],
    header: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    delimiter: str = ",",
    bom: bool = False,
) -> None:
    """Write a UTF-8 table atomically, a line per row as `csv_lines` has it.

    Args:
        path: the file.
        header: the names of the columns.
        rows: the values of each row, as many as there are names.
        delimiter: what separates two fields.
        bom: start with a byte order mark, by which spreadsheets know UTF-8.
    """
    encoding = "utf-8-sig" if bom else "utf-8"
    with atomic_path(path) as temporary, temporary.open("w", encoding=encoding, newline="") as file:
        file.writelines(csv_lines(header, rows, delimiter=delimiter))


def csv_lines(header: Iterable[str], rows: Iterable[Iterable[Any]], *, delimiter: str = ",") -> Iterator[str]:
    r"""Yield a table's records, each with "\n" at its end; None is an empty field.

    A field is in quotes where it holds a quote, the delimiter, a line's end or what looks like a byte order mark. The
    csv module of some Python versions leaves "\r" without quotes, and readers then end the row there.
    """
    special = re.compile(f'["\r\n\ufeff{re.escape(delimiter)}]')
    for row in chain([header], rows):
        fields = ["" if value is None else str(value) for value in row]
        if fields == [""]:  # bare, it would be a blank line, which readers leave out
            yield '""\n'
        else:
            yield delimiter.join(_quoted(text) if special.search(text) else text for text in fields) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; `InputError` names the file and the line where it is missing, broken, or has a key twice."""
    try:
        data = Path(path).read_bytes()
        return parse_json(data.decode(json.detect_encoding(data)))  # some editors write a byte-order mark, or UTF-16
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def parse_json(text: str) -> Any:
    """Read JSON, of which Python would silently take the last of two equal keys.

    Raises:
        json.JSONDecodeError: not JSON, or an object that holds a key twice; with the line.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except _RepeatedKeyError:
        raise _repeated_key(text) from None


class _RepeatedKeyError(Exception):
    pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _RepeatedKeyError
    return made


_STRING_OR_BRACE = re.compile(r'("(?:[^"\\]|\\.)*")\s*(:)?|[{}]')


def _repeated_key(text: str) -> json.JSONDecodeError:
    """Find the first key that stands twice in an object; up to there the text is JSON."""
    keys: list[set[str]] = []
    for token in _STRING_OR_BRACE.finditer(text):
        if token[0] == "{":
            keys.append(set())
        elif token[0] == "}":
            keys.pop()
        elif token[2]:
            key = json.loads(token[1])
            if key in keys[-1]:
                return json.JSONDecodeError(f"the key {token[1]} stands twice in an object", text, token.start())
            keys[-1].add(key)
    raise AssertionError("no key stands twice")


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with naming(path), Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_free_space(folder: str | os.PathLike[str], needed: int) -> None:
    """Raise `InputError` when the disk of `folder` has less than `needed` bytes left."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(f"{folder}: {shortage(needed, free)}")


def shortage(needed: int, free: int) -> str:
    """Say how many bytes are needed and how many are free; rounded so that the first figure is the larger one."""
    more, less = math.ceil(10 * needed / 2**20) / 10, math.floor(10 * free / 2**20) / 10
    return f"{more:.1f} MiB needed, {less:.1f} MiB free on this disk"


def require_writable(folder: str | os.PathLike[str]) -> None:
    """Raise `InputError` where no file can be made in a folder; to be asked before hours of work, not after them."""
    try:
        tempfile.TemporaryFile(prefix=_TEMPORARY, dir=folder).close()
    except OSError as error:
        raise InputError(f"{folder}: nothing can be written here ({error.strerror})") from None
