"""What is the same run: the settings and data that decide what it learns, and the mark in its files."""

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy
import sklearn
import torch

import in2r
from in2r.config import deciding, to_dict
from in2r.errors import InputError
from in2r.methods import Method, warmup_of
from in2r.methods.registry import method_file
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig


def changed_settings(before: Mapping[str, Any], config: RunConfig) -> list[str]:
    """Say which settings that decide what is learnt have changed: "train.seed (0, now 1)".

    Args:
        before: the settings that the run started with, section by section.
        config: the settings now.
    """
    now, decisive = to_dict(config), deciding(config, "learning", "main phase")
    changed = []
    for section, values in before.items():
        for name, value in values.items():
            found = now.get(section, {}).get(name)
            if found != value and (f"{section}.{name}" in decisive or name not in now.get(section, {})):
                changed.append(f"{section}.{name} ({value}, now {found})")
    return changed


def mark(config: RunConfig, info: Mapping[str, Any]) -> str:
    """Return a hash of all that decides what a run learns: runs that agree in it learn the same.

    Args:
        config: its settings.
        info: what run.json says of its data, noise, words and method file.
    """
    decides = {
        "settings": deciding(config, "learning", "main phase"),
        "data": info["data"]["fingerprint"]["hash"],
        "noise": (info["noise"] or {}).get("sha256"),
        "vocabulary": (info["vocabulary"] or {}).get("hash"),
        "word_vectors": (info["word_vectors"] or {}).get("sha256"),
        "method_file": (info["method_file"] or {}).get("sha256"),
    }
    return sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def has_own_warmup(method: Method) -> bool:
    """Tell whether the warm-up's loss is not one of methods/warmup.py: then it may train more than the backbones."""
    return type(warmup_of(method)[1]).__module__ != "in2r.methods.warmup"


def warmup_identity(config: RunConfig, method: Method) -> dict[str, Any] | None:
    """Return what settings say of a warm-up: runs that agree in it, in data and machine share one; None without one.

    A warm-up with a loss of a method's own, or by its own steps, is shared by runs of the same method, file and
    settings alone.
    """
    epochs, loss = warmup_of(method)
    if not epochs:
        return None
    numbers = {} if loss is None else asdict(loss)  # type: ignore[call-overload]
    own = has_own_warmup(method)
    settings = deciding(config, "learning", "main phase") if own else deciding(config, "learning")
    del settings["train.precision"]  # `auto` and the name of what it comes to are the same: `computed_on` says which
    return {
        "loss": {"kind": type(loss).__name__, **numbers},
        "method_file": (method_file(config.method.name) or {}).get("sha256") if own else None,
        "networks": method.networks,
        "settings": settings,
    }


def belonging(folder: RunFolder) -> dict[str, Any]:
    """Return whose a checkpoint or best weights are: the run's mark, and the data that it started with."""
    info = folder.info()
    return {"run": info["mark"], "data": info["data"]["fingerprint"]["hash"]}


def require_own(folder: RunFolder, file: Path, meta: Mapping[str, Any]) -> None:
    """Refuse a checkpoint or best weights of another run.

    Args:
        folder: the run.
        file: what was read, for the message.
        meta: its metadata.
    """
    found, own = meta.get("run"), folder.info()["mark"]
    if found != own:
        raise InputError(
            f"{file}: of another run (mark {str(found)[:12]}, this one's is {own[:12]}); put this run's own file back"
        )


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "in2r": in2r.__version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scikit-learn": sklearn.__version__,
        "platform": platform.platform(),
        "cpu": f"{_cpu_name()}, {torch.backends.cpu.get_cpu_capability()}",
    }


def _cpu_name() -> str:
    """Return the processor's name: another one may round another way."""
    file = Path("/proc/cpuinfo")  # where it is absent, Python knows the architecture at least
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name") and ":" in line]
    return names[0] if names else platform.processor() or platform.machine()
