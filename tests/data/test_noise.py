import argparse
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in2r.cli import noise as cli
from in2r.data.noise import NoiseIndex, draw_noise, load_index, make_index, npy_path, save_index, sidecar_path
from in2r.errors import InputError

FIVE = np.arange(500) // 5  # 100 images × 5 captions
RAGGED = np.repeat(np.arange(40), np.arange(40) % 4 + 1)  # 1, 2, 3, 4, 1, ... captions


@given(
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=30),
    ratio=st.floats(0, 1),
    level=st.sampled_from(["caption", "image"]),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_an_index_moves_at_most_the_ratio_and_only_permutes(counts, ratio, level, seed):
    own = np.repeat(np.arange(len(counts)), counts)
    index = make_index(own, ratio, level, seed)
    assert index.dtype == np.int64
    np.testing.assert_array_equal(index, make_index(own, ratio, level, seed))
    if level == "caption":
        assert (index != own).sum() <= int(ratio * len(own))
        np.testing.assert_array_equal(np.sort(index), own)
    else:
        mapped = {image: set(index[own == image]) for image in range(len(counts))}
        assert all(len(partners) == 1 for partners in mapped.values())
        assert sorted(partner for partners in mapped.values() for partner in partners) == list(range(len(counts)))
        assert sum(partners != {image} for image, partners in mapped.items()) <= int(ratio * len(counts))


@pytest.mark.parametrize("level", ["caption", "image"])
def test_ratio_zero_moves_nothing_and_one_moves_nearly_everything(level):
    np.testing.assert_array_equal(make_index(FIVE, 0, level, 0), FIVE)
    assert (make_index(FIVE, 1.0, level, 0) != FIVE).mean() > 0.95


def test_the_two_protocols_differ_in_what_they_leave_behind():
    caption = NoiseIndex(make_index(FIVE, 0.6, "caption", 1), FIVE, "caption").statistics()
    image = NoiseIndex(make_index(FIVE, 0.6, "image", 1), FIVE, "image").statistics()
    assert abs(caption["realised"] - image["realised"]) < 0.03
    # 0.6⁵ ≈ 8 % of the images lose all five captions at caption level, 60 % at image level
    assert caption["images_without_right_caption"] < 20
    assert image["images_without_right_caption"] == image["images_moved"] > 50


def test_statistics_by_hand():
    own = np.array([0, 0, 1, 1, 2])
    noise = NoiseIndex(np.array([0, 1, 0, 2, 1]), own, "caption", 0.8, 3)
    assert noise.clean.tolist() == [True, False, False, False, False]
    assert noise.statistics() == {
        "captions": 5,
        "images": 3,
        "moved": 4,
        "realised": 0.8,
        "images_moved": None,
        "images_without_right_caption": 2,
        "permutation": True,
    }
    assert not NoiseIndex(np.array([0, 0, 0, 0, 2]), own, "image").statistics()["permutation"]


def test_seeds_and_levels_give_different_draws():
    draws = [make_index(FIVE, 0.4, level, seed) for level in ("caption", "image") for seed in (0, 1)]
    assert len({draw.tobytes() for draw in draws}) == 4


def test_the_levels_draw_apart_where_each_image_has_one_caption():
    """There the two protocols are the same, and the same draw would give the same index."""
    single = np.arange(100)
    for seed in range(3):
        one, other = (make_index(single, 0.5, level, seed) for level in ("caption", "image"))
        assert (one != single).sum() > 40
        assert (one != other).any()
        assert set(np.flatnonzero(one != single)) != set(np.flatnonzero(other != single))


@pytest.mark.parametrize("level", ["caption", "image"])
def test_the_number_that_is_drawn_is_rounded_down(level):
    """0.399 of 5 is 1.995: one is drawn, and stays where it is; of 2.005 two are, which half of the seeds exchange."""
    moved = {
        ratio: [int((make_index(np.arange(5), ratio, level, seed) != np.arange(5)).sum()) for seed in range(20)]
        for ratio in (0.399, 0.401)
    }
    assert moved[0.399] == [0] * 20
    assert set(moved[0.401]) == {0, 2}


@pytest.mark.parametrize(
    ("ratio", "message"),
    [
        (60, r"`ratio` must be in \[0, 1\], got 60; did you mean 0.6\?$"),
        (-0.1, r"`ratio` must be in \[0, 1\], got -0.1$"),
        (float("nan"), r"`ratio` must be in \[0, 1\], got nan$"),
        (400, r"got 400$"),
    ],
)
def test_ratio_outside_zero_to_one_is_refused(ratio, message):
    with pytest.raises(InputError, match=message):
        make_index(FIVE, ratio, "caption", 0)


