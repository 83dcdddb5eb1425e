"""The pages themselves: how long they are, which modules, tests and figures they name, and that they make a site."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS = CHECKOUT / "docs"
METHOD_PAGES = sorted((DOCS / "methods").glob("*.md"))
SOURCE = CHECKOUT / "src" / "in2r"


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    lines = read(CHECKOUT / "README.md").splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 100] == []


FIGURE = re.compile(r"(?<![\d.])\d+\.\d(?![\d.])")
DIFFERENCES = {"4.4": ("490.5", "486.1"), "20.4": ("252.9", "232.5")}
"""a figure of the page's prose → the two figures of its tables that it is the difference of"""


def test_the_results_are_short_and_every_figure_stands_in_a_generated_table() -> None:
    page, recipe = read(DOCS / "results.md"), read(DOCS / "results-recipe.md")
    marked = r"<!-- [a-z]+ -->\n.*?<!-- end -->"
    parts = [part for text in (page, recipe) for part in re.findall(marked, text, re.DOTALL)]
    for text in (page, recipe):
        assert len(text.splitlines()) <= 150
    pages = [read(path) for path in (DOCS / "results").glob("*.md") if path.name != "by-hand.md"]
    measured = set(FIGURE.findall("".join([*parts, *pages])))
    for difference, (one, other) in DIFFERENCES.items():
        assert {one, other} <= measured
        assert f"{float(one) - float(other):.1f}" == difference
    prose = re.sub(marked, "", page + recipe, flags=re.DOTALL)
    readme = "".join(line for line in read(CHECKOUT / "README.md").splitlines() if line.startswith("| "))
    written = set(FIGURE.findall(prose + readme))
    assert len(written) > 20
    assert sorted(written - measured - DIFFERENCES.keys()) == []


def test_the_design_page_names_every_module_and_nothing_else() -> None:
    packages = read(DOCS / "design.md").partition("## One training")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \| ([^|]*)\|$", packages, re.MULTILINE)
    named = {
        f"{package}/{module}.py" if modules.strip() else f"{package}.py"
        for row, modules in rows
        for package in re.findall("`([a-z_]+)`", row)
        for module in re.findall("`([a-z0-9_/]+)`", modules) or [""]
    }
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert sorted(named ^ found) == []


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_a_method_page_names_tests_files_and_functions_that_exist(page: Path) -> None:
    text = read(page)
    tests = "".join(read(path) for path in (CHECKOUT / "tests").rglob("test_*.py"))
    source = "".join(read(path) for path in SOURCE.rglob("*.py"))
    named = set(re.findall(r"`(test_[a-z_0-9]+)`", text))
    assert len(named) > 5
    assert sorted(name for name in named if f"def {name}(" not in tests) == []
    files = set(re.findall(r"`(tests/[a-z_/0-9]+\.py)`", text))
    files |= {f"src/in2r/{name}" for name in re.findall(r"`([a-z_0-9/]+\.py)`", text) if not name.startswith("tests/")}
    assert sorted(name for name in files if not (CHECKOUT / name).is_file()) == []
    columns = re.findall(r"^\|[^|]*\|([^|]*\.py[^|]*)\|[^|]*\|$", text, re.MULTILINE)
    functions = {name for cell in columns for name in re.findall(r"`(?:[A-Z]\w+\.)?([a-z_]+)`", cell)}
    assert len(functions) > 5
    assert sorted(name for name in functions if f"def {name}(" not in source) == []


@pytest.mark.parametrize("page", [CHECKOUT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    missing = [name for name in ("sphinx", "myst_parser", "furo") if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'in2r[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", str(DOCS), str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    assert "own-method.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
