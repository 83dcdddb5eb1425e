"""The whole judgement on data whose wrong pairs are known."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from in2r.audit import judge as module
from in2r.audit.evidence import EvidenceBase, Vectors
from in2r.audit.judge import judge
from in2r.audit.settings import AuditConfig
from in2r.audit.verdicts import TELLS_NOTHING
from in2r.metrics import calibration_error


def planted(images=300, captions=3, moved=0.25, whole=False, seed=0):
    """Images and captions as noisy views of topics that images share in part; and which captions are at home.

    Captions move alone, or all captions of an image together.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(rows, width=16):
        return torch.randn(rows, width, generator=generator)

    topic = noise(40)[torch.randint(40, (images,), generator=generator)] + noise(images)
    owner = torch.arange(images).repeat_interleave(captions)
    unit = torch.arange(images) if whole else torch.arange(len(owner))
    out = torch.randperm(len(unit), generator=generator)[: int(moved * len(unit))]
    source = unit.clone()
    source[out] = out.roll(1)
    home = source[owner] if whole else owner[source]
    views = [topic + 0.5 * noise(images), topic[home] + 0.5 * noise(len(owner))]
    mixed = [view @ noise(16, width) for view, width in zip(views, (20, 12), strict=True)]
    return Vectors(*mixed, owner, torch.arange(images)), (home == owner).numpy()


@cache
def judged(**changes):
    data, right = planted(**changes)
    return judge(EvidenceBase(data, AuditConfig())), right


def check(found, right, share_within=0.06):
    assert roc_auc_score(right, found.log_odds) > 0.95
    assert found.share == pytest.approx(right.mean(), abs=share_within)
    assert calibration_error(found.score.numpy(), right) < share_within
    assert 0 <= found.interval[0] < found.share < found.interval[1] <= 1
    torch.testing.assert_close(found.score, found.log_odds.sigmoid().float())
    assert float(found.score.mean()) == pytest.approx(found.share, abs=0.05)


def test_captions_that_moved_alone():
    found, right = judged()
    check(found, right)
    assert found.interval[0] < right.mean() < found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.25
    assert found.moved_alone > 0.8
    # Given pairs that match beat mismatched ones nearly always, those that do not by half.
    assert found.separation == pytest.approx(right.mean() + (1 - right.mean()) / 2, abs=0.05)


def test_whole_images_that_moved():
    found, right = judged(whole=True)
    check(found, right, share_within=0.08)
    assert found.moved_alone < 0.2


@pytest.mark.parametrize("moved", [0.05, 0.5])
def test_other_noise_rates(moved):
    check(*judged(images=500, moved=moved), share_within=0.1)  # at 0.5 the count is often 0.03 to 0.1 too high


def test_one_caption_an_image():
    found, right = judged(images=1500, captions=1)
    check(found, right, share_within=0.08)
    assert found.moved_alone == 0.5  # nobody can tell
    assert found.components[:, module.OTHER].isnan().all()


def test_a_lonely_caption_is_judged_as_well_as_others():
    """Images of one caption beside images of four: "other captions" is known of some pairs only."""
    counts = torch.tensor([1, 4]).repeat(250)
    data, right = planted(images=500, captions=counts)
    found = judge(EvidenceBase(data, AuditConfig(draws=2)))
    lonely = (counts == 1).repeat_interleave(counts).numpy()
    for some in (lonely, ~lonely):
        assert float(found.score[torch.from_numpy(some)].mean()) == pytest.approx(right[some].mean(), abs=0.08)


def test_features_that_do_not_fit_tell_nothing():
    """Nor do they tell more in the second pass, when pairs believe those that spoke for them in the first."""
    data, _ = planted()
    strange = torch.randn(data.texts.shape, generator=torch.Generator().manual_seed(73))
    vectors = Vectors(data.images, strange, data.image_of_pair, data.group_of_image)
    once, twice = (judge(EvidenceBase(vectors, AuditConfig(draws=2, rounds=rounds))) for rounds in (1, 2))
    assert once.separation == twice.separation < TELLS_NOTHING
    assert (once.share, once.interval) == (twice.share, twice.interval)
    assert torch.isfinite(twice.log_odds).all()


@pytest.mark.parametrize("kind", ["own similarity", "lemon"])
def test_one_kind_alone_is_calibrated_too(kind):
    data, right = planted(captions=1, images=1500)
    found = judge(EvidenceBase(data, AuditConfig(evidence=kind)))
    check(found, right, share_within=0.08)
    assert found.evidence.shape == found.components.shape == (1500, 1)
    assert found.moved_alone == 0.5  # nobody can tell
    order = found.evidence[:, 0].argsort()
    assert (found.log_odds[order].diff() >= 0).all()  # the model keeps the order of one kind


def test_the_same_seed_gives_the_same_bits():
    data, _ = planted(images=40)
    steps = []
    one, same = (judge(EvidenceBase(data, AuditConfig(draws=3)), steps.append) for _ in range(2))
    for name in ("score", "log_odds", "components", "evidence"):
        assert torch.equal(getattr(one, name).nan_to_num(9), getattr(same, name).nan_to_num(9))
    assert (one.share, one.interval, one.moved_alone) == (same.share, same.interval, same.moved_alone)
    assert steps[:4] == ["evidence, pass 1 of 2", "model, pass 1 of 2", "evidence, pass 2 of 2", "model, pass 2 of 2"]
    other = judge(EvidenceBase(data, AuditConfig(draws=3, seed=1)))
    assert not torch.equal(one.log_odds, other.log_odds)


