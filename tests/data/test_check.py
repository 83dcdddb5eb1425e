"""The report of a folder: counts, and each fault with file and row."""

import argparse
from typing import get_args, get_type_hints

import numpy as np
import pytest

import in2r.data.features as features_module
from in2r.cli import data as verb
from in2r.cli import vocabulary
from in2r.data.check import check_data
from in2r.data.convert import KINDS
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.runs.settings import DataConfig


def precomp(folder, name, images=4, seed=0):
    array = np.random.default_rng([seed, images]).normal(size=(images, 2, 3)).astype(np.float32)
    np.save(folder / f"{name}_ims.npy", array)
    (folder / f"{name}_caps.txt").write_text("".join(f"{name} {k}\n" for k in range(5 * images)))
    return array


def table(folder, rows, images=6):
    array = np.random.default_rng(0).normal(size=(images, 3)).astype(np.float16)
    np.save(folder / "images.npy", array)
    (folder / "pairs.csv").write_text("image,caption,split\n" + "".join(f"{','.join(row)}\n" for row in rows))
    return array


def test_a_sound_folder(tmp_path):
    precomp(tmp_path, "train")
    precomp(tmp_path, "dev", 3, seed=1)
    report = check_data(tmp_path)
    assert report.usable
    assert [str(fault) for fault in report.faults] == [
        f"{tmp_path}: no test split; `in2r eval --split dev` goes without"
    ]
    precomp(tmp_path, "test", 2, seed=2)
    report = check_data(tmp_path)
    assert (report.usable, report.faults) == (True, [])
    train, dev, _ = report.splits
    assert (train.name, train.images, train.captions, train.regions, train.dim) == ("train", 4, 20, 2, 3)
    assert (train.captions_per_image, train.dtype, train.vector_dim) == ((5, 5.0, 5), "float32", None)
    assert (dev.name, dev.images) == ("dev", 3)


def test_every_fault_of_a_precomp_folder_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(features_module, "BLOCK_BYTES", 50)  # two images a block
    train = precomp(tmp_path, "train")
    train[2, 1, 0] = np.nan
    train[1] = 0
    np.save(tmp_path / "train_ims.npy", train)
    test = precomp(tmp_path, "test", 3, seed=1)
    test[1] = train[3]
    test[2] = test[0]
    np.save(tmp_path / "test_ims.npy", test)
    captions = [f"c{k}" for k in range(20)]
    captions[4], captions[7], captions[19] = "", "c2", " "
    (tmp_path / "train_caps.txt").write_text("".join(f"{caption}\n" for caption in captions))
    (tmp_path / "dev_ims.npy").write_bytes(b"no")
    vectors = np.ones((20, 2), np.float16)
    vectors[9, 1] = np.inf
    np.save(tmp_path / "train_v.npy", vectors)
    np.save(tmp_path / "test_v.npy", np.ones((15, 2), np.float16))

    seen = []
    data = open_data(tmp_path, caption_vectors="v")
    report = check_data(data, progress=lambda *arguments: seen.append(arguments))
    found = [(fault.level, str(fault)) for fault in report.faults]
    assert found[:-1] == [
        ("warning", "train: empty captions: 2 (train_caps.txt line 5, train_caps.txt line 20)"),
        ("warning", "train: captions that repeat an earlier one: 1 (train_caps.txt line 8)"),
        ("error", "train_ims.npy: rows (from 0) with NaN, infinity or a value beyond 1e12: 1 (train_ims.npy row 2)"),
        ("warning", "train_ims.npy: rows (from 0) with nothing but zeros: 1 (train_ims.npy row 1)"),
        ("error", "train_v.npy: rows (from 0) with NaN, infinity or a value beyond 1e12: 1 (train_v.npy row 9)"),
        found[5],
        ("warning", "test: images with the very features of another one of train: 1 "
         "(test_ims.npy row 1 = train_ims.npy row 3)"),
    ]  # fmt: skip
    assert found[5][1].startswith(f"{tmp_path}/dev_ims.npy: not a readable npy array")
    assert found[-1][1].endswith("of test: 1 (test_ims.npy row 2 = test_ims.npy row 0)")
    assert not report.usable
    assert seen[:2] == [("train_ims.npy", 2, 4), ("train_ims.npy", 4, 4)]


