"""`in2r audit` of photos and a table in one command: features are made into the audit's own folder, then audited."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_pages import Read
from sklearn.metrics import roc_auc_score

from in2r.cli.main import main
from planted_pairs import planted

ENCODER = """
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


class Grid:
    def prepare(self, image):
        return np.asarray(image.convert("L"), dtype=np.float32) / 255

    def encode(self, batch):
        with (HERE / "calls").open("a") as calls:
            calls.write(f"{len(batch)} ")
        if (HERE / "stop").exists() and len((HERE / "calls").read_text().split()) > 1:
            raise KeyboardInterrupt
        return np.asarray(batch).reshape(len(batch), -1)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder of photos, each a grid of its 16 features in grey; a table; an encoder that reads the grid."""
    made = planted(images=80)
    features = made["features"]
    grey = np.round(255 * (features - features.min()) / (features.max() - features.min())).astype(np.uint8)
    (tmp_path / "photos").mkdir()
    for number, values in enumerate(grey):
        Image.fromarray(values.reshape(4, 4)).save(tmp_path / "photos" / f"{number}.png")
    rows = [f"{image}.png,{text},s{image % 2}" for image, text in zip(made["owner"], made["captions"], strict=True)]
    (tmp_path / "shop.csv").write_text("\n".join(["Bild,caption,shop", *rows]) + "\n")
    (tmp_path / "grid.py").write_text(ENCODER)
    return tmp_path


def command(shop: Path, *more: object) -> list[str]:
    encoder = ["--encoder", f"python:{shop / 'grid.py'}:Grid", "--batch", "32"]
    return ["audit", str(shop / "photos"), *map(str, more), "--out", str(shop / "out"), *encoder]


def scores(out: Path) -> list[float]:
    with (out / "pairs.csv").open(newline="") as file:
        return [float(row["score"]) for row in csv.DictReader(file)]


def test_photos_and_a_table_in_one_command(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out, table = shop / "out", shop / "shop.csv"
    assert main(command(shop, table)) == 2
    assert "name it with --image-column" in capsys.readouterr().err
    assert not out.exists()
    columns = ["--image-column", "bild", "--source", "shop"]
    assert main([*command(shop, table), *columns]) == 0
    said = capsys.readouterr().out
    assert f"{out}/data/images.npy: 80 images × 16 float16\n" in said
    assert re.search(r"rows +160, of which 160 were judged \(80 images\)", said)
    assert roc_auc_score(planted(images=80)["right"], scores(out)) > 0.9
    assert Read(out / "report.html").pictures
    assert (out / "cleaned.csv").read_text().startswith("Bild,caption,shop\n")
    assert {path.name for path in out.iterdir()} >= {"data", "keep.txt", "summary.json", "evidence.jsonl"}

    assert "Audit of shop.csv" in said
    assert re.search(r"│ s[01] +│ +80 │ +\d+ │ +[\d.]+ % │", said)

    # Once more: the features are there, and the same command audits them, as does the one that is named.
    first, calls = (out / "pairs.csv").read_bytes(), (shop / "calls").read_text()
    (out / "pairs.csv").unlink()
    assert main([*command(shop, table), *columns]) == 0
    assert f"{out}/data: the features are there; they were made by these settings\n" in capsys.readouterr().out
    assert ((out / "pairs.csv").read_bytes(), (shop / "calls").read_text()) == (first, calls)
    again = f"in2r audit {out}/data --out {out} --source shop"
    assert f"again, by other settings: {again}\n" in said
    assert main(shlex.split(again)[1:]) == 0
    assert (out / "pairs.csv").read_bytes() == first
    found = capsys.readouterr().out
    assert "again" not in found
    assert "Audit of shop.csv" in found
    assert main([*command(shop, table), *columns, "--regions", "0"]) == 2
    assert capsys.readouterr().err == (
        f"in2r: {out}/data: was made with other settings: regions (was 3, now 0); give a new folder, or remove this "
        "one\n"
    )


def test_what_is_wrong_is_said_before_features_are_made(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, table = shop / "photos", shop / "shop.csv"
    (shop / "torn.json").write_text("{")
    for more, said in (
        (["--source", "Shop"], "--source 'Shop': no such column; found 'Bild', 'caption', 'shop'"),
        (["--decisions", shop / "no.json"], f"{shop / 'no.json'}: "),
        (["--decisions", shop / "torn.json"], f"{shop / 'torn.json'}: "),
        (
            ["--noise", shop / "no.npy"],
            f"{shop / 'no.npy'}: no such file; --noise names a noise index, as `in2r noise make` writes it",
        ),
        (["--run", shop / "no"], f"{shop / 'no'}: "),
        (["--train", "corroborate", "train.zz=3"], "configuration: unknown key `train.zz`"),
    ):
        assert main([*command(shop, table), "--image-column", "Bild", *map(str, more)]) == 2
        assert capsys.readouterr().err.startswith(f"in2r: {said}")
        assert not (shop / "out").exists()
    assert photos.is_dir()


def test_what_was_interrupted_is_continued(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*command(shop, shop / "shop.csv"), "--image-column", "Bild"]
    (shop / "stop").touch()
    assert main(words) == 130
    assert not (shop / "out" / "pairs.csv").exists()
    (shop / "stop").unlink()
    assert main(words) == 0
    assert (shop / "calls").read_text() == "32 32 32 16 "  # the second batch was lost, the first was not
    assert len(scores(shop / "out")) == 160


def test_texts_beside_photos_need_no_table(shop: Path) -> None:
    made = planted(images=80)
    for image in range(80):
        texts = [text for owner, text in zip(made["owner"], made["captions"], strict=True) if owner == image]
        (shop / "photos" / f"{image}.txt").write_text("\n".join(texts))
    assert main(command(shop)) == 0
    assert len(scores(shop / "out")) == 160
    assert (shop / "out" / "cleaned.jsonl").is_file()


MODELS = "transformers:NAME or FOLDER, timm:NAME, open_clip:NAME/PRETRAINED, onnx:FILE or python:FILE.py:NAME"


def test_what_cannot_be_meant_is_refused(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, table, out = shop / "photos", shop / "shop.csv", shop / "out"
    model = f"the model by --encoder KIND:NAME: {MODELS}; such as --encoder transformers:openai/clip-vit-base-patch32"
    data = shop / "data"
    data.mkdir()
    (data / "pairs.csv").touch()
    cases = (
        ([photos], f"{photos}: no data folder; expected train_ims.npy with train_caps.txt (precomp), or pairs.csv|tsv|"
         f"jsonl|parquet with images.npy (table); of photos, features are made first; name {model}"),
        ([photos, table], f"{table}: a table goes with photos, of which features are made first; name {model}"),
        ([data, "--image-column", "Bild"], "--image-column goes with photos; give --encoder too, or leave it out"),
        ([shop / "no"], f"{shop / 'no'}: no such folder; give the folder that holds the features and the captions"),
        ([photos, "--encoder", "clip"], None),
        ([photos, table, "--encoder", f"python:{shop / 'grid.py'}:Grid", "--image-column", "Bild", "--cut", "2"],
         "configuration: `cut` must be in [0, 1], got 2.0"),
    )  # fmt: skip
    for words, said in cases:
        assert main(["audit", *map(str, words), "--out", str(out)]) == 2
        found = capsys.readouterr().err
        assert found.count("\n") == 1
        assert said is None or found == f"in2r: {said}\n"
        assert not out.exists()


def test_a_folder_that_holds_something_else_is_spared(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*command(shop, shop / "shop.csv"), "--image-column", "Bild"]
    (shop / "out" / "data").mkdir(parents=True)
    (shop / "out" / "data" / "thesis.doc").touch()
    assert main(words) == 2
    assert capsys.readouterr().err == f"in2r: {shop / 'out' / 'data'}: holds thesis.doc; give a new folder\n"
