"""The identity of a model: a hash of its weights, the versions of the packages that run it."""

import hashlib
from importlib.metadata import version

from torch import Tensor, nn


def weights_hash(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers by name, whatever file they came from."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def _bytes(value: Tensor) -> bytes:
    from torch import uint8

    flat = value.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(uint8).numpy().data)


def versions(*distributions: str) -> dict[str, str]:
    """Return the versions of installed packages."""
    return {name: version(name) for name in distributions}
