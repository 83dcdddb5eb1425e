"""An index over HTTP: a JSON API and a page with pictures."""

from in2r.serve.limits import Limits
from in2r.serve.run import serve

__all__ = ["Limits", "serve"]
