"""Make a web-like training set: the image that a wrong caption was written for is absent.

    python benchmarks/weblike.py flickr8k_precomp weblike --images 3000 --captions 5 --ratio 0.6

Of the training images some are kept, each with its first captions. A share of these captions is replaced by captions of
images that are left out. Dev and test stay as they are, or keep their first images (--ranked). So no wrong caption can
find its image; nothing in the folder says which captions are wrong.
"""

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.files import csv_lines

PER_IMAGE = 5


def asked_for() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder in the precomp layout, five captions per image")
    parser.add_argument("out", type=Path, help="folder to be made")
    parser.add_argument("--vectors", default="caps_minilm", help="suffix of the caption vectors; default: caps_minilm")
    parser.add_argument("--images", type=int, required=True, help="training images that are kept")
    parser.add_argument("--captions", type=int, default=PER_IMAGE, choices=(1, PER_IMAGE), help="of each; default: 5")
    parser.add_argument("--ratio", type=float, required=True, help="share of wrong captions")
    parser.add_argument("--ranked", type=int, help="images of dev and of test that are kept; default: all")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if not 0 <= asked.ratio <= 1:
        parser.error(f"--ratio must be in [0, 1], got {asked.ratio}")
    if asked.ranked is not None and asked.ranked < 2:
        parser.error(f"--ranked must be at least 2, got {asked.ranked}")
    if asked.images < 2 or asked.seed < 0:
        parser.error(f"--images must be at least 2 and --seed at least 0, got {asked.images} and {asked.seed}")
    if asked.out.exists():
        parser.error(f"{asked.out} is there already")
    return asked


def make(asked: argparse.Namespace) -> str:
    """Write the folder, and say what is in it.

    Raises:
        InputError: the source cannot be read, or does not hold what is asked for.
    """
    draws = np.random.default_rng(asked.seed)
    train = open_data(asked.source, caption_vectors=asked.vectors).split("train")
    count, texts, vectors = len(train.images), train.captions, train.caption_vectors
    if texts is None or vectors is None or not np.array_equal(np.bincount(train.image_of_caption), [PER_IMAGE] * count):
        raise InputError(f"{asked.source}: train needs {PER_IMAGE} captions for each image, as texts and as vectors")
    if asked.images > count:
        raise InputError(f"{asked.source}: train has {count} images, of which --images {asked.images} are to be kept")
    other = [f"{split}_{name}" for split in ("dev", "test") for name in ("ims.npy", f"{asked.vectors}.npy", "caps.txt")]
    missing = [name for name in other if not (asked.source / name).is_file()]
    if missing:
        raise InputError(
            f"{asked.source}: needs the precomp layout with dev and test; there is no {', no '.join(missing)}"
        )
    order = draws.permutation(count)
    kept, absent = np.sort(order[: asked.images]), order[asked.images :]
    chosen = (PER_IMAGE * kept[:, None] + np.arange(asked.captions)).ravel()
    others = draws.permutation((PER_IMAGE * absent[:, None] + np.arange(PER_IMAGE)).ravel())
    wrong = draws.permutation(len(chosen))[: round(asked.ratio * len(chosen))]
    if len(wrong) > len(others):
        raise InputError(f"{len(wrong)} wrong captions, but images that are left out have {len(others)}")
    chosen[wrong] = others[: len(wrong)]
    half = asked.out.with_name(f".{asked.out.name}.new")  # it gets its name when it is whole
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    np.save(half / "train_ims.npy", train.images.array[train.images.rows[kept]])
    np.save(half / f"train_{asked.vectors}.npy", vectors.array[vectors.rows[chosen]].reshape(len(chosen), -1))
    if asked.captions == PER_IMAGE:
        lines, name = (f"{texts[row]}\n" for row in chosen), "train_caps.txt"
    else:  # the layout's form for one caption per image: the image's id, tab, caption
        rows = [(str(image), texts[row]) for image, row in enumerate(chosen)]
        lines, name = csv_lines(rows[0], rows[1:], delimiter="\t"), "train_caps.tsv"
    (half / name).write_text("".join(lines), encoding="utf-8", newline="")
    if asked.ranked is None:
        for name in other:
            shutil.copy(asked.source / name, half)
    else:
        for name in ("dev", "test"):
            cut(asked, name, half)
    half.rename(asked.out)
    return f"{asked.out}: {len(kept)} images, {len(chosen)} captions, {len(wrong)} of them wrong"


def cut(asked: argparse.Namespace, name: str, out: Path) -> None:
    """Write what belongs to the first images of a split."""
    split = open_data(asked.source, caption_vectors=asked.vectors).split(name)
    texts, vectors, captions = split.captions, split.caption_vectors, PER_IMAGE * asked.ranked
    assert texts is not None
    assert vectors is not None
    np.save(out / f"{name}_ims.npy", split.images.array[split.images.rows[: asked.ranked]])
    np.save(out / f"{name}_{asked.vectors}.npy", vectors.array[vectors.rows[:captions], 0])
    lines = "".join(f"{text}\n" for text in texts[:captions])
    (out / f"{name}_caps.txt").write_text(lines, encoding="utf-8", newline="")


def main() -> int:
    """Make the folder, or say in a line why not."""
    asked = asked_for()
    try:
        print(make(asked))
    except (InputError, OSError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
