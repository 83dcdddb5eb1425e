"""A table and a folder: which columns, which encoding, which file a value means."""

import logging
from pathlib import Path

import pytest

from in2r.errors import InputError
from in2r.raw.places import FilePlace, Item, look_at
from in2r.raw.table import read_pairs


def photos(folder: Path, *names: str) -> Path:
    for name in names or ("a.jpg",):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def table(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_usual_names_are_found_and_others_are_asked_for(tmp_path: Path) -> None:
    images = photos(tmp_path / "p")
    found = read_pairs(images, table(tmp_path, "id;File_Name;Title;Split\n1;a.jpg;ein Hund;train\n"))
    assert found.columns == {"image": "File_Name", "caption": "Title", "split": "Split"}
    assert found.captions == ["ein Hund"]
    several = table(tmp_path, "image,title,text\na.jpg,b,c\n")
    with pytest.raises(InputError) as error:
        read_pairs(images, several)
    assert str(error.value) == (
        f"{several}: which column holds the caption? 'title', 'text' may all be it; found 'image', 'title', 'text'; "
        "name it with --caption-column"
    )
    assert read_pairs(images, several, caption="TEXT").columns["caption"] == "text"
    with pytest.raises(
        InputError, match=r"no column 'txet' \(--caption-column\); found 'image', .*; did you mean text"
    ):
        read_pairs(images, several, caption="txet")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_the_encoding_is_found(tmp_path: Path, encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    images = photos(tmp_path / "p", "größe.jpg")
    found = read_pairs(images, table(tmp_path, "image\tcaption\ngröße.jpg\tschön – 大\n", "t.tsv", encoding))
    assert (found.captions, found.items[0].name) == (["schön – 大"], "größe.jpg")
    assert found.items[0].place is not None
    assert not caplog.records


def test_other_bytes_are_read_as_windows_text_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = photos(tmp_path / "p")
    with caplog.at_level(logging.WARNING):
        found = read_pairs(images, table(tmp_path, "image,caption\na.jpg,café\n", encoding="cp1252"))
    assert (found.captions, found.encoding) == (["café"], "cp1252")
    assert "not UTF-8; read as cp1252" in caplog.text
    chinese = table(tmp_path, "image,caption\na.jpg,狗\n", encoding="gb18030")
    assert read_pairs(images, chinese, encoding="gb18030").captions == ["狗"]


def test_a_value_is_a_path_or_a_name_that_is_unique(tmp_path: Path) -> None:
    images = photos(tmp_path / "p", "a.jpg", "sub/b.png", "sub/b.txt", "x/c.jpg", "y/c.jpg", "photo 1.5.jpg", "d.webp")
    (images / "photo 1.jpg").write_bytes(b"other")
    values = {
        "a.jpg": "a.jpg",
        "./a.jpg": "a.jpg",
        str(images / "a.jpg"): "a.jpg",
        f"file://{images}/photo%201.5.jpg": "photo 1.5.jpg",
        "sub\\b.png": "sub/b.png",
        "sub/b": "sub/b.png",
        "b": "sub/b.png",
        "D.JPG": "d.webp",
        "photo 1.5": "photo 1.5.jpg",
        "/elsewhere/B.png": "sub/b.png",
        "https://host/photos/d.webp?size=2": "d.webp",
    }
    assert look_at(Item("z", FilePlace("/dev/zero"))).verdict.detail == "cannot be read (a device or a pipe)"
    lost = {
        "c.jpg": "several files have this name",
        "x.jpg": "no such file",
        "https://host/z.jpg": "a web address: download the images first, for instance with img2dataset",
        "": "the table names no image here",
    }
    text = "image,caption\n" + "".join(f'"{value}",w\n' for value in [*values, *lost])
    found = {item.name: item for item in read_pairs(images, table(tmp_path, text)).items}
    for value, file in values.items():
        place = found[value].place
        assert place is not None, value
        assert Path(str(place)) == images / file, value
    verdicts = {name: found[name].verdict for name in lost}
    assert {name: one.detail for name, one in verdicts.items() if one is not None} == lost


def test_the_copy_is_the_users_table_byte_for_byte(tmp_path: Path) -> None:
    images = photos(tmp_path / "p")
    given = table(tmp_path, 'sep=;\nid;image;caption\n7;a.jpg;"two\nlines"\n', "T.TXT", "utf-16")
    source = read_pairs(images, given)
    assert source.table == "pairs.csv"
    source.write_table(tmp_path / source.table)
    assert (tmp_path / "pairs.csv").read_bytes() == given.read_bytes()


def test_a_stray_zero_byte_makes_no_utf_16(tmp_path: Path) -> None:
    images = photos(tmp_path / "p")
    made = tmp_path / "t.csv"
    made.write_bytes(b"image,caption\na.jpg,a d\0og\n" + b"b.jpg,a cat\n" * 40)
    with pytest.raises(InputError, match=r"t\.csv: byte 23 is zero, which no text has"):
        read_pairs(images, made)


def test_a_name_that_two_columns_have_is_refused(tmp_path: Path) -> None:
    images = photos(tmp_path / "p")
    made = table(tmp_path, "Bild,Bild,caption\na.jpg,a.jpg,a dog\n")
    with pytest.raises(InputError, match=r"several columns are named 'Bild' \(--image-column\)"):
        read_pairs(images, made, image="Bild")
