"""Methods by name: the package's, an installed package's, a file's; what is none is one line."""

import sys
from pathlib import Path

import pytest

from in2r.errors import InputError
from in2r.methods import METHODS, Method, PartitionConfig, build_method, find_method, method_names
from in2r.methods.registry import absolute_name, method_file
from in2r.runs.presets import read_preset
from in2r.runs.settings import load_config

MINE = """
from in2r.methods import Method, MethodConfig
class Mine(Method):
    def steps(self, net, peer, batches, now):
        yield from ()
class Thing:
    pass
class Odd(Mine):
    Config = Thing
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE, encoding="utf-8")
    return file


def test_a_method_of_the_package_has_its_own_name() -> None:
    for name, method in METHODS.items():
        assert find_method(name) is method
        assert method.Config().name == name
        assert build_method(method.Config(), PartitionConfig()).config == method.Config()


def test_a_method_of_a_file_is_run_once(mine: Path) -> None:
    found = find_method(f"{mine}:Mine")
    assert issubclass(found, Method)
    assert find_method(f"{mine}:Mine") is found
    assert read_preset(f"{mine}:Mine") == {"method": {"name": f"{mine}:Mine"}}
    assert load_config(f"{mine}:Mine").method.name == f"{mine}:Mine"


def test_a_method_of_a_file_by_a_relative_path(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent)
    assert absolute_name("mine.py:Mine") == f"{mine}:Mine"
    assert find_method("mine.py:Mine") is find_method(f"{mine}:Mine")
    assert absolute_name("in2r") == "in2r"
    assert method_file("in2r") is None
    before = method_file("mine.py:Mine")
    assert before is not None
    assert before["path"] == str(mine)
    mine.write_text(MINE + "\n", encoding="utf-8")
    assert method_file("mine.py:Mine") != before


def test_a_method_of_an_installed_package(
    mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    (site / "ours_in2r.py").write_text(MINE, encoding="utf-8")
    about = site / "ours_in2r-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ours-in2r\nVersion: 1.0\n", encoding="utf-8")
    points = "[in2r.methods]\nours = ours_in2r:Mine\nbroken = ours_in2r:Thing\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    try:
        assert method_names() == [*METHODS, "broken", "ours"]
        assert find_method("ours").__module__ == "ours_in2r"
        assert load_config("ours").method.name == "ours"
        with pytest.raises(InputError, match=r"method broken \(ours_in2r:Thing\): expected a class derived from"):
            find_method("broken")
    finally:
        sys.modules.pop("ours_in2r", None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("in3r", r"`method\.name` must be one of corroborate, .*, or file\.py:Class, got 'in3r'; did you mean in2r\?"),
        ("{folder}/none.py:Mine", r"none\.py: no such file; name a method of your own as file\.py:Class"),
        (
            "{folder}/mine.py:Nobody",
            r"mine\.py: no class Nobody",
        ),
        (
            "{folder}/mine.py:Thing",
            r"mine\.py:Thing: expected a class derived from in2r\.methods\.Method, found <class",
        ),
        ("{folder}/mine.py:Odd", r"mine\.py:Odd: its `Config` must be derived from in2r\.methods\.MethodConfig"),
        ("{folder}/broken.py:Mine", r"broken\.py: cannot be run \(ZeroDivisionError: division by zero\)"),
    ],
)
def test_what_is_no_method_is_one_line(name: str, said: str, mine: Path) -> None:
    (mine.parent / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        find_method(name.format(folder=mine.parent))
    assert "\n" not in str(caught.value)
