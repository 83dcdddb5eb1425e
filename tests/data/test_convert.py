"""A precomp folder and its pair table give the same pairs, captions and features."""

import argparse
import sys

import numpy as np
import pytest
import torch

import in2r.data.features as features_module
from in2r.cli import data as verb
from in2r.data.convert import convert_precomp
from in2r.data.sources import open_data
from in2r.errors import InputError

ODD = ["", '"quoted', 'a "b", c; d', "tab\there", "new\u2028line", "…", "🙂", "1,2", "x", "y"]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "precomp"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, images, redundant in (("train", 4, False), ("dev", 3, True), ("test", 2, False)):
        array = rng.normal(size=(images, 2, 3)).astype(np.float16)
        np.save(folder / f"{name}_ims.npy", array.repeat(5, axis=0) if redundant else array)
        captions = ODD if name == "test" else [f"{name} {k}" for k in range(5 * images)]
        (folder / f"{name}_caps.txt").write_text("".join(f"{text}\n" for text in captions), encoding="utf-8")
        np.save(folder / f"{name}_v.npy", rng.normal(size=(5 * images, 4)).astype(np.float32))
    return folder


def assert_same(before, after, *, ids):
    for name in ("train", "dev", "test"):
        old, new = before.split(name), after.split(name)
        items = torch.arange(len(old.images))
        assert torch.equal(old.images.gather(items)[0], new.images.gather(items)[0])
        assert old.image_of_caption.tolist() == new.image_of_caption.tolist()
        assert old.captions == new.captions
        assert (list(old.image_ids) == list(new.image_ids)) is ids
        if old.caption_vectors is not None:
            rows = torch.arange(len(old.image_of_caption))
            assert torch.equal(old.caption_vectors.gather(rows)[0], new.caption_vectors.gather(rows)[0])


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_conversion_keeps_everything(source, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(features_module, "BLOCK_BYTES", 30)
    seen = []
    convert_precomp(source, tmp_path / "new", kind=kind, caption_vectors="v", progress=lambda *n: seen.append(n))
    assert_same(open_data(source, caption_vectors="v"), open_data(tmp_path / "new", caption_vectors=True), ids=True)
    assert np.load(tmp_path / "new" / "images.npy").shape == (9, 2, 3)
    assert np.load(tmp_path / "new" / "images.npy").dtype == np.float16
    assert seen[-1] == (9, 9)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "captions.npy", "image_ids.txt", "images.npy", f"pairs.{kind}",
    ]  # fmt: skip


def test_ids_that_repeat_give_way_to_row_numbers(source, tmp_path):
    for name, images in (("train", 4), ("dev", 3), ("test", 2)):
        (source / f"{name}_ids.txt").write_text("".join(f"{k}\n" for k in range(images)))
    convert_precomp(source, tmp_path / "new")
    assert not (tmp_path / "new" / "image_ids.txt").exists()
    assert (tmp_path / "new" / "pairs.tsv").read_text().splitlines()[21] == "4\tdev 0\tdev"
    assert open_data(tmp_path / "new").split("dev").image_ids == ["4", "5", "6"]


def test_vectors_alone(source, tmp_path):
    for name in ("train", "dev", "test"):
        (source / f"{name}_caps.txt").unlink()
    convert_precomp(source, tmp_path / "new", caption_vectors="v")
    assert_same(open_data(source, caption_vectors="v"), open_data(tmp_path / "new"), ids=True)


def test_dev_rule_decides_how_much_is_written(tmp_path):
    source = tmp_path / "precomp"
    source.mkdir()
    np.save(source / "dev_ims.npy", np.zeros((1003, 1), np.float32))
    (source / "dev_caps.txt").write_text("x\n" * 5015)
    for rule, images in (("scan", 1000), ("full", 1003)):
        convert_precomp(source, tmp_path / rule, dev_rule=rule)
        assert len(open_data(tmp_path / rule).split("dev").images) == images


def test_an_existing_target_is_never_overwritten(source, tmp_path):
    target = tmp_path / "new"
    target.mkdir()
    convert_precomp(source, target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    with pytest.raises(InputError, match="new: is not empty; give a new folder"):
        convert_precomp(source, target)
    with pytest.raises(InputError, match="is not empty"):
        convert_precomp(source, target / "pairs.tsv")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


def test_features_of_different_shapes_are_refused(source, tmp_path):
    np.save(source / "test_ims.npy", np.ones((2, 2, 5), np.float32))
    with pytest.raises(
        InputError, match=r"train_ims.npy \(4, 2, 3\), .*test_ims.npy \(2, 2, 5\): regions and dim differ"
    ):
        convert_precomp(source, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_pair_table_is_no_precomp_folder(tmp_path):
    (tmp_path / "pairs.csv").write_text("image,caption\n0,x\n")
    with pytest.raises(InputError, match=r"no train_ims.npy, .*; expected a precomp folder"):
        convert_precomp(tmp_path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_wrong_kind_wrong_source_and_missing_pyarrow(source, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="kind 'xls': expected one of tsv, csv, jsonl, parquet"):
        convert_precomp(source, tmp_path / "new", kind="xls")
    (source / "dev_caps.txt").write_text("one\n")
    with pytest.raises(InputError, match="15 rows but 1 captions"):
        convert_precomp(source, tmp_path / "new")
    (source / "dev_ims.npy").unlink()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r'pip install "in2r\[parquet\]"'):
        convert_precomp(source, tmp_path / "new", kind="parquet")
    assert not (tmp_path / "new").exists()


def test_the_verb_converts(source, tmp_path, capsys):
    parser = argparse.ArgumentParser()
    verb.register(parser.add_subparsers())
    args = parser.parse_args(["data", "convert", str(source), str(tmp_path / "new"), "--kind", "jsonl"])
    assert args.run(args) == 0
    assert capsys.readouterr().out == f"{tmp_path}/new: written\n"
    assert_same(open_data(source), open_data(tmp_path / "new"), ids=True)
