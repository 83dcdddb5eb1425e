"""New pairs judged by a kept audit: what is kept, whom it asks, what it refuses."""

import csv
import re
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from in2r.audit import against as module
from in2r.audit.against import keep
from in2r.audit.auditor import Auditor
from in2r.audit.by_hand import move_cut
from in2r.audit.evidence import NAMES, given_pairs
from in2r.audit.folder import write_audit
from in2r.audit.kept import FILE, FORMAT, Packed, load_kept, save_kept
from in2r.audit.witnesses import Witnesses
from in2r.errors import InputError
from in2r.metrics import calibration_error
from in2r.report import Decisions
from in2r.report.decisions import Decision
from in2r.tensors import save_tensors
from planted_pairs import part_of, planted

WORLD = planted(images=500)
OLD, NEW = part_of(WORLD, range(400)), part_of(WORLD, range(400, 500))


def arguments(part):
    return {"images": part["features"], "captions": part["captions"], "image_of_caption": part["owner"]}


@pytest.fixture(scope="module")
def auditor():
    return Auditor(draws=4).fit(**arguments(OLD))


@pytest.fixture(scope="module")
def kept(auditor):
    return keep(auditor.audit_)


# --- new pairs


def test_wrong_new_pairs_are_found_and_scores_mean_what_they_say(auditor):
    found, right = auditor.judge(**arguments(NEW)), NEW["right"]
    assert roc_auc_score(right, found.scores_) > 0.9
    assert calibration_error(found.scores_, right) < 0.1
    assert found.noise_rate_ == pytest.approx(1 - right.mean(), abs=0.08)
    low, high = found.audit_.summary()["noise_rate_interval"]
    assert low < found.noise_rate_ < high
    assert set(found.suspects()) == set(np.flatnonzero(found.scores_ < 0.5))
    assert np.isnan(found.components_["other captions"]).all()
    for name in NAMES[:3]:
        values = found.components_[name]
        assert (values >= 0).all()
        assert (values <= 1).all()
        assert roc_auc_score(right, values) > 0.7


def test_a_feed_of_another_noise_rate(auditor):
    """Of the old pairs, a quarter is wrong; of these, nearly all or none."""
    for rows in (NEW["right"], ~NEW["right"]):
        part = {**arguments(NEW), "captions": [text for text, kept in zip(NEW["captions"], rows, strict=True) if kept]}
        part["image_of_caption"] = NEW["owner"][rows]
        found = auditor.judge(**part)
        truth = 0.0 if rows is NEW["right"] else 1.0
        assert found.noise_rate_ == pytest.approx(truth, abs=0.25)
        assert abs(found.noise_rate_ - truth) < abs(auditor.noise_rate_ - truth)


def test_a_cut_that_decisions_moved_is_taken_over_with_what_they_make_of_scores(auditor, tmp_path):
    decisions = Decisions(1, "", (), tuple(Decision(row, word) for row, word in enumerate(["right", "wrong"] * 20)))
    moved = move_cut(auditor.audit_, decisions)
    write_audit(tmp_path / "old", moved)
    new = Auditor.load(tmp_path / "old").judge(**arguments(NEW)).audit_
    assert new.by_hand == moved.by_hand
    write_audit(tmp_path / "new", new)
    with (tmp_path / "new" / "weights.csv").open() as file:
        weights = np.array([float(row["weight"]) for row in csv.DictReader(file)])
    below = new.verdicts.score < moved.config.cut
    ok = np.isin(new.verdicts.names, ("ok", "vague", "suspect", "mismatch"))
    assert (weights[ok & below] < 0.5 + 1e-6).all()
    assert (weights[ok & ~below] > 0.5 - 1e-6).all()


