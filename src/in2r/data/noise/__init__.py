"""Injected mismatches: an index says which image stands beside each caption. Draw, save, load, check, count.

Two protocols are in use and must not be mixed. *Caption level*: the image ids of a share of the captions are
permuted among these captions. *Image level*: a share of the images is permuted and all captions of an image
move together.
"""

from in2r.data.noise.files import load_index, npy_path, save_index, sidecar_path
from in2r.data.noise.index import NoiseIndex, describe_noise, draw_noise, make_index

__all__ = [
    "NoiseIndex", "describe_noise", "draw_noise", "load_index", "make_index", "npy_path", "save_index", "sidecar_path",
]  # fmt: skip