# Its parts


def test_how_captions_moved_by_hand():
    # Ranks of the other captions' word among all wrong pairs: alone at 0 and 1 of 4, together at 2 and 3.
    wrong, sure = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], torch.ones(40)
    for seen, share in ((1.5, (40 * 0.75 + 10) / 60), (0.5, 50 / 60), (3.5, 10 / 60), (2.5, 20 / 60)):
        assert module._moved_alone(sure, torch.full((40,), seen), wrong) == pytest.approx(share)
    nothing = torch.full((40,), torch.nan)
    half = torch.cat([nothing[:20], torch.full((20,), 0.5)])  # known of 20 pairs
    assert module._moved_alone(sure, half, wrong) == pytest.approx(30 / 40)
    assert module._moved_alone(sure, nothing, wrong) == 0.5
    assert module._moved_alone(sure, half, [nothing, nothing]) == 0.5
    assert module._moved_alone(0 * sure, half, wrong) == 0.5


def test_components_by_hand():
    # Of wrong pairs 1, 2, 2, 5 of weights 1, 1, 2, 4: below 2 lies 1 of 8, at 2 lie 3 of 8.
    wrong, weight = torch.tensor([[2.0], [5.0], [1.0], [2.0], [torch.nan]]), torch.tensor([1.0, 4, 1, 2, 9])
    evidence = torch.tensor([[0.0], [2.0], [3.0], [7.0], [torch.nan]])
    found = module.beaten(evidence, wrong, weight).squeeze(1)
    assert found[:4].tolist() == pytest.approx([0, (1 / 8 + 4 / 8) / 2, 4 / 8, 1])
    assert math.isnan(found[4])
    assert module._auroc(evidence[:4, 0], wrong[:4, 0], weight[:4]) == pytest.approx((0 + 2.5 / 8 + 0.5 + 1) / 4)


def test_components_of_the_judgement_are_shares_of_mismatched_pairs():
    found, right = judged()
    assert ((found.components >= 0) & (found.components <= 1)).all()
    mean = found.components[:, 0].numpy()
    assert mean[right].mean() > 0.8
    assert mean[~right].mean() == pytest.approx(0.5, abs=0.1)


def halves(pairs, wrong=50):
    """What an interval is counted by: the even pairs, and the odd ones."""
    return [module.Counts(torch.arange(start, pairs, 2), torch.zeros(pairs // 2), torch.zeros(wrong))
            for start in (0, 1)]  # fmt: skip


def test_the_interval_of_clean_pairs_has_a_width(monkeypatch):
    data, _ = planted(images=60)
    monkeypatch.setattr(module, "share_of_matching", lambda *args: 0.999)
    low, high = module._interval(EvidenceBase(data, AuditConfig(draws=4)), halves(180), 0.999)
    assert (low, high) == pytest.approx((0.999 - 0.5 / 180**0.5, 1.0))


def test_the_interval_is_that_of_the_draws(monkeypatch):
    data, _ = planted(images=60)
    base = EvidenceBase(data, AuditConfig(draws=4))
    shares, seen = iter([0.4, 0.6, 0.5, 0.58, 0.56, 0.6, 0.6, 0.6]), []

    def counted(given, wrong, times, repeated):
        seen.append((times, repeated))
        return next(shares)

    monkeypatch.setattr(module, "share_of_matching", counted)
    spread = module.SPREADS * np.std([0.5, 0.54, 0.58, 0.6], ddof=1)
    assert module._interval(base, halves(180), 0.65) == pytest.approx((0.65 - spread, 0.65 + spread))
    for even, odd in zip(seen[::2], seen[1::2], strict=True):
        times = torch.stack([even[0], odd[0]], dim=1).flatten()
        assert (times.reshape(60, 3) == times[::3, None]).all()  # all captions of an image are drawn together
        assert int(times.sum()) == 180
        assert [(int(repeated.sum()), len(repeated)) for _, repeated in (even, odd)] == [(50, 50)] * 2
    assert not torch.equal(seen[0][0], seen[2][0])


def test_the_noise_rate_of_few_pairs_of_wide_vectors():
    """Were a mismatched caption one that the maps had been fitted on, the rate would be 0.25 too low here."""
    errors = []
    for seed in range(6):
        data, _ = planted(images=300, captions=1, moved=0.4, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        wide = [
            torch.cat([own, 2 * torch.randn(300, 100, generator=generator)], dim=1) for own in (data.images, data.texts)
        ]
        base = EvidenceBase(Vectors(*wide, data.image_of_pair, data.group_of_image), AuditConfig(draws=2, rounds=1))
        errors.append(1 - judge(base).share - 0.4)
    assert -0.05 < np.mean(errors) < 0.12


def test_mismatched_pairs_are_of_one_fold():
    data, _ = planted(images=100)
    base = EvidenceBase(data, AuditConfig())
    for wrong in module.mismatched_on_purpose(base):
        home = base.fold_of_image[data.image_of_pair[wrong.texts]]
        assert torch.equal(base.fold_of_image[wrong.images], home)
        assert len(wrong.images) > 250
        assert len(wrong.images.unique()) > 80
