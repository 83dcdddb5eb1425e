"""The files of an audit: every pair with its score, lists, the cleaned table, key figures; the page is audit/page.py's.

pairs.csv       every row: score, verdict, percentile, components, the user's own columns; in the table's order
pairs.parquet   the same with numbers as numbers, where pyarrow is installed
summary.json    key figures, settings, versions, fingerprint of the data
evidence.jsonl  of each suspect: the nearest trusted images with their captions, and a caption that fits better
keep.txt, drop.txt, weights.csv   rows that stay, rows that go, and how far to trust each
cleaned.*       the rows that stay, in the format and the columns of the user's table
judge.safetensors   what judges further pairs (audit/kept.py); not where pairs were judged by a kept audit themselves
"""

import json
import math
import platform
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import in2r
from in2r.audit.against import keep
from in2r.audit.kept import FILE, save_kept
from in2r.audit.result import Audit
from in2r.audit.witnesses import Witnesses
from in2r.errors import InputError
from in2r.files import atomic_path, write_csv, write_json, write_text
from in2r.report.page import FLAGGED

DIGITS = 6
KEEP = "keep.txt"
"""the first file that an audit writes"""


def write_audit(folder: Path, audit: Audit, *, bom: bool = False) -> None:
    """Write all files of an audit but its page.

    Args:
        folder: where to; made if it is not there.
        audit: what was found.
        bom: start pairs.csv with a byte order mark, by which spreadsheets know UTF-8.

    Raises:
        InputError: the folder cannot be made, or holds what no audit wrote.
    """
    require_no_data(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None
    _remove_old(folder)
    _write_lists(folder, audit)
    columns = table_columns(audit)
    rows = len(audit.pairs.images)
    names = list(columns)
    write_csv(folder / "pairs.csv", names, (_texts(columns, row) for row in range(rows)), bom=bom)
    if find_spec("pyarrow") is not None:
        _write_parquet(folder / "pairs.parquet", columns)
    _write_evidence(folder / "evidence.jsonl", audit)
    if audit.pairs.table is not None:
        audit.pairs.table.write_rows(folder / f"cleaned{audit.pairs.table.ending}", audit.verdicts.kept)
    if audit.against is None:
        save_kept(folder / FILE, keep(audit))
    versions = {"in2r": in2r.__version__, "torch": torch.__version__, "numpy": np.__version__}
    record = {"python": platform.python_version(), **versions}
    write_json(folder / "summary.json", {**audit.summary(), "versions": record, "data": audit.pairs.fingerprint})


def _remove_old(folder: Path) -> None:
    """Remove what an earlier audit wrote, so that one which is cut short leaves no mixture; summary.json comes last."""
    for path in _written(folder):
        path.unlink()


def _written(folder: Path) -> list[Path]:
    """Return what lies in a folder under the names of an audit's files, but keep.txt."""
    names = ("summary.json", "report.html", "evidence.jsonl", "drop.txt", "weights.csv", FILE)
    own = [folder / name for name in names if (folder / name).is_file()]
    return [*own, *sorted(folder.glob("pairs.*")), *sorted(folder.glob("cleaned.*"))]


def require_no_data(folder: Path) -> None:
    """Raise `InputError` where a folder holds data, or files that no audit wrote and this one would replace."""
    data = sorted(path.name for path in folder.glob("*") if path.suffix == ".npy" or path.name == "data.json")
    if not (folder / KEEP).is_file():
        data += [path.name for path in _written(folder)]
    if data:
        raise InputError(f"{folder}: holds {data[0]}, which no audit wrote; give a new folder")


def table_columns(audit: Audit) -> dict[str, Any]:
    """Return every column of pairs.csv, (rows,) each: the row, image and caption, what was found, the user's others.

    The user's columns keep their names; one whose name is taken has `your_` before it.
    """
    pairs, found = audit.pairs, audit.verdicts
    ours: dict[str, Any] = {
        "score": found.score,
        "verdict": found.names.tolist(),
        "decision": [audit.decided.get(row, "") for row in range(len(pairs.images))],
        "percentile": found.percentile,
        **{name.replace(" ", "_"): values for name, values in found.components.items()},
        "fits_other_images": found.strangers,
        "fits_look_alikes": found.look_alikes,
        "reason": [pairs.unjudged.get(row, "") for row in range(len(pairs.images))],
    }
    table = pairs.table
    named = {"image" if table is None else table.image: list(pairs.images)}  # other images where noise was injected
    if table is None or table.caption is not None:
        named["caption" if table is None or table.caption is None else table.caption] = list(pairs.captions)
    others = {name: list(values) for name, values in pairs.columns.items() if name not in named}
    taken = {"row", *ours}
    return {
        "row": np.arange(len(pairs.images)),
        **_renamed(named, taken | others.keys()),
        **ours,
        **_renamed(others, taken | named.keys()),
    }


def _renamed(columns: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Return columns, with `your_` before a name that is taken."""
    found: dict[str, Any] = {}
    for own, values in columns.items():
        name = own
        while name in taken or name in found:
            name = f"your_{name}"
        found[name] = values
    return found


def _texts(columns: dict[str, Any], row: int) -> Iterator[str]:
    for values in columns.values():
        value = values[row]
        if not isinstance(value, float):
            yield str(value)
        else:
            yield "" if math.isnan(value) else f"{value:.{DIGITS}g}"


def _write_parquet(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()})
    with atomic_path(path) as temporary:
        pyarrow.parquet.write_table(table, temporary)


def _write_lists(folder: Path, audit: Audit) -> None:
    kept, score = audit.verdicts.kept, audit.verdicts.score
    for name, rows in ((KEEP, np.flatnonzero(kept)), ("drop.txt", np.flatnonzero(~kept))):
        write_text(folder / name, "".join(f"{row}\n" for row in rows.tolist()))
    weights = score if audit.verdicts.told else np.ones(len(score))
    weights = np.where(np.isin(audit.verdicts.names, ("empty", "unreadable", "duplicate")), 0.0, weights)
    for row, word in audit.decided.items():
        if audit.verdicts.names[row] != "duplicate":
            weights[row] = 1.0 if word == "right" else 0.0
    write_csv(
        folder / "weights.csv", ("row", "weight"), ((row, f"{w:.{DIGITS}g}") for row, w in enumerate(weights.tolist()))
    )


def _write_evidence(path: Path, audit: Audit) -> None:
    """Write what speaks against the suspects, the worst first."""
    suspects = np.flatnonzero(np.isin(audit.verdicts.names, FLAGGED))
    order = suspects[np.argsort(audit.verdicts.score[suspects], kind="stable")].tolist()
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row, found in zip(order, Witnesses(audit).of(order), strict=True):
            near = [{"row": other, "image": image, "caption": text} for other, image, text in found.neighbors]
            record = {"row": row, "neighbors": near, "suggestion": found.suggestion}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
