"""Checkpoints that other repositories release: read by an allow-list, so that no code of the file ever runs."""

import argparse
import math
import mmap
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from in2r.errors import InputError

ALLOWED: list[Any] = [argparse.Namespace, np.dtype, *(type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4"))]
"""What a file may hold beside tensors and plain values: its options, and a figure that NumPy computed."""
_SCALAR = np.float64(0).__reduce__()[0]  # what makes such a figure; its module has another name before NumPy 2
ALLOWED += [(_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]

WEIGHTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Floating-point numbers that a weight may have; eight bits are read by no repository."""
LONGEST_NAME = 200
"""Characters of a key or of a weight's name: both are printed."""
LARGEST_RSUM = 600.0
"""six recalls of 100 %"""

PARTS = ("img_enc", "txt_enc", "sim_enc", "img_pro_head")
"""Names of a network's modules, in the order of a list of their weights."""


@dataclass(frozen=True)
class Family:
    """A repository, or several whose files have the same keys."""

    name: str
    backbone: Literal["sgr", "scan", "gpo", "vsepp"]
    """sgr: or saf, as the weights say"""
    dev_rule: Literal["ncr", "scan", "full"]
    """part of the dev split by which it selects an epoch: what its `best_rsum` is of"""


NCR = Family("NCR's family (NCR, BiCro, CREAM)", "sgr", "ncr")
PC2 = Family("PC²", "sgr", "ncr")
IN2R = Family("IN²R's authors", "gpo", "full")
L2RM = Family("L2RM", "sgr", "ncr")
DECL = Family("DECL", "sgr", "scan")
SGRAF = Family("SGRAF", "sgr", "scan")
VSEPP = Family("VSE++", "vsepp", "scan")
SCAN = Family("SCAN", "scan", "scan")

TWINS = {2: IN2R, 3: NCR, 4: PC2}
"""modules of model_A → whose file it is"""
KNOWN = "model_A (NCR, BiCro, CREAM, PC², IN²R), net (L2RM) or model (DECL, SGRAF, SCAN, VSE++)"
REFUSED_OPTIONS = {
    "no_imgnorm": (True, "regions or images that are not scaled to unit norm"),
    "no_txtnorm": (True, "words or captions that are not scaled to unit norm"),
    "use_abs": (True, "absolute values of embeddings"),
    "measure": ("order", "order embeddings"),
}
"""option → the value that means another model than in2r has, and what it means"""


@dataclass(frozen=True)
class Released:
    """What a checkpoint says of itself, and its networks' weights.

    Attributes:
        family: whose file it is.
        epoch: as stored; None where it is not.
        best_rsum: as stored, of the repository's own dev split; None where no rSum is, as after a warm-up.
        options: the plain values of its options.
        networks: A, and B where there are two → weights by name, such as img_enc.fc.weight.
        left_out: keys of the file that are not imported.
    """

    family: Family
    epoch: int | None
    best_rsum: float | None
    options: dict[str, Any]
    networks: dict[str, dict[str, Tensor]]
    left_out: tuple[str, ...]


def read_released(file: Path) -> Released:
    """Read a checkpoint of NCR, BiCro, CREAM, PC², L2RM, DECL, SGRAF, SCAN, VSE++ or IN²R's authors.

    Raises:
        InputError: no such file, one that cannot be read or asks for what is not allowed, other keys, or options that
            mean another model than in2r has.
    """
    content = _unpickled(file)
    keys = {"A": "model_A", "B": "model_B"} if "model_A" in content else {"A": "net" if "net" in content else "model"}
    keys = {name: key for name, key in keys.items() if key in content}
    if not keys:
        raise InputError(f"{file}: keys {_listed(content)}; expected {KNOWN}")
    options = _options(content.get("opt"))
    family = _family(file, keys["A"], content, options)
    for name, (value, meaning) in REFUSED_OPTIONS.items():
        if options.get(name) == value:
            raise InputError(f"{file}: option {name}={value} means {meaning}, which in2r has no model for")
    networks = {name: _flat(content[key], f"{file}: {key}") for name, key in keys.items()}
    used = {*keys.values(), "epoch", "best_rsum"}
    epoch, rsum = _number(content.get("epoch")), _number(content.get("best_rsum"))
    return Released(
        family,
        None if epoch is None else int(epoch),
        float(rsum) if rsum is not None and 0 <= rsum <= LARGEST_RSUM else None,
        options,
        networks,
        tuple(key for key in content if key not in used),
    )


def _unpickled(file: Path) -> dict[str, Any]:
    """Return the content of a file written by torch.save; what is not allowed is refused before it is called."""
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    try:
        _refuse_growing(file)
        with torch.serialization.safe_globals(ALLOWED):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a damaged or hostile file can make the reader fail in any way
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        if asked:
            raise InputError(
                f"{file}: asks for {asked[1]}, but a checkpoint may hold only tensors, plain values and options "
                "(argparse.Namespace); nothing of it was run"
            ) from None
        reason = " ".join(str(error).split())[:200]
        if "weights_only" in str(error):  # PyTorch advises to read the file without an allow-list
            reason = "it has no form that torch.save writes"
        raise InputError(f"{file}: not a readable checkpoint of torch.save ({reason})") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{file}: holds {type(content).__name__}; expected a dictionary with {KNOWN}")
    for key in content:
        _require_name(key, f"{file}: a key")
    return content


def _refuse_growing(file: Path) -> None:
    """Refuse what needs more memory than the file has bytes: a packed archive, a pickle that asks for bytes."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            records, size = archive.infolist(), file.stat().st_size
        total = sum(record.file_size for record in records)
        if total > size or any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise InputError(
                f"{file}: {size:,} bytes that unpack to {total:,}; a file of torch.save is not compressed; it was not "
                "read"
            )
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"bytearray") >= 0:  # PyTorch's own allow-list has it, of any size
            raise InputError(f"{file}: asks for builtins.bytearray, which can fill the memory; it was not read")


def _require_name(name: str, place: str) -> None:
    """Refuse a name that would clear a terminal or fill it."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(f"{place} is {name[:40]!a} (its first 40 of {len(name)} characters), which is no name")


def _listed(content: Mapping[str, Any]) -> str:
    return ", ".join(content) or "none"


def _kinds(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _options(given: Any) -> dict[str, Any]:
    """Return the options that are plain values, as JSON has them; text that cannot be printed is none."""
    values = vars(given) if isinstance(given, argparse.Namespace) else given if isinstance(given, dict) else {}
    values = {str(name): value for name, value in values.items() if str(name).isprintable()}
    plain = {
        name: value if isinstance(value, bool) or (isinstance(value, str) and value.isprintable()) else _number(value)
        for name, value in values.items()
    }
    return {name: value for name, value in plain.items() if value is not None}


def _number(value: Any) -> int | float | None:
    """Return a finite number as Python has it; None for anything else."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    try:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and math.isfinite(value) else None
    except OverflowError:  # an integer beyond all floats
        return None


def _family(file: Path, key: str, content: Mapping[str, Any], options: Mapping[str, Any]) -> Family:
    """Return whose file it is, by its keys and by how many modules the first network has."""
    if key == "net":
        return L2RM
    count = len(content[key]) if isinstance(content[key], list | tuple) else 0
    if key == "model_A" and count in TWINS:
        return TWINS[count]
    if key == "model" and count == 3:
        return DECL if "step" in content else SGRAF
    if key == "model" and count == 2:
        return SCAN if "cross_attn" in options else VSEPP
    found = f"a list of {count}" if count else type(content[key]).__name__
    expected = "2, 3 or 4" if key == "model_A" else "2 or 3"
    raise InputError(f"{file}: {key} is {found}; expected a list of the weights of {expected} modules")


def _flat(value: Any, place: str) -> dict[str, Tensor]:
    """Return a network's weights by name, MODULE.parameter; the `module.` of parallel training is dropped."""
    parts = dict(zip(PARTS, value, strict=False)) if isinstance(value, list | tuple) else {"": value}
    found: dict[str, Tensor] = {}
    for part, weights in parts.items():
        if not isinstance(weights, dict):
            raise InputError(f"{place}: {part or 'weights'} is {type(weights).__name__}; expected weights by name")
        for name, weight in weights.items():
            _require_name(str(name), f"{place}: a weight's name")
            key = ".".join(filter(None, (part, str(name).removeprefix("module."))))
            if (
                not isinstance(weight, Tensor)
                or weight.layout is not torch.strided
                or weight.is_quantized
                or weight.is_meta
                or weight.is_nested
            ):
                raise InputError(f"{place}: {key} is {type(weight).__name__}; expected a tensor with values")
            if weight.untyped_storage().nbytes() < weight.numel() * weight.element_size():
                raise InputError(f"{place}: {key} repeats few numbers to {tuple(weight.shape)}; expected all of them")
            if weight.is_floating_point() and weight.dtype not in WEIGHTS:
                kind, known = (_kinds(dtypes) for dtypes in ((weight.dtype,), WEIGHTS))
                raise InputError(f"{place}: {key} has the type {kind}; expected one of {known}")
            if not bool(torch.isfinite(weight).all()):
                raise InputError(f"{place}: {key} holds NaN or infinity; the network is of no use")
            found[key] = weight
    return found
