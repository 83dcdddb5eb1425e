"""Common tests of methods: what every method must pass, the package's and your own. See docs/own-method.md."""

from in2r.testing.case import BACKBONES, Case
from in2r.testing.checks import CHECKS, check_method

__all__ = ["BACKBONES", "CHECKS", "Case", "check_method"]
