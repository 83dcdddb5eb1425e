"""Checkpoints: one safetensors file each, whole or absent, with nothing in it that could run code."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from in2r.errors import InputError
from in2r.tensors import load_tensors, save_tensors

log = logging.getLogger(__name__)

CHECKSUM = "crc32"
"""its key in the metadata"""
_NAME = re.compile(r"step-(\d{9})\.safetensors")


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name))


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], keep: int) -> None:
    """Write the checkpoint of a step and remove all but it and the `keep` - 1 before it.

    One of a later step was not readable when the run was resumed from an earlier one: it is removed too.
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
        raise InputError(f"{fault}; no other checkpoint can be read; to train from the start, remove {folder}")
    return None


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
