"""Images and captions of shared topics, of which some captions are exchanged; and a data folder of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from in2r.data.verdicts import Verdict, write_verdicts

TOPICS, WIDTH = 8, 16


def planted(images: int = 150, captions: int = 2, moved: float = 0.25, seed: int = 0) -> dict[str, Any]:
    """Features (images, 16), captions of eight words from the image's topics, the image of each, and which are right.

    Topics are weighed anew for each image; a share of the captions goes round in a ring, so each is at another image.
    """
    draws = np.random.default_rng(seed)
    mixture = draws.dirichlet(np.full(TOPICS, 0.3), size=images)
    features = mixture @ draws.normal(size=(TOPICS, WIDTH)) + 0.1 * draws.normal(size=(images, WIDTH))
    owner = np.repeat(np.arange(images), captions)
    texts = [
        " ".join(f"{'abcdefgh'[topic]}{draws.integers(5)}" for topic in draws.choice(TOPICS, size=8, p=mixture[image]))
        for image in owner
    ]
    out = draws.permutation(len(owner))[: int(moved * len(owner))]
    for here, text in zip(out, [texts[row] for row in np.roll(out, 1)], strict=True):
        texts[here] = text
    return {
        "features": features.astype(np.float32),
        "captions": texts,
        "owner": owner,
        "right": ~np.isin(np.arange(len(owner)), out),
    }


EMPTY_ROW, COPY_ROW, TORN_ROW, QUOTED_ROW = 7, 20, 31, 40


def planted_folder(folder: Path) -> dict[str, Any]:
    r"""Make a folder of a cp1252 table with "\r\n": shop, score and price are the user's, and some rows have faults.

    Row 7 has no words, row 20 is row 16 again, row 31 names an image that was truncated, row 40 has a quoted field.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = planted()
    captions = data["captions"]
    captions[EMPTY_ROW] = " "
    images = [f"é{image}.jpg" for image in data["owner"]]
    images[COPY_ROW], captions[COPY_ROW] = images[16], captions[16].upper()
    images[TORN_ROW] = "torn.jpg"
    captions[QUOTED_ROW] += ', a "café"'
    shops = ["Müller" if row % 3 else "[red]Sons" for row in range(len(images))]
    lines = ["Bild,Text,score,shop\r\n"]
    for row, (image, text) in enumerate(zip(images, captions, strict=True)):
        quoted = '"' + text.replace('"', '""') + '"' if "," in text else text
        lines.append(f"{image},{quoted},{row}.50,{shops[row]}\r\n")
    (folder / "pairs.csv").write_bytes("".join(lines).encode("cp1252"))
    np.save(folder / "images.npy", data["features"])
    ids = "".join(f"é{image}.jpg\n" for image in range(len(data["features"])))
    (folder / "image_ids.txt").write_bytes(ids.encode("cp1252"))
    columns = {"image": "Bild", "caption": "Text"}
    (folder / "data.json").write_text(json.dumps({"columns": columns, "encoding": "cp1252"}))
    write_verdicts(folder / "image_verdicts.csv", [Verdict("torn.jpg", "truncated", file="torn.jpg")])
    return {**data, "images": images, "shops": shops, "lines": lines}


def plain_folder(folder: Path, data: dict[str, Any], *, captions: bool = True, **arrays: Any) -> Path:
    """Make a folder of a plain pair table, with further arrays such as captions.npy."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{image},{text}" if captions else str(image)
        for image, text in zip(data["owner"].tolist(), data["captions"], strict=True)
    ]
    header = "image,caption" if captions else "image"
    (folder / "pairs.csv").write_text("\n".join([header, *rows]) + "\n")
    for name, array in {"images": data["features"], **arrays}.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def part_of(data: dict[str, Any], images: range) -> dict[str, Any]:
    """Return some images, with their captions, of planted data."""
    own = np.isin(data["owner"], images)
    return {
        "features": data["features"][images.start : images.stop],
        "captions": [text for text, kept in zip(data["captions"], own, strict=True) if kept],
        "owner": data["owner"][own] - images.start,
        "right": data["right"][own],
    }
