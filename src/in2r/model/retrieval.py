"""The use of a model: images and captions in, unit-norm vectors out."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.build import Inputs
from in2r.data.features import UNUSABLE, Features, require_whole, unusable
from in2r.data.vocabulary import PackedTokens, Vocabulary
from in2r.encode import encode_images, encode_texts, side_by_side
from in2r.encoders import DualEncoder
from in2r.errors import InputError

log = logging.getLogger(__name__)

BLOCK = 4096
"""Items between input and result in memory at a time."""

Vectors = NDArray[np.float32]


class RetrievalModel:
    """Images and captions as unit-norm vectors whose inner product is their similarity; made by `load`.

    With both networks a vector is the two embeddings side by side, over √2, so that an inner product is the
    mean of the two networks' similarities.

    Attributes:
        info: the content of config.json: sizes, inputs, data, noise, method, results.
        device: where it computes.
    """

    def __init__(
        self,
        encoders: Mapping[str, DualEncoder],
        inputs: Inputs,
        vocabulary: Vocabulary | None,
        device: torch.device,
        info: dict[str, Any],
    ) -> None:
        self._encoders = [encoder.to(device).eval() for encoder in encoders.values()]
        self._inputs, self._vocabulary = inputs, vocabulary
        self.device, self.info = device, info

    def __repr__(self) -> str:
        """Say what goes in and what comes out."""
        inputs, networks = self._inputs, len(self._encoders)
        texts = f"{inputs.text_dim} words" if inputs.text == "words" else f"caption vectors of {inputs.text_dim}"
        said = f"{networks} network{'s' * (networks > 1)}, images of {inputs.image_dim}, {texts}"
        return f"RetrievalModel({said} -> vectors of {self.dim}, on {self.device})"

    @property
    def dim(self) -> int:
        """Length of a vector: D of one network, 2 D of the ensemble."""
        return sum(encoder.dim for encoder in self._encoders)

    def encode_images(self, features: Any, lengths: Any = None, *, out: Vectors | None = None) -> Vectors:
        """Return the vectors (N, dim) float32 of images; each is the same in any batch and order.

        Args:
            features: array or tensor (N, regions, d), or (N, d) for one vector per image; a memory-mapped
                array is read block by block.
            lengths: (N,) integers in 1..regions, how many of an image's regions are real; None = all.
            out: an array (N, dim) to write to.

        Raises:
            InputError: no image, another d than the model's, unusable values, lengths out of range.
        """
        array = _numbers(features, "images")
        if array.ndim == 2:
            array = array[:, None, :]
        expected = f"(N, regions, {self._inputs.image_dim}) or (N, {self._inputs.image_dim})"
        _require_shape("images", features, array, 3, self._inputs.image_dim, expected)
        counts = None if lengths is None else _lengths(lengths, *array.shape[:2])

        def encode(encoder: DualEncoder, block: slice) -> Tensor:
            values = _finite(array[block], block.start, "images")
            return encode_images(encoder, _items(values, None if counts is None else counts[block]), self.device)

        return self._encode(len(array), encode, "images", out)

    def encode_captions(self, captions: Any, *, out: Vectors | None = None) -> Vectors:
        """Return the vectors (N, dim) float32 of captions; each is the same in any batch and order.

        Args:
            captions: a list of N texts or, where the model was trained on caption vectors, an array or tensor
                (N, d).
            out: an array (N, dim) to write to.

        Raises:
            InputError: no caption, text where vectors are expected or the reverse, another d, NaN, infinity.
        """
        if self._vocabulary is not None:
            tokens = self._tokens(captions, self._vocabulary)

            def encode_words(encoder: DualEncoder, block: slice) -> Tensor:
                items = torch.arange(block.start, block.stop)
                return encode_texts(encoder, tokens, self.device, items)

            return self._encode(len(tokens), encode_words, "captions", out)
        dim = self._inputs.text_dim
        wanted = f"caption vectors (N, {dim}): this model was not trained on text"
        array = _numbers(captions, "captions", wanted)
        _require_shape("captions", captions, array, 2, dim, wanted)

        def encode(encoder: DualEncoder, block: slice) -> Tensor:
            values = _finite(array[block], block.start, "captions")
            return encode_texts(encoder, _items(values[:, None, :]), self.device)

        return self._encode(len(array), encode, "captions", out)

    def _tokens(self, captions: Any, vocabulary: Vocabulary) -> PackedTokens:
        if isinstance(captions, str):
            raise InputError("captions: one text; expected a list of texts, such as [text]")
        try:
            texts = list(captions)
        except TypeError:
            raise InputError(f"captions: found {type(captions).__name__}; expected a list of texts") from None
        if not texts:
            raise InputError("captions: an empty list; expected at least one text")
        wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            found = type(texts[wrong]).__name__
            raise InputError(f"captions: item {wrong} is {found}; expected text: this model reads words")
        tokens = vocabulary.encode(texts)
        empty = np.flatnonzero(np.diff(tokens.offsets) == 2)  # <start> and <end> only
        if len(empty):
            log.warning("captions: %d of %d hold no word, the first is item %d", len(empty), len(texts), empty[0])
        return tokens

    def _encode(
        self, count: int, encode: Callable[[DualEncoder, slice], Tensor], what: str, out: Vectors | None
    ) -> Vectors:
        result = np.empty((count, self.dim), np.float32) if out is None else out
        if not isinstance(result, np.ndarray) or not result.flags.writeable:
            raise InputError(f"`out`: expected an array that can be written to, found {type(result).__name__}")
        if result.shape != (count, self.dim) or result.dtype.kind != "f":
            found = f"shape {result.shape}, dtype {result.dtype}"
            raise InputError(f"`out`: {found}; expected {(count, self.dim)}, float32")
        for start in range(0, count, BLOCK):
            block = slice(start, min(start + BLOCK, count))
            parts = [encode(encoder, block) for encoder in self._encoders]
            vectors = side_by_side(parts).cpu().numpy()
            bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
            if len(bad):
                raise InputError(f"{what}: row {start + bad[0]} (counted from 0) has no finite embedding")
            result[block] = vectors
        return result


def _numbers(values: Any, what: str, wanted: str = "numbers") -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype is torch.bfloat16 else values).numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{what}: rows of different lengths; expected {wanted}") from None
    if array.dtype.kind not in "fiu":
        found = "text" if array.dtype.kind in "US" else f"dtype {array.dtype}"
        raise InputError(f"{what}: found {found}; expected {wanted}")
    return array


def _require_shape(what: str, given: Any, array: NDArray[Any], ndim: int, dim: int, expected: str) -> None:
    shape = tuple(np.shape(given))
    if array.ndim != ndim or array.shape[-1] != dim:
        raise InputError(f"{what}: shape {shape}; expected {expected}")
    if 0 in array.shape:
        raise InputError(f"{what}: shape {shape}, nothing to encode; expected at least one row")


def _lengths(lengths: Any, count: int, regions: int) -> NDArray[np.int64]:
    array = _numbers(lengths, "lengths")
    if array.shape != (count,) or array.dtype.kind == "f":
        raise InputError(f"lengths: shape {array.shape}, dtype {array.dtype}; expected ({count},) integers")
    wrong = np.flatnonzero((array < 1) | (array > regions))
    if len(wrong):
        raise InputError(f"lengths: item {wrong[0]} is {array[wrong[0]]}; expected 1 to {regions}")
    return array.astype(np.int64)


def _finite(block: NDArray[Any], start: int, what: str) -> NDArray[Any]:
    """Return the block as float16 or float32, checked."""
    require_whole(block)
    if block.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):  # becomes an infinity, which is refused
            block = block.astype(np.float32)
    bad = np.flatnonzero(unusable(block))
    if len(bad):
        raise InputError(f"{what}: row {start + bad[0]} (counted from 0) holds {UNUSABLE}; mend or remove it")
    return block


def _items(values: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Features:
    return Features(values, np.arange(len(values), dtype=np.int64), lengths)
