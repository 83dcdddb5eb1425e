"""The cut that decisions by hand suggest, on an audit whose scores were shifted on purpose."""

from dataclasses import replace

import numpy as np
import pytest

from in2r.audit.auditor import Auditor
from in2r.audit.by_hand import follow, move_cut
from in2r.audit.page import make_page, shown_rows
from in2r.audit.verdicts import decide
from in2r.report import Decisions
from in2r.report.decisions import Decision
from planted_pairs import planted

MADE = planted(images=500, moved=0.3)


@pytest.fixture(scope="module")
def audit():
    return Auditor(draws=2).fit(MADE["features"], MADE["captions"], image_of_caption=MADE["owner"]).audit_


def shifted(audit, by):
    """The audit with log-odds that are too high by so much."""
    odds = audit.judgement.log_odds + by
    judgement = replace(audit.judgement, log_odds=odds, score=odds.sigmoid().float())
    return replace(audit, judgement=judgement, verdicts=decide(audit.pairs, audit.base, judgement))


def decided(audit, rows):
    """Decisions that are true."""
    words = ("wrong", "right")
    found = tuple(Decision(int(row), words[int(MADE["right"][row])]) for row in dict.fromkeys(rows))
    return Decisions(1, audit.identity, (), found)


def quality(audit):
    """Precision and recall of the suspects, and their harmonic mean."""
    flagged, wrong = np.isin(audit.verdicts.names, ("suspect", "mismatch")), ~MADE["right"]
    precision, recall = wrong[flagged].mean(), flagged[wrong].mean()
    return precision, recall, 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("by", [1.5, -3.0])
def test_suspects_of_shifted_scores_get_better(audit, by):
    before = shifted(audit, by)
    rows = shown_rows(before)
    after = move_cut(before, decided(before, [*rows.worst[:20], *rows.borderline, *rows.sample[:40]]))
    (p_before, r_before, f_before), (p, r, f) = quality(before), quality(after)
    assert f > f_before + 0.05
    assert (r > r_before + 0.1) if by > 0 else (p > p_before + 0.1)
    assert f > quality(audit)[2] - 0.05  # as good as if nothing had been shifted
    assert after.judgement is before.judgement
    assert (after.config.cut > 0.6) if by > 0 else (after.config.cut < 0.4)
    score = after.verdicts.score
    assert (np.isin(after.verdicts.names, ("suspect", "mismatch")) == (score < after.config.cut)).all()
    assert ((after.verdicts.names == "mismatch") == (score < after.config.sure)).all()
    said = after.summary()["by_hand"]
    assert said["decisions"] == len(dict.fromkeys([*rows.worst[:20], *rows.borderline, *rows.sample[:40]]))
    assert (said["cut_before"], said["cut"]) == (0.5, after.config.cut)
    assert after.summary()["cut"] == after.summary()["settings"]["cut"] == said["cut"]
    change = [np.isin(one.verdicts.names, ("suspect", "mismatch")).sum() for one in (before, after)]
    assert said["more_suspects"] == change[1] - change[0]
    page = make_page(after)
    assert page.cut == said["cut"]
    assert page.method.endswith(
        f"By {said['decisions']} decisions by hand, a pair of score {said['cut']:.2f} is as likely wrong as right: "
        "the cut was fitted to them."
    )
    assert [pair.row for pair in page.sample] == [pair.row for pair in make_page(before).sample]


def test_scores_that_are_right_keep_their_cut_nearly(audit):
    rows = shown_rows(audit)
    after = move_cut(audit, decided(audit, [*rows.borderline, *rows.sample]))
    assert quality(after)[2] > quality(audit)[2] - 0.03


def test_decisions_of_one_kind_alone_move_nothing(audit):
    right, wrong = np.flatnonzero(MADE["right"])[:9], np.flatnonzero(~MADE["right"])[:9]
    for rows in ([], right, wrong):
        assert move_cut(audit, decided(audit, rows)) is None
    both = decided(audit, [*right, *wrong])
    assert move_cut(audit, both) is not None
    assert move_cut(replace(audit, verdicts=replace(audit.verdicts, told=False)), both) is None


