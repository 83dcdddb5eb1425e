"""Injected mismatches: an index says which image stands beside each caption. Draw, save, load, check, count.

Two protocols are in use and must not be mixed. *Caption level*: the image ids of a share of the captions are
permuted among these captions. *Image level*: a share of the images is permuted and all captions of an image
move together.
"""

import hashlib
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from in2r.errors import InputError
from in2r.files import atomic_path, read_json, write_json
from in2r.seeds import numpy_generator

Level = Literal["caption", "image", "none", "unknown"]
Index = npt.NDArray[np.int64]
_TOLERANCE = 0.02  # by how much the realised share may stay below the declared one (fixed points are not removed)
_log = logging.getLogger(__name__)


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
        InputError: `ratio` or `level` is not valid, or `image_of_caption` is not a list of image ids.
    """
    own = _image_ids(image_of_caption)
    check_ratio(ratio)
    _check_level(level)
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


def check_ratio(ratio: float) -> None:
    """Raise `InputError` unless `ratio` is in [0, 1]; a percentage is recognised."""
    if not 0 <= ratio <= 1:
        hint = f"; did you mean {ratio / 100:g}?" if 1 < ratio <= 100 else ""
        raise InputError(f"`ratio` must be in [0, 1], got {ratio:g}{hint}")


def _check_level(level: str) -> None:
    if level not in ("caption", "image"):
        raise InputError(f'`level` must be "caption" or "image", got {level!r}')


def _image_ids(values: npt.ArrayLike) -> Index:
    array = np.asarray(values)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu" or array.min() < 0:
        raise InputError(
            f"`image_of_caption` must be a non-empty 1-D array of image numbers from 0 up, "
            f"got shape {array.shape}, dtype {array.dtype}"
        )
    return array.astype(np.int64)


def npy_path(path: str | os.PathLike[str]) -> Path:
    """Return the path with ".npy" at its end, which NumPy adds silently: the file would be lost again."""
    text = os.fspath(path)
    return Path(text if text.endswith(".npy") else text + ".npy")


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the JSON record beside an index file: NAME.npy.json."""
    return Path(f"{npy_path(path)}.json")


def draw_noise(
    image_of_caption: npt.ArrayLike, ratio: float, level: Literal["caption", "image"], seed: int
) -> NoiseIndex:
    """Draw an index with what it is known by; arguments as in `make_index`."""
    own = np.asarray(image_of_caption, dtype=np.int64)
    index = make_index(own, ratio, level, seed)
    return NoiseIndex(index, own, level if (index != own).any() else "none", ratio, seed)


def save_index(path: str | os.PathLike[str], noise: NoiseIndex) -> Path:
    """Write the index as an int64 npy that other code bases read; return the path, which ends in ".npy".

    A JSON record beside it holds level, ratio, seed, hash and statistics; the npy alone can be loaded too. A
    failure between the two leaves an old record beside the new index: its hash does not fit, and loading says so.
    """
    target = npy_path(path)
    with atomic_path(target) as temporary:
        np.save(temporary, noise.index.astype("<i8"))
    record = {"level": noise.level, "ratio": noise.nominal, "seed": noise.seed, "sha256": noise.sha256}
    write_json(sidecar_path(target), {**record, "statistics": noise.statistics()})
    return target


def load_index(
    path: str | os.PathLike[str],
    image_of_caption: npt.ArrayLike,
    *,
    level: Literal["caption", "image"] | None = None,
    ratio: float | None = None,
) -> NoiseIndex:
    """Read an index file, ours or a foreign one, and refuse it where it does not fit.

    Args:
        path: an npy of integers, one image number per caption, or one per image (expanded to its captions).
        image_of_caption: (captions,) the image each caption belongs to.
        level: the protocol you expect; refused if the content shows the other one.
        ratio: the ratio you expect, in [0, 1]; refused if the realised one does not fit it.

    Raises:
        InputError: missing or unreadable file, wrong length, type or range, another level or ratio than
            declared, or a record beside it that belongs to another index.
    """
    own = _image_ids(image_of_caption)
    file = _existing(path)
    index = _expand(file, _read_integers(file), own)
    record = _read_record(file)
    noise = NoiseIndex(
        index, own, record.get("level") or _detect_level(index, own), record.get("ratio"), record.get("seed")
    )
    if record and record.get("sha256") != noise.sha256:
        raise InputError(
            f"{file}: not the index that {sidecar_path(file).name} describes (another hash); make it again"
        )
    if level is not None:
        _check_level(level)
        noise = _declare_level(file, noise, level)
    if ratio is not None:
        noise = _declare_ratio(file, noise, ratio)
    if not noise.statistics()["permutation"]:
        _log.warning("%s: not a permutation: some images stand beside more captions than before", file)
    return noise


