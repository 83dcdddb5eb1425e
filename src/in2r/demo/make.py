"""A data set of drawn scenes: pictures, captions and region features, of any size, for demos and tests."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import create_npy
from in2r.demo.captions import caption_scene
from in2r.demo.drawing import SIDE, Pixels, Scene, draw_scene, paint
from in2r.demo.features import DIM, REGIONS, region_features
from in2r.errors import InputError
from in2r.files import atomic_path, naming, require_free_space, write_csv, write_text
from in2r.seeds import derive

VERSION = 2  # raised whenever the same seed gives other pictures, captions or features
PRECOMP_CAPTIONS = 5  # the field's layout has exactly this many captions per image
_BLOCK = 64  # pictures whose features are computed at once
_BYTES_PER_IMAGE = 28_000  # picture, features, captions and record, generously


@dataclass(frozen=True)
class _Image:
    """What is kept of one image after its pixels are written."""

    id: str
    split: str
    scene: Scene
    captions: list[str]

    def record(self) -> str:
        """Return one line of JSON: id, split and what was drawn."""
        return json.dumps({"id": self.id, "split": self.split, **asdict(self.scene)})


def make_scenes(
    folder: Path,
    *,
    train: int,
    dev: int,
    test: int,
    captions_per_image: int | tuple[int, int] = PRECOMP_CAPTIONS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a data set of drawn scenes to a new or empty folder.

    Image i of a split depends on nothing but (seed, split, i), so a larger set begins with the smaller one,
    and a seed gives the same pixels, captions and features on every platform.

    Written are `pictures/<split>/<id>.png` (96 × 96), features (images × 10 regions × 108, float16) and
    captions; last comes `scenes.json`, which says what was drawn. With 5 captions per image the layout is the
    field's: `{split}_ims.npy`, `{split}_caps.txt`, `{split}_ids.txt`; with any other number, or a range, it
    is the pair table: `images.npy`, `image_ids.txt` and `pairs.tsv` with the columns image, caption, split.

    Args:
        folder: Where to write.
        train: Images of the training split, ≥ 2.
        dev: Images of the development split, ≥ 2.
        test: Images of the test split, ≥ 2.
        captions_per_image: A number ≥ 1, or (fewest, most): then each image draws its own number.
        seed: Any integer.
        progress: Called with (images done, images in all) after each block of images.

    Raises:
        InputError: A number is out of range, the folder is not empty, the disk is full, or Pillow is missing.
    """
    counts = {"train": train, "dev": dev, "test": test}
    fewest, most = _caption_range(captions_per_image)
    total = sum(counts.values())
    _check(folder, counts)
    save_picture = _picture_writer()
    folder.mkdir(parents=True, exist_ok=True)
    require_free_space(folder, total * _BYTES_PER_IMAGE)
    for split in counts:
        (folder / "pictures" / split).mkdir(parents=True)

    is_precomp = fewest == most == PRECOMP_CAPTIONS
    files = {f"{split}_ims.npy": [split] for split in counts} if is_precomp else {"images.npy": list(counts)}
    images: list[_Image] = []
    for name, splits in files.items():
        wanted = [(split, number) for split in splits for number in range(counts[split])]
        with _feature_file(folder / name, len(wanted)) as features:
            for start in range(0, len(wanted), _BLOCK):
                drawn = [_draw(seed, split, i, fewest, most) for split, i in wanted[start : start + _BLOCK]]
                features[start : start + len(drawn)] = region_features(np.stack([pixels for _, pixels in drawn]))
                for image, pixels in drawn:
                    save_picture(folder / "pictures" / image.split / f"{image.id}.png", pixels)
                    images.append(image)
                if progress:
                    progress(len(images), total)
    (_write_precomp if is_precomp else _write_table)(folder, images)
    _write_record(folder, seed, counts, (fewest, most), images)


def _caption_range(captions_per_image: int | tuple[int, int]) -> tuple[int, int]:
    given = captions_per_image
    fewest, most = (given, given) if isinstance(given, int) else given
    if not 1 <= fewest <= most:
        raise InputError(
            f"captions_per_image is {given}; expected a number ≥ 1 or (fewest, most) with 1 ≤ fewest ≤ most"
        )
    return fewest, most


def _check(folder: Path, counts: dict[str, int]) -> None:
    for split, count in counts.items():
        if count < 2:
            raise InputError(f"{split} has {count} images; expected 2 or more")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; give a new or empty folder")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: not empty; give a new or empty folder")


def _picture_writer() -> Callable[[Path, Pixels], None]:
    try:
        from PIL import Image
    except ImportError:
        raise InputError('drawing scenes needs Pillow; install it with: pip install "in2r[scenes]"') from None

    def save(path: Path, pixels: Pixels) -> None:
        with naming(path):
            Image.fromarray(pixels).save(path)

    return save


@contextmanager
def _feature_file(path: Path, images: int) -> Iterator[NDArray[np.float16]]:
    """Yield the array of a feature file that is written to disk as it is filled, (images, REGIONS, DIM)."""
    with atomic_path(path) as temporary:
        array = create_npy(temporary, np.float16, (images, REGIONS, DIM))
        yield array
        array.flush()


def _draw(seed: int, split: str, number: int, fewest: int, most: int) -> tuple[_Image, Pixels]:
    """Draw image `number` of a split; captions have a generator of their own."""
    rng = random.Random(derive(seed, "scenes", "picture", split, number))
    scene = draw_scene(rng)
    pixels = paint(scene, rng)
    rng = random.Random(derive(seed, "scenes", "captions", split, number))
    captions = caption_scene(scene, rng.randint(fewest, most), rng)
    return _Image(f"{split}-{number:06d}", split, scene, captions), pixels


def _write_precomp(folder: Path, images: list[_Image]) -> None:
    for split in dict.fromkeys(image.split for image in images):
        members = [image for image in images if image.split == split]
        write_text(folder / f"{split}_ids.txt", _lines([image.id for image in members]))
        write_text(folder / f"{split}_caps.txt", _lines([line for image in members for line in image.captions]))


def _write_table(folder: Path, images: list[_Image]) -> None:
    rows = ([image.id, caption, image.split] for image in images for caption in image.captions)
    write_text(folder / "image_ids.txt", _lines([image.id for image in images]))
    write_csv(folder / "pairs.tsv", ["image", "caption", "split"], rows, delimiter="\t")


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write_record(folder: Path, seed: int, counts: dict[str, int], said: tuple[int, int], images: list[_Image]) -> None:
    """Write scenes.json, one image a line."""
    head = {"version": VERSION, "seed": seed, **counts, "captions_per_image": said, "side": SIDE}
    drawn = ",\n".join(image.record() for image in images)
    write_text(folder / "scenes.json", json.dumps(head)[:-1] + f', "images": [\n{drawn}\n]}}\n')
