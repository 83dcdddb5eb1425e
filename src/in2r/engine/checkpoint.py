"""Checkpoints: one safetensors file each, whole or absent, with nothing in it that could run code."""

import json
import logging
import re
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space

log = logging.getLogger(__name__)

CHECKSUM = "crc32"
"""its key in the metadata"""
_NAME = re.compile(r"step-(\d{9})\.safetensors")


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
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # within one text: safetensors writes several entries of metadata in an order that changes
    text = json.dumps({**meta, CHECKSUM: _checksum(plain, meta)})
    try:
        with atomic_path(path) as temporary:
            save_file(plain, str(temporary), metadata={"in2r": text})
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: could not be written ({error}); the last good file stays") from None


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
            meta = json.loads((file.metadata() or {}).get("in2r", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None
    if not isinstance(meta, dict) or CHECKSUM not in meta:
        raise InputError(f"{path}: not written by in2r (no metadata with a checksum)")
    if meta.pop(CHECKSUM) != _checksum(tensors, meta):
        raise InputError(f"{path}: damaged: the content is not what was written (checksum)")
    return tensors, meta


def tensor_bytes(tensors: dict[str, Tensor]) -> int:
    """Return the size of all tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name))


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], keep: int) -> None:
    """Write the checkpoint of a step and remove all but it and the `keep` - 1 before it.

    One of a later step was passed over when the run went on from an earlier one, so it is damaged: it goes too.
    """
    written = folder / f"step-{step:09d}.safetensors"
    save_tensors(written, tensors, meta)
    found = checkpoints(folder)
    here = found.index(written) + 1
    for other in found[: max(0, here - keep)] + found[here:]:
        other.unlink()


def load_newest(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """Read the newest checkpoint that is readable; None when the run has none yet.

    Raises:
        InputError: there are checkpoints, and none can be read.
    """
    found = checkpoints(folder)
    fault = ""
    for path in reversed(found):
        try:
            return path, *load_tensors(path)
        except InputError as error:
            fault = str(error)
            log.warning("%s; looking for an older checkpoint", fault)
    if found:
        raise InputError(f"{fault}; no other checkpoint can be read; without {folder} the run begins anew")
    return None


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return an optimiser's state as named tensors: `prefix.<parameter number>.<name>`."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}.{number}.{name}": value for number, entry in state.items() for name, value in entry.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str) -> None:
    """Give an optimiser back the state that `optimizer_tensors` named."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{prefix}."):
            number, entry = name[len(prefix) + 1 :].split(".", 1)
            state.setdefault(int(number), {})[entry] = value
    whole = optimizer.state_dict()
    whole["state"] = state
    optimizer.load_state_dict(whole)
