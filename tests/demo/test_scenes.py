import hashlib
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from in2r.data.sources import open_data
from in2r.demo import make_scenes
from in2r.demo.captions import Mention, _place, _relation, caption_scene
from in2r.demo.drawing import BACKGROUNDS, COLOURS, SIDE, Scene, Thing, draw_scene, overlap, paint
from in2r.demo.features import DIM, REGIONS, region_features
from in2r.demo.shapes import SHAPES, coverage
from in2r.errors import InputError


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def ball(x=48, y=48, extent=30, colour="red", texture="plain", size="medium", kind="ball"):
    return Thing(kind, colour, size, texture, x, y, extent)


@pytest.fixture(scope="module")
def precomp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes") / "precomp"
    make_scenes(folder, train=70, dev=3, test=4, seed=5)
    return folder


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes") / "ragged"
    make_scenes(folder, train=40, dev=3, test=4, captions_per_image=(1, 4), seed=5)
    return folder


# files


def test_precomp_layout(precomp):
    for split, images in {"train": 70, "dev": 3, "test": 4}.items():
        features = np.load(precomp / f"{split}_ims.npy")
        assert features.shape == (images, REGIONS, DIM)
        assert features.dtype == np.float16
        assert len(lines(precomp / f"{split}_caps.txt")) == 5 * images
        ids = lines(precomp / f"{split}_ids.txt")
        assert len(set(ids)) == images
        assert {path.stem for path in (precomp / "pictures" / split).iterdir()} == set(ids)
    names = {path.name for path in precomp.iterdir()} - {"pictures", "scenes.json"}
    assert names == {f"{s}_{e}" for s in ("train", "dev", "test") for e in ("ims.npy", "caps.txt", "ids.txt")}


def test_ragged_table(ragged):
    ids = lines(ragged / "image_ids.txt")
    header, *rows = [line.split("\t") for line in lines(ragged / "pairs.tsv")]
    assert header == ["image", "caption", "split"]
    assert np.load(ragged / "images.npy").shape == (len(ids), REGIONS, DIM) == (47, 10, 108)
    counts = [sum(row[0] == image for row in rows) for image in ids]
    assert set(counts) == {1, 2, 3, 4}
    assert [sum(image.startswith(split) for image in ids) for split in ("train", "dev", "test")] == [40, 3, 4]
    assert all(image.startswith(split) for image, _, split in rows)
    assert sorted(path.name for path in ragged.iterdir()) == [
        "image_ids.txt",
        "images.npy",
        "pairs.tsv",
        "pictures",
        "scenes.json",
    ]


def test_both_layouts_open_as_data_and_hold_the_same_images(precomp, ragged):
    field, table = open_data(precomp).split("dev"), open_data(ragged).split("dev")
    assert list(field.image_ids) == list(table.image_ids) == ["dev-000000", "dev-000001", "dev-000002"]
    assert field.captions[0] == table.captions[0]
    everything = torch.arange(3)
    torch.testing.assert_close(field.images.gather(everything)[0], table.images.gather(everything)[0])


def test_same_number_other_than_five_is_a_table(tmp_path):
    make_scenes(tmp_path, train=2, dev=2, test=2, captions_per_image=1)
    assert len(lines(tmp_path / "pairs.tsv")) == 1 + 6


def test_record_says_what_was_drawn(precomp):
    record = json.loads((precomp / "scenes.json").read_text(encoding="utf-8"))
    assert {key: record[key] for key in ("seed", "train", "dev", "test", "captions_per_image")} == {
        "seed": 5,
        "train": 70,
        "dev": 3,
        "test": 4,
        "captions_per_image": [5, 5],
    }
    assert [image["id"] for image in record["images"][70:73]] == lines(precomp / "dev_ids.txt")
    for image in record["images"]:
        assert image["background"] in BACKGROUNDS
        assert 2 <= len(image["things"]) <= 5
        for thing in image["things"]:
            half = thing["extent"] // 2
            assert half <= min(thing["x"], thing["y"])
            assert max(thing["x"], thing["y"]) - half + thing["extent"] <= SIDE


def test_features_come_from_the_kept_pictures(precomp):
    ids = lines(precomp / "train_ids.txt")
    pictures = np.stack([np.asarray(Image.open(precomp / "pictures/train" / f"{name}.png")) for name in ids])
    assert pictures.shape == (70, SIDE, SIDE, 3)
    np.testing.assert_array_equal(region_features(pictures), np.load(precomp / "train_ims.npy"))


# fixed by the seed


def test_smaller_set_begins_the_larger_one_in_either_layout(precomp, ragged):
    few, many = np.load(ragged / "images.npy"), np.load(precomp / "train_ims.npy")
    np.testing.assert_array_equal(few[:40], many[:40])
    np.testing.assert_array_equal(few[40:43], np.load(precomp / "dev_ims.npy"))