def test_one_pair_alone_is_judged_nearly_as_among_others(auditor):
    many = auditor.judge(**arguments(NEW))
    for row in (0, 17):
        image = NEW["owner"][row]
        alone = auditor.judge(NEW["features"][[image]], [NEW["captions"][row]])
        torch.testing.assert_close(
            alone.audit_.judgement.evidence[0], many.audit_.judgement.evidence[row], equal_nan=True
        )
        assert alone.scores_[0] == pytest.approx(many.scores_[row], abs=0.15)  # of the share that was estimated
        low, high = alone.audit_.summary()["noise_rate_interval"]
        assert high - low >= 0.5  # one pair says little
        assert alone.noise_rate_ == pytest.approx(auditor.noise_rate_, abs=0.1)
    same = auditor.score_samples(**arguments(NEW))
    np.testing.assert_array_equal(same, many.scores_)


def test_old_pairs_are_judged_as_before(auditor):
    """No pair is asked about itself, its image's other captions are, and the maps are those that did not see it."""
    again = auditor.judge(**arguments(OLD))
    base, before = auditor.audit_.base, auditor.audit_.judgement
    evidence = base.of(base.look(given_pairs(base.data)), before.maps, before.score)
    now = again.audit_.judgement.evidence
    assert torch.equal(now.isnan(), evidence.isnan())
    assert int(((now - evidence).abs() > 0.02).sum()) <= 5  # of 3,200; by rounding, another caption is the 50th nearest
    assert again.noise_rate_ == pytest.approx(auditor.noise_rate_, abs=0.03)
    assert np.abs(again.scores_ - auditor.scores_).max() < 0.1
    assert (again.audit_.base.fold_of_image < 6).all()


def test_a_new_caption_of_an_old_image_is_judged_by_its_other_captions(auditor):
    trusted = np.flatnonzero(np.bincount(OLD["owner"], OLD["right"] & (auditor.scores_ > 0.8)) == 2)
    images = trusted[:8]
    texts = [OLD["captions"][2 * image] + " new" for image in images]  # an unknown word; the rest is the old caption's
    right = auditor.judge(OLD["features"][images], texts)
    wrong = auditor.judge(OLD["features"][images], texts[1:] + texts[:1])
    for found in (right, wrong):
        assert not np.isnan(found.components_["other captions"]).any()
    assert (right.components_["other captions"] > wrong.components_["other captions"]).mean() > 0.8
    assert right.scores_.mean() > wrong.scores_.mean() + 0.3


def test_neighbours_and_suggestion_are_of_the_old_table(auditor):
    witnesses = Witnesses(auditor.judge(**arguments(NEW)).audit_)
    for found in witnesses.of([0, 5]):
        near = found.neighbors
        assert near
        for other, image, caption in near:
            assert (image, caption) == (str(OLD["owner"][other]), OLD["captions"][other])
            assert auditor.scores_[other] > 0.5
        assert found.suggestion in OLD["captions"]


def test_own_words_are_no_suggestion(auditor):
    first = auditor.judge(NEW["features"][:1], ["no word of it is known"])
    [said] = [found.suggestion for found in Witnesses(first.audit_).of([0])]
    again = auditor.judge(NEW["features"][:1], [said.upper()])
    assert Witnesses(again.audit_).of([0])[0].suggestion not in (None, said)


def test_evidence_of_a_trained_run_is_not_known_of_new_pairs(auditor, kept):
    width = len(kept.model.knots)
    model = replace(
        kept.model,
        knots=torch.cat([kept.model.knots, torch.arange(8.0)[None].double()]),
        slopes=torch.cat([kept.model.slopes, torch.ones(1, 7).double()]),
    )
    apart = replace(kept.apart, knots=torch.cat([kept.apart.knots, torch.arange(8.0)[None].double()]),
                    slopes=torch.cat([kept.apart.slopes, torch.ones(1, 7).double()]))  # fmt: skip
    wrong = torch.cat([kept.wrong, torch.randn(len(kept.wrong), 1)], dim=1)
    trained = replace(kept, kinds=(*kept.kinds, "trained lead"), model=model, apart=apart, wrong=wrong)
    assert width == len(NAMES)
    other = Auditor()
    other._kept = trained
    found = other.judge(**arguments(NEW))
    assert np.isnan(found.components_["trained lead"]).all()
    np.testing.assert_allclose(found.scores_, auditor.judge(**arguments(NEW)).scores_)


