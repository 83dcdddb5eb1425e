"""What the package imports is what pyproject.toml says it needs, and what requirements.txt pins."""

import ast
import re
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import in2r

CHECKOUT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "PIL": "pillow",
    "open_clip": "open_clip_torch",
    "faiss": "faiss-cpu",
}
"""module → distribution, where their names differ"""
INDIRECT = {"tensorboard", "torchvision", "eccv-caption", "ray"}
"""imported by torch.utils.tensorboard, and by timm and open_clip; files of one are read; users import Ray"""


def name(requirement: str) -> str:
    """Return the distribution of a requirement, such as scipy of scipy>=1.10."""
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower()


def imported() -> dict[str, str]:
    """Return each foreign distribution that the source imports, and a file that does."""
    found = {}
    for path in (CHECKOUT / "src" / "in2r").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for module in (each.split(".")[0] for each in names):
                if module not in sys.stdlib_module_names and module != "in2r":
                    found[DISTRIBUTIONS.get(module, module)] = path.name
    return found


def test_what_is_imported_is_declared_and_what_is_declared_is_pinned() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    extras = [each for extra, needs in optional.items() if extra not in ("dev", "docs") for each in needs]
    declared = {name(each) for each in [*project["dependencies"], *extras]} - {"in2r"}
    tested = {name(each) for extra in optional_of_dev(optional) for each in optional[extra]} - {"in2r"}
    assert {found: file for found, file in imported().items() if found not in declared} == {}
    assert declared - set(imported()) == INDIRECT
    assert tested | {name(each) for each in project["dependencies"]} <= pinned("requirements.txt")
    untested = {"timm", "open_clip_torch", "torchvision", "datasets", "ray"}  # bound to a build of torch; large
    assert declared - pinned("requirements.txt") == untested
    assert {name(each) for each in optional["docs"]} - pinned("docs/requirements.txt") == set()
    assert pinned("requirements.txt") & pinned("docs/requirements.txt") == set()


def optional_of_dev(optional: dict[str, list[str]]) -> set[str]:
    """Return the extras that `dev` takes, and those that they take."""
    found, left = set(), {"dev"}
    while left:
        found |= left
        own = [each for extra in left for each in optional[extra] if each.startswith("in2r[")]
        left = {extra for each in own for extra in each[5:-1].split(",")} - found
    return found


def pinned(file: str) -> set[str]:
    lines = (CHECKOUT / file).read_text(encoding="utf-8").splitlines()
    return {line.split("==")[0].lower() for line in lines if "==" in line}


def test_what_the_pins_need_is_pinned_too() -> None:
    """requirements.txt is a whole lock: nothing that is installed by it is chosen anew, but pip and torch's CUDA."""
    pins = pinned("requirements.txt")
    missing = set()
    for pin in pins:
        for line in distribution(pin).requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                missing |= {canonicalize_name(needed.name)} - {canonicalize_name(each) for each in pins}
    assert [each for each in missing if not each.startswith(("nvidia-", "cuda-", "triton"))] == []


def test_the_version_of_the_citation_is_that_of_the_package() -> None:
    [version] = re.findall(r"^version: (.+)$", (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert version == in2r.__version__
