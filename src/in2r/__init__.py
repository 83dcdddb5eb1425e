"""IN²R: image-text retrieval trained on pairs of which many are mismatched, and a list of those."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.audit.auditor import Auditor
    from in2r.models.folder import load
    from in2r.search.index import Index

__version__ = "0.1.0"
__all__ = ["Auditor", "Index", "InputError", "__version__", "load"]

_HOMES = {"Auditor": "in2r.audit.auditor", "Index": "in2r.search.index", "load": "in2r.models.folder"}
_PACKAGES = ("evidence", "layers", "losses", "memory", "metrics", "partition")


def __getattr__(name: str) -> Any:
    """Import classes, functions and public packages at their first use, so that `import in2r` stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return import_module(f"in2r.{name}")
    raise AttributeError(f"module 'in2r' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what can be used."""
    return sorted([*__all__, *_PACKAGES])
