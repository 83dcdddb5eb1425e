import base64
import hashlib
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_pages import ATTACK, hostile, page, pair, written

from in2r.errors import InputError
from in2r.report import DuplicateGroup, Neighbor, choose_rows, score_histogram, write_report
from in2r.report.text import escaped
from in2r.report.thumbnails import INSTALL, thumbnail


def photograph(path: Path, seed: int = 0, size: tuple[int, int] = (300, 200)) -> Path:
    """An image of noise, which hardly compresses."""
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(values).save(path)
    return path


# --- what is on the page


def test_sections_figures_and_sources_are_on_the_page(tmp_path: Path) -> None:
    groups = [DuplicateGroup("same caption", [pair(row) for row in (7, 8, 9, 5, 6)])]
    found = written(tmp_path / "report.html", page(duplicates=groups))
    assert found.cards("worst") == [0, 1, 2, 3, 4]
    assert found.cards("borderline") == [2, 3]
    assert found.cards("sample") == [4, 0, 3]
    assert found.cards("duplicates") == [7, 8, 9, 5]
    assert "same caption 5 pairs, the first 4 shown" in found.text
    for figure in ("10", "30.0 % of the pairs", "probably 11.0 to 60.0 %", "0.30"):
        assert figure in found.text
    table = "".join(found.texts("td"))
    assert "40.0 %" in table
    assert [text for text in found.texts("bdi") if text.startswith("shop ")][:2] == ["shop B", "shop A"]  # worst first


def test_the_histogram_has_a_bar_for_each_bin_and_the_cut_at_its_place(tmp_path: Path) -> None:
    found = written(tmp_path / "report.html", page())
    bars = [
        attributes for tag, attributes in found.elements if tag == "rect" and attributes["class"] in ("low", "high")
    ]
    assert [bar["class"] for bar in bars] == ["low", "high", "high", "high"]
    assert [bar["height"] for bar in bars] == ["50.00", "25.00", "75.00", "100.00"]
    [line] = [attributes for tag, attributes in found.elements if tag == "line"]
    assert line["x1"] == "1.200"  # of four bins


def test_a_pair_without_score_caption_or_file_has_a_card(tmp_path: Path) -> None:
    bare = pair(0, caption=" ", score=None, percentile=None, verdict="empty", components={}, source=None)
    found = written(tmp_path / "report.html", page(worst=[bare], noise=None, sources=()))
    assert found.cards("worst") == [0]
    assert "no caption" in found.text
    assert "not known" in found.text


# --- texts that are not ours


def test_hostile_texts_make_no_element_and_no_attribute(tmp_path: Path) -> None:
    plain, found = (
        written(tmp_path / f"{name}.html", report)
        for name, report in (("plain", hostile("x")), ("hostile", hostile(ATTACK)))
    )
    kept = [(tag, list(attributes)) for tag, attributes in plain.elements]
    assert [(tag, list(attributes)) for tag, attributes in found.elements] == kept
    assert {tag for tag, _ in kept}.isdisjoint({"img", "iframe", "object", "base"})
    assert found.text.count(ATTACK) >= 10


def test_the_policy_allows_the_one_script_and_the_one_style_and_nothing_remote(tmp_path: Path) -> None:
    found = written(tmp_path / "report.html", hostile(ATTACK))
    policy = next(a["content"] for tag, a in found.elements if tag == "meta" and "http-equiv" in a)
    hashes = [
        base64.b64encode(hashlib.sha256("".join(found.texts(tag)).encode()).digest()).decode()
        for tag in ("style", "script")
    ]
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert sum(tag == "script" for tag, _ in found.elements) == sum(tag == "style" for tag, _ in found.elements) == 1
    attributes = {name for _, found in found.elements for name in found}
    assert [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")] == []
    links = [a["href"] for _, a in found.elements if "href" in a]
    assert [link for link in links if link != "data:,"] == []
    assert re.findall(r"https?:|@import", (tmp_path / "report.html").read_text(encoding="utf-8")) == []


def test_characters_that_hide_are_shown_and_long_texts_cut() -> None:
    assert escaped("a\u202eb\x00c\ud800\u2066", 99) == "a‹U+202E›b‹U+0000›c‹U+D800›‹U+2066›"
    assert escaped("a\r\n\u2028 <b> & \"'", 99) == "a &lt;b&gt; &amp; &quot;&#x27;"
    assert escaped("x" * 1200, 5) == "xxxxx… (1,200 characters)"
    assert escaped("שלום 👩‍🚀", 99) == "שלום 👩‍🚀"


# --- size


def test_a_hundred_thousand_pairs_of_endless_texts_stay_under_the_limit(tmp_path: Path) -> None:
    endless = "\u202e" * 5000
    own = {f"{number}{endless}": endless for number in range(20)}
    pairs = [
        pair(row, caption=endless, image=endless, own=own, source=f"{row}{endless if row < 999 else ''}")
        for row in range(100_000)
    ]
    report = page(worst=pairs, borderline=pairs, sample=pairs, duplicates=[DuplicateGroup(endless, pairs)] * 1000)
    found = written(tmp_path / "report.html", report)
    assert 1_000_000 < (tmp_path / "report.html").stat().st_size < 10_000_000
    shown = len(found.cards("worst"))
    assert f"Shown: the first {shown} of 100,000 pairs." in found.text
    assert 0 < shown <= 200
    for panel in ("borderline", "sample", "duplicates"):
        assert found.cards(panel)


def test_pictures_stop_at_the_limit_and_are_counted(tmp_path: Path) -> None:
    pairs = [pair(row, file=photograph(tmp_path / f"{row}.png", row)) for row in range(40)]
    report = page(worst=pairs, borderline=(), sample=())
    found = written(tmp_path / "report.html", report, max_bytes=600_000)
    assert 300_000 < (tmp_path / "report.html").stat().st_size < 600_000
    assert 5 < len(found.pictures) < 40
    assert f"Pictures not shown: {40 - len(found.pictures)} left out to keep this page small." in found.text
    assert found.cards("worst") == list(range(40))


def test_a_limit_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^max_bytes must be at least 500,000, got 1,000$"):
        write_report(tmp_path / "report.html", page(), max_bytes=1000)


# --- pictures


def test_an_image_is_embedded_once_and_larger_for_a_pair(tmp_path: Path) -> None:
    one, other = photograph(tmp_path / "0.png"), photograph(tmp_path / "1.png", 1)
    near = [Neighbor("0.jpg", "a", one), Neighbor("near", "b", other)]
    pairs = [pair(0, file=one, neighbors=near), pair(1, image="0.jpg", file=one, neighbors=near)]
    found = written(tmp_path / "report.html", page(worst=pairs, borderline=pairs, sample=pairs))
    sizes = [picture(each).size for each in found.pictures]
    assert sizes == [(208, 139), (112, 75)]


def picture(code: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(code)))


