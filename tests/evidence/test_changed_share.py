"""The share of matching pairs of a feed whose evidence is known by its ratio."""

import math

import pytest
import torch

from in2r.evidence import changed_share, log_odds_of


def test_by_hand():
    sure = torch.tensor([40.0] * 3 + [-40.0] * 7)  # three surely match, seven surely do not
    assert changed_share(sure, 0.8, prior=10) == pytest.approx((10 * 0.8 + 3) / 20, abs=1e-5)
    assert changed_share(sure, 0.8, prior=1e-6) == pytest.approx(0.3, abs=1e-5)
    weights = torch.tensor([2.0] * 3 + [0.0] * 7)
    assert changed_share(sure, 0.8, 10, weights) == pytest.approx((10 * 0.8 + 6) / 16, abs=1e-5)
    assert changed_share(torch.zeros(100), 0.8) == pytest.approx(0.8)  # evidence that says nothing
    assert changed_share(torch.zeros(0), 0.8) == 0.8


def test_it_is_the_most_likely_share():
    ratio = 2 * torch.randn(60, generator=torch.Generator().manual_seed(0)).double() - 1
    found = changed_share(ratio, 0.9, prior=5)

    def likelihood(share):
        return float((share * ratio.exp() + 1 - share).log().sum()) + 5 * (
            0.9 * math.log(share) + 0.1 * math.log(1 - share)
        )

    best = max((step / 2000 for step in range(1, 2000)), key=likelihood)
    assert found == pytest.approx(best, abs=1e-3)


def test_the_more_pairs_the_less_the_old_share_counts():
    ratio = torch.tensor([30.0, -30.0])
    shares = [changed_share(ratio.repeat(times), 0.99) for times in (1, 5, 50, 5000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx((9.9 + 1) / 12, abs=1e-4)
    assert shares[-1] == pytest.approx(0.5, abs=2e-3)


def test_log_odds():
    assert log_odds_of(0.75) == pytest.approx(math.log(3))
    assert log_odds_of(1) == pytest.approx(-log_odds_of(0)) == pytest.approx(-math.log(1e-6))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"share": 1.0}, r"share must be in \(0, 1\), got 1.0"),
        ({"prior": 0.0}, "prior must be positive, got 0.0"),
        ({"weight": torch.ones(3)}, r"weight must have shape \(2,\), got \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(changes, fault):
    with pytest.raises(ValueError, match=fault):
        changed_share(**{"log_ratio": torch.zeros(2), "share": 0.5, **changes})
