"""Region features of pictures, computed from the pixels alone.

Ten regions a picture: the whole, then nine windows of half its side that overlap by half (3 × 3, row by row).
A region holds histograms of colour, of edge direction by colour and of local binary patterns, its mean colour
and where it lies. All sums are of integers, so no platform's order of summation changes the result.
"""

import colorsys
import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from in2r.demo.drawing import SIDE, Pixels, draw_scene, paint
from in2r.seeds import derive

REGIONS = 10
_CELL = SIDE // 4  # histograms are counted on 4 × 4 cells; a window is 2 × 2 of them
_COLOURS = 28  # black, three greys, 12 hues × (dark, light)
_FAMILIES = 8  # dark, grey, 6 pairs of hues: the colours that edges are told apart by
_DIRECTIONS = 8  # of an edge, over half a turn
_PATTERNS = 10  # rotation-invariant uniform local binary patterns of 8 neighbours
_SCALE = 1024  # square roots of shares are kept as whole numbers of 1/1024
DIM = _COLOURS + _FAMILIES * _DIRECTIONS + _PATTERNS + 3 + 3

Counts = NDArray[np.int64]


def region_features(pictures: Pixels) -> NDArray[np.float16]:
    """Return the features of pictures, (pictures, SIDE, SIDE, 3) uint8 → (pictures, REGIONS, DIM) float16.

    Each column is standardised by constants taken from 64 fixed pictures, so a picture's features depend on
    nothing but its pixels.
    """
    mean, deviation = _calibration()
    return ((_measure(pictures) - mean) / deviation).astype(np.float16)


@lru_cache(maxsize=1)
def _calibration() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each column, over all regions of 64 fixed pictures."""
    pictures = []
    for number in range(64):
        rng = random.Random(derive(0, "scenes", "calibration", number))
        pictures.append(paint(draw_scene(rng), rng))
    values = _measure(np.stack(pictures)).reshape(-1, DIM)
    count, total, squares = len(values), values.sum(axis=0), (values * values).sum(axis=0)
    variance = (count * squares - total * total) / (count * count)
    return total / count, np.sqrt(np.maximum(variance, 1.0))


def _measure(pictures: Pixels) -> Counts:
    """Return the features before standardisation, (pictures, REGIONS, DIM) int64."""
    colour = _colour_bins()[tuple((pictures >> 3).transpose(3, 0, 1, 2).astype(np.intp))]
    weights = np.array([2, 5, 1], np.int16)
    luma = (pictures.astype(np.int16) * weights).sum(axis=3, dtype=np.int16) >> 3
    edges = _families()[colour] * _DIRECTIONS + _edge_directions(luma)
    shares = [
        _region_shares(colour, _COLOURS),
        _region_shares(np.where(_edge_strength(luma) > 24, edges, _FAMILIES * _DIRECTIONS), _FAMILIES * _DIRECTIONS),
        _region_shares(_local_patterns(luma), _PATTERNS),
    ]
    roots = [np.rint(np.sqrt(share) * _SCALE).astype(np.int64) for share in shares]
    place = np.broadcast_to(_places(), (len(pictures), REGIONS, 3))
    return np.concatenate([*roots, _mean_colour(pictures), place], axis=2)


def _region_sums(cells: Counts) -> Counts:
    """Sum 4 × 4 cells to regions: (pictures, 4, 4, n) → (pictures, REGIONS, n)."""
    whole = cells.sum(axis=(1, 2))
    windows = [cells[:, r : r + 2, c : c + 2].sum(axis=(1, 2)) for r in range(3) for c in range(3)]
    return np.stack([whole, *windows], axis=1)


def _areas() -> Counts:
    """Return the pixels of each region, (REGIONS, 1)."""
    return np.array([[SIDE * SIDE]] + [[4 * _CELL * _CELL]] * (REGIONS - 1))


def _region_shares(codes: NDArray[np.integer], bins: int) -> NDArray[np.float64]:
    """Return the share of each region's pixels with each code; codes ≥ bins are not counted.

    codes (pictures, SIDE, SIDE) → (pictures, REGIONS, bins).
    """
    pictures = len(codes)
    along = np.arange(SIDE) // _CELL
    cell = (np.arange(pictures)[:, None, None] * 4 + along[:, None]) * 4 + along
    counts = np.bincount((cell * (bins + 1) + codes).ravel(), minlength=pictures * 16 * (bins + 1))
    cells = counts.reshape(pictures, 4, 4, bins + 1)[..., :bins]
    return _region_sums(cells) / _areas()


def _mean_colour(pictures: Pixels) -> Counts:
    cells = pictures.reshape(-1, 4, _CELL, 4, _CELL, 3).sum(axis=(2, 4), dtype=np.int64)
    return _region_sums(cells) * 4 // _areas()


def _places() -> Counts:
    """Return column, row and extent of each region, (REGIONS, 3)."""
    windows = [(c - 1, r - 1, 1) for r in range(3) for c in range(3)]
    return np.array([(0, 0, 2), *windows], np.int64) * _SCALE


@lru_cache(maxsize=1)
def _colour_bins() -> NDArray[np.uint8]:
    """Return the colour bin of every 5-bit (red, green, blue), (32, 32, 32)."""
    table = np.empty((32, 32, 32), np.uint8)
    for red, green, blue in np.ndindex(32, 32, 32):
        hue, saturation, value = colorsys.rgb_to_hsv(red / 31, green / 31, blue / 31)
        if value < 0.24:
            code = 0
        elif saturation < 0.17:
            code = 1 + (value > 0.5) + (value > 0.8)
        else:
            code = 4 + 2 * (int(hue * 12 + 0.47) % 12) + (value > 0.64)
        table[red, green, blue] = code
    return table


def _families() -> NDArray[np.int64]:
    """Return the family of each colour bin, (_COLOURS,)."""
    return np.array([0, 0, 1, 1] + [2 + bin_ // 4 for bin_ in range(_COLOURS - 4)])


def _gradients(luma: NDArray[np.int16]) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Return central differences across and down; the outermost rows and columns stay 0."""
    across, down = np.zeros_like(luma), np.zeros_like(luma)
    across[:, 1:-1, 1:-1] = luma[:, 1:-1, 2:] - luma[:, 1:-1, :-2]
    down[:, 1:-1, 1:-1] = luma[:, 2:, 1:-1] - luma[:, :-2, 1:-1]
    return across, down