def test_other_bad_arguments_are_refused():
    with pytest.raises(InputError, match='`level` must be "caption" or "image", got \'images\''):
        make_index(FIVE, 0.4, "images", 0)
    for wrong in ([], [[0, 1]], [0.0, 1.0], [-1, 0]):
        with pytest.raises(InputError, match="`image_of_caption` must be"):
            make_index(wrong, 0.4, "caption", 0)


@pytest.mark.parametrize("own", [FIVE, RAGGED])
@pytest.mark.parametrize("level", ["caption", "image"])
def test_saved_index_loads_again_with_or_without_suffix_and_record(tmp_path, own, level):
    noise = NoiseIndex(make_index(own, 0.4, level, 7), own, level, 0.4, 7)
    path = save_index(tmp_path / "f30k_0.4", noise)
    assert path.name == "f30k_0.4.npy"
    assert np.load(path).dtype == np.dtype("<i8")
    assert json.loads(sidecar_path(path).read_text())["statistics"] == noise.statistics()
    for name in ("f30k_0.4", "f30k_0.4.npy"):
        loaded = load_index(tmp_path / name, own, level=level, ratio=0.4)
        np.testing.assert_array_equal(loaded.index, noise.index)
        assert (loaded.level, loaded.nominal, loaded.seed, loaded.sha256) == (level, 0.4, 7, noise.sha256)
    sidecar_path(path).unlink()
    foreign = load_index(path, own, level=level, ratio=0.4)
    assert (foreign.level, foreign.nominal, foreign.seed) == (level, 0.4, None)
    assert load_index(path, own).level == level  # detected from the content


def test_one_entry_per_image_is_expanded(tmp_path):
    per_image = make_index(np.arange(100), 0.4, "image", 0).astype(np.int32)
    np.save(tmp_path / "decl.npy", per_image)
    noise = load_index(tmp_path / "decl.npy", FIVE, level="image", ratio=0.4)
    np.testing.assert_array_equal(noise.index, np.repeat(per_image, 5))
    assert noise.index.dtype == np.int64


def test_level_is_unknown_where_the_content_cannot_tell(tmp_path):
    own = np.arange(50)  # one caption per image
    np.save(tmp_path / "one.npy", make_index(own, 0.4, "caption", 0))
    assert load_index(tmp_path / "one.npy", own).level == "unknown"
    assert load_index(tmp_path / "one.npy", own, level="image").level == "image"
    np.save(tmp_path / "clean.npy", own)
    assert load_index(tmp_path / "clean.npy", own, level="image", ratio=0).level == "none"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.arange(1000), "1000 entries; expected 500 .captions. or 100 .images."),
        (FIVE.astype(float), "dtype float64; expected integers"),
        (np.where(np.arange(500) == 17, 100, FIVE), r"entry 17 is 100; expected an image number in 0\.\.99"),
        (FIVE - 1, "entry 0 is -1"),
        (FIVE.reshape(100, 5), r"shape \(100, 5\)"),
        (np.array("x"), "expected integers"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(tmp_path, array, message):
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(InputError, match=f"bad.npy: .*{message}"):
        load_index(tmp_path / "bad.npy", FIVE)


def test_files_that_are_no_index_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such noise index; `in2r noise make` creates one"):
        load_index(tmp_path / "typo.npy", FIVE)
    (tmp_path / "text.npy").write_text("0 1 2")
    np.savez(tmp_path / "many.npz", FIVE)
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object))
    (tmp_path / "empty.npy").touch()
    for name in ("text.npy", "many.npz", "pickle.npy", "empty.npy"):
        with pytest.raises(InputError, match=name) as error:
            load_index(tmp_path / name, FIVE)
        assert "\n" not in str(error.value)
        assert "unsafe" not in str(error.value)


def test_a_write_that_fails_loses_neither_index_nor_record(tmp_path, monkeypatch):
    noise = NoiseIndex(make_index(FIVE, 0.2, "caption", 0), FIVE, "caption", 0.2, 0)
    path = save_index(tmp_path / "n", noise)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        save_index(path, replace(noise, seed=1))
    loaded = load_index(path, FIVE, ratio=0.2)
    assert (loaded.sha256, loaded.nominal, loaded.seed) == (noise.sha256, 0.2, 0)


