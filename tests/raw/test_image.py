"""Images of every kind that people have: pixels, upright and RGB, or a verdict."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from in2r.data.verdicts import VERDICTS
from in2r.raw.image import pixel_limit, read_image

RED, BLUE = (200, 30, 20), (10, 40, 220)


def halves(size: tuple[int, int] = (40, 20)) -> Image.Image:
    """A red left half and a blue right half."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixel(data: bytes, x: int, y: int) -> tuple[int, ...]:
    picture = read_image("a", data)
    assert picture.image is not None, picture.verdict
    assert picture.image.mode == "RGB"
    found = picture.image.getpixel((x, y))
    assert isinstance(found, tuple)
    return found


def near(found: tuple[int, ...], wanted: tuple[int, ...], off: int = 6) -> bool:
    return max(abs(one - other) for one, other in zip(found, wanted, strict=True)) <= off


@pytest.mark.parametrize(("orientation", "place"), [(1, (2, 10)), (3, (37, 10)), (6, (10, 2)), (8, (10, 37))])
def test_exif_turns_the_red_half_to_where_it_was_seen(orientation: int, place: tuple[int, int]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(halves(), "JPEG", exif=exif, quality=95)
    assert near(pixel(data, *place), RED)
    verdict = read_image("a", data).verdict
    assert (verdict.verdict, verdict.width, verdict.height, verdict.format) == ("ok", 40, 20, "JPEG")


def test_every_mode_becomes_rgb() -> None:
    grey = Image.new("L", (8, 8), 77)
    assert pixel(saved(grey), 1, 1) == (77, 77, 77)
    assert pixel(saved(Image.new("1", (8, 8), 1)), 1, 1) == (255, 255, 255)
    assert near(pixel(saved(halves().convert("CMYK"), "JPEG", quality=95), 2, 2), RED, 12)
    assert near(pixel(saved(halves().convert("P", palette=Image.Palette.ADAPTIVE)), 2, 2), RED)


def test_sixteen_bits_are_scaled_and_not_cut() -> None:
    deep = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert near(pixel(saved(deep), 1, 1), (128, 128, 128), 1)


def test_what_is_transparent_is_white() -> None:
    layer = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    layer.paste((*BLUE, 255), (4, 0, 8, 8))
    data = saved(layer)
    assert (pixel(data, 1, 1), pixel(data, 6, 1)) == ((255, 255, 255), BLUE)
    palette = saved(Image.new("P", (8, 8), 0), transparency=0)
    assert pixel(palette, 1, 1) == (255, 255, 255)


def test_an_animated_image_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    picture = read_image("a", data)
    assert picture.verdict.verdict == "animated"
    assert picture.verdict.encoded
    assert near(pixel(data, 1, 1), RED)


def test_a_photo_with_a_second_view_is_no_animation() -> None:
    data = saved(halves(), "MPO", save_all=True, append_images=[halves()])
    assert read_image("a", data).verdict.verdict == "ok"


def noisy(kind: str) -> bytes:
    values = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    return saved(Image.fromarray(values), kind)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"])
def test_a_file_cut_anywhere_is_never_half_read(kind: str) -> None:
    data = noisy(kind)
    for share in (0.05, 0.5, 0.9):
        verdict = read_image("a", data[: int(len(data) * share)]).verdict
        assert verdict.verdict == "truncated", (share, verdict)
        assert verdict.pixels == ""
    assert read_image("a", data).verdict.verdict == "ok"


def test_what_is_no_image_is_said_by_its_first_bytes() -> None:
    page = read_image("photo.jpg", b"<!DOCTYPE html><html>not found</html>").verdict
    assert (page.verdict, page.detail) == ("not an image", "begins with b'<!DOCTYPE html><'")
    assert read_image("a", b"").verdict.verdict == "empty file"


def test_postscript_is_not_run() -> None:
    data = saved(halves(), "EPS")
    assert read_image("a", data).verdict.verdict == "not an image"


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    data = saved(Image.new("1", (3000, 2000)))
    assert len(data) < 5000
    with pixel_limit(1_000_000):
        far = read_image("a", data, 1_000_000).verdict
    with pixel_limit(4_000_000):
        near = read_image("a", data, 4_000_000).verdict
        assert read_image("a", saved(halves()), 4_000_000).verdict.verdict == "ok"
    assert (far.verdict, far.detail) == ("too large", "more than 2,000,000 pixels")
    assert (near.verdict, near.detail, near.width) == ("too large", "more than 4,000,000 pixels", 3000)


def test_copies_agree_in_their_pixels_and_others_do_not() -> None:
    png, bmp = (read_image("a", saved(halves(), kind)).verdict for kind in ("PNG", "BMP"))
    other = read_image("a", saved(halves((20, 40)))).verdict
    assert png.pixels == bmp.pixels != other.pixels


def test_damaged_bytes_never_raise() -> None:
    draws = random.Random(0)
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF"):
        data = bytearray(noisy(kind))
        for _ in range(30):
            broken = bytearray(data)
            for _ in range(8):
                broken[draws.randrange(min(400, len(broken)))] = draws.randrange(256)
            with pixel_limit(1_000_000):
                assert read_image("a", bytes(broken), 1_000_000).verdict.verdict in VERDICTS
