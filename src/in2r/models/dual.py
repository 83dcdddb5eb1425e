"""The dual encoder: an image and a text encoder into one unit sphere, whose inner product is the similarity."""

from collections.abc import Sequence

from torch import Tensor, nn

from in2r.errors import InputError
from in2r.layers.mlp import Centering
from in2r.models.base import Backbone, Items


class DualEncoder(Backbone):
    """An image and a text encoder into one unit sphere.

    Args:
        image: Module (values, mask, batches) → (B, dim) unit norm, with an attribute `dim`.
        text: The same for texts.
        center: Centre the embeddings of each side (`Centering`).

    Raises:
        InputError: The two encoders have different dimensions.
    """

    def __init__(self, image: nn.Module, text: nn.Module, center: bool = False) -> None:
        super().__init__()
        if image.dim != text.dim:
            raise InputError(f"encoders: image embeddings have {image.dim} dimensions, text embeddings {text.dim}")
        self.dim = int(image.dim)  # type: ignore[arg-type]
        self.image = image
        self.text = text
        self.image_center = Centering(self.dim) if center else None
        self.text_center = Centering(self.dim) if center else None

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode a batch of images to unit-norm embeddings; arguments as in `Backbone`."""
        with self.lowered(values):
            embeddings: Tensor = self.image(values, mask, batches)
        return Items(embeddings if self.image_center is None else self.image_center(embeddings, batches))

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode a batch of texts, word ids or vectors, to unit-norm embeddings; arguments as in `Backbone`."""
        with self.lowered(values):
            embeddings: Tensor = self.text(values, mask, batches)
        return Items(embeddings if self.text_center is None else self.text_center(embeddings, batches))

    def logits(self, images: Items, texts: Items) -> Tensor:
        """Return the cosines (n, m)."""
        return images.vector @ texts.vector.T
