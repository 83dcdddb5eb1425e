"""From a judgement made by hand to what each row is called."""

import numpy as np
import pytest
import torch

from in2r.audit import verdicts as module
from in2r.audit.evidence import NAMES, EvidenceBase, Vectors
from in2r.audit.judge import Judgement
from in2r.audit.pairs import EMPTY, AuditPairs
from in2r.audit.settings import AuditConfig
from in2r.audit.verdicts import (
    KEPT,
    LOOK_ALIKES,
    STRANGERS,
    VERDICTS,
    counts,
    decide,
    look_alikes_that_fit,
    strangers_that_fit,
)
from in2r.metrics import auroc
from in2r.seeds import torch_generator

SCORES = [0.05, 0.3, 0.9, 0.95, 0.6, 0.02, 0.99, 0.3]
#         pairs of images 0, 0, 1, 1, 2, 2, 3, 3, where 3 is a copy of 0


def made(scores=SCORES, same=(0, 1, 2, 2, 4, 5, 0, 1), separation=0.95):
    """Ten rows, of which 0 and 5 were not judged; the base, and the judgement of the others."""
    images = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    images[3] = images[0]
    texts = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    vectors = Vectors(images, texts, torch.arange(4).repeat_interleave(2), torch.tensor([0, 1, 2, 0]))
    base = EvidenceBase(vectors, AuditConfig(folds=2))
    names = [str(row) for row in range(10)]
    pairs = AuditPairs(
        name="pairs.csv",
        images=names,
        captions=names,
        columns={"image": names},
        judged=np.array([1, 2, 3, 4, 6, 7, 8, 9]),
        unjudged={0: EMPTY, 5: "truncated"},
        vectors=vectors,
        same_caption=np.array(same),
    )
    odds = torch.logit(torch.tensor(scores, dtype=torch.float64))
    judgement = Judgement(
        score=odds.sigmoid().float(),
        log_odds=odds,
        components=torch.arange(40.0).reshape(8, 5) / 40,
        evidence=torch.zeros(8, 5),
        share=0.7,
        interval=(0.6, 0.8),
        moved_alone=0.5,
        separation=separation,
        model=None,
        apart=None,
        wrong=None,
        ways=None,
        maps=base.fit(torch.ones(8)),
    )
    return pairs, base, judgement


@pytest.fixture
def strangers(monkeypatch):
    """Set the share of random images that fit each caption: none, unless a test says so."""
    values = np.zeros(8)
    monkeypatch.setattr(module, "strangers_that_fit", lambda base, maps: values)
    return values


def test_verdicts_by_hand(strangers):
    strangers[:] = [0.9, 0.9, 0.21, 0.9, 0.2, 0, 0, 0.9]
    found = decide(*made())
    assert found.names.tolist() == [
        "empty",
        "mismatch",  # though vague
        "suspect",
        "vague",
        "duplicate",  # of the row above, and vague
        "unreadable",
        "ok",  # 0.2 is not above the limit
        "mismatch",
        "duplicate",  # of row 1: image 3 is a copy of image 0
        "suspect",  # a duplicate of row 2
    ]
    assert found.kept.tolist() == [False, False, False, True, False, False, True, False, False, False]
    assert found.told
    assert counts(found) == {
        "ok": 1, "suspect": 2, "mismatch": 2, "vague": 1, "duplicate": 2, "empty": 1, "unreadable": 1
    }  # fmt: skip
    assert list(counts(found)) == list(VERDICTS)
    assert set(KEPT) < set(VERDICTS)


def test_scores_and_components_stand_in_their_rows(strangers):
    strangers[:] = np.arange(8) / 100
    found = decide(*made())
    assert np.isnan(found.score[[0, 5]]).all()
    assert found.score[[1, 2, 3, 4, 6, 7, 8, 9]].tolist() == pytest.approx(SCORES)
    assert list(found.components) == list(NAMES)
    assert found.components["text neighbours"][6] == pytest.approx((4 * 5 + 3) / 40)  # the fifth judged pair
    assert np.isnan(found.components["text neighbours"][5])
    assert found.strangers[9] == 0.07