def test_places_are_few_but_all_are_counted(tmp_path):
    precomp(tmp_path, "dev", seed=1)
    precomp(tmp_path, "train")
    (tmp_path / "train_caps.txt").write_text("\n" * 20)
    fault, _ = check_data(tmp_path).faults
    assert fault.count == 20
    assert str(fault).endswith("20 (train_caps.txt line 1, train_caps.txt line 2, train_caps.txt line 3, ...)")


def test_images_in_several_splits_and_images_without_caption(tmp_path):
    rows = [
        ("0", "a", "train"),
        ("1", "b", "train"),
        ("1", "c", "dev"),
        ("2", "d", "dev"),
        ("3", "e", "train"),
    ]
    table(tmp_path, rows)
    report = check_data(tmp_path)
    errors = [str(fault) for fault in report.faults if fault.level == "error"]
    assert errors == [f"{tmp_path}: images that lie in several splits: 1 (image 1 in line 4)"]
    assert f"{tmp_path}: left out, without caption: 2 images" in map(str, report.faults)
    assert [split.captions_per_image for split in report.splits] == [(1, 1.0, 1), (1, 1.0, 1)]


def test_what_cannot_be_opened_is_an_error_of_the_report(tmp_path):
    report = check_data(tmp_path / "nowhere")
    assert [str(fault) for fault in report.faults] == [
        f"{tmp_path}/nowhere: no such folder; give the folder that holds the features and the captions"
    ]
    precomp(tmp_path, "test", 1)
    report = check_data(tmp_path)
    assert [str(fault) for fault in report.faults] == [
        "test_ims.npy: 1 image in test; at least 2 are needed",
        f"{tmp_path}: no train split; training needs one",
        f"{tmp_path}: no dev split; training needs one",
    ]


def test_dimensions_that_differ_between_splits_are_an_error(tmp_path):
    precomp(tmp_path, "train")
    precomp(tmp_path, "dev", seed=1)
    np.save(tmp_path / "dev_ims.npy", np.arange(40, dtype=np.float32).reshape(4, 2, 5))
    for split, dim in (("train", 6), ("dev", 7)):
        np.save(tmp_path / f"{split}_vec.npy", np.ones((20, dim), np.float32))
    report = check_data(open_data(tmp_path, caption_vectors="vec"))
    assert [str(fault) for fault in report.faults if fault.level == "error"] == [
        f"{tmp_path}: the dimension of the features differs: train 3, dev 5",
        f"{tmp_path}: the dimension of the caption vectors differs: train 6, dev 7",
    ]


def run(arguments):
    parser = argparse.ArgumentParser()
    verb.register(parser.add_subparsers())
    args = parser.parse_args(["data", *map(str, arguments)])
    return args.run(args)


