"""What an encoder is: prepared images → one vector and a map of vectors each, texts → one vector each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Encoded:
    """A batch of n images.

    Attributes:
        whole: (n, d), one vector per image, or None where the model has none.
        grid: (n, height, width, d), a vector per place in the image, or None where the model has none.
        regions: (n, regions, d), vectors that are no grid, taken as they are; then the others are None.
    """

    whole: Tensor | None = None
    grid: Tensor | None = None
    regions: Tensor | None = None


class ImageEncoder(Protocol):
    """Images → vectors."""

    @property
    def record(self) -> dict[str, Any]:
        """What decides its vectors: kind, name, weights_sha256, preprocessing; and versions."""
        ...

    def prepare(self, image: "Image") -> NDArray[Any]:
        """Return an RGB image as the model's input, one shape for all; called in several threads at once."""
        ...

    def encode(self, batch: NDArray[Any]) -> Encoded:
        """Encode prepared images (n, ...); without gradients."""
        ...


class TextEncoder(Protocol):
    """Texts → vectors."""

    @property
    def text_record(self) -> dict[str, Any]:
        """What decides its vectors: kind, name, weights_sha256, tokenizer, pooling; and versions."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return (n, d), a vector per text; without gradients."""
        ...


def has_text_side(encoder: object) -> bool:
    """Say whether an image encoder is a text encoder too."""
    return getattr(encoder, "text_record", None) is not None
