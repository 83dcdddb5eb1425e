"""`in2r features` as a user types it: a CLIP of transformers, the verdicts, the next command."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("transformers")

from tiny_models import save_clip

from in2r.cli.main import main


def test_photos_and_captions_become_data_that_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    draws = np.random.default_rng(0)
    rows = ["Bild;Text"]
    for number in range(24):
        Image.fromarray(draws.integers(0, 256, (20, 30, 3), np.uint8)).save(photos / f"{number}.jpg")
        rows += [f"{number};a red dog runs"]
    rows += ["99;a cat"]
    table = tmp_path / "feed.csv"
    table.write_text("\n".join(rows) + "\n")
    command = ["features", str(photos), str(table), "--encoder", f"transformers:{save_clip(tmp_path / 'clip')}"]
    out = tmp_path / "data"
    assert main([*command, "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"in2r: {table}: which column holds the image? none has a usual name; found 'Bild', 'Text'; name it with "
        "--image-column\n"
    )
    assert main([*command, "--image-column", "bild", "--batch", "8", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "24 images found by the path without its extension\n" in said
    assert f"{out}/images.npy: 24 images × 10 × 16 float16\n" in said
    assert "│ missing │ 1      │" in said
    [train] = [line for line in said.splitlines() if line.startswith("train on it: in2r train")]
    words = train.removeprefix("train on it: in2r ").split()
    words[words.index("runs/mine")] = str(tmp_path / "run")
    small = ["model.dim=8", "train.epochs=1", "method.warmup_epochs=1", "train.device=cpu"]
    assert main([*words[:2], *small, *words[2:]]) == 0
    assert main(["data", "check", str(out), "--caption-vectors", "auto"]) == 0
    assert "rows left out, their image has no features: 1 (line 26: image '99' is missing)" in capsys.readouterr().out
    assert main([*command, "--image-column", "bild", "--out", str(out)]) == 0
    found = capsys.readouterr().out
    assert f"{out}: the features are there; they were made by these settings\n" in found
    assert f"{out}/images.npy: 24 images × 10 × 16 float16\n" in found
    assert "│ missing │ 1      │" in found
    (out / "made_from.json").unlink()
    assert main([*command, "--image-column", "bild", "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"in2r: {out}: holds features already; give a new folder, or remove this one\n"
