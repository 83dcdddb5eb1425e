"""What `in2r data check` prints of a folder."""

import re
from pathlib import Path

import numpy as np
import pytest

from in2r.cli.main import main

ASKED = "captions.npy: not looked at; --caption-vectors auto looks\n"


def write_table(folder: Path, captions: int, header: str = "image,caption,split") -> Path:
    """Two images a split, and captions of the training split."""
    rows = [(0, "train"), (1, "train"), (2, "dev"), (3, "dev"), (4, "test"), (5, "test")]
    rows += [(0, "train")] * (captions - 2)
    with_caption = "caption" in header
    lines = [
        f"{image},a b {line},{split}" if with_caption else f"{image},{split}"
        for line, (image, split) in enumerate(rows)
    ]
    (folder / "pairs.csv").write_text("\n".join([header, *lines]) + "\n")
    np.save(folder / "images.npy", np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))
    np.save(folder / "captions.npy", np.ones((len(rows), 2), np.float32))
    return folder


def checked(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    assert main(["data", "check", str(folder), *options]) == 0
    return capsys.readouterr().out


def test_counts_have_commas_and_columns_say_whose_vectors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = checked(capsys, write_table(tmp_path, 1234), "--caption-vectors", "auto")
    above, below, _, train = said.splitlines()[1:5]
    columns = [re.split(r"[┃│]", line)[-2].strip() for line in (above, below, train)]
    assert columns == ["caption", "vectors", "2"]
    assert re.findall(r"[^\s│]+", train)[:3] == ["train", "2", "1,234"]


def test_vectors_that_nobody_asked_for_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path, 3)
    assert ASKED in checked(capsys, tmp_path)
    assert "not looked at" not in checked(capsys, tmp_path, "--caption-vectors", "auto")
    write_table(tmp_path, 3, "image,split")  # without captions they are looked at unasked
    assert "not looked at" not in checked(capsys, tmp_path)
    write_table(tmp_path, 3)
    (tmp_path / "captions.npy").unlink()
    assert "not looked at" not in checked(capsys, tmp_path)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.ones((3, 2), np.float32), "shape (3, 1, 2); expected one vector for each of the 7 rows of pairs.csv"),
        (np.ones((7, 2), np.int64), "dtype int64; features are float16"),
    ],
)
def test_faulty_vectors_are_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], array: np.ndarray, said: str
) -> None:
    write_table(tmp_path, 3)
    np.save(tmp_path / "captions.npy", array)
    assert main(["data", "check", str(tmp_path), "--caption-vectors", "auto"]) == 2
    printed = "".join(capsys.readouterr())
    assert printed.count(said) == 1
    assert printed.count("\n") == 1