def test_a_right_copy_is_a_duplicate_unless_it_alone_is_kept():
    captions, owner = [*MADE["captions"][:200]], [*MADE["owner"][:200]]
    captions += [captions[3], captions[100]]
    owner += [owner[3], owner[100]]
    found = Auditor(draws=2).fit(MADE["features"][:100], captions, image_of_caption=owner).audit_
    flagged = replace(found.verdicts, names=np.full(202, "suspect"), kept=np.zeros(202, dtype=bool))
    found = replace(found, verdicts=flagged)
    words = {3: "right", 200: "right", 100: "wrong", 201: "right"}
    after = follow(found, Decisions(1, "", (), tuple(Decision(row, word) for row, word in words.items())))
    assert [str(after.verdicts.names[row]) for row in words] == ["ok", "duplicate", "mismatch", "ok"]
    assert np.flatnonzero(after.verdicts.kept).tolist() == [3, 201]


def test_a_sample_that_disagrees_with_the_estimate_is_believed(audit):
    """All of the first 30 pairs of the sample are wrong, by hand."""
    sample = shown_rows(audit).sample
    words = tuple(Decision(row, "wrong") for row in sample[:30])
    found = follow(audit, Decisions(1, "", tuple(sample), words))
    assert found.sampled.share == 1.0
    assert any(line.startswith("BY HAND: 89 to 100 % of the random sample are wrong") for line in found.doubts())
    assert make_page(found).noise_by_hand.share == found.summary()["noise_rate_by_hand"] == 1.0
    agreeing = tuple(Decision(row, "right" if MADE["right"][row] else "wrong") for row in sample)
    found = follow(audit, Decisions(1, "", tuple(sample), agreeing))
    assert not any(line.startswith("BY HAND") for line in found.doubts())


def test_reversed_decisions_move_nothing(audit):
    right, wrong = np.flatnonzero(MADE["right"])[:9], np.flatnonzero(~MADE["right"])[:9]
    words = {int(row): "wrong" for row in right} | {int(row): "right" for row in wrong}
    reversed_ones = Decisions(1, "", (), tuple(Decision(row, word) for row, word in words.items()))
    assert move_cut(audit, reversed_ones) is None


def test_pairs_without_a_score_and_unsure_ones_do_not_count():
    captions = [*MADE["captions"][:200]]
    captions[3] = ""
    found = Auditor(draws=2).fit(MADE["features"][:100], captions, image_of_caption=MADE["owner"][:200]).audit_
    decisions = Decisions(1, "", (), (
        Decision(3, "wrong"), Decision(4, "unsure"), Decision(5, "wrong"), Decision(6, "right")
    ))  # fmt: skip
    assert move_cut(found, decisions).summary()["by_hand"]["decisions"] == 2
    assert move_cut(found, replace(decisions, decisions=decisions.decisions[:2])) is None


def test_decided_rows_follow_the_decision_and_no_other_row(audit):
    names = audit.verdicts.names
    suspect, ok = (
        int(np.flatnonzero(np.isin(names, kinds))[0]) for kinds in (("suspect", "mismatch"), ("ok", "vague"))
    )
    unsure = int(np.flatnonzero(np.isin(names, ("suspect", "mismatch")))[1])
    words = {suspect: "right", ok: "wrong", unsure: "unsure"}
    found = follow(audit, Decisions(1, "", (), tuple(Decision(row, word) for row, word in words.items())))
    assert found.decided == words
    changed = np.flatnonzero(found.verdicts.names != names).tolist()
    assert sorted(changed) == sorted([suspect, ok])
    assert (found.verdicts.names[suspect], found.verdicts.names[ok]) == ("ok", "mismatch")
    assert (found.verdicts.kept[suspect], found.verdicts.kept[ok]) == (True, False)
    assert np.array_equal(found.verdicts.score, audit.verdicts.score, equal_nan=True)