def test_a_percentile_counts_the_scores_that_are_no_higher(strangers):
    found = decide(*made())
    of_eight = [2, 4, 6, 7, 5, 1, 8, 4]  # the two scores of 0.3 are alike
    assert found.percentile[[1, 2, 3, 4, 6, 7, 8, 9]].tolist() == [100 * count / 8 for count in of_eight]
    assert np.isnan(found.percentile[[0, 5]]).all()


def test_scores_at_the_limits(strangers):
    found = decide(*made(scores=[0.5, 0.4999, 0.1001, 0.0999, 0.5001, 0.9, 0.9, 0.9], same=range(8)))
    assert found.names[[1, 2, 3, 4, 6]].tolist() == ["ok", "suspect", "suspect", "mismatch", "ok"]


def test_evidence_that_tells_nothing_makes_no_suspect(strangers):
    limit = 0.55 + 1 / 8**0.5  # of eight pairs
    found = decide(*made(separation=limit - 1e-3))
    assert not found.told
    assert not {"suspect", "mismatch"} & set(found.names.tolist())
    assert decide(*made(separation=limit + 1e-3)).told


def test_strangers_equal_plain_loops(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 2)
    _, base, judgement = made()
    data = base.data
    found = strangers_that_fit(base, judgement.maps)
    drawn = torch.randint(4, (STRANGERS,), generator=torch_generator(0, "strangers")).tolist()
    for pair, image in enumerate(data.image_of_pair.tolist()):
        maps = judgement.maps[int(base.fold_of_image[image])]
        u, v = maps.embed_texts(data.texts[pair : pair + 1])[0], maps.embed_images(data.images)
        alike = [float(u @ v[other]) for other in range(4)]
        fits = [alike[other] > alike[image] - 1e-6 for other in drawn]  # its own image fits as well as itself
        assert found[pair] == pytest.approx(sum(fits) / STRANGERS)


def test_look_alikes_that_fit_equals_a_plain_loop():
    images = torch.randn(30, 5, generator=torch.Generator().manual_seed(2))
    texts = torch.randn(60, 4, generator=torch.Generator().manual_seed(3))
    owner = torch.arange(30).repeat_interleave(2)
    base = EvidenceBase(Vectors(images, texts, owner, torch.arange(30)), AuditConfig(folds=3))
    maps = base.fit(torch.ones(60))
    found = look_alikes_that_fit(base, maps)
    centred = torch.nn.functional.normalize(images - images.mean(0), dim=1)
    for pair in range(0, 60, 7):
        image = int(owner[pair])
        of_fold = maps[int(base.fold_of_image[image])]
        v, u = of_fold.embed_images(images), of_fold.embed_texts(texts)
        alike = (centred[owner] @ centred[image]).masked_fill(owner == image, -torch.inf)
        near = alike.topk(LOOK_ALIKES).indices
        own = v[image] @ u[pair]
        shares = [(v[owner[near]] @ u[pair] >= own).float().mean(), (u[near] @ v[image] >= own).float().mean()]
        assert float(found[pair]) == pytest.approx(float(sum(shares)) / 2, abs=1e-6)


def test_captions_that_look_alikes_have_exchanged_are_told_by_it():
    """Images in close pairs; in a quarter of these, both captions are exchanged."""
    draws = torch.Generator().manual_seed(4)
    centres = torch.randn(200, 12, generator=draws).repeat_interleave(2, dim=0)
    images = centres + 0.3 * torch.randn(400, 12, generator=draws)
    texts = images + 0.05 * torch.randn(400, 12, generator=draws)
    moved = torch.arange(400)
    moved[:100] = torch.arange(100).view(-1, 2).flip(1).flatten()
    base = EvidenceBase(Vectors(images, texts[moved], torch.arange(400), torch.arange(400)), AuditConfig())
    found = look_alikes_that_fit(base, base.fit(torch.ones(400)))
    assert auroc(-found.numpy(), (moved == torch.arange(400)).numpy()) > 0.9