# --- what is kept


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other


def test_a_kept_audit_is_read_as_it_was_written(auditor, kept, tmp_path):
    save_kept(tmp_path / FILE, kept)
    found = load_kept(tmp_path)
    for part in ("images", "texts", "model", "apart"):
        for name, value in vars(getattr(kept, part)).items():
            assert same(value, getattr(getattr(found, part), name)), (part, name)
    for one, other in zip(kept.maps, found.maps, strict=True):
        assert all(torch.equal(value, vars(other)[name]) for name, value in vars(one).items())
    assert found.words.vocabulary.words == kept.words.vocabulary.words
    torch.testing.assert_close(
        found.words.vectors(NEW["captions"]), kept.words.vectors(NEW["captions"]), atol=1e-3, rtol=0
    )
    shown = (list(found.shown.rows), found.shown.images, found.shown.captions, found.shown.files)
    assert shown == (list(kept.shown.rows), kept.shown.images, kept.shown.captions, kept.shown.files)
    done = {"images", "texts", "model", "apart", "maps", "words", "shown"}
    for each in fields(kept):
        if each.name not in done:
            assert same(getattr(kept, each.name), getattr(found, each.name)), each.name
    loaded = Auditor.load(auditor.write(tmp_path / "whole"))
    assert loaded.config == auditor.config
    expected = auditor.score_samples(**arguments(NEW))
    assert np.abs(loaded.score_samples(**arguments(NEW)) - expected).max() < 0.01


def test_half_the_memory_moves_scores_by_less_than_a_hundredth(auditor, monkeypatch):
    rounded = auditor.score_samples(**arguments(NEW))
    exact = Auditor(draws=4).fit(**arguments(OLD))
    monkeypatch.setattr(Packed, "of", lambda values: Packed(values, values.mean(dim=0), torch.tensor(1.0)))
    monkeypatch.setattr(Packed, "values", lambda self: self.half)
    assert np.abs(exact.score_samples(**arguments(NEW)) - rounded).max() < 0.01


def test_packed_vectors_of_any_size():
    for size in (1e-9, 1.0, 1e9):
        values = size * (5 + torch.randn(30, 4, generator=torch.Generator().manual_seed(0)))
        packed = Packed.of(values)
        assert packed.half.dtype == torch.float16
        torch.testing.assert_close(packed.values() / size, values / size, atol=5e-3, rtol=0)
        assert torch.equal(packed.like(values), packed.half)
    assert torch.equal(Packed.of(torch.ones(3, 2)).values(), torch.ones(3, 2))  # all are equal


def test_the_file_is_bounded(monkeypatch):
    captions = list(OLD["captions"])
    captions[1] = captions[0]  # a copy
    found = Auditor(draws=2, references=60).fit(OLD["features"], captions, image_of_caption=OLD["owner"])
    whole = keep(found.audit_)
    asked = found.audit_.base.references
    owners = {int(OLD["owner"][row]) for row in asked.tolist()}
    assert {int(OLD["owner"][row]) for row in whole.shown.rows} == owners
    assert len(whole.references) == 60 - (1 in asked.tolist())
    assert len(whole.shown.rows) == len(whole.trust) == 2 * len(owners) - (0 in owners)  # with their other captions
    assert [int(whole.shown.rows[place]) for place in whole.references] == [row for row in asked.tolist() if row != 1]
    monkeypatch.setattr(module, "MOST_ASKED", 70)
    few = keep(found.audit_)
    assert len(few.shown.rows) == 70
    assert [few.shown.rows[place] for place in few.references] == [
        whole.shown.rows[place] for place in whole.references
    ]
    monkeypatch.setattr(module, "MOST_WORDS", 20)
    words = keep(found.audit_).words
    assert words.vocabulary.words[:20] == whole.words.vocabulary.words[:20]
    assert len(words.vocabulary) == 21  # and <mask>
    frequent, rare = whole.words.vocabulary.words[5], whole.words.vocabulary.words[-2]
    torch.testing.assert_close(words.vectors([frequent]), whole.words.vectors([frequent]))
    assert torch.equal(words.vectors([rare]), torch.zeros_like(words.vectors([rare])))