@pytest.mark.parametrize("record", [True, False])
def test_wrong_declarations_are_refused(tmp_path, record):
    path = save_index(tmp_path / "n", NoiseIndex(make_index(FIVE, 0.2, "caption", 0), FIVE, "caption", 0.2, 0))
    if not record:
        sidecar_path(path).unlink()
    with pytest.raises(InputError, match=r"realised 0\.\d{4}, declared 0\.8"):
        load_index(path, FIVE, ratio=0.8)
    with pytest.raises(InputError, match="caption-level noise, declared image-level"):
        load_index(path, FIVE, level="image")
    with pytest.raises(InputError, match=r"did you mean 0\.2"):
        load_index(path, FIVE, ratio=20)


def test_record_of_another_index_is_refused(tmp_path):
    path = save_index(tmp_path / "n", NoiseIndex(make_index(FIVE, 0.2, "caption", 0), FIVE, "caption", 0.2, 0))
    np.save(path, make_index(FIVE, 0.4, "caption", 0))
    with pytest.raises(InputError, match=r"not the index that n\.npy\.json describes"):
        load_index(path, FIVE)
    sidecar_path(path).write_text("[]")
    with pytest.raises(InputError, match=r"n\.npy\.json: no valid `level`"):
        load_index(path, FIVE)
    sidecar_path(path).write_text('{"level": "caption", "ratio": "0.2"}')
    with pytest.raises(InputError, match=r"n\.npy\.json: `ratio` is '0\.2'"):
        load_index(path, FIVE)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"ratio": 0.8}, r"by its record n\.npy\.json: realised 0\.\d{4}, declared 0\.8"),
        ({"ratio": float("nan")}, r"by its record n\.npy\.json: `ratio` must be in \[0, 1\], got nan"),
        ({"ratio": 20}, r"by its record n\.npy\.json: `ratio` must be in \[0, 1\], got 20; did you mean 0\.2\?"),
        ({"ratio": True}, r"`ratio` is True; expected a number or null"),
        ({"level": "image"}, r"caption-level noise, but n\.npy\.json says image; make the index again"),
        ({"level": "none"}, r"caption-level noise, but n\.npy\.json says none"),
    ],
)
def test_a_record_that_the_index_belies_is_refused(tmp_path, says, message):
    path = save_index(tmp_path / "n", NoiseIndex(make_index(FIVE, 0.2, "caption", 0), FIVE, "caption", 0.2, 0))
    sidecar_path(path).write_text(json.dumps({**json.loads(sidecar_path(path).read_text()), **says}))
    for declared in ({}, {"ratio": 0.8 if says.get("ratio") == 0.8 else 0.2}):
        with pytest.raises(InputError, match=message):
            load_index(path, FIVE, **declared)


def test_an_image_level_index_is_not_taken_for_caption_level(tmp_path):
    path = save_index(tmp_path / "n", NoiseIndex(make_index(FIVE, 0.5, "image", 0), FIVE, "image", 0.5, 0))
    sidecar_path(path).write_text(sidecar_path(path).read_text().replace('"level": "image"', '"level": "caption"'))
    with pytest.raises(InputError, match=r"image-level noise, but n\.npy\.json says caption"):
        load_index(path, FIVE)


