"""Scenes: what a drawn picture holds, and its pixels.

Pixels are computed with whole numbers (shapes: see `shapes`), the same on every platform.
"""

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from in2r.demo.shapes import SHAPES, coverage, texture

SIDE = 96  # pixels; a picture is SIDE × SIDE

COLOURS = {
    "red": (208, 46, 44),
    "orange": (238, 134, 36),
    "yellow": (244, 212, 60),
    "green": (52, 148, 68),
    "blue": (48, 94, 204),
    "purple": (126, 66, 168),
    "pink": (238, 136, 176),
    "brown": (124, 78, 44),
    "black": (38, 38, 42),
    "white": (244, 244, 240),
    "turquoise": (60, 186, 186),
}
EXTENTS = {"small": (20, 24), "medium": (32, 37), "large": (46, 54)}  # pixels, inclusive
TEXTURES = ("plain", "striped", "dotted", "checkered")
BACKGROUNDS = ("sky", "grass", "sand", "wall", "night", "water", "snow", "wood")
_WITH_HORIZON = ("grass", "sand", "water", "snow")
_GROUND = {
    "sky": (150, 196, 236),
    "grass": (112, 168, 84),
    "sand": (220, 196, 144),
    "wall": (172, 104, 84),
    "night": (28, 32, 68),
    "water": (72, 132, 184),
    "snow": (226, 232, 240),
    "wood": (170, 126, 82),
}

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Thing:
    """One drawn object; x and y are the centre and extent is the width and height, in pixels."""

    kind: str
    colour: str
    size: str
    texture: str
    x: int
    y: int
    extent: int

    @property
    def look(self) -> tuple[str, str, str, str]:
        """What two alike objects share."""
        return self.kind, self.colour, self.size, self.texture


@dataclass(frozen=True)
class Scene:
    """A background and two to five objects, back to front; horizon is the row where the sky ends, or 0."""

    background: str
    horizon: int
    things: tuple[Thing, ...]


def overlap(a: Thing, b: Thing) -> float:
    """Return the common area of two bounding squares as a share of the smaller one."""
    reach = (a.extent + b.extent) / 2
    small = min(a.extent, b.extent)
    wide, high = (min(max(reach - abs(gap), 0), small) for gap in (a.x - b.x, a.y - b.y))
    return wide * high / small**2


def draw_scene(rng: random.Random) -> Scene:
    """Draw what one picture holds: a background and two to five objects, at times two alike."""
    background = rng.choice(BACKGROUNDS)
    horizon = rng.randint(20, 44) if background in _WITH_HORIZON and rng.random() < 0.5 else 0
    things: list[Thing] = []
    wanted = rng.choices((2, 3, 4, 5), (25, 35, 25, 15))[0]
    while len(things) < wanted:
        twin = things[-1] if things and rng.random() < 0.15 else None
        things.append(_draw_thing(rng, things, twin))
    return Scene(background, horizon, tuple(things))


def _draw_thing(rng: random.Random, others: list[Thing], twin: Thing | None) -> Thing:
    """Draw one object that hides at most a third of another; on a full picture, the least found."""
    kind, colour, size, texture = twin.look if twin else _draw_look(rng)
    tries = []
    for _ in range(12):
        extent = rng.randint(*EXTENTS[size])
        half = extent // 2 + 1
        x, y = rng.randint(half, SIDE - half), rng.randint(half, SIDE - half)
        thing = Thing(kind, colour, size, texture, x, y, extent)
        hidden = max((overlap(thing, other) for other in others), default=0.0)
        if hidden <= 0.35:
            return thing
        tries.append((hidden, x, y, thing))
    return min(tries)[-1]


def _draw_look(rng: random.Random) -> tuple[str, str, str, str]:
    kind = rng.choice(tuple(SHAPES))
    colour = rng.choice(tuple(COLOURS))
    size = rng.choices(tuple(EXTENTS), (35, 40, 25))[0]
    texture = rng.choices(TEXTURES, (46, 18, 18, 18))[0]
    return kind, colour, size, texture


def paint(scene: Scene, rng: random.Random) -> Pixels:
    """Return the picture of a scene, (SIDE, SIDE, 3) uint8, with its own light and grain."""
    canvas = _background(scene.background, rng)
    if scene.horizon:
        canvas[: scene.horizon] = _background("sky", rng)[: scene.horizon]
    for thing in scene.things:
        _paint_thing(canvas, thing, rng)
    start, end = rng.randint(212, 268), rng.randint(212, 268)
    light = start + (end - start) * np.arange(SIDE, dtype=np.int32) // SIDE
    canvas = canvas * light[:, None, None] >> 8
    pixels: Pixels = np.clip(canvas + _grain(rng, 3), 0, 255).astype(np.uint8)
    return pixels


