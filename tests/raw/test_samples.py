"""Pairs without a table: texts beside images, tars, what img2dataset and `datasets` write."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from in2r.errors import InputError
from in2r.raw.opened import open_source
from in2r.raw.places import look_at
from in2r.raw.source import Source


def photo(colour: int = 0) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 4), (colour, 0, 0)).save(file, "JPEG")
    return file.getvalue()


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def rows(source: Source, folder: Path) -> list[dict[str, Any]]:
    source.write_table(folder / "rows.jsonl")
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def left_out(source: Source) -> dict[str, tuple[str, str]]:
    return {one.image: (one.verdict, one.detail) for one in source.left_out}


def test_texts_beside_images_are_captions_a_line_each(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.jpg", "sub/b.png", "c.jpg", "a.webp"):
        (folder / name).write_bytes(photo())
    (folder / "a.txt").write_bytes("ein Hund\n\nläuft \n".encode("cp1252"))
    (folder / "sub" / "b.txt").write_text("eine Katze", encoding="utf-16")
    (folder / "sub" / "b.json").write_text('{"url": "u", "image": "no", "n": 3}')
    (folder / "readme.txt").write_text("not a caption")
    source = open_source(folder)
    assert rows(source, tmp_path) == [
        {"image": "a.jpg", "caption": "ein Hund"},
        {"image": "a.jpg", "caption": "läuft"},
        {"image": "sub/b.png", "caption": "eine Katze", "url": "u", "n": 3},
    ]
    assert source.captions == ["ein Hund", "läuft", "eine Katze"]
    assert left_out(source) == {
        "a.webp": ("duplicate member", "a.jpg of the same name is used"),
        "c.jpg": ("no caption", "no caption belongs to it"),
        "readme.txt": ("missing", "no image of this name beside it"),
    }


def test_a_tar_is_read_by_keys_and_every_half_has_a_verdict(tmp_path: Path) -> None:
    members = [
        ("x/a.jpg", photo(10)),
        ("x/b.jpg", photo(20)),  # interleaved: the texts come later
        ("x/b.txt", b"caption of b"),
        ("x/a.txt", b"caption of a"),
        ("x/a.jpg", photo(30)),
        ("x/a.json", b'{"url": "http://h/a", "caption": "of the\\nmetadata"}'),
        ("x/c.jpg", photo()),
        ("x/d.txt", b"nobody's"),
        ("x/a.seg.png", b"a mask"),
    ]
    tar = write_tar(tmp_path / "00.tar", members)
    source = open_source(tmp_path)
    assert rows(source, tmp_path) == [
        {"image": "00.tar/x/a.jpg", "caption": "of the metadata", "key": "x/a", "url": "http://h/a"},
        {"image": "00.tar/x/b.jpg", "caption": "caption of b", "key": "x/b"},
    ]
    found = left_out(source)
    assert found.pop("00.tar/x/a.jpg")[0] == "duplicate member"
    assert found == {
        "00.tar/x/c.jpg": ("no caption", "no caption belongs to it"),
        "00.tar/x/d": ("missing", "the tar has its caption and no image"),
    }
    first = look_at(source.items[0])
    assert first.image is not None
    assert abs(first.image.getpixel((0, 0))[0] - 10) < 4  # type: ignore[index]
    assert first.verdict.file == f"{tar}:x/a.jpg"


def test_a_tar_that_is_cut_off_gives_its_whole_samples(tmp_path: Path) -> None:
    members = [("a.txt", b"a"), ("a.jpg", photo()), ("b.txt", b"b"), ("b.jpg", photo())]  # blocks: 2, 3, 2, 3
    assert {(len(data) + 511) // 512 for _, data in members} == {1, 2}
    tar = write_tar(tmp_path / "00.tar", members)
    whole = tar.read_bytes()
    for blocks, images, name, detail in (
        (9, 1, "00.tar/b.jpg", "the tar ends within it"),
        (7, 1, "00.tar", "damaged, or cut off, after 3,584 bytes"),
        (10, 2, "00.tar", "damaged, or cut off, after 5,120 bytes"),
    ):
        tar.write_bytes(whole[: blocks * 512])
        source = open_source(tar)
        assert (len(source.items), left_out(source)[name]) == (images, ("truncated", detail))
    tar.write_bytes(whole[: 5 * 512] + b"x" * 512 + whole[6 * 512 :])
    assert left_out(open_source(tar)) == {"00.tar": ("truncated", "damaged, or cut off, after 2,560 bytes")}
    tar.write_bytes(b"no tar")
    with pytest.raises(InputError, match=r"00\.tar: no image with a caption: 00\.tar \(truncated: not a readable tar"):
        open_source(tar)
    tar.rename(tmp_path / "00.tar.gz")
    with pytest.raises(InputError, match="packed tars are not read"):
        open_source(tmp_path)


def test_downloads_that_failed_are_rows_without_image(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "key": ["0000", "0001"], "status": ["success", "failed_to_download"], "caption": ["a dog", "a cat"],
        "url": ["u0", "u1"], "error_message": [None, "HTTP Error 404"],
    }  # fmt: skip
    write_tar(tmp_path / "00.tar", [("0000.jpg", photo()), ("0000.txt", b"a dog")])
    parquet.write_table(pyarrow.table(columns), tmp_path / "00.parquet")
    source = open_source(tmp_path)
    assert rows(source, tmp_path)[1] == {
        "image": "00.tar/0001.jpg", "caption": "a cat", "key": "0001", "status": "failed_to_download", "url": "u1",
        "error_message": "HTTP Error 404",
    }  # fmt: skip
    verdict = source.items[1].verdict
    assert verdict is not None
    assert (verdict.verdict, verdict.detail) == ("missing", "failed_to_download: HTTP Error 404")


def test_a_saved_data_set_keeps_its_splits_and_fields(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    names = {"picture": datasets.Image(), "text": datasets.List(datasets.Value("string")), "n": datasets.Value("int64")}
    given = {
        "picture": [{"bytes": photo(40), "path": None}, None], "text": [["a dog", "a red dog"], ["x"]], "n": [7, 8],
    }  # fmt: skip
    part = datasets.Dataset.from_dict(given, features=datasets.Features(names))
    datasets.DatasetDict({"train": part, "validation": part}).save_to_disk(tmp_path / "set")
    source = open_source(tmp_path / "set")
    assert source.columns == {"image": "image", "caption": "caption", "split": "split"}
    found = rows(source, tmp_path)
    assert [row["image"] for row in found] == ["train/0", "train/0", "train/1", *["validation/0"] * 2, "validation/1"]
    assert (found[1]["caption"], found[1]["n"], found[1]["split"]) == ("a red dog", 7, "train")
    assert look_at(source.items[0]).verdict.verdict == "ok"
    assert look_at(source.items[1]).verdict.detail == "cannot be read (the row holds no image)"


def test_a_folder_without_captions_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(photo())
    with pytest.raises(
        InputError, match=r"no image with a caption: a\.jpg \(no caption: .*expected a table of captions"
    ):
        open_source(tmp_path)
    with pytest.raises(InputError, match="columns and encodings are those of a table"):
        open_source(tmp_path, caption="title")
