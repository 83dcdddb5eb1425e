"""The index itself: which image stands beside each caption, drawn or counted."""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from in2r.errors import InputError
from in2r.seeds import numpy_generator

Level = Literal["caption", "image", "none", "unknown"]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoiseIndex:
    """The image that stands beside each caption, and where that came from.

    Attributes:
        index: (captions,) int64, the image used as the partner of each caption.
        image_of_caption: (captions,) int64, the image that each caption belongs to.
        level: the protocol; "none" when nothing moved, "unknown" when the two protocols cannot be told apart.
        nominal: the ratio asked for, in [0, 1], where known.
        seed: the seed it was drawn with, where known.
    """

    index: Index
    image_of_caption: Index
    level: Level = "unknown"
    nominal: float | None = None
    seed: int | None = None

    @property
    def clean(self) -> npt.NDArray[np.bool_]:
        """(captions,) True where a caption still stands beside its own image. For measurement only."""
        return np.asarray(self.index == self.image_of_caption)

    @property
    def sha256(self) -> str:
        """SHA-256 of the index as little-endian int64 bytes, whatever the file looked like."""
        return hashlib.sha256(self.index.astype("<i8").tobytes()).hexdigest()

    def statistics(self) -> dict[str, Any]:
        """Return counts and the realised ratio (share of captions moved).

        `permutation` says whether the partners are the original ones in another order: every image keeps its
        number of captions or, at image level, takes the place of exactly one image.
        """
        images, first = np.unique(self.image_of_caption, return_index=True)
        clean = self.clean
        moved = int((~clean).sum())
        if self.level == "image":
            permutation = np.array_equal(np.sort(self.index[first]), images)
        else:
            permutation = np.array_equal(np.sort(self.index), np.sort(self.image_of_caption))
        return {
            "captions": len(self.index),
            "images": len(images),
            "moved": moved,
            "realised": moved / len(self.index),
            "images_moved": int((~clean[first]).sum()) if self.level == "image" else None,
            "images_without_right_caption": len(images) - len(np.unique(self.index[clean])),
            "permutation": permutation,
        }


def make_index(
    image_of_caption: npt.ArrayLike,
    ratio: float,
    level: Literal["caption", "image"] = "caption",
    seed: int = 0,
) -> Index:
    """Draw a noise index: (captions,) int64, the image that each caption is paired with.

    Caption level: int(ratio · captions) captions are drawn and their image ids permuted among them. Image
    level: int(ratio · images) images are drawn and permuted; every caption follows its image. Fixed points
    are not removed, so slightly fewer than `ratio` really move.

    Args:
        image_of_caption: (captions,) integers, the image each caption belongs to; any number per image.
        ratio: share to move, in [0, 1].
        level: the protocol.
        seed: same seed, same index.

    Raises:
        InputError: `ratio` or `level` is not valid, `image_of_caption` is not a list of image ids, or it names
            fewer than two images, of which nothing can be mismatched.
    """
    own = image_ids(image_of_caption)
    check_ratio(ratio)
    check_level(level)
    if ratio > 0 and own.min() == own.max():
        raise InputError("1 image; nothing can be mismatched among fewer than two")
    generator = numpy_generator(seed, "noise", level)
    if level == "caption":
        index = own.copy()
        chosen = generator.choice(len(own), size=int(ratio * len(own)), replace=False)
        index[chosen] = own[generator.permutation(chosen)]
        return index
    images, position = np.unique(own, return_inverse=True)
    mapped = images.copy()
    chosen = generator.choice(len(images), size=int(ratio * len(images)), replace=False)
    mapped[chosen] = images[generator.permutation(chosen)]
    return np.asarray(mapped[position.reshape(-1)])


def draw_noise(
    image_of_caption: npt.ArrayLike, ratio: float, level: Literal["caption", "image"], seed: int
) -> NoiseIndex:
    """Draw an index with what it is known by; arguments as in `make_index`."""
    own = np.asarray(image_of_caption, dtype=np.int64)
    index = make_index(own, ratio, level, seed)
    return NoiseIndex(index, own, level if (index != own).any() else "none", ratio, seed)


def check_ratio(ratio: float) -> None:
    """Raise `InputError` unless `ratio` is in [0, 1]; a percentage is recognised."""
    if not 0 <= ratio <= 1:
        hint = f"; did you mean {ratio / 100:g}?" if 1 < ratio <= 100 else ""
        raise InputError(f"`ratio` must be in [0, 1], got {ratio:g}{hint}")


def check_level(level: str) -> None:
    """Raise `InputError` unless `level` is "caption" or "image"."""
    if level not in ("caption", "image"):
        raise InputError(f'`level` must be "caption" or "image", got {level!r}')


def image_ids(values: npt.ArrayLike) -> Index:
    """Return the image of each caption as int64; `InputError` where that is no list of image numbers."""
    array = np.asarray(values)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu" or array.min() < 0:
        raise InputError(
            f"`image_of_caption` must be a non-empty 1-D array of image numbers from 0 up, "
            f"got shape {array.shape}, dtype {array.dtype}"
        )
    return array.astype(np.int64)


def describe_noise(noise: dict[str, Any] | None) -> str:
    """Say in a few words which mismatches were injected."""
    if noise is None:
        return "no injected noise"
    nominal = "undeclared ratio" if noise["nominal"] is None else f"{noise['nominal']:g}"
    text = f"{noise['level']}-level noise {nominal} (realised {noise['realised']:.4f}, "
    text += f"index {noise['sha256'][:12]})"
    text += ", ORACLE: trained on the truly matching pairs only" if noise["oracle"] else ""
    hidden = noise.get("hide_original")  # absent from runs of an older in2r
    return text + (", ANALYSIS WITH THE TRUTH: nothing of a query's original image was found" if hidden else "")
