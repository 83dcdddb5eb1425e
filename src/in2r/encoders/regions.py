"""From what an encoder returns to the regions of a feature file."""

import torch
from torch import Tensor
from torch.nn import functional

from in2r.encoders.base import Encoded
from in2r.errors import InputError

Regions = int | None
"""K: the whole image and a K × K grid; 0: the whole image alone; None: the whole image and every place."""


def to_regions(encoded: Encoded, regions: Regions) -> Tensor:
    """Return (n, r, d) float32: row 0 is the whole image, the others a grid, row by row.

    The whole image is the model's own vector; where it has none, or one of another length than the grid's, the mean of
    the grid. A model without a grid has one region.

    Args:
        encoded: a batch; regions of the encoder's own are taken as they are.
        regions: K, 0 or None.

    Raises:
        InputError: the encoder gave nothing.
    """
    if encoded.regions is not None:
        return encoded.regions.float()
    whole, grid = encoded.whole, encoded.grid
    if grid is None or (regions == 0 and whole is not None):
        if whole is None:
            raise InputError("the encoder returns neither a vector nor a grid")
        return whole.float()[:, None]
    places = grid.float().permute(0, 3, 1, 2)  # (n, d, height, width)
    if whole is None or whole.shape[-1] != grid.shape[-1]:
        whole = places.mean((2, 3))
    if regions:
        places = functional.adaptive_avg_pool2d(places, regions)
    rows = [whole.float()[:, None]] + ([] if regions == 0 else [places.flatten(2).transpose(1, 2)])
    return torch.cat(rows, dim=1)


def describe(encoded: Encoded, regions: Regions) -> str:
    """Say how `to_regions` pools, for the record."""
    if encoded.regions is not None:
        return "the encoder's own regions"
    whole, grid = encoded.whole, encoded.grid
    own = whole is not None and (grid is None or regions == 0 or whole.shape[-1] == grid.shape[-1])
    first = "the model's vector" if own else "the mean of the grid"
    if grid is None or regions == 0:
        return first
    return f"{first}, then {f'{regions} x {regions} means' if regions else 'every place'} row by row"
