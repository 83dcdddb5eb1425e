"""`in2r eval --eccv` on data of COCO's layout, with files of the package's layout."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from in2r.cli.main import main
from in2r.data.coco_matches import read_matches
from in2r.errors import InputError
from in2r.files import write_json
from tiny_run import make_data, train

IMAGES = [100 + 7 * image for image in range(10)]
CAPTIONS = [[900 - 50 * image + place for place in (3, 1, 4, 0, 2)] for image in range(10)]
OWNER = np.repeat(np.arange(10), 5)


def tables(pairs: list[tuple[int, int]]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return image → captions and caption → images of pairs (place of the image, caption id)."""
    captions: dict[str, list[int]] = {}
    images: dict[str, list[int]] = {}
    for image, caption in pairs:
        captions.setdefault(str(IMAGES[image]), []).append(caption)
        images.setdefault(str(caption), []).append(IMAGES[image])
    return captions, images


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of the package's layout; its code must not be imported."""
    folder = tmp_path / "packages" / "eccv_caption"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')\n")
    own = [(image, caption) for image, five in enumerate(CAPTIONS) for caption in five]
    for name, pairs in (
        ("original", own),
        ("cxc", own),
        ("eccv", [*own[:20], (0, CAPTIONS[7][0]), (3, CAPTIONS[0][2])]),
    ):
        captions, images = tables(pairs)
        write_json(folder / "data" / f"{name}_image_to_caption.json", captions)
        write_json(folder / "data" / f"{name}_caption_to_image.json", images)
    np.save(folder / "data" / "coco_test_ids.npy", np.array(CAPTIONS).ravel())
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, "eccv_caption", raising=False)  # the real one, which another test imports
    return folder / "data"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run on data whose test split is called testall."""
    data = make_data(tmp_path_factory.mktemp("coco") / "data")
    for file in list(data.glob("test_*")):
        file.rename(file.with_name(file.name.replace("test_", "testall_")))
    return data, train(data.parent / "run", data, "sce", words=True).path


def write_ids(data: Path, ids: object) -> Path:
    (data / "testall_ids.txt").write_text("".join(f"{number}\n" for number in np.ravel(ids)))
    return data


def test_figures_are_printed_and_written(
    run: tuple[Path, Path], package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the right pairs that the captions have, recalls are the ordinary ones; with more, none is lower."""
    monkeypatch.setenv("COLUMNS", "80")
    data, folder = run
    write_ids(data, CAPTIONS)
    assert main(["eval", str(folder), "--eccv", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    table = printed.partition("ECCV Caption")[2].partition("\n\n")[0].splitlines()
    assert len(table) == 5
    assert max(map(len, table)) <= 80
    result = json.loads((folder / "result_test.json").read_text())
    assert list(result["matches"]["cxc"]) == ["A", "B", "ensemble"]
    for row, figures in result["matches"]["cxc"].items():
        for name in ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10"):
            assert figures[name] == pytest.approx(result["rows"][row][name])
        line = next(line for line in printed.partition("CxC")[2].splitlines() if line.startswith(f"{row} "))
        assert line.split()[1] == f"{figures['i2t_r1']:.1f}"
    assert all(0 <= value <= 100 for row in result["matches"]["eccv"].values() for value in row.values())
    assert main(["eval", str(folder), "--eccv", "--folds", "5"]) == 2
    assert "without folds" in capsys.readouterr().err
    assert main(["eval", str(folder)]) == 0
    assert "matches" not in json.loads((folder / "result_test.json").read_text())


@pytest.mark.parametrize("ids", [CAPTIONS, IMAGES, np.repeat(IMAGES, 5)], ids=["captions", "images", "repeated"])
def test_ids_name_captions_or_images(ids: object, package: Path, tmp_path: Path) -> None:
    found = read_matches(package, write_ids(tmp_path, ids), OWNER, 10)["eccv"]
    assert found.captions_of[0].tolist() == [0, 1, 2, 3, 4, 35]
    assert found.captions_of[3].tolist() == [2, *range(15, 20)]
    assert found.images_of[35].tolist() == [0]
    assert found.images_of[2].tolist() == [0, 3]
    assert sorted(found.captions_of) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (None, "no such file; ECCV Caption and CxC need one COCO caption id"),
        ([], "empty"),
        (["COCO_val2014_000000391895.jpg"], "line 1 is 'COCO_val2014_000000391895.jpg'"),
        (IMAGES[:9], "9 ids, but 10 images with 50 captions"),
        ([*IMAGES[:9], 5], "line 10 is 5, no image id of COCO's test split"),
        ([*np.ravel(CAPTIONS)[:49], 5], "line 50 is 5, no caption id"),
        ([*IMAGES[:9], IMAGES[0]], "9 images of COCO's test split; expected all 10, once each"),
        (np.roll(np.ravel(CAPTIONS), 1), "line 2 is of image 100, but the caption there belongs to image 163"),
    ],
)
def test_ids_that_are_not_those_of_coco_are_refused(ids: object, said: str, package: Path, tmp_path: Path) -> None:
    if ids is not None:
        write_ids(tmp_path, ids)
    with pytest.raises(InputError) as refused:
        read_matches(package, tmp_path, OWNER, 10)
    assert said in str(refused.value)


def test_without_the_package_its_extra_is_named(
    run: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("in2r.data.coco_matches.find_spec", lambda name: None)
    assert main(["eval", str(run[1]), "--eccv"]) == 2
    assert 'pip install "in2r[eccv]"' in capsys.readouterr().err


def test_the_package_s_files_are_read_in_the_order_of_coco(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of optional packages
        package = pytest.importorskip("eccv_caption", reason='no eccv-caption (pip install "in2r[eccv]")')
    folder = Path(package.__file__).parent / "data"
    write_ids(tmp_path, np.load(folder / "coco_test_ids.npy"))
    found = read_matches(folder, tmp_path, np.repeat(np.arange(5000), 5), 5000)
    assert {name: (len(one.captions_of), len(one.images_of)) for name, one in found.items()} == {
        "eccv": (1261, 1332),
        "cxc": (5000, 24972),
    }
    assert sum(map(len, found["eccv"].captions_of.values())) == 22550
