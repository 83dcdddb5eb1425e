"""The common tests, on every method and every backbone; and a method in a file of its own (docs/own-method.md)."""

from pathlib import Path

import pytest

from in2r.methods import METHODS
from in2r.testing import BACKBONES, CHECKS, Case


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_keeps_the_contract(method: str, backbone: str, check: str, tmp_path: Path) -> None:
    if backbone == "sgr" and METHODS[method].compares_vectors:
        pytest.skip("the settings refuse it: test_settings_that_contradict_each_other")
    CHECKS[check](Case(method, backbone, tmp_path))
