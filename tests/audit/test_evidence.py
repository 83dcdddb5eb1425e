"""What each kind of evidence asks, and whom it never asks."""

import math

import pytest
import torch

from in2r.audit.evidence import NAMES, Asked, EvidenceBase, Vectors
from in2r.audit.judge import mismatched_on_purpose
from in2r.audit.settings import AuditConfig
from in2r.evidence import linear_similarity
from in2r.evidence.vectors import centred


def tiny(counts=(2, 1, 3, 1, 4, 1), seed=0):
    """Images with some captions each; images 0 and 1 are copies. And how far each pair is believed."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(len(counts), 5, generator=generator)
    images[1] = images[0]
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    texts = torch.randn(len(owner), 4, generator=generator)
    group = torch.tensor([0, 0, *range(1, len(counts) - 1)])
    return Vectors(images, texts, owner, group), torch.rand(len(owner), generator=generator)


def asked(data, seed=0, count=60):
    """Given pairs, then any pairs."""
    generator = torch.Generator().manual_seed(seed)
    pairs = len(data.image_of_pair)
    images, siblings_of = (torch.randint(len(data.images), (count,), generator=generator) for _ in range(2))
    texts, instead_of = (torch.randint(pairs, (count,), generator=generator) for _ in range(2))
    own, every = data.image_of_pair, torch.arange(pairs)
    parts = zip((own, every, own, every), (images, texts, siblings_of, instead_of), strict=True)
    return Asked(*(torch.cat(part) for part in parts))


def support(cosines, weights):
    if sum(weights) == 0:
        return math.nan
    kernel = sum(w * math.exp((c - 1) / 0.1) for c, w in zip(cosines, weights, strict=True))
    return math.log(1e-6 + kernel / sum(weights))


def by_loops(data, trust, questions, neighbors):
    """The three kinds of evidence that ask other pairs."""
    v, u, w = centred(data.images.double()), centred(data.texts.double()), trust.tolist()
    owner, group = data.image_of_pair.tolist(), data.group_of_image.tolist()
    of_pair, pairs = [group[image] for image in owner], range(len(owner))

    def image_cosine(one, other):
        return float(v[one] @ v[other])

    def text_cosine(one, other):
        return float(u[one] @ u[other])

    columns = (questions.images, questions.texts, questions.siblings_of, questions.instead_of)
    for i, t, home, instead in zip(*(column.tolist() for column in columns), strict=True):
        shut = (group[i], group[home])  # neither the image, nor the one whose captions have moved together
        order = sorted(pairs, key=lambda r: -image_cosine(i, owner[r]))
        near = [r for r in order if of_pair[r] != group[i]][:neighbors]
        near = [r for r in near if of_pair[r] not in shut and r != t]
        close = [w[r] * math.exp(image_cosine(i, owner[r]) / 0.1) for r in near]
        by_image = support([text_cosine(t, r) for r in near], close)
        order = sorted(pairs, key=lambda r: -text_cosine(t, r))
        near = [r for r in [r for r in order if r != t][:neighbors] if of_pair[r] not in shut]
        close = [w[r] * math.exp(text_cosine(t, r) / 0.1) for r in near]
        by_text = support([image_cosine(i, owner[r]) for r in near], close)
        others = [r for r in pairs if of_pair[r] == group[home] and r not in (t, instead)]
        yield by_image, by_text, support([text_cosine(t, r) for r in others], [w[r] for r in others])


@pytest.mark.parametrize(("counts", "neighbors"), [((2, 1, 3, 1, 4, 1), 50), ((1,) * 9, 3)])
def test_each_kind_equals_plain_loops(counts, neighbors):
    data, trust = tiny(counts)
    base = EvidenceBase(data, AuditConfig(neighbors=neighbors))
    maps, questions = base.fit(trust), asked(data)
    found = base.of(base.look(questions), maps, trust)
    assert base.names == NAMES
    expected = torch.tensor(list(by_loops(data, trust, questions, neighbors)))
    torch.testing.assert_close(found[:, 1:], expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert expected[:, 2].isnan().any()
    own = linear_similarity(maps, base.fold_of_image, data.images, data.texts, questions.images, questions.texts)
    assert torch.equal(found[:, 0], own)


def test_own_image_its_copies_and_the_caption_itself_are_never_asked():
    data, trust = tiny()
    base = EvidenceBase(data, AuditConfig())
    maps, every = base.fit(trust), torch.arange(len(trust))
    given = Asked(data.image_of_pair, every, data.image_of_pair, every)
    seen = base.look(given)
    before = base.of(seen, maps, trust)
    group = data.group_of_image[data.image_of_pair]
    for pair in range(len(trust)):
        image = base.of(seen, maps, torch.where(group == group[pair], 9.0, trust))
        torch.testing.assert_close(image[pair, :3], before[pair, :3])
        alone = base.of(seen, maps, torch.where(every == pair, 9.0, trust))
        torch.testing.assert_close(alone[pair], before[pair], equal_nan=True)
        other = base.of(seen, maps, torch.where(group == group[pair], trust, trust.flip(0)))
        assert (other[pair, 1:3] != before[pair, 1:3]).all()
    assert base.fold_of_image[0] == base.fold_of_image[1]  # so that the maps have not seen a copy either


def test_the_order_of_the_rows_does_not_matter():
    data, trust = tiny()
    questions = asked(data)
    order = torch.randperm(len(trust), generator=torch.Generator().manual_seed(5))
    place = order.argsort()
    moved = Vectors(data.images, data.texts[order], data.image_of_pair[order], data.group_of_image)
    there = Asked(questions.images, place[questions.texts], questions.siblings_of, place[questions.instead_of])
    found = []
    for vectors, believed, those in ((data, trust, questions), (moved, trust[order], there)):
        base = EvidenceBase(vectors, AuditConfig())
        found.append(base.of(base.look(those), base.fit(believed), believed))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3, equal_nan=True)


def test_limits_of_references_and_of_other_captions():
    data, trust = tiny((30, 1, 20, 5))
    base = EvidenceBase(data, AuditConfig(references=7, siblings=3))
    assert base.references.tolist() == sorted(set(base.references.tolist()))
    assert len(base.references) == 7
    every = torch.arange(len(trust))
    found = base.of(base.look(Asked(data.image_of_pair, every, data.image_of_pair, every)), base.fit(trust), trust)
    assert not found[:, 3].isnan().any()
    table = base._siblings
    assert table.shape == (3, 4)
    group = data.group_of_image[data.image_of_pair]
    for number in range(3):
        assert (group[table[number]] == number).all()
        assert len(table[number].unique()) == 4


def test_a_scorer_is_a_kind_of_its_own():
    data, trust = tiny()
    base = EvidenceBase(data, AuditConfig(), {"mine": lambda images, texts: (10 * images + texts).double()})
    assert base.names == (*NAMES, "mine")
    questions = asked(data)
    found = base.of(base.look(questions), base.fit(trust), trust)
    assert found.dtype == torch.float32
    assert found[:, 4].tolist() == (10 * questions.images + questions.texts).tolist()


def test_neighbours_that_are_shown_are_trusted_and_one_an_image():
    data, _ = tiny((2, 1, 2, 2, 2, 2))
    base = EvidenceBase(data, AuditConfig())
    trust = torch.tensor([1.0, 1, 1, 0.9, 0.2, 0.5, 0.5, 1, 1, 0.7, 0.6])  # of image 3, none is believed
    [found, other] = base.neighbors(torch.tensor([0, 3]), trust, 9)
    v = centred(data.images)
    nearest = sorted((2, 4, 5), key=lambda image: -float(v[0] @ v[image]))
    assert data.image_of_pair[found].tolist() == nearest
    assert 4 not in found
    assert set(data.image_of_pair[other].tolist()) in ({0, 2, 4, 5}, {1, 2, 4, 5})  # 0 and 1 are copies
    assert base.neighbors(torch.tensor([3, 0]), trust, 2) == [other[:2], found[:2]]


def test_pairs_are_mismatched_on_purpose_in_two_ways():
    data, _ = tiny((2, 1, 3, 1, 4, 1) * 30)
    alone, together = mismatched_on_purpose(EvidenceBase(data, AuditConfig(mismatched=200)))
    home = data.image_of_pair
    for wrong in (alone, together):
        assert 150 < len(wrong.images) <= 200
        assert len(wrong.texts.unique()) == len(wrong.texts)
        assert (data.group_of_image[wrong.images] != data.group_of_image[home[wrong.texts]]).all()
    assert torch.equal(alone.siblings_of, alone.images)
    assert torch.equal(home[alone.instead_of], alone.images)  # it takes the place of a caption of that image
    assert torch.equal(together.siblings_of, home[together.texts])
    assert torch.equal(together.instead_of, together.texts)
