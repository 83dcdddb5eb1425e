"""Models of the package `transformers`: vision models, dual encoders such as CLIP and SigLIP, text models."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.encoders.base import Encoded
from in2r.encoders.weights import versions, weights_hash
from in2r.errors import InputError
from in2r.files import read_json

if TYPE_CHECKING:
    from PIL.Image import Image

PREFIXES = (0, 1, 2, 5)
"""how many tokens before those of the patches are looked for where the patch size is not known: class, distillation,
registers"""


def load(name: str, device: torch.device) -> Any:
    """Load a model by its name on the hub or its folder; what it encodes is read from its parts.

    Raises:
        InputError: the package is absent, or it cannot load the model.
    """
    try:
        import transformers
    except ImportError:
        raise InputError('transformers:... needs transformers: pip install "in2r[transformers]"') from None
    transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModel.from_pretrained(name, dtype=torch.float32).eval().to(device)
    except Exception as error:  # of configurations, files, the network: the package raises what it met
        raise InputError(f"transformers:{name}: cannot be loaded ({_reason(error)})") from error
    config = model.config
    if hasattr(config, "vision_config") and hasattr(model, "get_image_features"):
        return DualEncoder(name, model, _processor(name), _tokenizer(name), device)
    if model.main_input_name == "pixel_values":
        return VisionEncoder(name, model, _processor(name), device)
    return SentenceEncoder(name, model, _tokenizer(name), device)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _processor(name: str) -> Any:
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(name, backend="pil")
    except Exception as error:
        raise InputError(f"transformers:{name}: no image preprocessing ({_reason(error)})") from error


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise InputError(f"transformers:{name}: no tokenizer ({_reason(error)})") from error


class VisionEncoder:
    """A vision model: its last hidden state is the grid; it has no vector of its own that is always trained."""

    def __init__(self, name: str, model: Any, processor: Any, device: torch.device) -> None:
        self._name, self._model, self._processor, self._device = name, model, processor, device

    @cached_property
    def record(self) -> dict[str, Any]:
        """See `ImageEncoder`."""
        return {
            "kind": "transformers",
            "name": self._name,
            "model": type(self._model).__name__,
            "weights_sha256": weights_hash(self._model),
            "preprocessing": _settings(self._processor),
            "versions": versions("transformers", "torch", "pillow"),
        }

    def prepare(self, image: "Image") -> NDArray[Any]:
        """See `ImageEncoder`."""
        pixels: NDArray[Any] = self._processor(images=image, return_tensors="np")["pixel_values"][0]
        return pixels

    @torch.inference_mode()
    def encode(self, batch: NDArray[Any]) -> Encoded:
        """See `ImageEncoder`."""
        pixels = torch.from_numpy(batch).to(self._device)
        return Encoded(grid=self._grid(self._model(pixel_values=pixels).last_hidden_state, pixels))

    def _grid(self, states: Tensor, pixels: Tensor) -> Tensor:
        """Return (n, height, width, d) of a convolutional map (n, d, height, width) or of tokens (n, tokens, d)."""
        if states.dim() == 4:
            return states.permute(0, 2, 3, 1)
        height, width = self._places(states.shape[1], *pixels.shape[-2:])
        patches = states[:, states.shape[1] - height * width :]
        return patches.reshape(len(states), height, width, -1)

    def _places(self, tokens: int, height: int, width: int) -> tuple[int, int]:
        """Return rows and columns of the patches among the tokens."""
        config = getattr(self._model.config, "vision_config", self._model.config)
        patch = getattr(config, "patch_size", None)
        if isinstance(patch, int) and 0 <= tokens - (height // patch) * (width // patch) <= max(PREFIXES):
            return height // patch, width // patch
        side = next((math.isqrt(tokens - some) for some in PREFIXES if _is_square(tokens - some)), None)
        if side is None:
            raise InputError(f"transformers:{self._name}: {tokens} tokens are no grid of an image {height} x {width}")
        return side, side


class DualEncoder(VisionEncoder):
    """A model such as CLIP or SigLIP: image and text vectors of one space."""

    def __init__(self, name: str, model: Any, processor: Any, tokenizer: Any, device: torch.device) -> None:
        super().__init__(name, model, processor, device)
        self._tokenizer = tokenizer

    @cached_property
    def text_record(self) -> dict[str, Any]:
        """See `TextEncoder`."""
        return {
            **{key: self.record[key] for key in ("kind", "name", "model", "weights_sha256", "versions")},
            "tokenizer": _tokenizer_settings(self._tokenizer, self._longest),
            "pooling": "the model's vector",
        }

    @torch.inference_mode()
    def encode(self, batch: NDArray[Any]) -> Encoded:
        """See `ImageEncoder`; a CLIP projects its patches too, so that all vectors are of the joint space."""
        pixels = torch.from_numpy(batch).to(self._device)
        found = self._model.get_image_features(pixel_values=pixels)
        states, vision = found.last_hidden_state, self._model.vision_model
        if hasattr(self._model, "visual_projection") and hasattr(vision, "post_layernorm"):
            states = self._model.visual_projection(vision.post_layernorm(states))
        return Encoded(whole=found.pooler_output, grid=self._grid(states, pixels))

    @property
    def _longest(self) -> int:
        return int(self._model.config.text_config.max_position_embeddings)

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """See `TextEncoder`; a text is cut where the model ends, and padded to there, as these models were trained."""
        tokens = self._tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=self._longest, return_tensors="pt"
        )
        wanted = {name: value.to(self._device) for name, value in tokens.items() if name != "token_type_ids"}
        vectors: Tensor = self._model.get_text_features(**wanted).pooler_output
        return vectors


class SentenceEncoder:
    """A text model: the mean of its tokens' states, of unit norm, or the first state where its folder says so."""

    def __init__(self, name: str, model: Any, tokenizer: Any, device: torch.device) -> None:
        self._name, self._model, self._tokenizer, self._device = name, model, tokenizer, device
        self._first, self._longest = _sentence_settings(Path(name), model, tokenizer)

    @cached_property
    def text_record(self) -> dict[str, Any]:
        """See `TextEncoder`."""
        return {
            "kind": "transformers",
            "name": self._name,
            "model": type(self._model).__name__,
            "weights_sha256": weights_hash(self._model),
            "tokenizer": _tokenizer_settings(self._tokenizer, self._longest),
            "pooling": f"{'first token' if self._first else 'mean'}, unit norm",
            "versions": versions("transformers", "torch"),
        }

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """See `TextEncoder`."""
        tokens = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
        ).to(self._device)
        states: Tensor = self._model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].to(states.dtype)
        pooled = states[:, 0] if self._first else (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(pooled, dim=1)


def _sentence_settings(folder: Path, model: Any, tokenizer: Any) -> tuple[bool, int]:
    """Return whether the first token stands for the text, and the longest text; a sentence-transformers folder says."""
    longest = min(int(tokenizer.model_max_length), int(getattr(model.config, "max_position_embeddings", 512)))
    pooling, module = folder / "1_Pooling" / "config.json", folder / "sentence_bert_config.json"
    first = pooling.is_file() and bool(read_json(pooling).get("pooling_mode_cls_token"))
    if module.is_file():
        longest = min(longest, int(read_json(module).get("max_seq_length") or longest))
    return first, longest


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number


def _settings(processor: Any) -> dict[str, Any]:
    """Return what a processor does with an image, without what only names it."""
    names = ("size", "crop_size", "image_mean", "image_std", "resample", "rescale_factor", "crop_pct")
    values = processor.to_dict()
    kept = {name: values[name] for name in values if name in names or name.startswith("do_")}
    return {name: _plain(value) for name, value in sorted(kept.items()) if value is not None}


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back."""
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return dict(value) if hasattr(value, "items") else value


def _tokenizer_settings(tokenizer: Any, longest: int) -> dict[str, Any]:
    from hashlib import sha256

    words = "\n".join(f"{word}\t{number}" for word, number in sorted(tokenizer.get_vocab().items()))
    hashed = sha256(words.encode("utf-8", "replace")).hexdigest()
    return {"class": type(tokenizer).__name__, "vocabulary_sha256": hashed, "longest": longest}
