"""Features as Parquet: what another engine reads back, in bounded memory, and what is refused."""

import numpy as np
import pytest

import in2r.data.features as module
from in2r.cli.main import main
from in2r.data.sources import open_data

parquet = pytest.importorskip("pyarrow.parquet")

IMAGES = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float16)


@pytest.fixture
def folder(tmp_path):
    """Five images in two pieces: `c` without a caption, padding that is no number."""
    padded = IMAGES.copy()
    padded[3, 1] = np.nan
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    np.save(data / "images" / "0.npy", padded[:2])
    np.save(data / "images" / "1.npy", padded[2:])
    np.save(data / "image_lengths.npy", [2, 2, 2, 1, 2])
    (data / "image_ids.txt").write_text("a\nb\nc\nd\ne\n")
    (data / "pairs.csv").write_text("image,caption,split\nb,x,dev\nd,x,train\na,x,train\na,y,train\ne,x,train\n")
    return data


def test_each_image_is_a_row_that_another_engine_reads(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 24)  # two images
    target = tmp_path / "new" / "images.parquet"
    assert main(["data", "export", str(folder), str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 4 images\n"
    file = parquet.ParquetFile(target)
    assert file.num_row_groups == 3  # written block by block: two of train, one of dev
    assert {name: file.schema_arrow.metadata[name] for name in (b"regions", b"dim")} == {b"regions": b"2", b"dim": b"3"}
    assert str(file.schema_arrow.field("features").type) == "fixed_size_list<element: float>[6]"
    table = file.read().to_pydict()
    assert (table["image"], table["split"], table["regions"]) == (
        ["a", "d", "e", "b"], ["train", "train", "train", "dev"], [2, 1, 2, 2],
    )  # fmt: skip
    expected = IMAGES[[0, 3, 4, 1]].astype(np.float32)
    expected[1, 1] = 0
    assert np.array_equal(np.array(table["features"], np.float32).reshape(4, 2, 3), expected)
    assert [path.name for path in target.parent.iterdir()] == ["images.parquet"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_precomp_folder_and_single_vectors_are_exported(tmp_path, dtype):
    for name, images in (("train", 4), ("test", 2)):
        np.save(tmp_path / f"{name}_ims.npy", np.random.default_rng(images).normal(size=(images, 3)).astype(dtype))
        (tmp_path / f"{name}_caps.txt").write_text("a dog\n" * 5 * images)
    assert main(["data", "export", str(tmp_path), str(tmp_path / "x.parquet")]) == 0
    table = parquet.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["image"] == [
        name for split in ("train", "test") for name in open_data(tmp_path).split(split).image_ids
    ]
    found = np.array(table["features"], np.float32)
    whole = np.concatenate([np.load(tmp_path / f"{name}_ims.npy") for name in ("train", "test")])
    assert np.array_equal(found, whole.astype(np.float32))


def test_what_cannot_be_written_is_refused(folder, tmp_path, capsys):
    (tmp_path / "old.parquet").write_text("mine")
    for name, said in (
        ("x.csv", "x.csv: expected a name that ends in .parquet"),
        ("old.parquet", "old.parquet: is there already; give another name"),
    ):
        assert main(["data", "export", str(folder), str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err
    assert (tmp_path / "old.parquet").read_text() == "mine"
    for name, regions in (("train", 2), ("dev", 3)):
        np.save(tmp_path / f"{name}_ims.npy", np.ones((2, regions, 3), np.float32))
        (tmp_path / f"{name}_caps.txt").write_text("a dog\n" * 10)
    assert main(["data", "export", str(tmp_path), str(tmp_path / "x.parquet")]) == 2
    said = capsys.readouterr().err
    assert "train has 2 × 3, dev has 3 × 3; one file needs the same regions × dim in all splits" in said
    assert not (tmp_path / "x.parquet").exists()
