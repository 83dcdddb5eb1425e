"""Outlines and surface patterns of drawn objects.

A shape is a test on coordinates u (rightwards) and v (downwards) in (-1, 1). Only sums, products, quotients
and comparisons are used, which all platforms round alike. Smooth edges come from 3 × 3 samples per pixel.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float64]
Mask = NDArray[np.bool_]


def _disc(u: Plane, v: Plane, cx: float = 0.0, cy: float = 0.0, r: float = 0.97) -> Mask:
    return np.asarray((u - cx) * (u - cx) + (v - cy) * (v - cy) < r * r)


def _box(u: Plane, v: Plane) -> Mask:
    return np.asarray(np.maximum(abs(u), abs(v)) < 0.86)


def _triangle(u: Plane, v: Plane) -> Mask:
    return np.asarray((v < 0.85) & (abs(u) < (v + 0.95) * 0.54))


def _diamond(u: Plane, v: Plane) -> Mask:
    return np.asarray(abs(u) * 1.4 + abs(v) < 0.97)


def _star(u: Plane, v: Plane) -> Mask:
    """Return the points that lie inside at least four of a pentagon's five half-planes."""
    normals = ((0.0, 1.0), (0.951, 0.309), (0.588, -0.809), (-0.588, -0.809), (-0.951, 0.309))
    inside = [(a * u + b * (v - 0.06) < 0.33).astype(np.int32) for a, b in normals]
    return np.asarray(sum(inside) >= 4) & _disc(u, v, 0.0, 0.06, 1.06)


def _heart(u: Plane, v: Plane) -> Mask:
    x, y = 1.18 * u, 0.12 - 1.16 * v
    level = x * x + y * y - 1
    return np.asarray(level * level * level < x * x * y * y * y)


def _ring(u: Plane, v: Plane) -> Mask:
    return _disc(u, v) & ~_disc(u, v, r=0.52)


def _cross(u: Plane, v: Plane) -> Mask:
    return np.asarray((np.minimum(abs(u), abs(v)) < 0.3) & (np.maximum(abs(u), abs(v)) < 0.93))


def _moon(u: Plane, v: Plane) -> Mask:
    return _disc(u, v) & ~_disc(u, v, 0.5, -0.12, 0.8)


def _house(u: Plane, v: Plane) -> Mask:
    body = (abs(u) < 0.66) & (v > -0.2) & (v < 0.92) & ~((abs(u) < 0.18) & (v > 0.4))
    roof = (v <= -0.1) & (abs(u) < (v + 0.95) * 1.15)
    return np.asarray(body | roof)


def _fish(u: Plane, v: Plane) -> Mask:
    body = (u + 0.22) * (u + 0.22) / 0.55 + v * v / 0.32 < 1
    tail = (u > 0.3) & (u < 0.95) & (abs(v) < (u - 0.24) * 0.9)
    return np.asarray(body | tail) & ~_disc(u, v, -0.55, -0.14, 0.1)


def _flower(u: Plane, v: Plane) -> Mask:
    petals = ((0.0, -0.58), (0.552, -0.179), (0.341, 0.469), (-0.341, 0.469), (-0.552, -0.179))
    inside = [_disc(u, v, cx, cy, 0.37) for cx, cy in petals]
    return np.asarray(np.logical_or.reduce(inside)) & ~_disc(u, v, r=0.2)


SHAPES = {
    "ball": _disc,
    "box": _box,
    "triangle": _triangle,
    "diamond": _diamond,
    "star": _star,
    "heart": _heart,
    "ring": _ring,
    "cross": _cross,
    "moon": _moon,
    "house": _house,
    "fish": _fish,
    "flower": _flower,
}


def texture(kind: str, extent: int, way: int, phase: int) -> NDArray[np.bool_]:
    """Return where the second colour goes, (extent, extent); `way` turns the stripes."""
    y, x = np.mgrid[:extent, :extent] + phase
    if kind == "striped":
        return np.asarray((y, x, x + y)[way] % 7 < 3)
    if kind == "dotted":
        return np.asarray((x % 7 - 3) ** 2 + (y % 7 - 3) ** 2 <= 4)
    if kind == "checkered":
        return np.asarray((x // 5 + y // 5) % 2 == 0)
    return np.zeros((extent, extent), np.bool_)


@lru_cache(maxsize=1024)
def coverage(kind: str, extent: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return how many of a pixel's 9 samples lie in the shape, and how many in its rim.

    Two (extent, extent) arrays; they are shared, so do not write to them.
    """
    fine = 3 * extent
    along = (2 * np.arange(fine) + 1 - fine) / fine  # sample centres in (-1, 1)
    inside = SHAPES[kind](np.broadcast_to(along, (fine, fine)), np.broadcast_to(along[:, None], (fine, fine)))
    padded = np.pad(inside, 4)
    core = padded.copy()
    for step in (-4, 4):
        core &= np.roll(padded, step, 0) & np.roll(padded, step, 1)
    rim = inside & ~core[4:-4, 4:-4]

    def count(samples: NDArray[np.bool_]) -> NDArray[np.int32]:
        return np.asarray(samples.reshape(extent, 3, extent, 3).sum(axis=(1, 3), dtype=np.int32))

    return count(inside), count(rim)
