"""Text files as people save them, in any encoding: captions or ids one a line, records of delimited fields."""

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from in2r.errors import InputError

_MARKS = {  # UTF-32 first: its mark begins as that of UTF-16 does
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF8: "utf-8",
}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_REMEDY = 'save the file as UTF-8, or name its encoding in data.json of a pair table, such as {"encoding": "cp1252"}'


def read_text(path: Path, encoding: str | None = None) -> str:
    """Read a text file, unpacked where its name ends in .gz.

    Args:
        path: the file.
        encoding: of a file without byte-order mark; UTF-8 when it is None.

    Raises:
        InputError: no such file, or the line that is not in the encoding.
    """
    return read_encoded(path, encoding)[0]


def read_encoded(path: Path, encoding: str | None = None) -> tuple[str, bytes, str]:
    """Read as `read_text` does; return the text without byte-order mark, the mark (may be b""), and the encoding."""
    data = read_bytes(path)
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    encoding = _MARKS.get(mark, encoding or "utf-8")
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        name = "UTF-8" if encoding.startswith("utf-8") else encoding
        raise InputError(f"{path}: line {line} is not {name}; {_REMEDY}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}: line {line} holds zero bytes, as UTF-16 without byte-order mark does; {_REMEDY}")
    return text, mark, encoding


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked where its name ends in .gz; `InputError` says why it cannot be read."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a readable gzip file ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def read_lines(path: Path, encoding: str | None = None) -> list[str]:
    r"""Read one item a line, stripped. Only "\n" ends a line: captions may hold Unicode's others."""
    lines = read_text(path, encoding).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.strip() for line in lines]


def read_ids(path: Path, encoding: str | None = None) -> list[str]:
    """Read one id a line, stripped; blank lines at the end are no ids."""
    ids = read_lines(path, encoding)
    while ids and not ids[-1]:
        ids.pop()
    return ids


def split_records(
    text: str, path: Path, separator: str, *, strict: bool = True
) -> Iterator[tuple[list[str], int, int]]:
    """Yield (fields, first line, last line) of each record of a file's text that is not blank.

    Raises:
        InputError: a stray quote, with its line.
    """
    reader = csv.reader(_lines(text), delimiter=separator, strict=strict)
    while True:
        first = reader.line_num + 1
        try:
            fields = _next_record(reader, len(text))
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{path}: line {first}: {error}; within a quoted field a quote is written twice, "
                "or give the table as jsonl"
            ) from None
        if len(fields) > 1 or "".join(fields).strip():
            yield fields, first, reader.line_num


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their ends; an `io.StringIO` would copy it, at four bytes a character."""
    return (found[0] for found in _LINE.finditer(text))


def _next_record(reader: Iterator[list[str]], longest: int) -> list[str]:
    """Return the next record, whose fields may be longer than the csv module's limit, which all readers share."""
    limit = csv.field_size_limit(max(longest, 2**17))
    try:
        return next(reader)
    finally:
        csv.field_size_limit(limit)
