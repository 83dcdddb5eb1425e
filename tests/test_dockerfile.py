"""The Dockerfile, as far as it can be tested without an image: its files, its command, its arguments."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from in2r.cli.main import build_parser

CHECKOUT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions() -> list[tuple[str, str]]:
    """Return each instruction with its arguments, continued lines joined."""
    text = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [line.split(maxsplit=1) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]
    return [(name, arguments) for name, arguments in found]


def arguments_of(name: str) -> list[str]:
    return [arguments for found, arguments in instructions() if found == name]


def build_context(folder: Path) -> Path:
    """Copy what .dockerignore lets through: `*`, then what is let in by name, then patterns at any depth."""
    lines = (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    everything, *rest = [line for line in lines if not line.startswith("#")]
    assert everything == "*"
    left_out = [line.removeprefix("**/") for line in rest if line.startswith("**/")]
    let_in = [line.removeprefix("!") for line in rest if line.startswith("!")]
    assert len(left_out) + len(let_in) == len(rest)
    for name in let_in:
        source, target = CHECKOUT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
        else:
            shutil.copy(source, target)
    return folder


def test_the_context_makes_the_whole_wheel(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=build_context(context), check=True)
    [wheel] = tmp_path.glob("in2r-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    source = CHECKOUT / "src"
    files = {path.relative_to(source).as_posix() for path in source.glob("in2r/**/*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} == {name for name in names if "dist-info" not in name}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    copied = [path for text in arguments_of("COPY") for path in text.split()[:-1]]
    assert copied
    assert [path for path in copied if not (context / path).exists()] == []


def test_it_runs_the_demo_as_no_root() -> None:
    [entry], [command] = arguments_of("ENTRYPOINT"), arguments_of("CMD")
    program, *words = [*json.loads(entry), *json.loads(command)]
    assert program in PROJECT["scripts"]
    assert build_parser().parse_args(words).verb == "demo"
    [user] = arguments_of("USER")
    assert f"useradd --create-home {user} " in " ".join(arguments_of("RUN"))


def test_its_arguments_name_what_exists() -> None:
    defaults = dict(text.split("=", 1) for text in arguments_of("ARG"))
    assert set(defaults["EXTRAS"].split(",")) <= set(PROJECT["optional-dependencies"])
    python = re.fullmatch(r"python:(3\.\d+)-slim", defaults["BASE"])
    assert python is not None
    assert f"Programming Language :: Python :: {python[1]}" in PROJECT["classifiers"]
    pins = (CHECKOUT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert len([line for line in pins if line.startswith("torch==")]) == 1
    assert arguments_of("FROM") == ["${BASE} AS wheel", "${BASE}"]
