"""A cheap identity of the data: file sizes, headers and sampled blocks, or every byte on request."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from in2r.errors import InputError
from in2r.files import naming, sha256_file

WHOLE_BYTES = 2**24
SAMPLES = 16
SAMPLE_BYTES = 2**16


def file_hash(path: Path, *, full: bool = False) -> str:
    """Hash a file: small ones, texts up to 16 MiB, all with `full`: whole; else size and 16 blocks.

    The first block holds an npy file's header (shape and dtype), the last one the end of the file.
    """
    size = path.stat().st_size
    if full or (path.suffix != ".npy" and size <= WHOLE_BYTES) or size <= SAMPLES * SAMPLE_BYTES:
        return sha256_file(path)
    digest = hashlib.sha256(str(size).encode())
    with naming(path), path.open("rb") as file:
        for sample in range(SAMPLES):
            file.seek((size - SAMPLE_BYTES) * sample // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def fingerprint(splits: Mapping[str, Sequence[Path]], *, full: bool, **facts: Any) -> dict[str, Any]:
    """Return {"hash", "full", "splits": {name: {"hash", "files": {file name: hash}}}}.

    Names are relative to the folder, so that a copy elsewhere has the same fingerprint; `facts` are settings
    which change what the files mean.
    """
    hashes: dict[Path, str] = {}
    result: dict[str, Any] = {}
    for name, paths in splits.items():
        for path in paths:
            if not path.is_file():
                raise InputError(f"{path}: no such file")
            hashes.setdefault(path, file_hash(path, full=full))
        files = {path.name: hashes[path] for path in paths}
        result[name] = {"hash": _digest([files, facts]), "files": files}
    return {
        "hash": _digest({name: split["hash"] for name, split in result.items()}),
        "full": full,
        "splits": result,
    }


def changed_splits(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the splits of an earlier fingerprint that are gone or differ now; one that was added is no change."""
    return [
        name for name, split in before["splits"].items() if now["splits"].get(name, {}).get("hash") != split["hash"]
    ]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
