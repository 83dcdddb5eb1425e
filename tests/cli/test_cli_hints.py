"""Command lines that are printed for a user to paste: each is quoted for the shell."""

import argparse
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import in2r
from in2r.bench.folder import GridFolder
from in2r.cli.main import build_parser, main
from in2r.errors import InputError, command_line
from in2r.results.best import require_finished
from in2r.runs.folder import RunFolder
from tiny_run import make_data

ODD = "runs/a b #1 $HOME 'x'"


def folders(text: str) -> list[Path]:
    """Return the folder that each command of a text would work on, read as a shell and our parser do."""
    commands = re.findall(r"`(in2r [^`]+)`|(?:test it|tables): (in2r .+)", text)
    found = [build_parser().parse_args(shlex.split(one or other, comments=True)[1:]) for one, other in commands]
    return [Path(vars(args).get("folder") or args.grid) for args in found]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_a_shell_reads_the_words_back(words: list[str]) -> None:
    assert shlex.split(command_line(*words)) == words


def test_no_message_puts_a_value_into_a_command_by_itself() -> None:
    """They go through `command_line`; the examples of the help name no user's folder."""
    (verbs,) = (action.choices for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    by_itself = re.compile(rf"in2r ({'|'.join(verbs)})\b[a-z -]*\{{")
    for file in Path(in2r.__file__).parent.rglob("*.py"):
        source = file.read_text(encoding="utf-8").replace("example: in2r data {name}", "")
        source = re.sub(r'"\s*\n\s*f?"', "", source)  # a text over two lines
        assert by_itself.search(source) is None, file


def test_hints_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    small = [f"data.path={data}", "data.caption_vectors=vecs", "model.dim=8", "train.epochs=1", "train.batch_size=12"]
    begin = ["train", "sce", *small, "train.device=cpu", "--out", ODD]
    assert main(begin) == 0
    assert folders(capsys.readouterr().out) == [Path(ODD)]
    assert main(begin) == 2  # it holds a run already
    assert folders(capsys.readouterr().err) == [Path(ODD)]
    log = RunFolder(ODD).log_file
    (Path(ODD) / "model" / "config.json").unlink()
    with pytest.raises(InputError) as no_model:
        in2r.load(ODD)
    log.rename(f"{log}.kept")
    Path(ODD, "checkpoints").rename("elsewhere")
    with pytest.raises(InputError) as unfinished:
        require_finished(RunFolder(ODD), 1)
    Path(ODD, "best.safetensors").unlink()
    assert main(["eval", ODD, "--unfinished"]) == 2
    said = [str(no_model.value), str(unfinished.value), capsys.readouterr().err]
    assert [folders(text) for text in said] == [[Path(ODD)]] * 3


def test_hints_of_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    GridFolder(ODD).write({"groups": {"g": {"axes": {"train.learning_rate": [0.1]}}}})
    assert main(["bench", "table", ODD]) == 0
    assert folders(capsys.readouterr().out) == [Path(ODD)]


def test_settings_that_are_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "data.path=my data", "--out", "r"])
    assert "as in `in2r train in2r 'data.path=my data' ...`" in capsys.readouterr().err
    np.save(tmp_path / "train_ims.npy", np.ones((2, 1, 3), np.float32))
    np.save(tmp_path / "train_my vecs.npy", np.ones((10, 3), np.float32))
    main(["data", "check", str(tmp_path)])
    said = "give 'data.caption_vectors=my vecs' (--caption-vectors 'my vecs' where a verb takes no settings)"
    assert said in capsys.readouterr().out
