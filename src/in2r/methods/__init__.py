"""The methods, by name: each is one file."""

from typing import Any

from in2r.methods.base import ENDLESS, Batch, Method, Peer, Step
from in2r.methods.in2r import In2r, In2rConfig
from in2r.methods.plain import Sce, SceConfig, Triplet, TripletConfig

MethodConfig = In2rConfig | TripletConfig | SceConfig

METHODS: dict[str, tuple[Any, Any]] = {
    "in2r": (In2rConfig, In2r),
    "triplet": (TripletConfig, Triplet),
    "sce": (SceConfig, Sce),
}
"""name → (its configuration dataclass, its class)"""


def build_method(config: MethodConfig, pairs: int) -> Method:
    """Make the method for a training set of `pairs` pairs."""
    method: Method = METHODS[config.name][1](config, pairs)
    return method


__all__ = ["ENDLESS", "METHODS", "Batch", "Method", "MethodConfig", "Peer", "Step", "build_method"]
