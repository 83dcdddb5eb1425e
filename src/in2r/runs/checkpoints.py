"""Checkpoints: safetensors files, whole or absent, with nothing in them that could run code.

What training has learnt is one file each time. The divisions of the pairs, which change once an epoch and grow with the
pairs, are a file of their own: a checkpoint names it.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in2r.errors import InputError
from in2r.tensors import load_meta, load_tensors, save_tensors

log = logging.getLogger(__name__)

Loaded = tuple[dict[str, Tensor], dict[str, Any]]
"""tensors and plain values"""
DIVIDED_AT = "divided_at"
"""the key in a checkpoint's metadata of the step that its divisions' file is named after"""
_NAME = re.compile(r"(step|divisions)-(\d{9})\.safetensors")


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return _files(folder, "step")


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"{kind}-*.safetensors") if _NAME.fullmatch(path.name))


def _step(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], keep: int) -> None:
    """Write the checkpoint of a step; remove all but it and the `keep` - 1 before it, and divisions that none names.

    One of a later step was not readable when the run was resumed from an earlier one: it is removed too.
    """
    written = folder / f"step-{step:09d}.safetensors"
    save_tensors(written, tensors, meta)
    found = checkpoints(folder)
    here = found.index(written) + 1
    kept = found[max(0, here - keep) : here]
    for other in found:
        if other not in kept:
            other.unlink()
    named = {_divided_at(path) for path in kept}  # a run that went back to an earlier checkpoint divides at other steps
    for path in _files(folder, "divisions"):
        if _step(path) not in named:
            path.unlink()


def _divided_at(checkpoint: Path) -> int | None:
    """Return the step that a checkpoint's divisions are named after; None where it has none, or cannot be read."""
    try:
        return load_meta(checkpoint).get(DIVIDED_AT)
    except InputError:
        return None


def save_divisions(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Loaded:
    """Write the divisions that were made after `step` iterations, and return them as they are read: memory-mapped."""
    file = divisions_file(folder, step)
    save_tensors(file, tensors, meta)
    return load_tensors(file)


def divisions_file(folder: Path, step: int) -> Path:
    """Return where the divisions are that were made after `step` iterations."""
    return folder / f"divisions-{step:09d}.safetensors"


def load_newest(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """Read the newest checkpoint that is readable, with its divisions; None when the run has none yet.

    Raises:
        InputError: there are checkpoints, and none can be read.
    """
    found = checkpoints(folder)
    fault = ""
    for path in reversed(found):
        try:
            return path, *_with_divisions(folder, *load_tensors(path))
        except InputError as error:
            fault = str(error)
            log.warning("%s; looking for an older checkpoint", fault)
    if found:
        raise InputError(f"{fault}; no other checkpoint can be read; to train from the start, remove {folder}")
    return None


def _with_divisions(folder: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Loaded:
    """Add the divisions that a checkpoint names."""
    if meta.get(DIVIDED_AT) is None:
        return tensors, {**meta, "divisions": {}}
    more, plain = load_tensors(divisions_file(folder, meta[DIVIDED_AT]))
    return {**tensors, **more}, {**plain, **meta}


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return an optimiser's state as named tensors: `prefix.<parameter number>.<name>`."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}.{number}.{name}": value for number, entry in state.items() for name, value in entry.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Give an optimiser back the state that `optimizer_tensors` named."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{prefix}."):
            number, entry = name[len(prefix) + 1 :].split(".", 1)
            state.setdefault(int(number), {})[entry] = value
    whole = optimizer.state_dict()
    whole["state"] = state
    optimizer.load_state_dict(whole)