# --- what is refused


def test_vectors_of_another_kind_are_refused(auditor, kept):
    features, texts = NEW["features"][:2], NEW["captions"][:2]
    vectors = Auditor(draws=2).fit(OLD["features"], caption_vectors=OLD["features"])
    cases = [
        (auditor, {"images": features[:, :9], "captions": texts},
         "image vectors have 9 numbers; pairs was audited with 16"),
        (auditor, {"images": features, "captions": texts, "caption_vectors": features},
         "captions with vectors of their own; pairs was audited by its captions' words"),
        (vectors, {"images": features, "captions": texts},
         "captions without vectors; pairs was audited by vectors of its captions"),
        (vectors, {"images": features, "caption_vectors": features[:, :5]},
         "caption vectors have 5 numbers; pairs was audited with 16"),
        (auditor, {"images": features, "captions": ["", " "]}, "0 pairs can be judged; an audit needs 1 or more"),
    ]  # fmt: skip
    for one, given, said in cases:
        with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
            one.judge(**given)
    side = {"kind": "timm", "name": "a", "weights_sha256": "1"}
    mine = replace(kept, encoder={"image": side, "text": side})
    mine.require_like({"image": side, "text": {**side, "weights_sha256": "2"}}, own_vectors=False)  # text is not read
    mine.require_like(None, own_vectors=False)
    said = r"^new: not from the encoder of pairs: the image encoder \(timm:a, now timm:a: other weights sha256\)$"
    with pytest.raises(InputError, match=said):
        mine.require_like({"image": {**side, "weights_sha256": "2"}, "text": None}, own_vectors=False, place="new: ")


def test_only_what_was_fitted_judges(auditor):
    said = "^nothing was fitted: call fit on pairs, or load an audit, before judge$"
    for one in (Auditor(), auditor.judge(**arguments(NEW))):
        with pytest.raises(InputError, match=said):
            one.judge(**arguments(NEW))


def test_captions_that_are_vectors_alone(tmp_path):
    """Old pairs are known by the vectors, so none is asked about itself."""
    draws = np.random.default_rng(0)
    vectors = OLD["features"] @ draws.normal(size=(16, 6)) + 0.1 * draws.normal(size=(400, 6))
    vectors[:80] = np.roll(vectors[:80], 1, axis=0)
    found = Auditor(draws=2).fit(OLD["features"], caption_vectors=vectors)
    again = Auditor.load(found.write(tmp_path / "a")).judge(OLD["features"], caption_vectors=vectors)
    assert torch.equal(again.audit_.base.panel.itself, torch.arange(400))
    assert np.abs(again.scores_ - found.scores_).mean() < 0.05
    assert np.isnan(again.components_["other captions"]).all()


def test_files_that_are_no_kept_audit(tmp_path, auditor):
    for folder in (tmp_path, auditor.judge(**arguments(NEW)).write(tmp_path / "judged")):
        said = f"{folder}: no {FILE}; expected a folder that `in2r audit DATA --out {folder}` wrote, without --against"
        with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
            Auditor.load(folder)
    save_tensors(tmp_path / FILE, {}, {**FORMAT, "format_version": 2})
    with pytest.raises(InputError, match=r"not a kept audit of format version 1; audit its data again$"):
        load_kept(tmp_path)
    (tmp_path / FILE).write_bytes(b"torn")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_kept(tmp_path)
