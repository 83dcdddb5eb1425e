"""The methods by name: those of the package, of installed packages, and of a user's own file."""

import importlib.util
import sys
from dataclasses import is_dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from in2r.errors import METHOD_MODULE, InputError, near
from in2r.files import expand_home
from in2r.methods.base import Method, MethodConfig, Walk
from in2r.methods.bicro import Bicro
from in2r.methods.contrast import LossConfig
from in2r.methods.corroborate import Corroborate
from in2r.methods.cream import Cream
from in2r.methods.decl import Decl
from in2r.methods.division import PartitionConfig
from in2r.methods.esc import Esc
from in2r.methods.gsc import Gsc, GscPlus
from in2r.methods.in2r import In2r
from in2r.methods.l2rm import L2rm
from in2r.methods.ncr import Ncr
from in2r.methods.pc2 import Pc2
from in2r.methods.pcsr import Pcsr
from in2r.methods.plain import Sce, Triplet
from in2r.methods.sps import Sps

METHODS: dict[str, type[Method]] = {
    "corroborate": Corroborate,
    "in2r": In2r,
    "triplet": Triplet,
    "sce": Sce,
    "ncr": Ncr,
    "l2rm": L2rm,
    "esc": Esc,
    "gsc": Gsc,
    "gscplus": GscPlus,
    "decl": Decl,
    "sps": Sps,
    "bicro": Bicro,
    "cream": Cream,
    "pcsr": Pcsr,
    "pc2": Pc2,
}
"""the package's own methods: the one place where they are registered"""

ENTRY_POINTS = "in2r.methods"
"""the group under which an installed package offers methods: name = "module:Class" """


def method_names() -> list[str]:
    """Return the names of all methods that are installed."""
    return [*METHODS, *sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)} - METHODS.keys())]


def find_method(name: str) -> type[Method]:
    """Return the class of a method.

    Args:
        name: a name of `method_names`, or "path/to/file.py:Class". The file is run.

    Raises:
        InputError: no such method, or no such file or class, or a class that is no method.
    """
    if name in METHODS:
        return METHODS[name]
    if ".py:" in name:
        path, _, attribute = name.rpartition(":")
        module = _module(_absolute(path))
        if not hasattr(module, attribute):
            raise InputError(f"{path}: no class {attribute}{near(attribute, list(vars(module)))}")
        return _checked(getattr(module, attribute), name)
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            where = f"{name} ({entry.value})"
            try:
                found = entry.load()
            except Exception as error:  # whatever a package does when it is imported: the others are not concerned
                raise InputError(f"method {where}: cannot be loaded ({_reason(error)})") from error
            return _checked(found, where)
    known = method_names()
    raise InputError(
        f"configuration: `method.name` must be one of {', '.join(known)}, or file.py:Class, got {name!r}"
        f"{near(name, known)}"
    )


def build_method(config: MethodConfig, partition: PartitionConfig, loss: LossConfig | None = None) -> Method:
    """Make the method that section `method` names; other arguments as of `Method`.

    Raises:
        InputError: no such method, or its `warmup` returns something else than epochs and a loss.
    """
    method = find_method(config.name)(config, partition, loss)
    found: Any = method.warmup()
    if not (isinstance(found, tuple) and len(found) == 2 and type(found[0]) is int and found[0] >= 0):
        raise InputError(
            f"method {config.name}: warmup() must return (epochs, loss), epochs a whole number from 0, got {found!r}"
        )
    if found[1] is not None and not is_dataclass(found[1]):
        raise InputError(f"method {config.name}: the loss of warmup() must be a dataclass, got {found[1]!r}")
    return method


def absolute_name(name: str) -> str:
    """Return a method's name, with the absolute path where it is a file's, so that it is found from any folder."""
    path, _, attribute = name.rpartition(":")
    return f"{_absolute(path)}:{attribute}" if ".py:" in name else name


def method_file(name: str) -> dict[str, str] | None:
    """Return path and SHA-256 of the file that a user's own method comes from; None for an installed method."""
    if ".py:" not in name:
        return None
    path = _absolute(name.rpartition(":")[0])
    return {"path": str(path), "sha256": sha256(path.read_bytes()).hexdigest()}


def _absolute(path: str) -> Path:
    return Path(expand_home(path)).absolute()


@cache
def _module(path: Path) -> ModuleType:
    """Run a file as a module of its own, once."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a method of your own as file.py:Class")
    name = f"{METHOD_MODULE}{sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{path}: cannot be run ({_reason(error)})") from error
    return module


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _checked(found: Any, name: str) -> type[Method]:
    if not isinstance(found, type) or not issubclass(found, Method):
        raise InputError(f"method {name}: expected a class derived from in2r.methods.Method, found {found!r}")
    config: Any = found.Config
    if not isinstance(config, type) or not issubclass(config, MethodConfig):
        raise InputError(f"method {name}: its `Config` must be derived from in2r.methods.MethodConfig")
    if "__dataclass_fields__" not in vars(config):
        raise InputError(f"method {name}: its `Config` must be a dataclass: write @dataclass(frozen=True) above it")
    if found.networks not in (1, 2):
        raise InputError(f"method {name}: `networks` must be 1 or 2, got {found.networks!r}")
    if not found.sets or not all(isinstance(walk, Walk) for walk in found.sets):
        raise InputError(f"method {name}: `sets` must hold one `Walk` or more, got {found.sets!r}")
    return found
