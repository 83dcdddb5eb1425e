"""IN²R: image-text retrieval that survives mismatched pairs, and finds them."""

__version__ = "0.1.0"
