"""Queries: texts, image files or vectors → vectors of the index's space, by the encoders that made its data."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from in2r.data.encoder_record import FILE, label, other_encoders
from in2r.encoders.base import ImageEncoder, TextEncoder
from in2r.encoders.regions import Regions
from in2r.encoders.registry import open_encoder, open_text_encoder
from in2r.errors import InputError
from in2r.extract.growing import DTYPE
from in2r.extract.images import encode_prepared, prepare_image
from in2r.models.retrieval import RetrievalModel
from in2r.raw.image import MAX_PIXELS, pixel_limit, require_pillow
from in2r.raw.places import BytesPlace, FilePlace, Item
from in2r.search.store import IndexConfig

log = logging.getLogger(__name__)

NORM_TOLERANCE = 1e-2
"""A vector of float16 is of unit norm up to 1e-3; features of an encoder, taken for vectors, are far from it."""


@dataclass(frozen=True)
class Queries:
    """n queries.

    Attributes:
        vectors: (n, D) float32, of unit norm.
        texts: (n,), where they are texts and the model reads words.
        features: (n, regions, d) or (n, d), where they are images.
    """

    vectors: NDArray[np.float32]
    texts: Sequence[str] | None = None
    features: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.vectors)


class Encoders:
    """What encodes queries before the model does; each is opened at its first use and kept.

    Args:
        name: `KIND:NAME`, where an encoder is now; None: where encoder.json says.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self._image: ImageEncoder | None = None
        self._text: TextEncoder | None = None

    def image(self, record: Mapping[str, Any], device: torch.device) -> ImageEncoder:
        """Return the encoder of images; open it by `record` where the user names none."""
        if self._image is None:
            self._image = open_encoder(self.name or _recorded(record), device)
        return self._image

    def text(self, record: Mapping[str, Any] | None, device: torch.device) -> TextEncoder:
        """Return the encoder of texts; open it by `record` where the user names none."""
        if self._text is None:
            self._text = open_text_encoder(self.name or _recorded(record or {}), device)
        return self._text


def vector_queries(values: Any, config: IndexConfig) -> Queries:
    """Take vectors as `RetrievalModel.encode_images` or `in2r encode` makes them.

    Args:
        values: (n, D), or (D,) for one.
        config: the index.

    Raises:
        InputError: another length, or not of unit norm.
    """
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or array.shape[-1] != config.dim or 0 in array.shape:
        raise InputError(f"query vectors: {array.dtype} {array.shape}; expected (n, {config.dim}), float")
    array = np.atleast_2d(array).astype(np.float32)
    norms = np.linalg.norm(array, axis=1)
    wrong = np.flatnonzero(~(np.abs(norms - 1) < NORM_TOLERANCE))
    if len(wrong):
        raise InputError(
            f"query vectors: row {wrong[0]} (from 0) has the norm {norms[wrong[0]]:.3g}; expected vectors of norm 1, "
            "as `in2r encode` makes them of features"
        )
    return Queries(array)


def text_queries(texts: Sequence[str], model: RetrievalModel, config: IndexConfig, encoders: Encoders) -> Queries:
    """Encode texts; by the text encoder that made the caption vectors, where the model was trained on such.

    Args:
        texts: n of them, n at least 1.
        model: the index's.
        config: the index.
        encoders: of them the text encoder is used.

    Raises:
        InputError: an empty text; no text encoder is known, or it is not the one that made the caption vectors.
    """
    empty = next((number for number, text in enumerate(texts, start=1) if not text.strip()), None)
    if empty is not None:
        raise InputError(f"query {empty} is empty; expected a text")
    if model.reads == "words":
        return Queries(model.encode_captions(texts, coarse=model.interacts), list(texts))
    record = _text_record(config, encoders.name)
    try:
        made = encoders.text(record, model.device)
    except InputError as error:
        raise _unopened("text", "the caption vectors", record, error) from None
    vectors = made.encode_texts(list(texts)).float().cpu().numpy().astype(DTYPE)
    _require_same("text", record, {**made.text_record, "dim": vectors.shape[1]})
    return Queries(model.encode_captions(vectors))


