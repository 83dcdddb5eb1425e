"""Rows of a pair table: csv, tsv, JSON lines, Parquet; faults named by line."""

import json
import logging
import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from in2r.data.rows import read_lines, read_text, split_records
from in2r.errors import Faults, InputError
from in2r.files import parse_json

log = logging.getLogger(__name__)

SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Rows:
    """Columns of text by name, and the line of each row in the file (counted from 1; Parquet: the row)."""

    columns: dict[str, list[str]]
    lines: Sequence[int]


def read_table(path: Path, required: list[str], optional: list[str], encoding: str | None = None) -> Rows:
    """Read named columns of a table; an optional one that is absent is left out.

    Args:
        path: a csv, tsv, txt or jsonl file, which may be packed (.gz), or a parquet file. The separator of csv, tsv and
            txt is the one that a first line `sep=;` names, or is found from the header: comma, semicolon, tab or bar.
        required: names of columns; upper and lower case count only where two columns differ in nothing else.
        optional: more of them.
        encoding: of a text without byte-order mark; None means UTF-8.

    Raises:
        InputError: no such file or column, or broken lines (all of them are looked for).
    """
    kind = _kind(path)
    if kind == ".csv":
        return _read_csv(path, required, optional, encoding)
    if kind == ".jsonl":
        return _read_jsonl(path, required, optional, encoding)
    return _read_parquet(path, required, optional)


