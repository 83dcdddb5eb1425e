"""The common tests, on every method and every backbone; and a method in a file of its own (docs/own-method.md)."""

from pathlib import Path

import pytest

from in2r.errors import InputError
from in2r.methods import METHODS
from in2r.runs.settings import load_config
from in2r.testing import BACKBONES, CHECKS, Case

SHARED = ("gpo", "vsepp", "sgr")
"""backbones that every method is tested on; what `saf` and `scan` add is a norm and a similarity"""
CHOSEN = ("resumes_bit_identically", "ignores_the_order_in_a_batch", "never_waits_for_the_device")
ON_SAF = ("in2r", "gsc", "decl")
"""of rectification, of relations inside a side, of a similarity's logit"""
ON_SCAN = ("triplet", "ncr", "gsc")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("backbone", SHARED)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_keeps_the_contract(method: str, backbone: str, check: str, tmp_path: Path) -> None:
    if backbone == "sgr" and METHODS[method].compares_vectors:
        pytest.skip("the settings refuse it: test_settings_that_contradict_each_other")
    CHECKS[check](Case(method, backbone, tmp_path))


@pytest.mark.parametrize("check", CHOSEN)
@pytest.mark.parametrize(
    ("backbone", "method"), [*(("saf", method) for method in ON_SAF), *(("scan", method) for method in ON_SCAN)]
)
def test_a_method_keeps_the_contract_on_other_backbones(backbone: str, method: str, check: str, tmp_path: Path) -> None:
    CHECKS[check](Case(method, backbone, tmp_path))


@pytest.mark.parametrize("backbone", [backbone for backbone in BACKBONES if backbone not in SHARED])
@pytest.mark.parametrize("method", ["in2r", "sce"])
def test_what_is_exported_scores_as_in_training(backbone: str, method: str, tmp_path: Path) -> None:
    without = ("method.rectifier=none", "method.lambda_intra=0") if (backbone, method) == ("scan", "in2r") else ()
    CHECKS["exports_what_was_trained"](Case(method, backbone, tmp_path, without))


READS = "reads the vector of a whole image and of a whole caption"


@pytest.mark.parametrize(
    ("preset", "overrides", "said"),
    [
        ("in2r", (), rf"in2r {READS} \(method\.rectifier=refiner, method\.lambda_intra=0\.5\)"),
        ("in2r/discard", (), rf"in2r {READS} \(method\.lambda_intra=0\.5\), and model\.backbone=scan learns none"),
        ("in2r", ("method.lambda_intra=0",), rf"in2r {READS} \(method\.rectifier=refiner\)"),
        (
            "in2r/discard",
            ("method.lambda_intra=0", "method.warmup_views=true"),
            rf"in2r {READS} \(method\.warmup_views=true\)",
        ),
        ("pc2", (), rf"pc2 {READS} \(method\.positions=0\)"),
        ("pcsr", (), rf"pcsr {READS} \(method\.positions=0\)"),
        ("corroborate", (), r"corroborate compares vectors, and model\.backbone=scan makes none"),
        (
            "decl",
            (),
            r"decl takes S for a number in \[-1, 1\], which model\.scan_pooling=lse exceeds; set",
        ),
        ("l2rm", (), r"l2rm takes S for a number in \[-1, 1\]"),
    ],
)
def test_scan_refuses_what_it_has_no_vector_or_no_bound_for(preset: str, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=f"^configuration: {said}"):
        load_config(preset, ["model.backbone=scan", *overrides])


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [
        ("in2r/discard", ("method.lambda_intra=0",)),
        ("pc2", ("method.positions=4",)),
        ("decl", ("model.scan_pooling=mean",)),
        ("l2rm", ("model.scan_pooling=mean",)),
        *((method, ()) for method in ("triplet", "sce", "ncr", "esc", "gsc", "sps", "bicro", "cream")),
    ],
)
def test_scan_takes_the_rest(preset: str, overrides: tuple[str, ...]) -> None:
    assert load_config(preset, ["model.backbone=scan", *overrides]).model.backbone == "scan"


def test_corroborate_refuses_saf_as_sgr() -> None:
    with pytest.raises(InputError, match=r"corroborate compares vectors, and model\.backbone=saf makes none that tell"):
        load_config("corroborate", ["model.backbone=saf", "train.region_drop=0"])
