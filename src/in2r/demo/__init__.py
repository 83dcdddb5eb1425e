"""The embedded data set: drawn scenes with captions and region features."""

from in2r.demo.make import VERSION, make_scenes

__all__ = ["VERSION", "make_scenes"]
