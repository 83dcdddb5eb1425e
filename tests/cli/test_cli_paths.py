"""`~` is the home folder in every path: of an argument, of a setting, of a settings file."""

import argparse
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import yaml

from in2r.cli.main import build_parser, main
from in2r.cli.paths import path_argument
from in2r.config import text_keys
from in2r.errors import InputError
from in2r.files import expand_home
from in2r.methods.registry import find_method, method_file
from in2r.runs.settings import RunConfig, load_config, paths
from tiny_run import make_data

NO_PATHS = {
    "overrides", "device", "network", "group", "only", "minus", "caption_vectors", "key", "level", "layout", "split",
    "kind", "dev_rule", "format", "keep", "backbone", "duplicates", "encoder", "text_encoder", "image_column",
    "caption_column", "split_column", "encoding", "source", "evidence",
    "repo", "licence", "side", "precision", "query", "shell", "where", "host", "to",
}  # fmt: skip
"""text arguments that name no file"""
NO_PATH_KEYS = {"data.caption_vectors", "train.device", "method.name"}
"""text settings that name no file"""
SETTINGS = ["data.caption_vectors=vecs", "model.dim=8", "train.epochs=1", "train.batch_size=12", "train.device=cpu"]


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in dict.fromkeys(action.choices.values()):
                yield from arguments(verb)
        elif action.nargs != 0:  # no flag
            yield action


def test_every_argument_that_is_a_path_is_read_as_one() -> None:
    """A new text argument gets the type of a path, or a place in the list of those that name no file."""
    text = {action.dest for action in arguments(build_parser()) if action.type is None}
    assert text <= NO_PATHS
    types = {action.dest: action.type for action in arguments(build_parser())}
    assert Path not in types.values()
    assert types["out"] is types["folder"] is types["model"] is types["lengths"] is path_argument
    assert types["settings"]("~") == os.path.expanduser("~")  # type: ignore[operator]


def test_every_setting_that_is_a_path_is_read_as_one() -> None:
    names = set(text_keys(RunConfig)) - NO_PATH_KEYS
    data = {"data.path", "data.leave_out", "data.vocabulary", "data.word_vectors"}
    assert names == data | {"noise.index", "checkpoint.warmups"}
    for some in (names - {"noise.index"}, names - {"data.leave_out"}):  # these two do not go together
        config = load_config(None, [f"{name}=~/x" for name in some])
        assert paths(config) == dict.fromkeys(some, os.path.expanduser("~/x"))


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home("~") == "/home/me"
    assert expand_home("~/a b/~") == "/home/me/a b/~"
    assert expand_home("a/~/b") == "a/~/b"
    assert expand_home("./~x") == "./~x"
    with pytest.raises(InputError, match=r"^~nobody-9/x: no home folder is known for ~nobody-9; write \./~nobody-9/x"):
        expand_home("~nobody-9/x")
    with pytest.raises(InputError, match=r"`data\.path`: ~nobody-9: no home .*; `noise\.index`: ~nobody-9/n: no home"):
        load_config(None, ["data.path=~nobody-9", "noise.index=~nobody-9/n"])


def test_a_method_of_ones_own_is_found_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    source = "from in2r.methods.plain import Sce\nclass Mine(Sce): ...\n"
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    assert method_file("~/mine.py:Mine") == {
        "path": f"{tmp_path}/mine.py", "sha256": sha256(source.encode()).hexdigest()
    }  # fmt: skip
    assert find_method("~/mine.py:Mine").__name__ == "Mine"
    with pytest.raises(InputError, match=r"no home folder is known for ~nobody-9"):
        find_method("~nobody-9/mine.py:Mine")
    arguments = build_parser().parse_args(["train", "sce", "--method=~/mine.py:Mine", "--out=r"])
    assert arguments.method == f"{tmp_path}/mine.py:Mine"
    assert build_parser().parse_args(["methods", "--check=~/m.py:M"]).check == f"{tmp_path}/m.py:M"


def test_the_command_line_takes_home_in_any_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    make_data(home / "data")
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    assert main(["noise", "make", "~/data", "--ratio=0.4", "--out=~/n.npy"]) == 0
    settings = ["data.path=~/data", "noise.index=~/n.npy", *SETTINGS]
    assert main(["train", "sce", *settings, "--out=~/run"]) == 0
    (home / "data").rename(home / "moved")
    config = yaml.safe_load((home / "run" / "config.yaml").read_text(encoding="utf-8"))
    config["data"]["path"] = "~/moved"  # as a user may write it by hand
    (home / "run" / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert main(["eval", "~/run"]) == 0
    assert main(["encode", "~/run", "--captions=~/moved/test_vecs.npy", "--out=~/v.npy"]) == 0
    assert np.load(home / "v.npy").shape == (50, 16)
    assert list(here.iterdir()) == []
    capsys.readouterr()
    for arguments in (["eval", "~nobody-9/run"], ["train", "~nobody-9/x.yaml", "--out", "r"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert ": ~nobody-9/" in (said := capsys.readouterr().err)
        assert ": no home folder is known for ~nobody-9; write ./~nobody-9/" in said


def test_a_grid_takes_home_in_its_file_and_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_data(tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "data")
    small = {"model": {"dim": 8}, "train": {"epochs": 1, "batch_size": 12, "device": "cpu"}}
    grid = {
        "settings": {"preset": "sce", "data": {"path": "~/data", "caption_vectors": "vecs"}, **small},
        "groups": {"g": {"axes": {"train.learning_rate": [0.001]}}},
    }
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid), encoding="utf-8")
    assert main(["bench", "run", "~/grid.yaml", "--out=~/grid", "--data=~/data", "--plan"]) == 0
    assert "cannot start" not in capsys.readouterr().out
    assert (tmp_path / "grid" / "grid.yaml").is_file()
    assert not Path("~").exists()
