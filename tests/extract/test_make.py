"""From photos and a table to a data folder: what is in it, what is left out, and how interrupted work continues."""

import csv
import logging
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from in2r.cli.main import main
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.extract.images import LONGEST
from in2r.extract.make import make_features
from in2r.extract.options import Options
from in2r.models.folder import load
from in2r.raw.opened import open_source
from photo_case import Case, Watched


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_rows_are_the_tables_own_and_features_are_in_its_order(case: Case) -> None:
    made = case.make()
    folder = case.folder / "data"
    assert (made.image_shape, made.caption_shape) == ((30, 10, 3), (60, 2))
    assert (folder / "pairs.csv").read_bytes() == case.table.read_bytes()
    assert (folder / "image_ids.txt").read_text().split() == case.names
    images = np.load(folder / "images.npy")
    assert images.dtype == np.float16
    np.testing.assert_array_equal(images[:, :, 0], np.repeat(np.arange(30) * 5.0, 10).reshape(30, 10))
    train = open_data(folder, caption_vectors=True).split("train")
    assert train.image_ids[0] in case.names
    assert np.load(folder / "captions.npy")[:, 0].tolist() == [9.0] * 60
    assert not (folder / "unfinished").exists()


def test_every_fault_has_a_verdict_and_its_rows_are_left_out(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    whole = (case.photos / "p00.png").read_bytes()
    (case.photos / "cut.png").write_bytes(whole[: len(whole) // 2])
    (case.photos / "empty.png").write_bytes(b"")
    (case.photos / "page.jpg").write_text("<html>")
    (case.photos / "folder.jpg").mkdir()
    Image.new("1", (4000, 100)).save(case.photos / "wide.png")
    Image.new("1", (100 * LONGEST, 1)).save(case.photos / "long.png")
    Image.new("RGB", (7, 7)).save(case.photos / "seven.png")
    faults = {
        "cut.png": "truncated", "empty.png": "empty file", "page.jpg": "not an image", "folder.jpg": "not an image",
        "wide.png": "too large", "long.png": "too large", "seven.png": "refused", "gone.jpg": "missing",
    }  # fmt: skip
    case.write([*((name, "good") for name in case.names), *((name, "") for name in faults), ("p00.png", "")])
    made = case.make(pixels=100_000)
    assert made.image_shape == (30, 10, 3)
    with (case.folder / "data" / "image_verdicts.csv").open() as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    assert {name: rows[name]["verdict"] for name in faults} == faults
    assert rows["seven.png"]["detail"] == "ValueError: seven is unlucky"
    assert rows["p01.png"]["file"] == str(case.photos / "p01.png")
    with caplog.at_level(logging.WARNING):
        data = open_data(case.folder / "data", caption_vectors=True)
    [said] = [record.message for record in caplog.records]
    assert said.startswith(
        "pairs.csv: 8 of 39 rows are left out, because their image has no features: line 32: image 'cut.png' is "
        "truncated; line 33: image 'empty.png' is empty file; "
    )
    kept = [row for name in data.split_names for row in data.caption_rows(name)]
    assert sorted(kept) == [*range(30), 38]
    assert np.load(case.folder / "data" / "captions.npy")[-1].tolist() == [0.0, 0.0]  # an empty caption


def test_an_image_without_verdict_is_still_an_error(case: Case) -> None:
    case.make()
    table = case.folder / "data" / "pairs.csv"
    table.write_text(table.read_text().replace("p03.png,", "other.png,", 1))
    with pytest.raises(InputError, match=r"line 5: image 'other.png'; expected an id of image_ids\.txt"):
        open_data(case.folder / "data")


def same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_interrupted_work_continues_and_gives_the_same_files(case: Case) -> None:
    case.make("whole")
    case.stop.touch()
    with pytest.raises(KeyboardInterrupt):
        case.make()
    unfinished = case.folder / "data" / "unfinished"
    assert (unfinished / "progress.json").is_file()
    with (unfinished / "images.npy").open("ab") as file:  # as a kill leaves what was written and not yet counted
        file.write(b"half a row")
    with (unfinished / "verdicts.jsonl").open("a") as file:
        file.write('{"image": "p2')
    case.stop.unlink()
    watched = Watched()
    case.make(display=watched)
    assert watched.told[0] == ("images", 24, 30)
    same_files(case.folder / "whole", case.folder / "data")


def test_interrupted_captions_and_an_interrupted_end_continue(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.make("whole")

    def stop_at(name: str) -> Callable[..., None]:
        def update(what: str, done: int, total: int) -> None:
            if (what, done) == (name, 12):
                raise KeyboardInterrupt

        return update

    watched = Watched()
    monkeypatch.setattr(watched, "update", stop_at("captions"))
    with pytest.raises(KeyboardInterrupt):
        case.make(display=watched)
    table = case.folder / "data" / "pairs.csv"
    table.mkdir()  # the last file of all cannot be written: as if killed while names are given
    with pytest.raises(OSError, match=r"pairs\.csv"):
        case.make()
    assert (case.folder / "data" / "images.npy").is_file()
    table.rmdir()
    case.make()
    same_files(case.folder / "whole", case.folder / "data")


def test_another_command_is_refused_by_name(case: Case) -> None:
    case.stop.touch()
    with pytest.raises(KeyboardInterrupt):
        case.make()
    case.stop.unlink()
    with pytest.raises(
        InputError, match=r"data: was begun with other settings: regions \(was 3, now 0\); give the same command"
    ):
        case.make(regions=0)
    with pytest.raises(InputError, match=r"was begun with other settings: encoder .*, text encoder"):
        case.make(encoder=case.own("other.py", 2))
    case.write([(name, "changed") for name in case.names])
    with pytest.raises(InputError, match="was begun with other settings: table"):
        case.make()
    progress = case.folder / "data" / "unfinished" / "progress.json"
    progress.write_text(
        progress.read_text().replace('"looked_at": 20', '"looked_at": 0').replace('"rows": 20', '"rows": 0')
    )
    assert case.make().image_shape == (30, 10, 3)  # where nothing was done, there is nothing to be refused
    (case.folder / "mine").mkdir()
    (case.folder / "mine" / "letter.txt").touch()
    with pytest.raises(InputError, match=r"mine: holds letter\.txt; give a new folder"):
        case.make("mine")


def test_no_image_at_all_says_what_was_looked_for(case: Case) -> None:
    case.write([("x.jpg", "a"), ("y.jpg", "b")])
    with pytest.raises(InputError) as error:
        case.make()
    assert str(error.value) == (
        "none of 2 images was found: 'x.jpg' (no such file), 'y.jpg' (no such file); check the folder of images and "
        "--image-column"
    )
    (case.photos / "x.jpg").write_text("<html>")
    with pytest.raises(InputError, match=r"none of 2 images can be read: 'x.jpg' \(begins with b'<html>'\)"):
        case.make()
    assert not (case.folder / "data" / "unfinished").exists()


def test_one_vector_per_image_is_stored_without_regions(case: Case) -> None:
    assert case.make(regions=0).image_shape == (30, 3)
    assert open_data(case.folder / "data").split("train").images.regions == 1


SMALL = ["model.dim=8", "train.epochs=1", "train.device=cpu", "data.caption_vectors=auto"]


def test_a_run_and_a_model_refuse_features_of_another_encoder(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.make()
    data, run = case.folder / "data", case.folder / "run"
    assert main(["train", "sce", f"data.path={data}", *SMALL, "--out", str(run)]) == 0
    case.encoder = case.own("other.py", 2)
    case.make("other")
    assert main(["encode", str(run), "--images", str(data / "images.npy"), "--out", str(case.folder / "v.npy")]) == 0
    capsys.readouterr()
    other = str(case.folder / "other" / "images.npy")
    assert main(["encode", str(run), "--images", other, "--out", str(case.folder / "w.npy")]) == 2
    said = capsys.readouterr().err
    assert "not from the encoder that the model was trained with: the image encoder (python:" in said
    assert "other.py:Means: other weights sha256 and preprocessing)" in said
    assert load(run, "cpu", data=data).dim == 16
    with pytest.raises(InputError, match=r"other: not from the encoder that the model was trained with: the image enc"):
        load(run, "cpu", data=case.folder / "other")
    (case.folder / "other").rename(case.folder / "swap")
    data.rename(case.folder / "first")
    (case.folder / "swap").rename(data)
    assert main(["eval", str(run)]) == 2
    assert "the image encoder (python:" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_ids_of_a_table_in_another_encoding_are_found_again(case: Case, encoding: str) -> None:
    for number, name in enumerate(case.names):
        (case.photos / name).rename(case.photos / f"größe {number}.png")
    text = "photo;title\n" + "".join(f"größe {number}.png;schön\n" for number in range(30))
    case.table.write_bytes(text.encode(encoding))
    case.make()
    train = open_data(case.folder / "data").split("train")
    assert train.captions is not None
    assert (set(train.captions), train.image_ids[0][:5]) == ({"schön"}, "größe")


def test_a_tar_becomes_a_folder_that_can_be_read(case: Case) -> None:
    with tarfile.open(case.folder / "00.tar", "w") as tar:
        for number, name in enumerate(case.names):
            (case.photos / f"p{number}.txt").write_text(f"caption {number}")
            (case.photos / f"p{number}.json").write_text(f'{{"exif": {{"a": {number}}}, "url": "u{number}"}}')
            tar.add(case.photos / name, f"{number}.png")
            tar.add(case.photos / f"p{number}.txt", f"{number}.txt")
            tar.add(case.photos / f"p{number}.json", f"{number}.json")
    chosen = Options(encoder=case.encoder, batch=8, workers=2)
    make_features(open_source(case.folder / "00.tar"), case.folder / "data", chosen, Watched())
    data = open_data(case.folder / "data", caption_vectors=True)
    train = data.split("train")
    assert train.captions is not None
    row = data.caption_rows("train")[0]
    assert (train.captions[0], train.image_ids[0]) == (f"caption {row}", f"00.tar/{row}.png")
    assert data.caption_columns("train", ["url"])["url"][0] == f"u{row}"
    assert float(train.images.array[train.images.rows[0], 0, 0]) == row * 5