def _grain(rng: random.Random, bits: int) -> NDArray[np.int32]:
    """Return zero-mean noise of `bits` bits, the same in all channels: (SIDE, SIDE, 1)."""
    noise = np.frombuffer(rng.randbytes(SIDE * SIDE), np.uint8) >> (8 - bits)
    return noise.reshape(SIDE, SIDE, 1).astype(np.int32) - (1 << bits >> 1)


def _background(kind: str, rng: random.Random) -> NDArray[np.int32]:
    """Return a background of one kind with its own shade and pattern, (SIDE, SIDE, 3) int32."""
    base = [channel + rng.randint(-14, 14) for channel in _GROUND[kind]]
    canvas = np.empty((SIDE, SIDE, 3), np.int32)
    canvas[:] = base
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.int32)
    return canvas + _PATTERNS[kind](rng, y, x)[..., None]


Grid = NDArray[np.int32]


def _sky(rng: random.Random, y: Grid, x: Grid) -> Grid:
    clouds = np.zeros((SIDE, SIDE), np.int32)
    for _ in range(rng.randint(1, 4)):
        cx, cy, r = rng.randint(0, SIDE), rng.randint(0, SIDE), rng.randint(6, 14)
        inside = 256 - 256 * ((x - cx) ** 2 + 5 * (y - cy) ** 2) // (3 * r * r)
        clouds = np.maximum(clouds, np.clip(inside, 0, 90))
    return clouds * 3 // 4 + y // 5


def _grass(rng: random.Random, y: Grid, x: Grid) -> Grid:
    blades = _grain(rng, 6)[..., 0]
    return (blades + np.roll(blades, 1, axis=0) + np.roll(blades, 2, axis=0)) // 3


def _sand(rng: random.Random, y: Grid, x: Grid) -> Grid:
    period = rng.randint(14, 22)
    bend = abs((x + rng.randint(0, 60)) % 60 - 30) // 4
    return -14 * ((y + bend) % period < 2) + _grain(rng, 5)[..., 0] // 2


def _wall(rng: random.Random, y: Grid, x: Grid) -> Grid:
    high, wide, shift = rng.randint(8, 12), rng.randint(18, 26), rng.randint(0, 20)
    row = (y + shift) // high
    across = x + shift + row % 2 * (wide // 2)
    mortar = ((y + shift) % high == 0) | (across % wide == 0)
    tone = (row * 37 + across // wide * 53) % 5 * 6 - 12
    return np.where(mortar, 44, tone).astype(np.int32)


def _night(rng: random.Random, y: Grid, x: Grid) -> Grid:
    stars = np.zeros((SIDE, SIDE), np.int32)
    for _ in range(rng.randint(12, 40)):
        stars[rng.randrange(SIDE), rng.randrange(SIDE)] = 190
    return stars + y // 6


def _water(rng: random.Random, y: Grid, x: Grid) -> Grid:
    period, phase = rng.randint(8, 13), rng.randint(0, 24)
    bend = abs((x + phase + y // 8 * 7) % 24 - 12) // 3
    return 26 * ((y + bend) % period < 2) + y // 6 - 8


def _snow(rng: random.Random, y: Grid, x: Grid) -> Grid:
    slope = abs((x + y // 2 + rng.randint(0, 160)) % 160 - 80) // 4
    return -slope + _grain(rng, 3)[..., 0]


def _wood(rng: random.Random, y: Grid, x: Grid) -> Grid:
    wide, shift = rng.randint(14, 24), rng.randint(0, 20)
    plank = (y + shift) // wide
    streak = np.frombuffer(rng.randbytes(SIDE), np.uint8).astype(np.int32)[:, None] // 12 - 10
    return np.where((y + shift) % wide == 0, -56, plank * 41 % 4 * 7 - 10 + streak).astype(np.int32)


_PATTERNS = {
    "sky": _sky,
    "grass": _grass,
    "sand": _sand,
    "wall": _wall,
    "night": _night,
    "water": _water,
    "snow": _snow,
    "wood": _wood,
}


def _paint_thing(canvas: NDArray[np.int32], thing: Thing, rng: random.Random) -> None:
    """Blend one object into the canvas in place: texture, a darker rim, smooth edges."""
    jitter = [rng.randint(-12, 12) for _ in range(3)]
    base = np.array(COLOURS[thing.colour], np.int32) + jitter
    second = np.array((250, 246, 232) if base.sum() < 560 else (70, 66, 74), np.int32)
    second = (base + 2 * second) // 3
    body, rim = coverage(thing.kind, thing.extent)
    pattern = texture(thing.texture, thing.extent, rng.randrange(3), rng.randrange(6))
    ink = np.where(pattern[..., None], second, base)
    ink = ink - (ink * rim[..., None] * 5) // 120  # a rim pixel loses up to three eighths of its light
    top, left = thing.y - thing.extent // 2, thing.x - thing.extent // 2
    patch = canvas[top : top + thing.extent, left : left + thing.extent]
    patch += (ink - patch) * body[..., None] // 9
