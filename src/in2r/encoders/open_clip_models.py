"""Dual encoders of the package `open_clip`, with their own preprocessing and tokenizer."""

from collections.abc import Sequence
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

HUB = "hf-hub:"


def load(name: str, device: torch.device) -> "OpenClipEncoder":
    """Load `NAME/PRETRAINED` (a tag of the package, or a file), or `hf-hub:REPOSITORY`.

    Raises:
        InputError: the package is absent, no PRETRAINED is named, or it cannot load the model.
    """
    try:
        import open_clip
    except ImportError:
        raise InputError('open_clip:... needs open_clip_torch: pip install "in2r[open-clip]"') from None
    model_name, _, pretrained = (name, "", "") if name.startswith(HUB) else name.partition("/")
    if not pretrained and not name.startswith(HUB):
        raise InputError(f"open_clip:{name}: expected NAME/PRETRAINED, such as ViT-B-32/laion2b_s34b_b79k")
    try:
        model, _, transform = open_clip.create_model_and_transforms(
            model_name, pretrained=pretrained or None, device=device
        )
        tokenizer = open_clip.get_tokenizer(model_name)
    except Exception as error:  # of names, files, the network: the package raises what it met
        raise InputError(f"open_clip:{name}: cannot be loaded ({' '.join(str(error).split())[:300]})") from error
    return OpenClipEncoder(name, model.eval(), transform, tokenizer, device)


class OpenClipEncoder:
    """Image and text vectors of one space; the last map of the image tower is the grid."""

    def __init__(self, name: str, model: Any, transform: Any, tokenizer: Any, device: torch.device) -> None:
        self._name, self._model, self._transform = name, model, transform
        self._tokenizer, self._device = tokenizer, device

    @cached_property
    def record(self) -> dict[str, Any]:
        """See `ImageEncoder`."""
        return {
            "kind": "open_clip",
            "name": self._name,
            "weights_sha256": weights_hash(self._model),
            "preprocessing": {
                "steps": [str(step) for step in self._transform.transforms if "function" not in str(step)]
            },
            "versions": versions("open_clip_torch", "torchvision", "torch", "pillow"),
        }

    @cached_property
    def text_record(self) -> dict[str, Any]:
        """See `TextEncoder`."""
        return {
            **{key: self.record[key] for key in ("kind", "name", "weights_sha256", "versions")},
            "tokenizer": {"class": type(self._tokenizer).__name__, "longest": self._tokenizer.context_length},
            "pooling": "the model's vector",
        }

    def prepare(self, image: "Image") -> NDArray[Any]:
        """See `ImageEncoder`."""
        pixels: NDArray[Any] = self._transform(image).numpy()
        return pixels

    @torch.inference_mode()
    def encode(self, batch: NDArray[Any]) -> Encoded:
        """See `ImageEncoder`."""
        found = self._model.forward_intermediates(
            image=torch.from_numpy(batch).to(self._device),
            image_indices=1,
            normalize=False,
            normalize_intermediates=True,
        )
        grid, project = found["image_intermediates"][-1].permute(0, 2, 3, 1), getattr(self._model.visual, "proj", None)
        if isinstance(project, Tensor) and len(project) == grid.shape[-1]:
            grid = grid @ project  # the joint space, as for the image's own vector
        return Encoded(whole=found["image_features"], grid=grid)

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """See `TextEncoder`."""
        vectors: Tensor = self._model.encode_text(self._tokenizer(list(texts)).to(self._device))
        return vectors
