"""What backbones that compare regions with words share: their encoders, and the cross attention of SCAN and SGRAF."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from in2r.errors import InputError
from in2r.layers.mlp import unit_norm
from in2r.layers.pooling import LOWEST
from in2r.models.base import Backbone, Items
from in2r.models.parts import RegionParts, WordParts

SLOPE = 0.1
"""Of the leaky ReLU on cosines of regions and words (SCAN, SGRAF)."""


class Interaction(Backbone):
    """Backbone that compares regions with words; a subclass says how (`logits`, `pair_bytes`, relations).

    Args:
        image: encodes regions.
        text: encodes words.
        smoothing: λ of the cross attention.

    Raises:
        InputError: the two encoders have different dimensions.
    """

    interacts = True

    def __init__(self, image: RegionParts, text: WordParts, smoothing: float) -> None:
        super().__init__()
        if image.dim != text.dim:
            raise InputError(f"encoders: regions have {image.dim} dimensions, words {text.dim}")
        self.dim = image.dim
        self.smoothing = smoothing
        self.image = image
        self.text = text

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode a batch of images to regions and global vectors; arguments as in `Backbone`."""
        with self.lowered(values):
            items: Items = self.image(values, mask, batches)
        return items

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: Sequence[int] | None = None) -> Items:
        """Encode a batch of word ids to words and global vectors; arguments as in `Backbone`."""
        with self.lowered(values):
            items: Items = self.text(values, mask, batches)
        return items

    def attention(self, cosines: Tensor, contexts: Items, queries: Items) -> Tensor:
        """Return what each part of a query gives to the parts of a context: softmax_r(λ â_rk).

        â_r is the unit vector, over the parts k of one query, of leaky(x_r · y_k).

        Args:
            cosines: (n, R, m K), x_r · y_k of R parts of each of n contexts and K parts of each of m queries.
            contexts: n items.
            queries: m items.

        Returns:
            (n, R, m K); the sum over R is 1. A padded part of a context has 0, those of a padded part of a query mean
            nothing.
        """
        assert queries.parts is not None
        leaky = functional.leaky_relu(cosines, SLOPE).view(*cosines.shape[:2], *queries.parts.shape[:2])
        if queries.mask is not None:  # over the parts of a query is normalised: padding must not count
            leaky = leaky.masked_fill(~queries.mask, 0.0)
        scores = (self.smoothing * unit_norm(leaky)).flatten(2)
        if contexts.mask is not None:
            scores = scores.masked_fill(~contexts.mask[..., None], LOWEST)
        return scores.softmax(1)
