"""A cheap identity of the data: file sizes, headers and sampled blocks, or every byte on request."""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from in2r.data.features import open_npy, require_whole
from in2r.data.pieces import piece_files
from in2r.errors import InputError
from in2r.files import naming, sha256_file

WHOLE_BYTES = 2**24
SAMPLES = 16
SAMPLE_BYTES = 2**16


def content_hash(path: Path, *, full: bool = False) -> str:
    """Hash a file, or a folder of pieces as the npy file of the whole array.

    Raises:
        InputError: no such file; pieces that do not belong together.
    """
    if path.is_dir():
        return pieces_hash(path, full=full)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    return file_hash(path, full=full)


def file_hash(path: Path, *, full: bool = False) -> str:
    """Hash a file: small ones, texts up to 16 MiB, all with `full`: whole; else size and 16 blocks.

    The first block holds an npy file's header (shape and dtype), the last one the end of the file.
    """
    size = path.stat().st_size
    if full or (path.suffix != ".npy" and size <= WHOLE_BYTES) or size <= SAMPLES * SAMPLE_BYTES:
        return sha256_file(path)
    digest = hashlib.sha256(str(size).encode())
    with naming(path), path.open("rb") as file:
        for start in sampled(size):
            file.seek(start)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def pieces_hash(folder: Path, *, full: bool = False) -> str:
    """Hash a folder of pieces as `file_hash` does the npy file of the whole array, whatever the cuts are."""
    arrays = [open_npy(file) for file in piece_files(folder)]
    header = io.BytesIO()
    shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
    descr = npy.dtype_to_descr(arrays[0].dtype)
    npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    parts = [np.frombuffer(header.getbuffer(), np.uint8), *(array.reshape(-1).view(np.uint8) for array in arrays)]
    ends = np.cumsum([len(part) for part in parts])
    size = int(ends[-1])
    whole = full or size <= SAMPLES * SAMPLE_BYTES
    digest = hashlib.sha256() if whole else hashlib.sha256(str(size).encode())
    for start, stop in [(0, size)] if whole else [(start, start + SAMPLE_BYTES) for start in sampled(size)]:
        for part, end in zip(parts, ends.tolist(), strict=True):
            begin = end - len(part)
            chosen = part[max(start - begin, 0) : max(stop - begin, 0)]
            if len(chosen):
                require_whole(chosen)
                digest.update(chosen.data)
    return digest.hexdigest()


def sampled(size: int) -> list[int]:
    """Return where the blocks of a file begin that are looked at."""
    return [(size - SAMPLE_BYTES) * sample // (SAMPLES - 1) for sample in range(SAMPLES)]


def fingerprint(splits: Mapping[str, Sequence[Path]], *, full: bool, **facts: Any) -> dict[str, Any]:
    """Return {"hash", "full", "splits": {name: {"hash", "files": {file name: hash}}}}.

    Names are relative to the folder, so that a copy elsewhere has the same fingerprint; `facts` are settings
    which change what the files mean. A folder of pieces counts as the npy file of its name.
    """
    hashes: dict[Path, str] = {}
    result: dict[str, Any] = {}
    for name, paths in splits.items():
        for path in paths:
            if path not in hashes:
                hashes[path] = content_hash(path, full=full)
        files = {f"{path.name}.npy" if path.is_dir() else path.name: hashes[path] for path in paths}
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
