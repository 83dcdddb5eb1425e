"""Tensors with JSON metadata as one safetensors file: whole or absent, with nothing in it that could run code."""

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space

CHECKSUM = "crc32"
"""its key in the metadata"""


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and JSON metadata as one file, atomically, after a look at the free space; with a checksum.

    Raises:
        InputError: the disk is too full; what was there before stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made a folder ({error.strerror})") from None
    require_free_space(path.parent, int(1.05 * tensor_bytes(tensors)) + 2**20)
    plain = _apart(tensors)
    # within one text: safetensors writes several entries of metadata in an order that changes
    text = json.dumps({**meta, CHECKSUM: _checksum(plain, meta)})
    try:
        with atomic_path(path) as temporary:
            save_file(plain, str(temporary), metadata={"in2r": text})
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: could not be written ({reason}); the last good file stays") from None


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors on the CPU that share no memory, as the format asks; only those that share some are copied."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        storage = value.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != value.nbytes:
            value = value.clone()
        seen.add(storage.data_ptr())
        found[name] = value
    return found


def _checksum(tensors: dict[str, Tensor], meta: dict[str, Any]) -> int:
    """Return the CRC-32 of metadata and tensors: an error-detecting code, several times faster than a hash."""
    value = zlib.crc32(json.dumps(meta).encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return value


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote, onto the CPU.

    Raises:
        InputError: the file is missing, cut off, damaged, or of another kind (a pickled `.pth.tar`, say).
    """
    if path.suffixes[-1:] in ([".tar"], [".pth"], [".pt"], [".pkl"]):
        raise InputError(f"{path}: a pickled checkpoint could run code when read; expected .safetensors")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        path.open("rb").close()  # safetensors takes a file that may not be read for one that is not there
        with safe_open(str(path), framework="pt") as file:
            meta = _meta(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None
    if not isinstance(meta, dict) or CHECKSUM not in meta:
        raise InputError(f"{path}: not written by in2r (no metadata with a checksum)")
    if meta.pop(CHECKSUM) != _checksum(tensors, meta):
        raise InputError(f"{path}: damaged: the content is not what was written (checksum)")
    return tensors, meta


def load_meta(path: Path) -> dict[str, Any]:
    """Read the metadata alone of what `save_tensors` wrote, unchecked.

    Raises:
        InputError: they cannot be read.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            meta = _meta(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None
    if not isinstance(meta, dict):
        raise InputError(f"{path}: not written by in2r")
    return meta


def _meta(file: Any) -> Any:
    """Return what an open file holds as JSON; None where another program wrote it."""
    return json.loads((file.metadata() or {}).get("in2r", "null"))


def tensor_bytes(tensors: dict[str, Tensor]) -> int:
    """Return the size of all tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
