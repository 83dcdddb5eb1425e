"""Right pairs of MS-COCO's test split that its five captions an image leave out: ECCV Caption and CxC.

The files are those of the package eccv-caption (Chun et al., ECCV 2022; CxC: Parekh et al., EACL 2021). They are read;
its code is not imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.rows import read_ids
from in2r.errors import InputError
from in2r.files import read_json

Ints = NDArray[np.int64]
SETS = ("eccv", "cxc")
IDS = "testall_ids.txt"
"""the field's file of a precomp folder"""
NEEDED = "one COCO caption id a line in the order of testall_caps.txt, or the id of each image"


@dataclass(frozen=True)
class Matches:
    """The right items of queries, by their places in the split; -1 = an item that the split does not have.

    Two of the captions in ECCV Caption are not among the five of their image that the test split has.

    Attributes:
        captions_of: image → its right captions.
        images_of: caption → its right images.
    """

    captions_of: dict[int, Ints]
    images_of: dict[int, Ints]


def matches_folder() -> Path:
    """Return where the installed package keeps its files.

    Raises:
        InputError: it is not installed.
    """
    found = find_spec("eccv_caption")
    if found is None or not found.submodule_search_locations:
        raise InputError('ECCV Caption and CxC need the package eccv-caption: pip install "in2r[eccv]"')
    return Path(found.submodule_search_locations[0]) / "data"


def read_matches(folder: Path, data: Path, image_of_caption: Ints, images: int) -> dict[str, Matches]:
    """Read both sets of right pairs for a split.

    Args:
        folder: the package's files.
        data: the precomp folder, whose testall_ids.txt names images and captions.
        image_of_caption: (C,) the image of each caption in the split.
        images: N.

    Returns:
        eccv, cxc → matches; only images and captions that have some are queries.

    Raises:
        InputError: no such ids, or ids that are not those of COCO's test split, with their line.
    """
    image_ids, caption_ids = _coco_ids(folder, data / IDS, image_of_caption, images)
    image_place = {number: place for place, number in enumerate(image_ids)}
    caption_place = {number: place for place, number in enumerate(caption_ids)}
    return {
        name: Matches(
            _places(read_json(folder / f"{name}_image_to_caption.json"), image_place, caption_place),
            _places(read_json(folder / f"{name}_caption_to_image.json"), caption_place, image_place),
        )
        for name in SETS
    }


def _places(table: Any, query: Mapping[int, int], item: Mapping[int, int]) -> dict[int, Ints]:
    return {
        query[int(key)]: np.sort([item.get(number, -1) for number in {int(text) for text in found}])
        for key, found in table.items()
    }


def _coco_ids(folder: Path, file: Path, owner: Ints, images: int) -> tuple[list[int], list[int]]:
    """Return the COCO id of each image (N,) and of each caption (C,).

    Where the file has image ids only, an image's captions have the ids of COCO's list of test captions, in its order.
    """
    table = read_json(folder / "original_caption_to_image.json")
    image_of = {int(caption): int(found[0]) for caption, found in table.items()}
    listed: dict[int, list[int]] = {}
    for caption in np.load(folder / "coco_test_ids.npy", allow_pickle=False).tolist():
        listed.setdefault(image_of[caption], []).append(caption)
    ids = _numbers(file)
    if len(ids) not in (len(owner), images):
        raise InputError(f"{file}: {len(ids)} ids, but {images} images with {len(owner)} captions; expected {NEEDED}")
    by_caption = ids[0] in image_of
    known, kind = (image_of.keys(), "caption") if by_caption else (listed.keys(), "image")
    strange = next((line for line, number in enumerate(ids) if number not in known), None)
    if strange is not None:
        found = f"line {strange + 1} is {ids[strange]}"
        raise InputError(f"{file}: {found}, no {kind} id of COCO's test split; expected {NEEDED}")
    image_ids = [image_of[number] for number in ids] if by_caption else ids
    if len(ids) == len(owner):
        image_ids = _one_a_group(file, image_ids, owner, images)
    if sorted(image_ids) != sorted(listed):
        found = f"{len(set(image_ids))} images of COCO's test split"
        raise InputError(f"{file}: {found}; expected all {len(listed)}, once each")
    if by_caption and len(ids) == len(owner):
        return image_ids, ids
    captions = [caption for number in image_ids for caption in listed[number]]
    if not np.array_equal(owner, np.repeat(np.arange(images), [len(listed[number]) for number in image_ids])):
        raise InputError(f"{file}: names images only, and the images have other numbers of captions than in COCO")
    return image_ids, captions


def _one_a_group(file: Path, of_line: Sequence[int], owner: Ints, images: int) -> list[int]:
    """Return the id of each image (N,), given that of each caption's image (C,)."""
    found: dict[int, int] = {}
    for line, (number, image) in enumerate(zip(of_line, owner.tolist(), strict=True), start=1):
        if found.setdefault(image, number) != number:
            raise InputError(
                f"{file}: line {line} is of image {number}, but the caption there belongs to image {found[image]}; "
                f"expected {NEEDED}"
            )
    return [found[image] for image in range(images)]


def _numbers(file: Path) -> list[int]:
    if not file.is_file():
        raise InputError(f"{file}: no such file; ECCV Caption and CxC need {NEEDED}")
    ids = read_ids(file)
    wrong = next((line for line, text in enumerate(ids, start=1) if not text.isdecimal()), None)
    if wrong is not None or not ids:
        found = "empty" if wrong is None else f"line {wrong} is {ids[wrong - 1]!r}"
        raise InputError(f"{file}: {found}; expected {NEEDED}")
    return [int(text) for text in ids]
