"""Draw the README's picture of the worst pairs that `make demo` found: `python docs/figures/worst_pairs.py demo`."""

import csv
import sys
import textwrap
from pathlib import Path

from PIL import Image

from in2r.cli.score import probability
from in2r.plots.style import canvas

PAIRS = 5
FILE = Path(__file__).with_suffix(".png")


def worst(scores: Path) -> list[dict[str, str]]:
    """Return the rows of the worst pairs, one per image."""
    with scores.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        first: dict[str, dict[str, str]] = {}
        for row in rows:
            first.setdefault(row["image_id"], row)
            if len(first) == PAIRS:
                break
    return list(first.values())


def main(demo: Path) -> None:
    """Draw one tile per pair: the picture, its caption, its clean probability."""
    rows = worst(demo / "corroborate" / "scores.csv")
    with canvas(FILE) as figure:
        figure.set_size_inches(7.2, 2.2)
        for axes, row in zip(figure.subplots(1, PAIRS), rows, strict=True):
            axes.imshow(Image.open(demo / "data" / "pictures" / "train" / f"{row['image_id']}.png"))
            axes.set_axis_off()
            axes.set_anchor("N")  # room for captions below
            axes.set_title(f"clean prob. {probability(row['clean_prob'])}", color="#D55E00")
            text = "\n".join(textwrap.wrap(f"“{row['caption']}”", 29))
            axes.text(0.5, -0.06, text, transform=axes.transAxes, ha="center", va="top", fontsize=7)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
