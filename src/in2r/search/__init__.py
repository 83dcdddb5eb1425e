"""Search by a trained model: an index of images or captions, and the nearest of them."""

from in2r.search.index import Hit, Index, Results

__all__ = ["Hit", "Index", "Results"]
