"""IN²R: image-text retrieval that survives mismatched pairs, and finds them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.models.folder import load

__version__ = "0.1.0"
__all__ = ["InputError", "__version__", "load"]

_ROOMS = ("layers", "losses", "memory", "metrics", "partition")


def __getattr__(name: str) -> Any:
    """Import `load` and the public rooms at their first use, so that `import in2r` stays light."""
    if name == "load":
        return import_module("in2r.models.folder").load
    if name in _ROOMS:
        return import_module(f"in2r.{name}")
    raise AttributeError(f"module 'in2r' has no attribute {name!r}")
