"""What the package imports is what pyproject.toml says it needs, and what requirements.txt pins."""

import ast
import re
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}
"""module → distribution, where their names differ"""


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
    declared = {name(each) for each in [*project["dependencies"], *extras]}
    assert {found: file for found, file in imported().items() if found not in declared} == {}
    assert declared - set(imported()) == {"tensorboard"}  # torch.utils.tensorboard imports it
    assert declared - pinned("requirements.txt") == set()
    assert {name(each) for each in optional["docs"]} - pinned("docs/requirements.txt") == set()
    assert pinned("requirements.txt") & pinned("docs/requirements.txt") == set()


def pinned(file: str) -> set[str]:
    lines = (CHECKOUT / file).read_text(encoding="utf-8").splitlines()
    return {line.split("==")[0].lower() for line in lines if "==" in line}
