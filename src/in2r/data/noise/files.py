"""Index files: an npy that other code bases read, a JSON record beside it, and what is refused."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from in2r.data.noise.index import Index, Level, NoiseIndex, check_level, check_ratio, image_ids
from in2r.errors import InputError
from in2r.files import atomic_path, read_json, write_json

TOLERANCE = 0.02
"""by how much the realised share may stay below the declared one (fixed points are not removed)"""
FIXED_IMAGES = {"caption": 3, "image": 5}
"""and by how many images more: one is expected to get its own captions back, whatever the size of the data, at caption
level by single captions"""
ALIKE_BY_CHANCE = 10
log = logging.getLogger(__name__)


def npy_path(path: str | os.PathLike[str]) -> Path:
    """Return the path with ".npy" at its end, which NumPy adds silently: the file would be lost again."""
    text = os.fspath(path)
    return Path(text if text.endswith(".npy") else text + ".npy")


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the JSON record beside an index file: NAME.npy.json."""
    return Path(f"{npy_path(path)}.json")


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
    own = image_ids(image_of_caption)
    file = _existing(path)
    index = _expand(file, _read_integers(file), own)
    record = _read_record(file)
    noise = NoiseIndex(index, own, _detect_level(index, own), seed=record.get("seed"))
    if record:
        noise = _declare_record(file, noise, record)
    if level is not None:
        check_level(level)
        noise = _declare_level(file, noise, level)
    if ratio is not None:
        noise = _declare_ratio(file, noise, ratio, level)
    if noise.nominal and noise.clean.all():
        log.warning("%s: nothing moved, though %g was asked for: too few captions", file, noise.nominal)
    if not noise.statistics()["permutation"]:
        log.warning("%s: not a permutation: some images stand beside more captions than before", file)
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
    if isinstance(record.setdefault("ratio", None), bool) or not isinstance(record["ratio"], int | float | None):
        raise InputError(f"{path}: `ratio` is {record['ratio']!r}; expected a number or null")
    return record


def _declare_record(file: Path, noise: NoiseIndex, record: dict[str, Any]) -> NoiseIndex:
    """Take level and ratio from the record beside an index, unless the index says otherwise."""
    name = sidecar_path(file).name
    if record.get("sha256") != noise.sha256:
        raise InputError(f"{file}: not the index that {name} describes (another hash); make it again")
    found, said = noise.level, record["level"]
    # of few images, captions that were drawn one by one may happen to have moved together
    few = len(np.unique(noise.image_of_caption[~noise.clean])) < ALIKE_BY_CHANCE
    if said != found and found != "unknown" and not (said == "caption" and found == "image" and few):
        raise InputError(f"{file}: {found}-level noise, but {name} says {said}; make the index again")
    noise = replace(noise, level=said)
    if record["ratio"] is None:
        return noise
    try:
        return _declare_ratio(file, noise, record["ratio"], None)
    except InputError as error:
        raise InputError(f"{file}, by its record {name}: {str(error).removeprefix(f'{file}: ')}") from None


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


def _declare_ratio(file: Path, noise: NoiseIndex, ratio: float, level: str | None) -> NoiseIndex:
    """Compare with what a draw moves: at most `ratio`, fewer by its fixed points (about one image)."""
    check_ratio(ratio)
    statistics = noise.statistics()
    images, realised = statistics["images"], statistics["realised"]
    if noise.nominal is not None:  # by a record, with which the index was compared already
        if abs(noise.nominal - ratio) > 1e-9:
            made = f"its record says {noise.nominal:g}"
            raise InputError(f"{file}: realised {realised:.4f}, declared {ratio:g}; {made}")
        return noise
    # at image level the ratio is one of images, which differs from that of captions where their counts differ
    share = statistics["images_moved"] / images if noise.level == "image" else realised
    fixed = FIXED_IMAGES["caption" if "caption" in (level, noise.level) else "image"]
    # of few images, most captions may happen to be given their own one again
    lowest = 0.0 if images < ALIKE_BY_CHANCE else ratio - TOLERANCE - fixed / images
    if not lowest <= share <= ratio + 1 / images:
        raise InputError(f"{file}: realised {share:.4f}, declared {ratio:g}; give the ratio it was made with")
    return replace(noise, nominal=ratio)