def test_captions_of_a_larger_set_begin_alike(precomp, tmp_path):
    make_scenes(tmp_path, train=3, dev=2, test=2, seed=5)
    for split, images in {"train": 3, "dev": 2, "test": 2}.items():
        assert lines(tmp_path / f"{split}_caps.txt") == lines(precomp / f"{split}_caps.txt")[: 5 * images]
        few, many = np.load(tmp_path / f"{split}_ims.npy"), np.load(precomp / f"{split}_ims.npy")
        np.testing.assert_array_equal(few, many[:images])


def test_another_seed_and_split_differ(precomp, tmp_path):
    make_scenes(tmp_path, train=3, dev=2, test=2, seed=6)
    assert lines(tmp_path / "train_caps.txt")[0] != lines(precomp / "train_caps.txt")[0]
    assert lines(precomp / "train_caps.txt")[0] != lines(precomp / "dev_caps.txt")[0]


def test_bytes_are_those_of_every_platform(precomp):
    """Raise VERSION in demo/make.py when these change on purpose."""
    features = np.load(precomp / "train_ims.npy").astype("<f2").tobytes()
    assert digest(features) == "0113d2128abf518d"
    assert digest((precomp / "train_caps.txt").read_bytes()) == "6fa03fd8c6a5329d"


# captions


def test_captions_are_varied_sentences(precomp):
    captions = lines(precomp / "train_caps.txt")
    counts = [len(caption.split()) for caption in captions]
    assert min(counts) >= 6
    assert max(counts) <= 24
    assert len(set(counts)) > 8
    assert len(set(captions)) > 0.98 * len(captions)
    assert len({caption.split()[0] for caption in captions}) > 10
    assert all(caption[0].isupper() and "  " not in caption and " ," not in caption for caption in captions)
    words = {word.strip(".,").lower() for caption in captions for word in caption.split()}
    assert len(words) > 150
    assert len({word for word in words if word in ("small", "little", "tiny")}) == 3


def test_captions_of_one_image_differ(precomp):
    captions = lines(precomp / "train_caps.txt")
    assert all(len(set(captions[i : i + 5])) == 5 for i in range(0, len(captions), 5))


def test_a_caption_tells_nothing_that_is_not_there():
    scene = Scene("night", 0, (ball(20, 20), ball(70, 70, colour="blue", kind="star")))
    words = {w.strip(".,").lower() for text in caption_scene(scene, 60, random.Random(1)) for w in text.split()}
    assert {"red", "blue", "ball", "star", "night"} <= words
    assert not words & {
        "green",
        "yellow",
        "striped",
        "dotted",
        "checkered",
        "small",
        "huge",
        "heart",
        "snow",
        "two",
    }


def test_alike_things_are_named_together():
    scene = Scene("snow", 0, (ball(20, 20), ball(70, 70)))
    texts = caption_scene(scene, 30, random.Random(1))
    assert all("two" in text.lower() or "pair of" in text.lower() for text in texts)
    assert any("balls" in text for text in texts)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (ball(20, 48), ball(76, 50), "left"),
        (ball(76, 50), ball(20, 48), "right"),
        (ball(48, 18), ball(50, 76), "above"),
        (ball(50, 76), ball(48, 18), "below"),
        (ball(40, 40), ball(55, 55), "behind"),
        (ball(30, 30, 20), ball(52, 52, 20), "next to"),
        (ball(18, 18), ball(76, 76), "far from"),
    ],
)
def test_relation_words(a, b, expected):
    said = {_relation(random.Random(i), Mention((a,), 0), Mention((b,), 1)) for i in range(40)}
    assert any(expected in words for words in said)
    opposites = {
        "left": "right",
        "right": "left",
        "above": "below",
        "below": "above",
        "behind": "in front of",
    }
    assert not any(opposites.get(expected, "?") in words for words in said)


def test_the_nearer_thing_is_in_front():
    front, back = Mention((ball(55, 55),), 1), Mention((ball(40, 40),), 0)
    assert "in front of" in {_relation(random.Random(i), front, back) for i in range(20)}


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(10, 10, "top left corner"), (90, 48, "right"), (48, 90, "bottom"), (48, 48, "middle")],
)
def test_place_words(x, y, expected):
    assert any(expected in _place(random.Random(i), Mention((ball(x, y),), 0)) for i in range(40))


# pictures


def test_overlap_is_a_share_of_the_smaller_square():
    assert overlap(ball(20, 20, 20), ball(60, 20, 20)) == 0.0
    assert overlap(ball(20, 20, 20), ball(30, 20, 20)) == 0.5
    assert overlap(ball(40, 40, 10), ball(42, 40, 40)) == 1.0


@pytest.mark.parametrize("kind", SHAPES)
def test_each_shape_fills_its_square_and_has_a_rim(kind):
    body, rim = coverage(kind, 40)
    rows, columns = np.flatnonzero(body.any(axis=1)), np.flatnonzero(body.any(axis=0))
    assert max(np.ptp(rows), np.ptp(columns)) > 32
    assert body.max() == 9
    assert 0.15 < body.mean() / 9 < 0.8
    assert (rim <= body).all()
    assert rim.sum() < 0.6 * body.sum()


