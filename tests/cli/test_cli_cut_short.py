"""Feature files that are cut short while a verb reads them: one line that names the file, and nothing is lost."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forked
from in2r.cli.main import main
from in2r.runs.checkpoints import checkpoints
from tiny_run import make_data, train


@pytest.mark.parametrize("name", ["train_ims.npy", "dev_ims.npy"])
def test_a_run_stops_with_the_files_name_and_resumes_once_it_is_back(children: Any, tmp_path: Path, name: str) -> None:
    data, run = make_data(tmp_path / "data"), tmp_path / "run"
    file = data / name
    whole = file.read_bytes()
    settings = [f"data.path={data}", "model.dim=8", "train.epochs=3", "train.batch_size=12", "train.device=cpu"]
    command = ["train", "sce", *settings, "data.caption_vectors=vecs", "--out", str(run)]
    log = tmp_path / "said"
    child = children.Process(target=forked.cut_while_training, args=(file, command, log))
    child.start()
    child.join(120)
    assert child.exitcode == 2
    said = log.read_text()
    assert said.splitlines()[-1] == (
        f"in2r: {file}: was cut short while it was in use, from {len(whole):,} to 0 bytes; put the whole file "
        f"back; `in2r resume {run}` resumes it"
    )
    assert "Traceback" not in said
    assert len(checkpoints(run / "checkpoints")) == 1
    file.write_bytes(whole)
    assert main(["resume", str(run)]) == 0
    assert len((run / "log.jsonl").read_text().splitlines()) == 3


def test_encoding_names_the_file_that_is_read_not_the_one_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_data(tmp_path / "data")
    run = train(tmp_path / "run", data, "sce", "train.epochs=1").path
    assert main(["resume", str(run)]) == 0  # writes the model folder
    source = data / "test_ims.npy"
    features = np.load(source, mmap_mode="r")
    monkeypatch.setattr(np, "load", lambda *_, **__: features)  # opened before it is cut
    os.truncate(source, 0)
    capsys.readouterr()
    assert main(["encode", str(run / "model"), "--images", str(source), "--out", str(tmp_path / "v.npy")]) == 2
    assert capsys.readouterr().err.startswith(f"in2r: {source}: was cut short while it was in use, from ")
    assert not (tmp_path / "v.npy").exists()