def read_whole(path: Path, encoding: str | None = None) -> Rows:
    """Read all columns of a table that `read_table` can read, whatever they hold.

    Text and numbers are as in `read_table`. A list or a record becomes JSON text; what a JSON line lacks is empty.

    Raises:
        InputError: as `read_table`; two columns of a csv have one name.
    """
    kind = _kind(path)
    if kind == ".csv":
        return _read_csv(path, [], read_names(path, encoding), encoding)
    if kind == ".jsonl":
        records = {n: _json_object(path, n, line) for n, line in enumerate(read_lines(path, encoding), start=1) if line}
        names = dict.fromkeys(name for record in records.values() for name in record)
        columns = {
            name: [_any_text(record.get(name), f"{path}: line {n}: {name}") for n, record in records.items()]
            for name in names
        }
        return Rows(columns, list(records))
    with _open_parquet(path) as file:
        table = file.read()
    columns = {
        name: [_any_text(value, f"{path}: row {n}: {name}") for n, value in enumerate(column.to_pylist(), start=1)]
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return Rows(columns, list(range(1, table.num_rows + 1)))


def read_names(path: Path, encoding: str | None = None) -> list[str]:
    """Return the names of a table's columns; of JSON lines, the keys of the first record. Arguments as `read_table`."""
    kind = _kind(path)
    if kind == ".parquet":
        with _open_parquet(path) as file:
            return list(file.schema_arrow.names)
    if kind == ".jsonl":
        lines = ((number, line) for number, line in enumerate(read_lines(path, encoding), start=1) if line)
        return next((list(_json_object(path, number, line)) for number, line in lines), [])
    names, _, _ = _open_csv(path, encoding)
    return names


def _kind(path: Path) -> str:
    """Return .csv (also of .tsv and .txt), .jsonl or .parquet."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind in (".csv", ".tsv", ".txt"):
        return ".csv"
    if kind == ".jsonl" or path.suffix.lower() == ".parquet":
        return kind
    known = ".csv, .tsv, .txt or .jsonl, which may end in .gz, or .parquet"
    raise InputError(f"{path}: unknown kind of table {path.suffix!r}; expected {known}")


def _choose(place: str, found: list[str], required: list[str], optional: list[str]) -> dict[str, str]:
    """Return the table's own name of each column that is wanted and there."""
    chosen = {}
    for name in dict.fromkeys([*required, *optional]):
        same = [own for own in found if own == name] or [own for own in found if own.casefold() == name.casefold()]
        if len(same) > 1:
            columns = ", ".join(map(repr, same))
            raise InputError(f"{place}: several columns may be {name!r} ({columns}); rename those that are not meant")
        if same:
            chosen[name] = same[0]
    missing = [name for name in required if name not in chosen]
    if missing:
        there = ", ".join(map(repr, found)) or "nothing"
        raise InputError(
            f"{place}: no column {', '.join(map(repr, missing))}; found {there}. Say in "
            'data.json which column is which: {"columns": {"image": ..., "caption": ..., "split": ...}}'
        )
    return chosen


def _find_separator(text: str) -> tuple[str, bool]:
    """Return the separator, and whether the first line does nothing but name it, as spreadsheets understand it."""
    first = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    said = re.fullmatch(r'"?sep=([^\w" ])"?', first, re.IGNORECASE)
    return (said[1], True) if said else (max(SEPARATORS, key=first.count), False)


def _open_csv(path: Path, encoding: str | None) -> tuple[list[str], Iterator[tuple[list[str], int, int]], str]:
    """Return the names in the header, the records below it, and the separator."""
    text = read_text(path, encoding)
    separator, named = _find_separator(text)
    records = split_records(text, path, separator)
    if named:
        next(records)
    return [name.strip() for name in next(records, ([], 1, 1))[0]], records, separator


def _read_csv(path: Path, required: list[str], optional: list[str], encoding: str | None) -> Rows:
    names, records, separator = _open_csv(path, encoding)
    chosen = _choose(str(path), names, required, optional)
    columns: dict[str, list[str]] = {name: [] for name in chosen}
    places = [(_append_to(columns[name]), names.index(own)) for name, own in chosen.items()]
    lines = array("q")  # of 8 bytes each, not 36
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


def _append_to(column: list[str]) -> Callable[[str], None]:
    """Return what appends to a column; a text that repeats the one before is kept once, as a split and an image are."""
    last = ""

    def append(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
        column.append(last)

    return append


def _wrong_count(found: int, expected: int, separator: str) -> str:
    remedy = "write the missing ones, if only as empty fields"
    if found > expected:
        remedy = "put a field that holds the separator in double quotes"
    return f"has {found} field{'s' * (found > 1)} but the header {expected} (separator {separator!r}); {remedy}"


def _read_jsonl(path: Path, required: list[str], optional: list[str], encoding: str | None) -> Rows:
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    faults = Faults()
    for number, line in enumerate(read_lines(path, encoding), start=1):
        if not line:
            continue
        try:
            record = _json_object(path, number, line)
            chosen = _choose(f"{path}: line {number}", list(record), required, optional)
            if columns and columns.keys() != chosen.keys():
                raise InputError(
                    f"{path}: line {number} has the columns {list(chosen)}, the first line {list(columns)}"
                )
            row = {name: _text(record[own], f"{path}: line {number}: {name}") for name, own in chosen.items()}
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
    for name in record:
        if name != name.encode("utf-8", "replace").decode():
            raise InputError(f"{path}: line {number}: {name!r} holds half of a surrogate pair; rename the column")
    return record


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ImportError:
        raise InputError(f'{path}: reading Parquet needs pyarrow: pip install "in2r[parquet]"') from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.lib.ArrowException, OSError, UnicodeDecodeError) as error:  # a damaged page is an OSError
        raise InputError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None


def _read_parquet(path: Path, required: list[str], optional: list[str]) -> Rows:
    with _open_parquet(path) as file:
        chosen = _choose(str(path), file.schema_arrow.names, required, optional)
        table = file.read(columns=list(chosen.values()))
        values = {name: table.column(own).to_pylist() for name, own in chosen.items()}
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


def _any_text(value: Any, place: str) -> str:
    """Return `_text` of a text or a number; of a list or a record, JSON."""
    if isinstance(value, bool | list | dict):
        value = json.dumps(value, ensure_ascii=False, default=_described)
    elif value is not None and not isinstance(value, str | int | float):
        value = _described(value)
    return _text(value, place)


def _described(value: Any) -> str:
    """Return a value that JSON does not have as text; of bytes, such as those of a picture, how many they are."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
