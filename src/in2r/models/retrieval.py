"""The use of a model: images and captions in, similarities or unit-norm vectors out."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.data.features import UNUSABLE, Features, require_whole, unusable
from in2r.data.text.vocabulary import PackedTokens, Vocabulary
from in2r.encoders.weights import weights_hash
from in2r.errors import InputError
from in2r.models.base import Backbone
from in2r.models.blocks import logit_blocks, mean_score
from in2r.models.build import Inputs
from in2r.models.encode import BATCH, encode_images, encode_texts, side_by_side

log = logging.getLogger(__name__)

BLOCK = 4096
"""Items between input and result in memory at a time."""

Vectors = NDArray[np.float32]


class RetrievalModel:
    """Similarities of images and captions, and their unit-norm vectors; made by `load`.

    Of a dual encoder (`interacts` False) the similarity is the inner product of the vectors. With both networks a
    vector is the two embeddings side by side, over √2, so that an inner product is the mean of the two networks'
    similarities. An interaction backbone (`interacts` True) compares words with regions; its vectors only approximate
    that.

    Attributes:
        networks: the backbones by name, in eval mode on the device.
        inputs: what they are fed with.
        vocabulary: the words, where captions are read as text; else None.
        interacts: whether only `score` gives the similarity.
        info: the content of config.json: sizes, inputs, data, noise, method, results.
        device: where it computes.
    """

    def __init__(
        self,
        encoders: Mapping[str, Backbone],
        inputs: Inputs,
        vocabulary: Vocabulary | None,
        device: torch.device,
        info: dict[str, Any],
    ) -> None:
        self.networks = {name: encoder.to(device).eval() for name, encoder in encoders.items()}
        self._encoders = list(self.networks.values())
        self.inputs, self.vocabulary = inputs, vocabulary
        self.interacts = self._encoders[0].interacts
        self.device, self.info = device, info

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        device: str = "auto",
        network: Literal["ensemble", "A", "B"] = "ensemble",
        *,
        revision: str | None = None,
    ) -> "RetrievalModel":
        """Load a folder or a model on a hub; the same as `in2r.load`."""
        from in2r.models.folder import load

        return load(name, device, network, revision=revision)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write the networks that are loaded as a model folder with its card; return the folder.

        Raises:
            InputError: something that is no model is there, or it cannot be written.
        """
        from in2r.models.sharing import save_copy

        return save_copy(self, folder)

    def push_to_hub(
        self, repo: str, *, private: bool = False, licence: str | None = None, test: Mapping[str, Any] | None = None
    ) -> str:
        """Send the networks that are loaded to a hub, with a model card; return the commit's address.

        Args:
            repo: owner/name; it is made if it is not there.
            private: nobody else may read it; where it is there and public, nothing is sent.
            licence: the identifier of the licence that it is given under, such as apache-2.0.
            test: the content of RUN/result_test.json of this model, for the card.

        Raises:
            InputError: huggingface_hub is not installed, the hub refuses, or `test` is of another epoch.
        """
        from in2r.models.sharing import push

        return push(self, repo, private=private, licence=licence, test=test)

    def __repr__(self) -> str:
        """Say what goes in and what comes out."""
        inputs, networks = self.inputs, len(self._encoders)
        texts = f"{inputs.text_dim} words" if inputs.text == "words" else f"caption vectors of {inputs.text_dim}"
        said = f"{networks} network{'s' * (networks > 1)}, images of {inputs.image_dim}, {texts}"
        return f"RetrievalModel({said} -> vectors of {self.dim}, on {self.device})"

    @property
    def dim(self) -> int:
        """Length of a vector: D of one network, 2 D of the ensemble."""
        return sum(encoder.dim for encoder in self._encoders)

    @property
    def reads(self) -> str:
        """What captions are given as: "words" (texts) or "vectors"."""
        return self.inputs.text

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of all that decides a vector: weights, settings, vocabulary; not of the place."""
        words = None if self.vocabulary is None else self.vocabulary.hash
        settings = {key: self.info.get(key) for key in ("model", "inputs")}
        decides = [[weights_hash(encoder) for encoder in self._encoders], settings, words]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def score(self, features: Any, captions: Any, lengths: Any = None) -> Vectors:
        """Return the similarities S (n, m) float32 of all images × captions, the mean of the networks'.

        They are exact for every backbone: in [-1, 1] for a dual encoder, in (0, 1) for sgr and saf; those of scan are
        pooled cosines. What is needed beside the result does not grow with n and m.

        Args:
            features: n images, as in `encode_images`.
            captions: m captions, as in `encode_captions`.
            lengths: as in `encode_images`.

        Raises:
            InputError: as in `encode_images` and `encode_captions`.
        """
        if not self.interacts:
            vectors: Vectors = self.encode_images(features, lengths) @ self.encode_captions(captions).T
            return vectors
        array, counts = self._checked_images(features, lengths)
        assert self.vocabulary is not None  # an interaction backbone reads words
        tokens = self._tokens(captions, self.vocabulary)
        result = np.empty((len(array), len(tokens)), np.float32)
        shortest_first = torch.from_numpy(np.argsort(np.diff(tokens.offsets), kind="stable"))
        for some in torch.split(shortest_first, BATCH):
            texts = [encode_texts(encoder, tokens, self.device, some) for encoder in self._encoders]
            for top in range(0, len(array), BATCH):
                block = _image_block(array, counts, slice(top, top + BATCH))
                images = [encode_images(encoder, block, self.device) for encoder in self._encoders]
                for rows, columns, logits in logit_blocks(self._encoders, images, texts):
                    place = np.ix_(np.arange(rows.start, rows.stop) + top, some[columns].numpy())
                    result[place] = mean_score(logits, self._encoders[0].bounded).cpu().numpy()
        return result

    def encode_images(
        self, features: Any, lengths: Any = None, *, out: Vectors | None = None, coarse: bool = False
    ) -> Vectors:
        """Return the vectors (N, dim) float32 of images; each is the same in any batch and order.

        Args:
            features: array or tensor (N, regions, d), or (N, d) for one vector per image, where the model was trained
                on such; one image is (1, regions, d). A memory-mapped array is read block by block.
            lengths: (N,) integers in 1..regions, how many of an image's regions are real; None = all.
            out: an array (N, dim) to write to.
            coarse: of an interaction backbone, return the global vectors; scan has none.

        Raises:
            InputError: no image, another d than the model's, (N, d) for a model that was trained on several regions,
                unusable values, lengths out of range; an interaction backbone without `coarse`.
        """
        self._require_vectors(coarse)
        array, counts = self._checked_images(features, lengths)

        def encode(encoder: Backbone, block: slice) -> Tensor:
            return encode_images(encoder, _image_block(array, counts, block), self.device).vector

        return self._encode(len(array), encode, "images", out)

    def _check_flat(self, count: int, dim: int) -> None:
        """Refuse (N, d) where the model was trained on several regions; say how it is read where that is not known."""
        trained = self.inputs.regions
        if trained == 1 or dim != self.inputs.image_dim:
            return
        ways = (
            f"one image of {count} regions is (1, {count}, {dim}), {count} images of one vector are ({count}, 1, {dim})"
        )
        if trained is not None:
            raise InputError(f"images: shape ({count}, {dim}), but the model was trained on {trained} regions: {ways}")
        log.warning("images: shape (%d, %d) is read as %d images of one vector; %s", count, dim, count, ways)

    def encode_captions(self, captions: Any, *, out: Vectors | None = None, coarse: bool = False) -> Vectors:
        """Return the vectors (N, dim) float32 of captions; each is the same in any batch and order.

        Args:
            captions: a list of N texts or, where the model was trained on caption vectors, an array or tensor
                (N, d). A warning says when many words of texts are not in the model's vocabulary.
            out: an array (N, dim) to write to.
            coarse: as in `encode_images`.

        Raises:
            InputError: no caption, text where vectors are expected or the reverse, another d, NaN, infinity; an
                interaction backbone without `coarse`.
        """
        self._require_vectors(coarse)
        if self.vocabulary is not None:
            tokens = self._tokens(captions, self.vocabulary)

            def encode_words(encoder: Backbone, block: slice) -> Tensor:
                items = torch.arange(block.start, block.stop)
                return encode_texts(encoder, tokens, self.device, items).vector

            return self._encode(len(tokens), encode_words, "captions", out)
        dim = self.inputs.text_dim
        wanted = f"caption vectors (N, {dim}): this model was not trained on text"
        array = _numbers(captions, "captions", wanted)
        _require_shape("captions", captions, array, 2, dim, wanted)

        def encode(encoder: Backbone, block: slice) -> Tensor:
            values = _finite(array[block], block.start, "captions")
            return encode_texts(encoder, _items(values[:, None, :]), self.device).vector

        return self._encode(len(array), encode, "captions", out)

    def _require_vectors(self, coarse: bool) -> None:
        if not self._encoders[0].embeds:
            raise InputError(
                "this model compares words with regions and has learnt no vector of an item; use "
                "score(images, captions)"
            )
        if self.interacts and not coarse:
            raise InputError(
                "this model compares words with regions: no vector of an item gives its similarities; use "
                "score(images, captions), or coarse=True for global vectors, whose inner products only approximate them"
            )

    def _checked_images(self, features: Any, lengths: Any) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        array = _numbers(features, "images")
        if array.ndim == 2:
            self._check_flat(*array.shape)
            array = array[:, None, :]
        _require_shape("images", features, array, 3, self.inputs.image_dim, self.inputs.image_shapes)
        return array, None if lengths is None else _lengths(lengths, *array.shape[:2])

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
        unknown = tokens.unknown_words("the model's vocabulary")
        if unknown:
            log.warning("captions: %s", unknown)
        if len(empty):
            log.warning("captions: %d of %d hold no word, the first is item %d", len(empty), len(texts), empty[0])
        return tokens

    def _encode(
        self, count: int, encode: Callable[[Backbone, slice], Tensor], what: str, out: Vectors | None
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
        raise InputError(f"{what}: row {start + bad[0]} (counted from 0) holds {UNUSABLE}; fix or remove it")
    return block


def _image_block(array: NDArray[Any], lengths: NDArray[np.int64] | None, block: slice) -> Features:
    """Return some of the images, checked."""
    return _items(_finite(array[block], block.start, "images"), None if lengths is None else lengths[block])


def _items(values: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Features:
    return Features(values, np.arange(len(values), dtype=np.int64), lengths)
