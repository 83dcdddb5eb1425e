"""Batches of images as Ray Data has them get the features and verdicts of `in2r features`."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from in2r.errors import InputError
from in2r.extract.ray import EncodeImages
from photo_case import Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A case with images that cannot be read: broken, refused by the encoder, absent."""
    made = Case(tmp_path)
    Image.new("RGB", (7, 7)).save(made.photos / "p04.png")  # alone in its batch below
    (made.photos / "p05.png").write_bytes(b"<html>")
    (made.photos / "p07.png").write_bytes((made.photos / "p07.png").read_bytes()[:60])
    (made.photos / "p09.png").unlink()
    return made


def expected(case: Case, regions: int) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Return the verdicts and the features that `in2r features` makes, NaN where there are none."""
    case.make(regions=regions)
    with (case.folder / "data" / "image_verdicts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    images = np.load(case.folder / "data" / "images.npy")
    features = np.full((len(rows), *images.shape[1:]), np.nan, images.dtype)
    features[[row["verdict"] == "ok" for row in rows]] = images
    return [(row["verdict"], row["detail"]) for row in rows], features


@pytest.mark.parametrize("regions", [3, 0])
def test_bytes_and_paths_get_what_the_command_makes(case: Case, regions: int) -> None:
    verdicts, features = expected(case, regions)
    encode = EncodeImages(case.encoder, column="path", regions=regions, workers=2, device="cpu")
    paths = np.array([str(case.photos / name) for name in case.names], object)
    found = [encode({"path": some, "n": np.arange(len(some))}) for some in np.split(paths, [1, 4, 5, 20])]
    assert [list(part) for part in found] == [["path", "n", "features", "verdict", "detail"]] * 5
    assert [pair for part in found for pair in zip(part["verdict"], part["detail"], strict=True)] == verdicts
    assert all(part["features"].dtype == features.dtype for part in found)
    np.testing.assert_array_equal(np.concatenate([part["features"] for part in found]), features)

    encode = EncodeImages(case.encoder, regions=regions, workers=2, device="cpu")
    content = [Path(path).read_bytes() if Path(path).exists() else None for path in paths]
    whole = encode({"bytes": np.array(content, object)})
    assert list(whole["verdict"]) == [verdict for verdict, _ in verdicts]
    assert whole["detail"][9] == "NoneType is neither the bytes of a file nor its path"
    np.testing.assert_array_equal(whole["features"], features)


def test_a_batch_that_does_not_fit_and_an_encoder_that_fails_are_refused(case: Case) -> None:
    encode = EncodeImages(case.encoder, device="cpu")
    with pytest.raises(InputError, match=r"^no column 'bytes'; the batch has 'image', 'n'$"):
        encode({"image": np.array([b""], object), "n": np.zeros(1)})
    with pytest.raises(InputError, match=r"^'verdict' would be replaced; the batch has 'bytes', 'verdict'$"):
        encode({"bytes": np.array([b""], object), "verdict": np.zeros(1)})
    with pytest.raises(InputError, match=r"'nothing': expected one of transformers"):
        EncodeImages("nothing", device="cpu")


@pytest.mark.filterwarnings("ignore")  # Ray's own, of itself
def test_a_local_ray_cluster_makes_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason='no Ray: pip install "in2r[ray]"')
    pytest.importorskip("ray.data", reason='no Ray Data: pip install "in2r[ray]"')
    verdicts, features = expected(case, 3)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # it would write a token into the home folder
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        paths = [{"path": str(case.photos / name), "number": number} for number, name in enumerate(case.names)]
        made = ray.data.from_items(paths).map_batches(
            EncodeImages, fn_constructor_kwargs={"encoder": case.encoder, "column": "path", "device": "cpu"},
            batch_size=8, compute=ray.data.ActorPoolStrategy(size=1),
        )  # fmt: skip
        rows = sorted(made.take_all(), key=lambda row: row["number"])
    finally:
        ray.shutdown()
    assert [(row["verdict"], row["detail"]) for row in rows] == verdicts
    found = np.stack([row["features"] for row in rows])
    assert found.dtype == features.dtype
    np.testing.assert_array_equal(found, features)