def test_shapes_and_colours_are_told_apart():
    masks = {coverage(kind, 30)[0].tobytes() for kind in SHAPES}
    assert len(masks) == len(SHAPES) == 12
    pixels = [
        paint(Scene("snow", 0, (ball(colour=c), ball(80, 80, 18))), random.Random(3))[48, 48].astype(int)
        for c in COLOURS
    ]
    gaps = [abs(a - b).sum() for i, a in enumerate(pixels) for b in pixels[:i]]
    assert min(gaps) > 40


def test_later_things_cover_earlier_ones():
    red, blue = ball(45, 48), ball(51, 48, colour="blue")
    pixel = paint(Scene("wall", 0, (red, blue)), random.Random(0))[48, 48].astype(int)
    assert pixel[2] > pixel[0] + 60
    pixel = paint(Scene("wall", 0, (blue, red)), random.Random(0))[48, 48].astype(int)
    assert pixel[0] > pixel[2] + 60


def test_scenes_vary_and_overlap():
    scenes = [draw_scene(random.Random(i)) for i in range(300)]
    assert {scene.background for scene in scenes} == set(BACKGROUNDS)
    assert {len(scene.things) for scene in scenes} == {2, 3, 4, 5}
    covered = [
        any(overlap(a, b) > 0.1 for i, a in enumerate(scene.things) for b in scene.things[:i]) for scene in scenes
    ]
    assert 0.3 < np.mean(covered) < 0.9
    twins = [len({thing.look for thing in scene.things}) < len(scene.things) for scene in scenes]
    assert 0.1 < np.mean(twins) < 0.6


# features


def test_features_are_finite_standardised_and_differ(precomp):
    features = np.load(precomp / "train_ims.npy").astype(np.float64)
    assert np.isfinite(features).all()
    assert abs(features.mean(axis=(0, 1))).max() < 0.6
    spread = features.std(axis=(0, 1))
    assert spread.min() > 0.2
    assert spread.max() < 2.5
    assert len(np.unique(features.reshape(70, -1), axis=0)) == 70
    gaps = np.linalg.norm(features[:, None] - features[None], axis=(2, 3))[np.triu_indices(70, 1)]
    assert gaps.min() > 5


def test_features_of_a_picture_do_not_depend_on_its_block():
    pictures = np.stack([paint(draw_scene(random.Random(i)), random.Random(i)) for i in range(5)])
    whole = region_features(pictures)
    np.testing.assert_array_equal(whole[3:4], region_features(pictures[3:4]))


def test_regions_see_only_their_window():
    """Of the nine windows only those that hold the changed corner change; the whole changes too."""
    pictures = np.repeat(paint(draw_scene(random.Random(2)), random.Random(2))[None], 2, axis=0)
    pictures[1, :20, :20] = (250, 10, 10)
    first, second = region_features(pictures)
    assert [i for i in range(REGIONS) if not np.array_equal(first[i], second[i])] == [0, 1]


# refusals


def test_refuses_a_folder_that_is_not_empty(tmp_path):
    (tmp_path / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(InputError, match="not empty; give a new or empty folder"):
        make_scenes(tmp_path, train=2, dev=2, test=2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_refuses_a_file_as_folder(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="is a file"):
        make_scenes(tmp_path / "file", train=2, dev=2, test=2)


@pytest.mark.parametrize("given", [0, -1, (0, 3), (4, 2)])
def test_refuses_caption_numbers(tmp_path, given):
    with pytest.raises(InputError, match=r"captions_per_image is .*expected a number ≥ 1 or"):
        make_scenes(tmp_path / "new", train=2, dev=2, test=2, captions_per_image=given)
    assert not (tmp_path / "new").exists()


def test_refuses_a_split_of_one_image(tmp_path):
    with pytest.raises(InputError, match="dev has 1 images; expected 2 or more"):
        make_scenes(tmp_path / "new", train=2, dev=1, test=2)


def test_names_the_install_command_without_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r'pip install "in2r\[scenes\]"'):
        make_scenes(tmp_path / "new", train=2, dev=2, test=2)
    assert not Path(tmp_path / "new").exists()


def test_progress_ends_at_the_total(tmp_path):
    seen = []
    make_scenes(tmp_path, train=66, dev=2, test=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 70), (66, 70), (68, 70), (70, 70)]


def test_a_full_disk_is_named_before_anything_is_drawn(tmp_path, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr("in2r.files.shutil.disk_usage", lambda path: SimpleNamespace(free=0))
        with pytest.raises(InputError, match=r"MiB needed, 0\.0 MiB free"):
            make_scenes(tmp_path / "new", train=2, dev=2, test=2)
    make_scenes(tmp_path / "new", train=2, dev=2, test=2)  # nothing was left that bars a second try