def _edge_strength(luma: NDArray[np.int16]) -> NDArray[np.int16]:
    across, down = _gradients(luma)
    return abs(across) + abs(down)


@lru_cache(maxsize=1)
def _direction_table() -> NDArray[np.uint8]:
    """Return the direction bin of every pair of differences in −128..127 (halved)."""
    step = np.arange(-128, 128)
    angle = np.arctan2(step[:, None], step[None, :]) / np.pi + 1 / 16  # bins centred on the axes
    return (np.floor(angle * _DIRECTIONS) % _DIRECTIONS).astype(np.uint8)


def _edge_directions(luma: NDArray[np.int16]) -> NDArray[np.uint8]:
    across, down = _gradients(luma)
    return np.asarray(_direction_table()[(down >> 1) + 128, (across >> 1) + 128])


@lru_cache(maxsize=1)
def _pattern_table() -> NDArray[np.uint8]:
    """Return for every ring of 8 bits: its number of ones if they are in one run, else 9."""
    table = np.empty(256, np.uint8)
    for ring in range(256):
        changes = (ring ^ (ring >> 1 | (ring & 1) << 7)).bit_count()
        table[ring] = ring.bit_count() if changes <= 2 else _PATTERNS - 1
    return table


def _local_patterns(luma: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Return the pattern of the neighbours two pixels away that are clearly lighter than a pixel."""
    padded = np.pad(luma, ((0, 0), (2, 2), (2, 2)), mode="edge")
    ring = np.zeros(luma.shape, np.uint8)
    for bit, (down, across) in enumerate(((0, 0), (0, 2), (0, 4), (2, 4), (4, 4), (4, 2), (4, 0), (2, 0))):
        lighter = padded[:, down : down + SIDE, across : across + SIDE] > luma + 8
        ring |= lighter.astype(np.uint8) << bit
    return np.asarray(_pattern_table()[ring])