@given(
    counts=st.lists(st.integers(1, 3), min_size=2, max_size=8),
    ratio=st.floats(0, 1),
    level=st.sampled_from(["caption", "image"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_what_was_drawn_of_few_images_is_read_again(tmp_path_factory, counts, ratio, level, seed):
    own = np.repeat(np.arange(len(counts)), counts)
    noise = draw_noise(own, ratio, level, seed)
    path = save_index(tmp_path_factory.mktemp("few") / "n", noise)
    loaded = load_index(path, own, level=level, ratio=ratio)
    assert (loaded.sha256, loaded.nominal) == (noise.sha256, ratio)


def test_nothing_can_be_mismatched_among_one_image():
    with pytest.raises(InputError, match="1 image; nothing can be mismatched among fewer than two"):
        make_index(np.zeros(5, np.int64), 0.5)
    assert make_index(np.zeros(5, np.int64), 0.0).tolist() == [0] * 5


def test_an_index_that_is_no_permutation_is_taken_with_a_warning(tmp_path, caplog):
    index = FIVE.copy()
    index[:100] = 99
    np.save(tmp_path / "foreign.npy", index)
    with caplog.at_level(logging.WARNING):
        noise = load_index(tmp_path / "foreign.npy", FIVE)
    assert "not a permutation" in caplog.text
    assert noise.statistics()["moved"] == 100


def test_suffix_is_added_only_where_missing():
    assert npy_path("a/f30k_0.2").name == "f30k_0.2.npy"
    assert npy_path("a/f30k_0.2.npy").name == "f30k_0.2.npy"


@pytest.fixture
def folder(tmp_path):
    """A precomp folder with 20 images × 5 captions."""
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "train_ims.npy", np.ones((20, 1, 4), np.float32))
    (data / "train_caps.txt").write_text("".join(f"a dog {n}\n" for n in range(100)))
    return data


def run(*arguments) -> int:
    parser = argparse.ArgumentParser()
    cli.register(parser.add_subparsers())
    args = parser.parse_args(["noise", *map(str, arguments)])
    status: int = args.run(args)
    return status


def test_command_makes_checks_and_never_overwrites(folder, tmp_path, capsys):
    out = tmp_path / "f_0.4"
    assert run("make", folder, "--ratio", 0.4, "--level", "image", "--seed", 3, "--out", out) == 0
    printed = capsys.readouterr().out
    index = np.load(tmp_path / "f_0.4.npy")
    np.testing.assert_array_equal(index, make_index(np.arange(100) // 5, 0.4, "image", 3))
    assert "image level" in printed
    assert f"{(index != np.arange(100) // 5).mean():.4f}" in printed
    assert run("check", out, folder, "--ratio", 0.4, "--level", "image") == 0
    assert capsys.readouterr().out.splitlines()[2:] == printed.splitlines()[2:]
    with pytest.raises(InputError, match=r"declared 0\.8"):
        run("check", out, folder, "--ratio", 0.8)
    with pytest.raises(InputError, match=r"f_0\.4\.npy: exists; .* --force"):
        run("make", folder, "--ratio", 0.2, "--out", out)
    assert run("make", folder, "--ratio", 0, "--out", out, "--force") == 0
    assert "nothing moved" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"did you mean 0\.6"):
        run("make", folder, "--ratio", 60, "--out", tmp_path / "other")
    assert not (tmp_path / "other.npy").exists()


def test_command_reads_a_folder_as_it_is_told_to(folder, tmp_path, capsys):
    out = tmp_path / "n.npy"
    (folder / "train_caps.txt").unlink()
    np.save(folder / "train_vec.npy", np.ones((100, 6), np.float32))
    vectors = ("--caption-vectors", "vec")
    assert run("make", folder, "--ratio", 0.4, "--out", out, *vectors) == 0
    assert run("check", out, folder, *vectors) == 0
    (folder / "pairs.tsv").write_text("image\tcaption\n")
    with pytest.raises(InputError, match=r"both .* a pair table; say which by .*--layout"):
        run("check", out, folder, *vectors)
    assert run("check", out, folder, *vectors, "--layout", "precomp") == 0
    np.save(folder / "images.npy", np.ones((30, 1, 4), np.float32))
    (folder / "pairs.tsv").write_text("image\tcaption\n" + "".join(f"{image}\tx\n" for image in range(30)))
    assert run("make", folder, "--ratio", 1, "--out", out, "--layout", "table", "--force") == 0
    assert "of 24 captions" in capsys.readouterr().out  # 3 images are drawn for dev, 3 for test


@pytest.mark.parametrize(
    ("name", "moved", "orphans"),
    [
        ("caption_level_0.2", 28999, 7),
        ("caption_level_0.4", 58000, 281),
        ("caption_level_0.6", 86996, 2240),
        ("image_level_0.2", 28995, 5799),
        ("image_level_0.4", 58000, 11600),
        ("image_level_0.6", 86990, 17398),
        ("image_level_0.8", 115995, 23199),
    ],
)
def test_public_flickr30k_files_are_read_and_counted(shared, name, moved, orphans):
    level, ratio = name.split("_")[0], float(name[-3:])
    own = np.arange(145_000) // 5
    file = shared / "data" / "noise_index" / f"flickr30k_{name}.npy"
    noise = load_index(file, own, level=level, ratio=ratio)
    statistics = noise.statistics()
    assert (statistics["moved"], statistics["images_without_right_caption"]) == (moved, orphans)
    assert statistics["permutation"]
    with pytest.raises(InputError, match="realised"):
        load_index(file, own, ratio=ratio / 2)


def test_an_index_in_which_nothing_moved_is_not_taken_for_noise(tmp_path, caplog):
    own = np.arange(72) // 3  # 24 images
    np.save(tmp_path / "n.npy", own)
    with pytest.raises(InputError, match=r"realised 0\.0000, declared 0\.2"):
        load_index(tmp_path / "n.npy", own, level="caption", ratio=0.2)
    load_index(tmp_path / "n.npy", own, level="image", ratio=0.2)  # four of 24 images may all get their own captions
    assert "nothing moved, though 0.2 was asked for" in caplog.text
