"""An image file's bytes → RGB pixels, upright, or a verdict that says why not; known by content, not by name."""

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from in2r.data.verdicts import ANIMATED, EMPTY, NOT_AN_IMAGE, OK, TOO_LARGE, TRUNCATED, Verdict
from in2r.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = (
    "JPEG", "MPO", "PNG", "GIF", "WEBP", "AVIF", "BMP", "DIB", "TIFF", "JPEG2000", "PPM", "ICO", "PCX", "SGI", "QOI",
)  # fmt: skip
"""What is decoded. PostScript and Windows metafiles would start other programs; TGA has no mark to be known by."""

MAX_PIXELS = 100_000_000
"""The pixel limit: above every camera of a phone or studio (100 megapixels). One image takes 300 MB of memory while it
is prepared, with four channels of 16 bits up to 2.5 GB."""

_MOVING = ("GIF", "PNG", "WEBP", "AVIF")
"""Formats in which further frames are an animation; in others they are pages or a second view of the same photo."""

_MARKS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")
"""How image files begin: one that begins so and cannot be opened was cut off."""


@dataclass(frozen=True)
class Picture:
    """An image that was looked at: pixels (RGB, upright) unless the verdict says why there are none."""

    verdict: Verdict
    image: "Image | None" = None


def require_pillow() -> None:
    """Raise `InputError` with the install command where Pillow is absent."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise InputError('reading images needs Pillow: pip install "in2r[images]"') from None


@contextmanager
def pixel_limit(pixels: int) -> Iterator[None]:
    """Let Pillow refuse what is much larger than the limit while it opens files, those within files included.

    Pillow's limit and Python's filter of warnings are the process's own: open this once, around all threads that read.
    """
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata: what counts is whether there are pixels
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def read_image(name: str, data: bytes, pixels: int = MAX_PIXELS) -> Picture:
    """Decode an image; whatever the bytes are, the answer is a verdict, never an error.

    Args:
        name: what the table calls the image.
        data: the file's content.
        pixels: images of more pixels are refused before they are decoded.
    """
    from PIL import Image

    if not data:
        return Picture(Verdict(name, EMPTY, "zero bytes"))
    try:
        opened = Image.open(io.BytesIO(data), formats=_known_formats())
    except Image.DecompressionBombError:
        return Picture(Verdict(name, TOO_LARGE, f"more than {2 * pixels:,} pixels"))
    except Exception as error:
        return Picture(_unopened(name, data, error))
    with opened:
        found = Verdict(name, OK, "", *opened.size, str(opened.format), opened.mode)
        if opened.width * opened.height > pixels:
            return Picture(found.changed(TOO_LARGE, f"more than {pixels:,} pixels"))
        try:
            moving = opened.format in _MOVING and bool(getattr(opened, "is_animated", False))
            image = _upright(_to_rgb(opened), opened)
        except Image.DecompressionBombError:
            return Picture(found.changed(TOO_LARGE, f"holds an image of more than {2 * pixels:,} pixels"))
        except Exception as error:  # decoders raise anything from OSError to struct.error
            return Picture(found.changed(TRUNCATED, _one_line(error)))
    found = found.changed(ANIMATED, "its first frame is used") if moving else found
    return Picture(found.with_pixels(_digest(image)), image)


def _known_formats() -> list[str]:
    """Return those of `FORMATS` that the installed Pillow can read."""
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _unopened(name: str, data: bytes, error: Exception) -> Verdict:
    """Tell a file that was cut off within its header from something that is no image."""
    if data.startswith(_MARKS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return Verdict(name, TRUNCATED, f"the header cannot be read ({len(data):,} bytes)")
    if type(error).__name__ != "UnidentifiedImageError":
        return Verdict(name, NOT_AN_IMAGE, _one_line(error))
    return Verdict(name, NOT_AN_IMAGE, f"begins with {data[:16]!r}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _to_rgb(image: "Image") -> "Image":
    """Return 8-bit RGB of any mode: transparency over white, 16 bits as their upper eight."""
    image.load()
    if image.mode.startswith("I") or image.mode == "F":
        return _from_deep(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return _over_white(image)
    return image.convert("RGB")


def _over_white(image: "Image") -> "Image":
    from PIL import Image

    if image.mode == "La":
        image = image.convert("LA")
    layer = image.convert("RGBA")
    white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layer).convert("RGB")


def _from_deep(image: "Image") -> "Image":
    """Bring 16-bit and 32-bit grey to eight bits; whole numbers up to 65535 are 16-bit, others are stretched."""
    import numpy as np
    from PIL import Image

    values: Any = np.nan_to_num(np.asarray(image).astype(np.float32))
    low, high = (0.0, 65535.0) if image.mode != "F" and values.min() >= 0 else (values.min(), values.max())
    if high == 65535.0 and values.max() > high:
        high = values.max()
    scaled = (values - low) / max(float(high - low), 1e-12) * 255
    return Image.fromarray(scaled.round().astype(np.uint8)).convert("RGB")


def _upright(image: "Image", original: "Image") -> "Image":
    """Turn an image as its EXIF data say; data that cannot be read turn nothing."""
    from PIL import ExifTags, Image

    turns = Image.Transpose
    turn = {
        2: turns.FLIP_LEFT_RIGHT, 3: turns.ROTATE_180, 4: turns.FLIP_TOP_BOTTOM, 5: turns.TRANSPOSE,
        6: turns.ROTATE_270, 7: turns.TRANSVERSE, 8: turns.ROTATE_90,
    }  # fmt: skip
    try:
        orientation = original.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # EXIF is decoded from bytes that anyone may have written
        orientation = None
    return image.transpose(turn[orientation]) if orientation in turn else image


def _digest(image: "Image") -> str:
    """Return a hash of the size and the pixels: equal for copies under other names, in other lossless formats."""
    digest = hashlib.blake2b(f"{image.width}x{image.height}".encode(), digest_size=16)
    digest.update(image.tobytes())
    return digest.hexdigest()
