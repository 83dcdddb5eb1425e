"""Make a web-like training set: the image that a wrong caption was written for is absent.

    python benchmarks/weblike.py flickr8k_precomp weblike --images 3000 --captions 5 --ratio 0.6

Of the training images some are kept, each with its first captions. A share of these captions is replaced by captions of
images that are left out. Dev and test stay as they are. So no wrong caption can find its image; nothing in the folder
says which captions are wrong.
"""

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

PER_IMAGE = 5


def main() -> int:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder in the precomp layout, five captions per image")
    parser.add_argument("out", type=Path, help="folder to be made")
    parser.add_argument("--vectors", default="caps_minilm", help="suffix of the caption vectors; default: caps_minilm")
    parser.add_argument("--images", type=int, required=True, help="training images that are kept")
    parser.add_argument("--captions", type=int, default=PER_IMAGE, choices=(1, PER_IMAGE), help="of each; default: 5")
    parser.add_argument("--ratio", type=float, required=True, help="share of wrong captions")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draws = np.random.default_rng(asked.seed)
    images = np.load(asked.source / "train_ims.npy", mmap_mode="r")
    vectors = np.load(asked.source / f"train_{asked.vectors}.npy")
    texts = (asked.source / "train_caps.txt").read_text(encoding="utf-8").splitlines()
    order = draws.permutation(len(vectors) // PER_IMAGE)
    kept, absent = np.sort(order[: asked.images]), order[asked.images :]
    chosen = (PER_IMAGE * kept[:, None] + np.arange(asked.captions)).ravel()
    others = draws.permutation((PER_IMAGE * absent[:, None] + np.arange(PER_IMAGE)).ravel())
    wrong = draws.permutation(len(chosen))[: round(asked.ratio * len(chosen))]
    if len(wrong) > len(others):
        parser.error(f"{len(wrong)} wrong captions, but images that are left out have {len(others)}")
    chosen[wrong] = others[: len(wrong)]
    asked.out.mkdir(parents=True)
    np.save(asked.out / "train_ims.npy", images[kept])
    np.save(asked.out / f"train_{asked.vectors}.npy", vectors[chosen])
    if asked.captions == PER_IMAGE:
        lines, name = [f"{texts[row]}\n" for row in chosen], "train_caps.txt"
    else:  # the layout's form for one caption per image: the image's id, tab, caption
        lines, name = [f"{image}\t{texts[row]}\n" for image, row in enumerate(chosen)], "train_caps.tsv"
    (asked.out / name).write_text("".join(lines), encoding="utf-8")
    for split in ("dev", "test"):
        for name in ("ims.npy", f"{asked.vectors}.npy", "caps.txt"):
            shutil.copy(asked.source / f"{split}_{name}", asked.out)
    print(f"{asked.out}: {len(kept)} images, {len(chosen)} captions, {len(wrong)} of them wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
