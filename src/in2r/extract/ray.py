"""The work of `in2r features` on images as a class for Ray Data: batches of images → the same features and verdicts."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.verdicts import MISSING, Verdict
from in2r.device import resolve_device
from in2r.encoders.regions import Regions
from in2r.encoders.registry import open_encoder
from in2r.errors import InputError
from in2r.extract.images import Prepared, encode_prepared, prepare_image
from in2r.raw.image import MAX_PIXELS, pixel_limit, require_pillow
from in2r.raw.places import BytesPlace, FilePlace, Item

ADDED = ("features", "verdict", "detail")
"""columns of the result"""


class EncodeImages:
    """Encodes batches of images, as a class for `ray.data.Dataset.map_batches`, of which each worker makes one.

    The values are those of `in2r features`, up to what an encoder rounds otherwise in another batch.

    Args:
        encoder: `KIND:NAME`, as `--encoder`.
        column: the column that holds the images: a file's bytes, or its path, as each worker sees it.
        regions: see `in2r.encoders.regions.to_regions`.
        workers: threads of each worker that decode.
        device: auto, cpu, cuda, mps.
        max_pixels: images of more pixels are refused.

    Raises:
        InputError: the encoder cannot be loaded, or fails on a plain grey image.
    """

    def __init__(
        self,
        encoder: str,
        column: str = "bytes",
        regions: Regions = 3,
        workers: int = 4,
        device: str = "auto",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        require_pillow()
        from PIL import Image

        self._encoder = open_encoder(encoder, resolve_device(device))
        self._column, self._regions, self._pixels = column, regions, max_pixels
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="in2r-image")
        grey = Prepared(Verdict("a grey image", ""), self._encoder.prepare(Image.new("RGB", (256, 256), "grey")))
        encoded = encode_prepared([grey], self._encoder, regions)
        assert encoded is not None  # else it was refused
        self._like = encoded[0]

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the batch with three columns more.

        Args:
            batch: columns of n values each; of one pass of the encoder.

        Returns:
            The columns of the batch; `features`, (n, regions, d) or (n, d) of one region, float16, NaN where an image
            could not be read; `verdict` and `detail`, as in image_verdicts.csv.

        Raises:
            InputError: no such column; the batch has one of the new names; the encoder returns what is no feature.
        """
        taken = [name for name in ADDED if name in batch]
        if self._column not in batch or taken:
            wrong = f"{taken[0]!r} would be replaced" if taken else f"no column {self._column!r}"
            raise InputError(f"{wrong}; the batch has {', '.join(map(repr, batch))}")
        items = [_item(row, value) for row, value in enumerate(batch[self._column])]
        with pixel_limit(self._pixels):
            some = list(self._threads.map(self._prepared, items))
        found = np.array([one.values is not None for one in some], dtype=bool)
        features = np.full((len(some), *self._like.shape[1:]), np.nan, self._like.dtype)
        if found.any():
            encoded = encode_prepared(some, self._encoder, self._regions)
            assert encoded is not None  # one can be read
            features[found] = encoded[0]
        verdicts = [np.array([getattr(one.verdict, name) for one in some], object) for name in ADDED[1:]]
        return {**batch, "features": features, "verdict": verdicts[0], "detail": verdicts[1]}

    def _prepared(self, item: Item) -> Prepared:
        return prepare_image(item, self._encoder, self._pixels)


def _item(row: int, value: Any) -> Item:
    """Return an image of a batch by what its column holds."""
    name = f"row {row} of the batch"
    if isinstance(value, bytes):
        return Item(name, BytesPlace(value, name))
    if isinstance(value, str):
        return Item(value, FilePlace(value))
    return Item(
        name, None, Verdict(name, MISSING, f"{type(value).__name__} is neither the bytes of a file nor its path")
    )