def test_the_verb_prints_and_returns_the_exit_status(tmp_path, capsys):
    rows = [
        ("0", "a", "train"),
        ("0", "b", "train"),
        ("1", "[bold]", "train"),
        ("1", "[bold]", "train"),
        ("1", "c", "train"),
        ("2", "d", "dev"),
        ("3", "e", "dev"),
    ]
    table(tmp_path, rows, images=4)
    assert run(["check", tmp_path]) == 0
    out = capsys.readouterr().out
    assert "2 to 3, mean" in out
    assert "warning: train: captions that repeat an earlier one: 1 (pairs.csv line 5)" in out
    assert f"{tmp_path}: usable\n" in out
    np.save(tmp_path / "images.npy", np.array([[np.inf], [1], [2], [3]], np.float32))
    assert run(["check", tmp_path]) == 2
    assert (
        "error: images.npy: rows (from 0) with NaN, infinity or a value beyond 1e12: 1 (images.npy row 0)"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("text", ["x", "-1", "1-", "1-7-9"])
def test_a_range_that_is_none(tmp_path, capsys, text):
    with pytest.raises(SystemExit):
        run(["scenes", tmp_path, f"--captions-per-image={text}"])
    assert f"{text!r}: expected a number such as 5, or a range such as 1-7" in capsys.readouterr().err


def test_help_gives_an_example(capsys):
    for name in ("check", "convert", "scenes"):
        with pytest.raises(SystemExit):
            run([name, "--help"])
        assert f"example: in2r data {name} data/" in capsys.readouterr().out


def test_options_and_defaults_are_those_of_the_settings():
    """The command line repeats them: to be read it must not import what has them."""
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers()
    verb.register(verbs)
    vocabulary.register(verbs)
    known, usual = get_type_hints(DataConfig), DataConfig()
    assert get_args(known["layout"]) == verb.LAYOUTS
    check = parser.parse_args(["data", "check", "x"])
    assert (check.layout, check.caption_vectors, check.split_seed) == (usual.layout, None, usual.split_seed)
    assert parser.parse_args(["vocab", "build", "x", "--out", "y"]).min_count == usual.min_count
    for kind in KINDS:
        assert parser.parse_args(["data", "convert", "x", "y", "--kind", kind]).kind == kind
    for rule in get_args(known["dev_rule"]):
        assert parser.parse_args(["data", "convert", "x", "y", "--dev-rule", rule]).dev_rule == rule


def test_every_fault_of_a_table_is_named(tmp_path, capsys):
    table(tmp_path, [("a", "x"), ("b", "y", "train"), *[(f"z{row}", "y", "tarin") for row in range(12)]], images=2)
    (tmp_path / "image_ids.txt").write_text("a\na\n")
    np.save(tmp_path / "image_lengths.npy", np.array([1, 2]))
    at = f"{tmp_path}/"
    assert run(["check", tmp_path]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"error: {at}image_lengths.npy: row 1 (from 0) is 2; lengths are 1 to 1",
        f"error: {at}image_ids.txt: line 2 repeats 'a' of line 1",
        f"error: {at}pairs.csv: line 2 has 2 fields but the header 3 (separator ','); write the missing "
        "ones, if only as empty fields",
        f"{tmp_path}: not usable: fix the errors above",
    ]
    table(tmp_path, [("a", "x", "train"), *[(f"z{row}", "y", "tarin") for row in range(12)]], images=2)
    (tmp_path / "image_ids.txt").write_text("a\nb\n")
    (tmp_path / "image_lengths.npy").unlink()
    report = check_data(tmp_path)
    expected = "expected an id of image_ids.txt; data.skip_missing=true (--skip-missing) leaves such rows out"
    unknown = [f"{at}pairs.csv: line {3 + row}: image 'z{row}'; {expected}" for row in range(10)]
    drawn = [f"{at}pairs.csv: line {3 + row}: split 'tarin'; expected train, dev, test" for row in range(10)]
    more = ["... and 2 more"]
    assert [str(fault) for fault in report.faults] == unknown + more + drawn + more
    with pytest.raises(InputError) as caught:
        open_data(tmp_path)
    assert str(caught.value) == unknown[0] + " (not the only fault: `in2r data check` lists them)"


def test_many_broken_lines_are_counted(tmp_path):
    table(tmp_path, [], images=2)
    (tmp_path / "pairs.csv").unlink()
    (tmp_path / "pairs.jsonl").write_text("no\n" * 3000)
    faults = [str(fault) for fault in check_data(tmp_path).faults]
    assert len(faults) == 11
    assert faults[0].startswith(f"{tmp_path}/pairs.jsonl: line 1 is not valid JSON")
    assert faults[-1] == "... and 2990 more"


def test_images_of_one_id_in_two_splits_are_said(tmp_path):
    for name in ("train", "dev", "test"):
        precomp(tmp_path, name, seed=len(name))
    np.save(tmp_path / "dev_ims.npy", np.random.default_rng(9).normal(size=(4, 2, 3)).astype(np.float32))
    for name, ids in (("train", "abcd"), ("test", "xbzd")):
        (tmp_path / f"{name}_ids.txt").write_text("\n".join(ids) + "\n")
    report = check_data(tmp_path)
    assert [str(fault) for fault in report.faults] == ["test: image ids that train has too: 2 ('b', 'd')"]
    assert report.usable


def test_rows_without_image_are_left_out_and_listed(tmp_path, capsys, caplog):
    rows = [(str(k), f"c{k}", "train" if k < 4 else "dev") for k in range(6)]
    rows[2:2] = [(f"gone{k}", "x", "train") for k in range(5)]
    table(tmp_path, rows)
    assert run(["check", tmp_path]) == 2
    capsys.readouterr()
    assert run(["check", tmp_path, "--skip-missing"]) == 0
    listed = ", ".join(f"line {4 + k}: image 'gone{k}'" for k in range(5))
    assert f"warning: {tmp_path}: rows left out, their image is not there: 5 ({listed})\n" in capsys.readouterr().out
    assert caplog.messages == [
        "pairs.csv: 5 of 11 rows are left out, because their image is not there: line 4: image 'gone0'; line 5: image "
        "'gone1'; line 6: image 'gone2', ... (`in2r data check --skip-missing` lists them)"
    ]