def _existing(path: str | os.PathLike[str]) -> Path:
    for candidate in (Path(path), npy_path(path)):
        if candidate.is_file():
            return candidate
    raise InputError(f"{path}: no such noise index; `in2r noise make` creates one")


def _read_integers(file: Path) -> npt.NDArray[Any]:
    try:
        array = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        # NumPy's own words on what has no npy header advise to load it unsafely
        reason = "no npy header" if "pickled" in str(error) else " ".join(str(error).split())
        raise InputError(f"{file}: not a readable npy file ({reason})") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{file}: an archive of several arrays; expected one npy array of integers")
    if array.dtype.kind not in "iu":
        raise InputError(f"{file}: dtype {array.dtype}; expected integers (an index, not scores or rounded floats)")
    return array


def _expand(file: Path, array: npt.NDArray[Any], own: Index) -> Index:
    images = int(own.max()) + 1
    if array.shape not in ((len(own),), (images,)):
        found = f"{len(array)} entries" if array.ndim == 1 else f"shape {array.shape}"
        raise InputError(f"{file}: {found}; expected {len(own)} (captions) or {images} (images)")
    wrong = np.flatnonzero((array < 0) | (array >= images))
    if len(wrong):
        raise InputError(f"{file}: entry {wrong[0]} is {array[wrong[0]]}; expected an image number in 0..{images - 1}")
    index = array.astype(np.int64)
    return index if len(index) == len(own) else index[own]


def _read_record(file: Path) -> dict[str, Any]:
    path = sidecar_path(file)
    if not path.exists():
        return {}
    record = read_json(path)
    if not isinstance(record, dict) or record.get("level") not in ("caption", "image", "none", "unknown"):
        raise InputError(f"{path}: no valid `level`; delete this file or make the index again")
    if not isinstance(record.get("ratio"), int | float | None):
        raise InputError(f"{path}: `ratio` is {record['ratio']!r}; expected a number or null")
    return record


def _detect_level(index: Index, own: Index) -> Level:
    """Image level if all captions of an image go together; unknown if only single-caption images moved."""
    if np.array_equal(index, own):
        return "none"
    order = np.argsort(own, kind="stable")
    siblings = own[order][1:] == own[order][:-1]
    if np.any(siblings & (index[order][1:] != index[order][:-1])):
        return "caption"
    moved = index[order][1:] != own[order][1:]
    return "image" if np.any(siblings & moved) else "unknown"


def _declare_level(file: Path, noise: NoiseIndex, level: Literal["caption", "image"]) -> NoiseIndex:
    if noise.level not in (level, "none", "unknown"):
        raise InputError(f"{file}: {noise.level}-level noise, declared {level}-level; the two must not be mixed")
    found: Level = "none" if noise.level == "none" else level
    return replace(noise, level=found)


def _declare_ratio(file: Path, noise: NoiseIndex, ratio: float) -> NoiseIndex:
    """Compare with what a draw moves: at most `ratio`, fewer by its fixed points (about one image)."""
    check_ratio(ratio)
    statistics = noise.statistics()
    images, realised = statistics["images"], statistics["realised"]
    if noise.nominal is not None:
        if abs(noise.nominal - ratio) > 1e-9:
            made = f"its record says {noise.nominal:g}"
            raise InputError(f"{file}: realised {realised:.4f}, declared {ratio:g}; {made}")
        return noise
    # at image level the ratio is one of images, which differs from that of captions where their counts differ
    share = statistics["images_moved"] / images if noise.level == "image" else realised
    if not ratio - _TOLERANCE - 3 / images <= share <= ratio + 1 / images:
        raise InputError(f"{file}: realised {share:.4f}, declared {ratio:g}; give the ratio it was made with")
    return replace(noise, nominal=ratio)
