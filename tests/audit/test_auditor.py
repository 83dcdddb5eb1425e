"""The audit from Python: arrays in, scores in their order out; errors by their text."""

import re

import numpy as np
import pytest
import torch
from report_pages import Read
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import in2r
from in2r.audit.auditor import Auditor
from in2r.errors import InputError
from planted_pairs import planted

FILES = [
    "drop.txt", "evidence.jsonl", "judge.safetensors", "keep.txt", "pairs.csv", "report.html", "summary.json",
    "weights.csv",
]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return planted(images=100)


@pytest.fixture(scope="module")
def fitted(made):
    return Auditor(draws=2).fit(made["features"], made["captions"], image_of_caption=made["owner"])


def test_scores_are_in_the_order_of_the_captions(made, fitted):
    assert in2r.Auditor is Auditor
    assert fitted.scores_.shape == fitted.verdicts_.shape == (200,)
    assert roc_auc_score(made["right"], fitted.scores_) > 0.9
    assert fitted.noise_rate_ == pytest.approx(0.25, abs=0.12)
    assert all(values.shape == (200,) for values in fitted.components_.values())
    order = np.random.default_rng(0).permutation(200)
    other = Auditor(draws=2).fit(
        made["features"], [made["captions"][row] for row in order], image_of_caption=made["owner"][order].tolist()
    )
    assert roc_auc_score(made["right"][order], other.scores_) > 0.9  # what is drawn depends on the order
    assert np.corrcoef(other.scores_, fitted.scores_[order])[0, 1] > 0.9


def test_suspects_are_the_worst_first(fitted):
    found = fitted.suspects()
    assert set(found) == set(np.flatnonzero(fitted.scores_ < 0.5))
    assert (np.diff(fitted.scores_[found]) >= 0).all()
    assert fitted.suspects(3).tolist() == found[:3].tolist()
    assert fitted.suspects(0).tolist() == []
    with pytest.raises(InputError, match=r"^top must be at least 0, got -1$"):
        fitted.suspects(-1)


def test_a_report_is_a_file(fitted, tmp_path):
    assert fitted.report(tmp_path / "page.html").is_file()
    said = f"{tmp_path}: is a folder; give the file to write, such as {tmp_path / 'report.html'}"
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        fitted.report(tmp_path)


def test_regions_count_by_their_mean_and_settings_are_taken(made, fitted):
    regions = np.stack([2 * made["features"], 0 * made["features"]], axis=1)  # their mean is exact
    found = Auditor(draws=2, cut=0.3).fit(regions, made["captions"], image_of_caption=made["owner"])
    np.testing.assert_array_equal(found.scores_, fitted.scores_)
    assert set(found.suspects()) == set(np.flatnonzero(found.scores_ < 0.3))
    assert found.config.cut == 0.3


def test_vectors_of_captions_one_an_image(made, tmp_path):
    """Caption k belongs to image k; half of them are exchanged in a ring."""
    features = made["features"]
    source = np.arange(100)
    source[:30] = np.roll(source[:30], 1)
    vectors = features[source] @ np.random.default_rng(2).normal(size=(16, 6))
    ids = [f"photo {image}" for image in range(100)]
    found = Auditor(draws=2).fit(features, caption_vectors=vectors.astype(np.float16), image_ids=ids)
    assert roc_auc_score(source == np.arange(100), found.scores_) > 0.9
    report = found.report(tmp_path / "page" / "report.html")
    assert report == tmp_path / "page" / "report.html"
    assert Read(report).cards("worst")[0] == int(found.scores_.argmin())
    assert f"photo {found.scores_.argmin()}" in Read(report).text


def test_captions_with_vectors_of_their_own_and_an_empty_one(made):
    captions = ["a dog", "  ", *["the cat"] * 98]
    draws = np.random.default_rng(3)
    found = Auditor(draws=2).fit(made["features"], captions, caption_vectors=draws.normal(size=(100, 4)))
    assert np.isnan(found.scores_[1])
    assert found.verdicts_[1] == "empty"
    assert found.audit_.pairs.captions == captions
    assert not found.audit_.verdicts.told
    assert (found.noise_rate_, len(found.suspects())) == (None, 0)


def test_a_folder_is_written(fitted, tmp_path):
    folder = tmp_path / "audit"
    assert fitted.write(str(folder)) == folder
    assert [path.name for path in sorted(folder.iterdir()) if path.suffix != ".parquet"] == FILES
    fitted.write(folder)  # over an audit
    np.save(tmp_path / "images.npy", np.zeros(1))
    said = f"{tmp_path}: holds images.npy, which no audit wrote; give a new folder"
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        fitted.write(tmp_path)


