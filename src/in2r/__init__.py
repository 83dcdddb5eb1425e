"""IN²R: image-text retrieval trained on pairs of which many are mismatched, and a list of those."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.models.folder import load

__version__ = "0.1.0"
__all__ = ["InputError", "__version__", "load"]

_PACKAGES = ("evidence", "layers", "losses", "memory", "metrics", "partition")


def __getattr__(name: str) -> Any:
    """Import `load` and the public packages at their first use, so that `import in2r` stays light."""
    if name == "load":
        return import_module("in2r.models.folder").load
    if name in _PACKAGES:
        return import_module(f"in2r.{name}")
    raise AttributeError(f"module 'in2r' has no attribute {name!r}")
