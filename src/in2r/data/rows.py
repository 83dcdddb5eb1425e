"""Rows of text files: captions one a line, delimited tables, JSON lines, Parquet; faults named by line."""

import csv
import io
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from in2r.errors import Faults, InputError
from in2r.files import parse_json

log = logging.getLogger(__name__)

SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True)
class Rows:
    """Columns of text by name, and the line of each row in the file (counted from 1; Parquet: the row)."""

    columns: dict[str, list[str]]
    lines: list[int]


def read_text(path: Path) -> str:
    """Read a UTF-8 file (a byte order mark is dropped); `InputError` names the line that is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from None


def read_lines(path: Path) -> list[str]:
    r"""Read one item a line, stripped. Only "\n" ends a line: captions may hold Unicode's others."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.strip() for line in lines]


def read_ids(path: Path) -> list[str]:
    """Read one id a line, stripped; blank lines at the end are no ids."""
    ids = read_lines(path)
    while ids and not ids[-1]:
        ids.pop()
    return ids


def read_delimited(path: Path, separator: str, *, strict: bool = True) -> Iterator[tuple[list[str], int, int]]:
    """Yield (fields, first line, last line) of each record that is not blank.

    Raises:
        InputError: a stray quote, with its line.
    """
    text = read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)
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


def _next_record(reader: Iterator[list[str]], longest: int) -> list[str]:
    """Return the next record, whose fields may be longer than the csv module's limit, which all readers share."""
    limit = csv.field_size_limit(max(longest, 2**17))
    try:
        return next(reader)
    finally:
        csv.field_size_limit(limit)


def read_table(path: Path, required: list[str], optional: list[str]) -> Rows:
    """Read named columns from a csv, tsv, jsonl or parquet file; an optional one that is absent is left out.

    The separator of csv and tsv (comma, semicolon or tab) is found from the header.

    Raises:
        InputError: no such file or column, or broken lines (all of them are looked for).
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    readers = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise InputError(f"{path}: unknown kind of table {path.suffix!r}; expected {', '.join(readers)}")
    return readers[path.suffix](path, required, optional)


def _choose(path: Path, found: list[str], required: list[str], optional: list[str]) -> list[str]:
    missing = [name for name in required if name not in found]
    if missing:
        there = ", ".join(map(repr, found)) or "nothing"
        raise InputError(
            f"{path}: no column {', '.join(map(repr, missing))}; found {there}. Say in "
            'data.json which column is which: {"columns": {"image": ..., "caption": ..., "split": ...}}'
        )
    chosen = [name for name in dict.fromkeys([*required, *optional]) if name in found]
    twice = next((name for name in chosen if found.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: the column {twice!r} is there twice; rename the one that is not meant")
    return chosen


def _read_csv(path: Path, required: list[str], optional: list[str]) -> Rows:
    header = read_text(path).split("\n", 1)[0].strip("\r")
    separator = max(SEPARATORS, key=header.count)
    records = read_delimited(path, separator)
    names = [name.strip() for name in next(records, ([], 1, 1))[0]]
    chosen = _choose(path, names, required, optional)
    columns: dict[str, list[str]] = {name: [] for name in chosen}
    places = [(columns[name].append, names.index(name)) for name in chosen]
    lines: list[int] = []
    long: list[tuple[int, int]] = []
    faults = Faults()
    with faults.gather():
        for fields, first, last in records:
            if len(fields) != len(names):
                faults.add(f"{path}: line {first} {_wrong_count(len(fields), len(names), separator)}")
                continue
            for append, place in places:
                append(fields[place].strip())
            lines.append(first)
            if last > first:
                long.append((first, last))
    faults.settle()
    if long:  # legal, but a caption that merely begins with a quote looks the same and swallows rows
        log.warning(
            "%s: %d quoted fields run over several lines, first from line %d to %d; if that is no line break "
            "within a caption, write quotes twice or give the table as jsonl", path, len(long), *long[0],
        )  # fmt: skip
    return Rows(columns, lines)


def _wrong_count(found: int, expected: int, separator: str) -> str:
    remedy = "write the missing ones, if only as empty fields"
    if found > expected:
        remedy = "put a field that holds the separator in double quotes"
    return f"has {found} field{'s' * (found > 1)} but the header {expected} (separator {separator!r}); {remedy}"


def _read_jsonl(path: Path, required: list[str], optional: list[str]) -> Rows:
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    faults = Faults()
    for number, line in enumerate(read_lines(path), start=1):
        if not line:
            continue
        try:
            record = _json_object(path, number, line)
            chosen = _choose(Path(f"{path}: line {number}"), list(record), required, optional)
            if columns and list(columns) != chosen:
                raise InputError(f"{path}: line {number} has the columns {chosen}, the first line {list(columns)}")
            row = {name: _text(record[name], f"{path}: line {number}: {name}") for name in chosen}
        except InputError as error:
            faults.add(str(error))
            continue
        for name, text in row.items():
            columns.setdefault(name, []).append(text)
        lines.append(number)
    faults.settle()
    return Rows(columns or {name: [] for name in required}, lines)


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {number} is not valid JSON ({error.msg}, column {error.colno})") from None
    if not isinstance(record, dict):
        raise InputError(f'{path}: line {number} is not an object like {{"image": 0, "caption": "..."}}')
    return record


def _read_parquet(path: Path, required: list[str], optional: list[str]) -> Rows:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ImportError:
        raise InputError(f'{path}: reading Parquet needs pyarrow: pip install "in2r[parquet]"') from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            chosen = _choose(path, file.schema_arrow.names, required, optional)
            table = file.read(columns=chosen)
            values = {name: table.column(name).to_pylist() for name in chosen}
    except (pyarrow.lib.ArrowException, OSError, UnicodeDecodeError) as error:  # a damaged page is an OSError
        raise InputError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
    columns: dict[str, list[str]] = {name: [] for name in chosen}
    faults = Faults()
    for name in chosen:
        for row, value in enumerate(values[name], start=1):
            try:
                columns[name].append(_text(value, f"{path}: row {row}: {name}"))
            except InputError as error:
                faults.add(str(error))
    faults.settle()
    return Rows(columns, list(range(1, table.num_rows + 1)))


def _text(value: Any, place: str) -> str:
    """Return a text, or a number as text; null and NaN (as pandas writes it) are empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        found = type(value).__name__
        raise InputError(f"{place} is {found} {value!r:.60}; expected text (several captions are several rows)")
    text = str(value).strip()
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can hold half of a character, where a text was cut off within an emoji
        log.warning("%s holds half of a surrogate pair; replaced", place)
        text = text.encode("utf-8", "replace").decode()
    return text
