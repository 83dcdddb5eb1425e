import math
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import CleanModel, clean_model, fit_clean_model, share_of_matching
from in2r.metrics import calibration_error

GAP = 2.0
"""Between the means of matching and of mismatched pairs, in their common standard deviation, of each kind."""


def planted(share, count=3000, kinds=2, unknown=0.0, seed=0):
    """Evidence of given pairs, which of them match, and evidence of mismatched pairs."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.rand(count, generator=generator) < share
    evidence, wrong = (torch.randn(count, kinds, generator=generator) for _ in range(2))
    evidence += GAP * right[:, None]
    for values in (evidence, wrong):
        values[torch.rand(count, kinds, generator=generator) < unknown] = torch.nan
    return evidence, right, wrong


@cache
def fitted(share=0.6):
    evidence, _, wrong = planted(share, count=800)
    return fit_clean_model(evidence, wrong, share=share)


# The probability


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_probability_is_what_it_says(share):
    evidence, right, wrong = planted(share)
    order = fit_clean_model(evidence, wrong)
    counted = share_of_matching(order.log_odds(evidence), order.log_odds(wrong))
    assert counted == pytest.approx(share, abs=0.05)
    model = fit_clean_model(evidence, wrong, share=counted)
    assert model.share == pytest.approx(counted)
    prob = model.log_odds(evidence).sigmoid()
    assert calibration_error(prob.numpy(), right.numpy()) < 0.04
    # Log-odds of two Gaussians: GAP x - GAP² / 2 of each kind, plus those of the share.
    exact = (GAP * evidence - GAP**2 / 2).sum(dim=1) + math.log(share / (1 - share))
    assert float((prob - exact.sigmoid()).abs().mean()) < 0.06


def test_the_probability_is_right_however_much_is_known():
    """What is not known is left out in the fit as it is in use: pairs of which nothing is known match as all do."""
    evidence, right, wrong = planted(0.7, count=6000, unknown=0.5, seed=1)
    prob = fit_clean_model(evidence, wrong, share=0.7).log_odds(evidence).sigmoid()
    known = (~evidence.isnan()).sum(dim=1)
    for number in range(3):
        of_these = known == number
        assert float(prob[of_these].mean()) == pytest.approx(float(right[of_these].float().mean()), abs=0.08)


def test_useless_evidence_gets_a_flat_curve():
    evidence, _, wrong = planted(0.6)
    generator = torch.Generator().manual_seed(9)
    noise = [torch.randn(3000, 1, generator=generator) for _ in range(2)]
    both = torch.cat([evidence[:, :1], noise[0]], dim=1), torch.cat([wrong[:, :1], noise[1]], dim=1)
    spread = fit_clean_model(*both, share=0.6).contributions(both[0]).std(dim=0)
    assert spread[1] < 0.1 * spread[0]


def test_a_column_that_is_known_nowhere_changes_nothing():
    evidence, _, wrong = planted(0.6, count=800)
    nothing = torch.full((800, 1), torch.nan)
    with_it = [torch.cat([values, nothing], dim=1) for values in (evidence, wrong)]
    found = fit_clean_model(*with_it, share=0.6)
    torch.testing.assert_close(found.log_odds(with_it[0]), fitted().log_odds(evidence), rtol=0, atol=0.05)


def test_a_weight_decides_what_mismatched_pairs_look_like():
    evidence, _, wrong = planted(0.5, count=800)
    lower = wrong - 3
    both, ways = torch.cat([wrong, lower]), torch.tensor([1.0, 0.0]).repeat_interleave(800)
    with pytest.MonkeyPatch.context() as patch:
        knots = torch.linspace(-6, 6, clean_model.KNOTS, dtype=torch.float64).expand(2, -1)
        patch.setattr(clean_model, "_knots", lambda values: knots)
        patch.setattr(clean_model, "PENALTY", 0.01)  # which counts for less, the more pairs there are
        alone, other = (fit_clean_model(evidence, kind, share=0.5).log_odds(evidence) for kind in (wrong, lower))
        found = fit_clean_model(evidence, both, mismatched_weight=7 * ways, share=0.5).log_odds(evidence)
        doubled = fit_clean_model(evidence, wrong, torch.full((800,), 2.0), share=0.5).log_odds(evidence)
    assert float((found - alone).abs().mean()) < 0.1 < float((other - alone).abs().mean())
    torch.testing.assert_close(doubled, alone, rtol=0, atol=0.01)


# The curves


def test_curves_by_hand():
    knots, slopes = torch.arange(8.0).double()[None], torch.arange(1.0, 8.0).double()[None]
    model = CleanModel(knots, slopes, offset=-1.0, share=0.5)
    evidence = torch.tensor([[3.5], [2.5], [9.0], [-2.0], [torch.nan]])
    # h(3.5) = 1 + 2 + 3 + 4 / 2 = 8 is the middle; h(2.5) = 4.5, h(9) = 21 + 7 · 3, h(-2) = -2.
    assert model.contributions(evidence).squeeze(1).tolist() == pytest.approx([0, -3.5, 34, -10, 0])
    assert model.log_odds(evidence).tolist() == pytest.approx([-1, -4.5, 33, -11, -1])


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=2), st.integers(0, 1), st.floats(0, 30))
def test_more_of_any_evidence_never_makes_a_pair_worse(evidence, kind, more):
    better = list(evidence)
    better[kind] += more
    low, high = fitted().log_odds(torch.tensor([evidence, better], dtype=torch.float64)).tolist()
    assert high >= low - 1e-9


def test_contributions_add_up_and_the_unknown_counts_as_nothing():
    model = fitted()
    evidence = torch.tensor([[1.0, -0.5], [1.0, torch.nan], [torch.nan, torch.nan]])
    parts = model.contributions(evidence)
    torch.testing.assert_close(model.log_odds(evidence), parts.sum(dim=1) + model.offset)
    assert parts[1, 0] == parts[0, 0]
    assert parts[:, 1].tolist()[1:] == [0, 0]
    assert float(model.log_odds(evidence)[2]) == model.offset


def test_equal_evidence_is_no_fault():
    model = fit_clean_model(torch.ones(50, 1), torch.ones(60, 1), share=0.3)
    assert float(model.log_odds(torch.ones(1, 1)).sigmoid()) == pytest.approx(0.3, abs=0.05)


# The share of matching pairs


def test_the_share_by_hand():
    # Ten wrong pairs at 2, 4 .. 20 among 40. Up to c = 19 there are 9 / 40 of them and 19 / 20 of the mismatched:
    # 9 / 38 plus its error is the least of all c.
    mismatched = torch.arange(1.0, 21.0)
    given = torch.cat([2 * torch.arange(1.0, 11.0), torch.full((30,), 100.0)]).repeat_interleave(5)  # all parts alike
    assert share_of_matching(given, mismatched) == pytest.approx(1 - 9 / 38)
    assert share_of_matching(3 * given - 7, 3 * mismatched - 7) == pytest.approx(1 - 9 / 38)
    twice = share_of_matching(given, torch.arange(0.0, 21.0), mismatched_weight=torch.tensor([0.0] + [2.0] * 20))
    assert twice == pytest.approx(1 - 9 / 38)
    half = share_of_matching(
        given, mismatched, given_weight=torch.tensor([1.0] * 50 + [0.5] * 150)
    )  # 10 of 25 are wrong
    assert half == pytest.approx(1 - (9 / 25) / (19 / 20))


def test_equal_scores_at_the_lower_end_are_counted():
    # Three of ten mismatched pairs and one of ten given ones have the lowest score; all others given beat all.
    mismatched, given = torch.tensor([0.0, 0, 0, 1, 2, 3, 4, 5, 6, 7]), torch.tensor([0.0] * 5 + [9.0] * 45)
    assert share_of_matching(given, mismatched) == pytest.approx(0.9)
    assert share_of_matching(torch.ones(9), torch.ones(9)) == 0


def test_the_part_that_counts_does_not_choose():
    # Every fifth pair, from the first, is as wrong as can be. The others choose the least ratio, at c = 0: 1 / 0.2.
    mismatched = torch.arange(10.0)
    given = torch.full((50,), 99.0)
    given[::5] = torch.arange(10.0)
    # The first part: the others are all right, so c is the least, 1 (F₋ = 0.2): 2 of its 10. The other four: no pair.
    assert share_of_matching(given, mismatched) == pytest.approx(1 - 2 / 0.2 / 50)


def test_the_share_of_few_pairs_is_right_on_average():
    """The least of several ratios, on the pairs that chose it, makes π 0.07 too high here."""
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(200):
        given, mismatched = torch.randn(200, generator=generator), torch.randn(200, generator=generator)
        found.append(share_of_matching(torch.where(torch.arange(200) < 120, given + 9, given), mismatched))
    assert sum(found) / 200 == pytest.approx(0.6, abs=0.03)


def test_the_share_at_its_ends():
    mismatched = torch.arange(100.0)
    assert share_of_matching(mismatched + 1000, mismatched) == 1
    assert share_of_matching(mismatched, mismatched) == pytest.approx(0, abs=0.01)
    assert share_of_matching(mismatched - 1000, mismatched) == 0


def test_wrong_arguments_are_named():
    x = torch.zeros(4, 2)
    with pytest.raises(ValueError, match=r"given and mismatched must be \(pairs, J\) alike, got \(4, 2\) and \(4, 1\)"):
        fit_clean_model(x, x[:, :1])
    with pytest.raises(ValueError, match=r"alike, got \(4,\) and \(4,\)"):
        fit_clean_model(x[:, 0], x[:, 0])
    with pytest.raises(ValueError, match=r"given_weight must have shape \(4,\), got \(3,\)"):
        fit_clean_model(x, x, given_weight=torch.ones(3))
    with pytest.raises(ValueError, match="mismatched_weight must be finite and at least 0"):
        fit_clean_model(x, x, mismatched_weight=-torch.ones(4))