def image_queries(
    images: Sequence[Path | bytes], model: RetrievalModel, config: IndexConfig, encoders: Encoders
) -> Queries:
    """Encode images by the image encoder that made the features.

    Args:
        images: n files, or what such files hold; n at least 1.
        model: the index's.
        config: the index.
        encoders: of them the image encoder is used.

    Raises:
        InputError: one is no image that can be read; no image encoder is known, or it is another one.
    """
    require_pillow()
    record = _image_record(config)
    try:
        made = encoders.image(record, model.device)
    except InputError as error:
        raise _unopened("image", "the image features", record, error) from None
    with pixel_limit(MAX_PIXELS):
        prepared = [prepare_image(_item(image), made, MAX_PIXELS) for image in images]
    for one in prepared:
        if one.values is None:
            detail = f" ({one.verdict.detail})" if one.verdict.detail else ""
            raise InputError(f"{one.verdict.image}: {one.verdict.verdict}{detail}; expected an image")
    encoded = encode_prepared(prepared, made, _regions(record))
    assert encoded is not None  # every image was read
    features, pooled = encoded
    _require_same("image", record, {**made.record, "regions": pooled, "dim": features.shape[-1]})
    if features.ndim == 2:
        features = features[:, None]
    return Queries(model.encode_images(features, coarse=model.interacts), features=features)


def _item(image: Path | bytes) -> Item:
    if isinstance(image, bytes):
        return Item("the image", BytesPlace(image, "the image"))
    return Item(str(image), FilePlace(str(image)))


def _text_record(config: IndexConfig, encoder: str | None) -> Mapping[str, Any] | None:
    """Return what is known of the text encoder; None where nothing is, and the user names one."""
    record: Any = config.encoder.get("text")
    if record is None:
        if encoder is None:
            raise InputError(
                f"nothing says which text encoder made the caption vectors of the model's training ({FILE} was not "
                "there); name it with --encoder KIND:NAME, or search with vectors"
            )
        log.warning("nothing says that %s made the caption vectors of the model's training (no %s)", encoder, FILE)
    found: Mapping[str, Any] | None = record
    return found


def _image_record(config: IndexConfig) -> Mapping[str, Any]:
    """Return what is known of the image encoder: its name does not say how the features were pooled."""
    record: Any = config.encoder.get("image")
    if record is None:
        raise InputError(
            f"nothing says which image encoder made the features, and how ({FILE} was not there), so an image cannot "
            "be encoded as they were; make features by `in2r features`, or search with vectors"
        )
    found: Mapping[str, Any] = record
    return found


def _recorded(record: Mapping[str, Any]) -> str:
    """Return `KIND:NAME` of a record; refuse a program, which an index of someone else's may name."""
    if record.get("kind") == "python":
        raise InputError(f"it is a program, which would run with your rights; read {label(record)} first")
    return label(record)


def _unopened(side: str, what: str, record: Mapping[str, Any] | None, error: InputError) -> InputError:
    made = f" ({label(record)} made {what})" if record else ""
    return InputError(f"the {side} encoder{made} is not opened: {error}; name it with --encoder KIND:NAME")


def _require_same(side: str, record: Mapping[str, Any] | None, found: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(found, default=str))  # as encoder.json holds it
    changed = other_encoders({side: record}, {side: now}, (side,))
    if changed:
        raise InputError(f"not the encoder of the index: {changed[0]}")


def _regions(record: Mapping[str, Any]) -> Regions:
    """Return how images were pooled, by the words of `encoders.regions.describe`."""
    said = str(record.get("regions", ""))
    grid = re.search(r"(\d+) x \1 means", said)
    return int(grid[1]) if grid else None if "every place" in said else 0
