"""An encoder of a user's own: a function or a class in a Python file."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.encoders.base import Encoded
from in2r.encoders.weights import versions
from in2r.errors import METHOD_MODULE, InputError
from in2r.files import sha256_file

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 224
"""pixels: what a function without preprocessing of its own is given"""


def load(name: str, device: torch.device) -> Any:
    """Run `FILE.py` and return the encoder that `NAME` in it is.

    A function takes a list of texts if its first argument is called `texts`, else a uint8 array of images (n, 224, 224,
    3). A class is made with the device, or with nothing; it has `encode(batch)`, and `prepare(image)` where images are
    not to be resized to 224 x 224; `encode_texts(texts)` for captions; `identity`, a mapping of what decides its
    vectors beside the file, such as the hash of weights.

    Raises:
        InputError: no such file or name, or it cannot be run.
    """
    text, _, attribute = name.rpartition(":")
    path = Path(text).absolute()
    if not text.endswith(".py") or not attribute:
        raise InputError(f"python:{name}: expected python:FILE.py:NAME, NAME a function or a class in it")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    found = getattr(_run(path), attribute, None)
    if not callable(found):
        raise InputError(f"{path}: no function or class {attribute}")
    made = _make(found, device) if isinstance(found, type) else _Function(found)
    return OwnEncoder(name, path, made) if hasattr(made, "encode") else OwnTexts(name, path, made)


def _run(path: Path) -> Any:
    module_name = f"{METHOD_MODULE}encoder_{sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path}: cannot be run ({type(error).__name__}: {error})") from error
    return module


def _make(kind: Callable[..., Any], device: torch.device) -> Any:
    import inspect

    made = kind(device) if inspect.signature(kind).parameters else kind()
    if not hasattr(made, "encode") and not hasattr(made, "encode_texts"):
        raise InputError(f"{kind.__name__}: expected a method encode(batch), or encode_texts(texts)")
    return made


class _Function:
    """A function as an object with the one method that it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        first = next(iter(function.__code__.co_varnames), "")
        setattr(self, "encode_texts" if first == "texts" else "encode", function)


class OwnTexts:
    """Texts → what the user's own code makes of them."""

    def __init__(self, name: str, path: Path, made: Any) -> None:
        self._name, self._path, self._made = name, path, made

    @cached_property
    def record(self) -> dict[str, Any]:
        """See `ImageEncoder`; what the file imports is known by its `identity` alone."""
        return {
            "kind": "python",
            "name": self._name,
            "weights_sha256": sha256_file(self._path),
            "preprocessing": dict(getattr(self._made, "identity", {})),
            "versions": versions("torch", "pillow"),
        }

    @property
    def text_record(self) -> dict[str, Any] | None:
        """See `TextEncoder`; None where the code encodes no texts."""
        return {**self.record, "pooling": "its own"} if hasattr(self._made, "encode_texts") else None

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """See `TextEncoder`."""
        return _tensor(self._made.encode_texts(list(texts)), self._name)


class OwnEncoder(OwnTexts):
    """Images → what the user's own code makes of them: (n, d), (n, regions, d), or a grid (n, height, width, d)."""

    def prepare(self, image: "Image") -> NDArray[Any]:
        """See `ImageEncoder`."""
        if hasattr(self._made, "prepare"):
            return np.asarray(self._made.prepare(image))
        return np.asarray(image.resize((SIDE, SIDE)))

    @torch.inference_mode()
    def encode(self, batch: NDArray[Any]) -> Encoded:
        """See `ImageEncoder`."""
        found = _tensor(self._made.encode(batch), self._name)
        if found.dim() == 4:
            return Encoded(grid=found)
        if found.dim() == 3:
            return Encoded(regions=found)
        if found.dim() == 2:
            return Encoded(whole=found)
        raise InputError(
            f"python:{self._name}: returned shape {tuple(found.shape)}; expected (n, d), (n, regions, d) or "
            "(n, height, width, d)"
        )


def _tensor(values: Any, name: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"python:{name}: returned {type(values).__name__}, no array ({error})") from None