IMAGES, WORDS = np.random.default_rng(0).normal(size=(60, 4)), ["a dog", "a cat"] * 30
BROKEN = IMAGES.copy()
BROKEN[7, 2] = np.inf
ERRORS = {
    "no captions": ([IMAGES], {}, "captions or caption_vectors: expected one of them, got neither"),
    "one axis": (
        [IMAGES[:, 0], WORDS], {}, "images: float64 (60,); expected numbers (rows, dim) or (rows, regions, dim)"
    ),
    "words for numbers": (
        [IMAGES.astype(str), WORDS], {}, f"images: {IMAGES.astype(str).dtype} (60, 4); expected numbers (rows, dim) or "
        "(rows, regions, dim)"
    ),
    "no numbers": ([IMAGES[:, :0], WORDS], {}, "images: shape (60, 0); expected at least one row and one number in it"),
    "not finite": ([BROKEN, WORDS], {}, "images: row 7 holds NaN, infinity or a value beyond 1e12"),
    "huge": ([IMAGES, None], {"caption_vectors": 1e300 * np.ones((60, 2))},
        "caption_vectors: row 0 holds NaN, infinity or a value beyond 1e12"),
    "vectors of fewer": ([IMAGES, WORDS], {"caption_vectors": np.ones((59, 2))},
        "caption_vectors: 59 rows; expected one for each of the 60 captions"),
    "no owners": ([IMAGES, WORDS * 2], {},
        "120 captions but 60 images; image_of_caption says which image each belongs to"),
    "owners of fewer": ([IMAGES, WORDS], {"image_of_caption": range(59)},
        "image_of_caption: int64 (59,); expected a row of `images` for each of 60 captions"),
    "owners as fractions": ([IMAGES, WORDS], {"image_of_caption": np.arange(60) / 2},
        "image_of_caption: float64 (60,); expected a row of `images` for each of 60 captions"),
    "owners below 0": ([IMAGES, WORDS], {"image_of_caption": np.arange(60) - 1},
        "image_of_caption: -1 to 58; expected 0 to 59"),
    "owners beyond": ([IMAGES[:30], WORDS], {"image_of_caption": np.arange(60)},
        "image_of_caption: 0 to 59; expected 0 to 29"),
    "no text": ([IMAGES, [*WORDS[:59], None]], {}, "captions: entry 59 is NoneType None; expected text"),
    "names of fewer": ([IMAGES, WORDS], {"image_ids": ["a"]}, "image_ids: 1; expected one for each of the 60 images"),
    "few": ([IMAGES[:49], WORDS[:49]], {}, "49 pairs can be judged; an audit needs 50 or more"),
    "few with words": ([IMAGES, ["", *WORDS[:48], *[" "] * 11]], {},
        "48 pairs can be judged; an audit needs 50 or more"),
    "one image": ([IMAGES[:1], WORDS], {"image_of_caption": [0] * 60},
        "pairs of 1 different image can be judged; an audit compares images and needs 10 or more"),
    "copies": ([np.ones((60, 4)), WORDS], {},
        "pairs of 1 different image can be judged; an audit compares images and needs 10 or more"),
    "nine images": ([IMAGES[:9], WORDS], {"image_of_caption": np.arange(60) % 9},
        "pairs of 9 different images can be judged; an audit compares images and needs 10 or more"),
    "sparse": ([torch.tensor(IMAGES).to_sparse(), WORDS], {},
        "images: a sparse tensor; expected a dense one, such as its to_dense()"),
    "half a surrogate": ([IMAGES, [*WORDS[:59], "a \udc80 dog"]], {},
        "captions: entry 59 holds half of a surrogate pair, '\\udc80'; expected text"),
    "one text": ([IMAGES, "a dog"], {}, "captions: one text 'a dog'; expected a list of texts, one for each pair"),
    "no word twice": ([IMAGES, [f"w{row}" for row in range(60)]], {},
        "no word occurs twice in all captions; give captions as vectors"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_is_refused(case):
    arguments, options, said = ERRORS[case]
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        Auditor().fit(*arguments, **options)


def test_tensors_of_any_float_type_are_taken():
    """A model's output: bfloat16, with gradients."""
    values = torch.tensor(IMAGES, dtype=torch.bfloat16, requires_grad=True)
    plain = values.detach().float().numpy()
    assert np.array_equal(Auditor(draws=2).fit(values, WORDS).scores_, Auditor(draws=2).fit(plain, WORDS).scores_)


def test_settings_out_of_range_are_refused():
    for settings, said in (
        ({"cut": 1.5}, "configuration: `cut` must be in [0, 1], got 1.5"),
        ({"cuts": 0.5}, "configuration: unknown key `cuts`; did you mean `cut`?"),
    ):
        with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
            Auditor(**settings)


def test_scikit_learn_can_clone_it():
    auditor = Auditor(seed=3, cut=0.4)
    again = clone(auditor)
    assert again is not auditor
    assert again.config == auditor.config
    assert repr(again) == "Auditor(seed=3, cut=0.4)"
    assert again.set_params(cut=0.2).config.cut == 0.2
    with pytest.raises(InputError, match="folds"):
        again.set_params(folds=1)


def test_an_auditor_that_has_judged_nothing_says_so(tmp_path):
    for call in (Auditor().suspects, lambda: Auditor().report(tmp_path / "r.html"), lambda: Auditor().write(tmp_path)):
        with pytest.raises(InputError, match="has judged no pairs"):
            call()
