"""An audit that is kept: what is needed to judge further pairs by it, as one file of bounded size."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.audit.evidence import Vectors
from in2r.audit.settings import AuditConfig
from in2r.config import fill
from in2r.data.encoder_record import other_encoders
from in2r.data.text.tfidf import Tfidf
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.evidence import CleanModel, LinearMaps
from in2r.evidence.vectors import TINY
from in2r.tensors import load_tensors, save_tensors

FILE = "judge.safetensors"
FORMAT = {"format": "in2r-audit-judge", "format_version": 1}


@dataclass(frozen=True)
class Packed:
    """Vectors in half the memory.

    Attributes:
        half: (rows, width) float16, the vectors less `mean`, divided by `scale`.
        mean: (width,) float32.
        scale: () float32, their root mean square about the mean.
    """

    half: Tensor
    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Packed":
        """Pack vectors (rows, width)."""
        values = values.float()
        mean = values.mean(dim=0)
        scale = (values - mean).square().mean().sqrt().clamp(min=TINY)
        return cls(((values - mean) / scale).half(), mean, scale)

    def values(self) -> Tensor:
        """Return the vectors (rows, width) float32, to 3 digits."""
        return self.half.float() * self.scale + self.mean

    def like(self, values: Tensor) -> Tensor:
        """Return further vectors as they would stand in `half`, by which copies are known."""
        return ((values - self.mean) / self.scale).half()


@dataclass(frozen=True)
class Shown:
    """What can be shown of N pairs.

    Attributes:
        rows: (N,) int64, their rows in their table.
        images: (N,) names.
        captions: (N,) texts; empty where captions are vectors alone.
        files: image → its picture, where it is known.
    """

    rows: NDArray[np.int64]
    images: Sequence[str]
    captions: Sequence[str]
    files: Mapping[str, Path]


@dataclass(frozen=True)
class Kept:
    """An audit, as far as it judges further pairs: K of its pairs, which are asked, and what was fitted.

    Attributes:
        table: what its table is called.
        identity: `Audit.identity`.
        config: its settings.
        kinds: names of its kinds of evidence.
        encoder: the record of what made its features; None where nothing says.
        words: what makes vectors of captions; None where they have vectors of their own.
        shown: of the K pairs.
        images, texts: vectors of the K pairs' n images and of their captions.
        image_of_pair: (K,) int64 in [0, n).
        group_of_image: (n,) int64, equal for copies.
        fold_of_image: (n,) int64.
        references: (R,) int64, the pairs that are asked as neighbours; the others as other captions of their images.
        by_hand: how decisions by hand had moved the cut (`Audit.by_hand`); None where they had not.
        trust: (K,) float32 in [0, 1], the pairs' scores.
        maps: of each fold, and one fitted on all.
        model, apart, wrong, ways, moved_alone, separation: as `Judgement` has them.
    """

    table: str
    identity: str
    config: AuditConfig
    kinds: tuple[str, ...]
    encoder: Mapping[str, Any] | None
    by_hand: Mapping[str, Any] | None
    words: Tfidf | None
    shown: Shown
    images: Packed
    texts: Packed
    image_of_pair: Tensor
    group_of_image: Tensor
    fold_of_image: Tensor
    references: Tensor
    trust: Tensor
    maps: list[LinearMaps]
    model: CleanModel
    apart: CleanModel
    wrong: Tensor
    ways: Tensor
    moved_alone: float
    separation: float

    def vectors(self) -> Vectors:
        """Return the vectors of the pairs that are asked."""
        return Vectors(self.images.values(), self.texts.values(), self.image_of_pair, self.group_of_image)

    def require_like(self, encoder: Mapping[str, Any] | None, own_vectors: bool, place: str = "") -> None:
        """Raise `InputError` unless features are of the same encoder, and captions are vectors or words as here.

        Args:
            encoder: the record of the new features; None where nothing says.
            own_vectors: whether the new captions have vectors of their own.
            place: begins the message.
        """
        if own_vectors and self.words is not None:
            raise InputError(
                f"{place}captions with vectors of their own; {self.table} was audited by its captions' words"
            )
        if not own_vectors and self.words is None:
            raise InputError(f"{place}captions without vectors; {self.table} was audited by vectors of its captions")
        changed = other_encoders(self.encoder, encoder, ("image", "text") if own_vectors else ("image",))
        if changed:
            raise InputError(f"{place}not from the encoder of {self.table}: {' and '.join(changed)}")

    def require_widths(self, images: Tensor, texts: Tensor, place: str = "") -> None:
        """Raise `InputError` unless image and caption vectors are as wide as here; `place` begins the message."""
        for name, new, old in (("image", images, self.images.mean), ("caption", texts, self.texts.mean)):
            if new.shape[1] != len(old):
                raise InputError(
                    f"{place}{name} vectors have {new.shape[1]} numbers; {self.table} was audited with {len(old)}"
                )


def save_kept(path: Path, kept: Kept) -> None:
    """Write a kept audit as one safetensors file.

    Raises:
        InputError: it could not be written.
    """
    tensors = {name: getattr(kept, name) for name in _TENSORS}
    for name in _PARTS:
        part = getattr(kept, name)
        tensors |= {f"{name}.{key}": value for key, value in vars(part).items() if isinstance(value, Tensor)}
    for key in _MAPS:
        tensors[f"maps.{key}"] = torch.stack([getattr(one, key) for one in kept.maps])
    if kept.words is not None:
        tensors |= {"words.weights": kept.words.weights, "words.directions": kept.words.directions.half()}
    texts = {
        "rows": kept.shown.rows.tolist(),
        "images": list(kept.shown.images),
        "captions": list(kept.shown.captions),
        "files": {name: str(file) for name, file in kept.shown.files.items()},
        "words": None if kept.words is None else list(kept.words.vocabulary.words),
    }
    # metadata of safetensors may not be that large
    tensors["texts"] = torch.frombuffer(bytearray(json.dumps(texts).encode()), dtype=torch.uint8)
    figures = {
        **{name: getattr(kept, name) for name in _FIGURES},
        "kinds": list(kept.kinds),
        "config": asdict(kept.config),
        "model": [kept.model.offset, kept.model.share],
        "apart": [kept.apart.offset, kept.apart.share],
    }
    save_tensors(path, tensors, {**FORMAT, **figures})


def load_kept(folder: Path) -> Kept:
    """Read the kept audit of a folder that `in2r audit` wrote.

    Raises:
        InputError: the folder has none, or its file is damaged or of another version.
    """
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"{folder}: no {FILE}; expected a folder that `in2r audit DATA --out {folder}` wrote, without --against"
        )
    tensors, meta = load_tensors(path)
    if any(meta.get(key) != value for key, value in FORMAT.items()):
        raise InputError(f"{path}: not a kept audit of format version {FORMAT['format_version']}; audit its data again")
    try:
        return _unpacked(tensors, meta)
    except KeyError as error:
        raise InputError(f"{path}: no {error.args[0]!r} in it; audit its data again") from None
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error}); audit its data again") from None


def _unpacked(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Kept:
    texts = json.loads(tensors["texts"].numpy().tobytes())

    def packed(name: str) -> Packed:
        return Packed(tensors[f"{name}.half"], tensors[f"{name}.mean"], tensors[f"{name}.scale"])

    def model(name: str) -> CleanModel:
        return CleanModel(tensors[f"{name}.knots"], tensors[f"{name}.slopes"], *meta[name])

    words = None
    if texts["words"] is not None:
        words = Tfidf(Vocabulary(texts["words"]), tensors["words.weights"], tensors["words.directions"].float())
    files = {name: Path(file) for name, file in texts["files"].items()}
    plain: dict[str, Any] = {**{name: tensors[name] for name in _TENSORS}, **{name: meta[name] for name in _FIGURES}}
    return Kept(
        config=fill(AuditConfig, meta["config"]),
        kinds=tuple(meta["kinds"]),
        words=words,
        shown=Shown(np.array(texts["rows"], dtype=np.int64), texts["images"], texts["captions"], files),
        images=packed("images"),
        texts=packed("texts"),
        maps=[LinearMaps(*one) for one in zip(*(tensors[f"maps.{key}"] for key in _MAPS), strict=True)],
        model=model("model"),
        apart=model("apart"),
        **plain,
    )


_TENSORS = ("image_of_pair", "group_of_image", "fold_of_image", "references", "trust", "wrong", "ways")
_FIGURES = ("table", "identity", "encoder", "by_hand", "moved_alone", "separation")
_PARTS = ("images", "texts", "model", "apart")
_MAPS = tuple(each.name for each in fields(LinearMaps))
