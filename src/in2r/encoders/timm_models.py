"""Vision models of the package `timm`, with the preprocessing that they were trained with."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.encoders.base import Encoded
from in2r.encoders.weights import versions, weights_hash
from in2r.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


def load(name: str, device: torch.device) -> "TimmEncoder":
    """Load a pretrained model by its name.

    Raises:
        InputError: the package is absent, or it cannot load the model.
    """
    try:
        import timm
        import timm.data
    except ImportError:
        raise InputError('timm:... needs timm: pip install "in2r[timm]"') from None
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0).eval().to(device)
    except Exception as error:  # of names, files, the network: the package raises what it met
        raise InputError(f"timm:{name}: cannot be loaded ({' '.join(str(error).split())[:300]})") from error
    settings = timm.data.resolve_model_data_config(model)
    return TimmEncoder(name, model, settings, timm.data.create_transform(**settings, is_training=False), device)


class TimmEncoder:
    """The model's pooled vector, and its last map as the grid."""

    def __init__(self, name: str, model: Any, settings: dict[str, Any], transform: Any, device: torch.device) -> None:
        self._name, self._model, self._settings = name, model, settings
        self._transform, self._device = transform, device

    @cached_property
    def record(self) -> dict[str, Any]:
        """See `ImageEncoder`."""
        kept = {key: list(value) if isinstance(value, tuple) else value for key, value in self._settings.items()}
        return {
            "kind": "timm",
            "name": self._name,
            "weights_sha256": weights_hash(self._model),
            "preprocessing": kept,
            "versions": versions("timm", "torchvision", "torch", "pillow"),
        }

    def prepare(self, image: "Image") -> NDArray[Any]:
        """See `ImageEncoder`."""
        pixels: NDArray[Any] = self._transform(image).numpy()
        return pixels

    @torch.inference_mode()
    def encode(self, batch: NDArray[Any]) -> Encoded:
        """See `ImageEncoder`."""
        states = self._model.forward_features(torch.from_numpy(batch).to(self._device))
        return Encoded(whole=self._model.forward_head(states, pre_logits=True), grid=self._grid(states))

    def _grid(self, states: Tensor) -> Tensor | None:
        """Return (n, height, width, d) of a map in either order, or of tokens; None where they are no square."""
        if states.dim() == 4:
            last = states.shape[-1] == self._model.num_features and states.shape[1] != states.shape[-1]
            return states if last else states.permute(0, 2, 3, 1)
        if states.dim() != 3:
            return None
        places = states[:, getattr(self._model, "num_prefix_tokens", 0) :]
        side = round(places.shape[1] ** 0.5)
        return places.reshape(len(places), side, side, -1) if side * side == places.shape[1] else None
