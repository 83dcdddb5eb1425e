"""Small pictures of the user's image files: each image once, as many as there is room for."""

import base64
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

PAIR, NEIGHBOR = 208, 112
"""pixels: the longest side of a picture"""
QUALITY = 66
"""of JPEG: 5.6 and 2.2 kB a photograph, so that 10 MB hold the pictures of all pairs and of two neighbours each"""
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""known by content, not by name; for some others Pillow runs a program, which no foreign file may make it do"""
INSTALL = 'pip install "in2r[scenes]"'


class Pictures:
    """The pictures that cards refer to, numbered in the order of first use; one id is one picture."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._files: dict[int, tuple[Path | None, int]] = {}

    def number(self, image: str, file: Path | None, side: int) -> int:
        """Return the number of an image's picture. Of several files and sides, the first file and the larger side."""
        number = self._numbers.setdefault(image, len(self._numbers))
        known, largest = self._files.get(number, (None, 0))
        self._files[number] = (known or file, max(side, largest))
        return number

    def wanted(self) -> dict[int, tuple[Path | None, int]]:
        """Return number → (file, longest side), the pairs' images before those that only neighbours have."""
        return dict(sorted(self._files.items(), key=lambda item: -item[1][1]))


@dataclass(frozen=True)
class Embedded:
    """Pictures as CSS, and why the others are absent."""

    css: str
    absent: int = 0
    full: int = 0
    installed: bool = True

    def note(self) -> str:
        """Say how many pictures are not in the page and why; nothing where all are."""
        if not self.installed:
            return f"No pictures: Pillow is not installed ({INSTALL})."
        reasons = []
        if self.absent:
            reasons.append(f"{self.absent:,} without a file that can be read")
        if self.full:
            reasons.append(f"{self.full:,} left out to keep this page small")
        return f"Pictures not shown: {', '.join(reasons)}." if reasons else ""


def embed(wanted: Mapping[int, tuple[Path | None, int]], room: int) -> Embedded:
    """Make a CSS rule `.tN{...}` for each picture; it hides the image's id, which stands there otherwise.

    Args:
        wanted: number → (file, longest side in pixels); the first ones are the most wanted.
        room: bytes that the rules may take together.

    Returns:
        The rules. A file that is missing, broken, no image or suspiciously large has none. Once there is no more room,
        no further file is opened.
    """
    if find_spec("PIL") is None:
        return Embedded("", installed=False)
    rules: list[str] = []
    absent, used = 0, 0
    for done, (number, (file, side)) in enumerate(wanted.items()):
        jpeg = None if file is None else thumbnail(file, side)
        if jpeg is None:
            absent += 1
            continue
        code = base64.b64encode(jpeg).decode()
        rule = f".t{number}{{color:transparent;background-image:url(data:image/jpeg;base64,{code})}}\n"
        if used + len(rule) > room:
            return Embedded("".join(rules), absent, len(wanted) - done)
        rules.append(rule)
        used += len(rule)
    return Embedded("".join(rules), absent)


def thumbnail(file: Path, side: int) -> bytes | None:
    """Return an image file as a small JPEG without metadata, turned as its EXIF says; None if it cannot be read."""
    from PIL import Image

    Image.init()
    formats = [name for name in FORMATS if name in Image.OPEN]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=formats) as image:
                return _jpeg(image, side)
    except Exception:  # a broken file makes its decoder raise anything: SyntaxError, struct.error, zlib.error, ...
        return None


def _jpeg(image: "Image", side: int) -> bytes:
    from PIL import Image, ImageOps

    image.draft("RGB", (2 * side, 2 * side))  # lets the JPEG decoder skip what is not needed
    if image.mode[0] in "IF":
        image = _eight_bit(image)
    if image.mode not in ("L", "RGB", "RGBA", "CMYK"):  # palettes cannot be scaled well
        image = image.convert("RGBA")
    image.thumbnail((side, side))  # before all else: the rest is then cheap
    small = ImageOps.exif_transpose(image).convert("RGBA")
    flat = Image.new("RGB", small.size, "white")  # a new image has no metadata
    flat.paste(small, mask=small.getchannel("A"))
    written = io.BytesIO()
    flat.save(written, "JPEG", quality=QUALITY, optimize=True)
    return written.getvalue()


def _eight_bit(image: "Image") -> "Image":
    """Bring 16-bit or floating-point grey, of whatever range, to 8 bits."""
    from PIL import Image

    values = np.asarray(image, dtype=np.float32)
    low, high = float(values.min()), float(values.max())
    return Image.fromarray((255 * (values - low) / max(high - low, 1e-9)).astype(np.uint8))