def test_broken_and_missing_files_leave_a_box_with_the_id(tmp_path: Path) -> None:
    whole = photograph(tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("no image", encoding="utf-8")
    Image.new("RGB", (9, 9)).save(tmp_path / "rare.png", "PCX")
    names = ("absent", "cut", "empty", "text", "whole", "rare")
    pairs = [pair(row, image=name, file=tmp_path / f"{name}.png") for row, name in enumerate(names)]
    found = written(tmp_path / "report.html", page(worst=[*pairs, pair(9, image="none")], borderline=(), sample=()))
    assert len(found.pictures) == 1
    assert ".t4{color:transparent;" in "".join(found.texts("style"))
    assert "Pictures not shown: 6 without a file that can be read." in found.text
    boxes = [a["aria-label"] for _, a in found.elements if (a.get("class") or "").startswith("picture")]
    assert boxes == [f"image {name}" for name in (*names, "none")]


def test_an_image_of_very_many_pixels_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 200 - 1)
    file = photograph(tmp_path / "0.png")
    assert thumbnail(file, 100) is None
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 200)
    assert thumbnail(file, 100) is not None


def test_every_kind_of_image_becomes_an_upright_picture(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112], turned[0x010E] = 6, "where I live"  # to be turned by a quarter; a description
    Image.new("RGB", (400, 200), "red").save(tmp_path / "turned.jpg", exif=turned, comment=b"secret")
    Image.new("CMYK", (40, 20), (0, 255, 255, 0)).save(tmp_path / "cmyk.jpg")
    Image.new("RGBA", (40, 20), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.fromarray(np.linspace(1000, 3000, 800).astype(np.uint16).reshape(20, 40)).save(tmp_path / "deep.png")
    jpegs = {path.name: thumbnail(path, 100) for path in tmp_path.iterdir()}
    assert all(jpegs.values())
    small = {name: Image.open(io.BytesIO(jpeg or b"")) for name, jpeg in jpegs.items()}
    assert small["turned.jpg"].size == (50, 100)
    assert b"secret" not in (jpegs["turned.jpg"] or b"")
    assert dict(small["turned.jpg"].getexif()) == {}
    near = {name: np.asarray(image, dtype=int) for name, image in small.items()}
    assert np.abs(near["turned.jpg"] - (255, 0, 0)).max() < 8
    assert np.abs(near["cmyk.jpg"] - (255, 0, 0)).max() < 8
    assert near["clear.png"].min() > 250
    assert near["deep.png"][0].mean() < 20
    assert near["deep.png"][-1].mean() > 235


def test_without_pillow_the_page_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = photograph(tmp_path / "0.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = written(tmp_path / "report.html", page(worst=[pair(0, file=file)]))
    assert found.pictures == []
    assert f"No pictures: Pillow is not installed ({INSTALL})." in found.text


# --- which pairs


def test_rows_are_chosen_by_score_and_cut() -> None:
    scores = np.array([0.9, 0.1, np.nan, 0.5, 0.1, 0.4])
    chosen = choose_rows(scores, 0.45, np.random.default_rng(0))
    assert chosen.worst == [1, 4, 5, 3, 0]
    assert chosen.borderline == [1, 4, 5, 3, 0]
    assert sorted(chosen.sample) == [0, 1, 3, 4, 5]


def test_of_many_rows_the_nearest_to_the_cut_and_a_repeatable_sample_are_chosen() -> None:
    scores = np.arange(1000)[::-1] / 1000
    chosen, again = (choose_rows(scores, 0.3, np.random.default_rng(7)) for _ in range(2))
    assert chosen == again
    assert chosen.worst == list(range(999, 799, -1))
    assert [round(1000 * scores[row]) for row in chosen.borderline] == list(range(270, 330))
    assert len(set(chosen.sample)) == 100
    assert chosen.sample != sorted(chosen.sample)
    assert choose_rows(scores, 0.0, np.random.default_rng(7)).borderline == list(range(999, 969, -1))


def test_the_histogram_counts_every_score_once() -> None:
    counts = score_histogram([0.0, 0.024, 0.026, 1.0, float("nan")])
    assert (len(counts), sum(counts), counts[0], counts[1], counts[-1]) == (40, 4, 2, 1, 1)
