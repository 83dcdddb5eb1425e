"""What each kind of evidence asks, and whom it never asks."""

import math
from dataclasses import replace

import pytest
import torch

from in2r.audit import evidence, voices
from in2r.audit.evidence import NAMES, Asked, EvidenceBase, Panel, Vectors, folds_of_images, given_pairs
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


def centred_about(values, others):
    apart = values.double() - others.double().mean(dim=0)
    return apart / apart.norm(dim=1, keepdim=True)


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
    torch.testing.assert_close(found[:, 2:], expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert expected[:, 2].isnan().any()
    own = linear_similarity(maps, base.fold_of_image, data.images, data.texts, questions.images, questions.texts)
    assert torch.equal(found[:, 0], own)
    lead = torch.tensor(list(lead_by_loops(base, maps, questions)))
    torch.testing.assert_close(found[:, 1], lead, rtol=1e-4, atol=1e-4, equal_nan=True)


def lead_by_loops(base, maps, questions):
    """How far a pair is above strangers of neither image, by the maps of the image's fold."""
    data = base.data
    group = data.group_of_image.tolist()
    for i, t, home in zip(
        questions.images.tolist(), questions.texts.tolist(), questions.siblings_of.tolist(), strict=True
    ):
        of_fold = maps[int(base.fold_of_image[i])]
        v, u = of_fold.embed_images(data.images).double(), of_fold.embed_texts(data.texts).double()
        asked = [r for r in base.strangers.tolist() if group[int(data.image_of_pair[r])] not in (group[i], group[home])]
        if not asked:
            yield math.nan
            continue
        own = math.exp(float(v[i] @ u[t]) / 0.05)
        texts = sum(math.exp(float(v[i] @ u[r]) / 0.05) for r in asked) / len(asked)
        images = sum(math.exp(float(v[data.image_of_pair[r]] @ u[t]) / 0.05) for r in asked) / len(asked)
        yield math.log(own / texts) + math.log(own / images)


@pytest.mark.parametrize("kind", ["all", "lemon"])
def test_blocks_of_any_size_give_the_same(kind, monkeypatch):
    data, trust = tiny((2, 1, 3, 1, 4, 1) * 3)
    questions, found = asked(data), []
    for block in (voices.BLOCK, 7):
        for module in (evidence, voices):
            monkeypatch.setattr(module, "BLOCK", block)
        base = EvidenceBase(data, AuditConfig(evidence=kind))
        found.append(base.of(base.look(questions), base.fit(trust), trust))
    torch.testing.assert_close(*found, equal_nan=True)


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
        torch.testing.assert_close(image[pair, :4], before[pair, :4])
        alone = base.of(seen, maps, torch.where(every == pair, 9.0, trust))
        torch.testing.assert_close(alone[pair], before[pair], equal_nan=True)
        other = base.of(seen, maps, torch.where(group == group[pair], trust, trust.flip(0)))
        assert (other[pair, 2:4] != before[pair, 2:4]).all()
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
    assert not found[:, 4].isnan().any()
    table = base._siblings
    assert table.shape == (3, 4)
    group = data.group_of_image[data.image_of_pair]
    for number in range(3):
        assert (group[table[number]] == number).all()
        assert len(table[number].unique()) == 4


def test_lemon_asks_the_pairs_that_the_neighbours_ask():
    """Against loops over all pairs; the similarity of the linear maps stands for the shared space."""
    data, trust = tiny((1, 2, 1, 1, 2, 1, 1))
    base = EvidenceBase(data, AuditConfig(evidence="lemon"))
    assert base.names == ("lemon",)
    maps, questions = base.fit(trust), asked(data)
    found = base.of(base.look(questions), maps, trust)[:, 0]
    v, u = centred(data.images), centred(data.texts)
    owner, group = data.image_of_pair, data.group_of_image

    def distance(images, texts):
        return 1 - linear_similarity(maps, base.fold_of_image, data.images, data.texts, images, texts)

    of_pair = distance(owner, torch.arange(len(owner)))
    for number, d in enumerate(distance(questions.images, questions.texts).tolist()):
        i, t, home = (int(column[number]) for column in (questions.images, questions.texts, questions.siblings_of))
        far = [r for r in range(len(owner)) if group[owner[r]] not in (group[i], group[home])]
        sums = {"image": [], "text": []}
        for r in (r for r in far if r != t):
            x, y = 1 - float(v[i] @ v[owner[r]]), 1 - float(u[t] @ u[r])
            trusted = math.exp(-5 * float(of_pair[r]))
            sums["image"].append(y * math.exp(-0.1 * x) * trusted)
            sums["text"].append(x * math.exp(-0.1 * y) * trusted)
        score = -d - 5 * sum(sum(terms) / len(terms) for terms in sums.values())
        assert float(found[number]) == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize("name", ["own similarity", "lemon"])
def test_one_kind_alone(name):
    data, trust = tiny()
    alone, every = (EvidenceBase(data, AuditConfig(evidence=kind)) for kind in (name, "all"))
    assert alone.names == (name,)
    questions = asked(data)
    found = alone.of(alone.look(questions), alone.fit(trust), trust)
    assert found.shape == (len(questions.images), 1)
    if name in every.names:
        whole = every.of(every.look(questions), every.fit(trust), trust)
        assert torch.equal(found[:, 0], whole[:, every.names.index(name)])


def test_a_scorer_is_a_kind_of_its_own():
    data, trust = tiny()

    class Mine:
        names = ("mine", "other")
        model_of_image = torch.zeros(6, dtype=torch.int64)

        def __call__(self, images, texts):
            return torch.stack([10 * images + texts, texts], dim=1).double()

    base = EvidenceBase(data, AuditConfig(), Mine())
    assert base.names == (*NAMES, "mine", "other")
    questions = asked(data)
    found = base.of(base.look(questions), base.fit(trust), trust)
    assert found.dtype == torch.float32
    assert found[:, 5].tolist() == (10 * questions.images + questions.texts).tolist()
    assert found[:, 6].tolist() == questions.texts.tolist()


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


def test_a_pair_mismatched_on_purpose_is_judged_by_what_has_seen_neither_side():
    data, _ = tiny((2, 1, 3, 1, 4, 1) * 30)

    class Scorer:
        names = ()
        model_of_image = torch.arange(180) % 3

        def __call__(self, images, texts):
            return torch.empty(len(images), 0)

    base = EvidenceBase(data, AuditConfig(mismatched=200), Scorer())
    for wrong in mismatched_on_purpose(base):
        home = data.image_of_pair[wrong.texts]
        assert len(home) > 150
        assert torch.equal(base.fold_of_image[wrong.images], base.fold_of_image[home])
        assert torch.equal(Scorer.model_of_image[wrong.images], Scorer.model_of_image[home])
        assert len(torch.unique(wrong.images)) > 50


@pytest.mark.parametrize(("groups", "folds"), [(4, 2), (7, 3), (100, 6)])
def test_each_fold_has_two_images_or_more(groups, folds):
    group = torch.arange(groups).repeat(2)  # each image has a copy
    found = folds_of_images(group, AuditConfig())
    assert torch.equal(found[:groups], found[groups:])
    sizes = found[:groups].bincount()
    assert len(sizes) == folds
    assert sizes.min() >= 2


# --- other pairs than the data's are asked


def two_tables(seed=0):
    """Seven old images of which two are copies, and five new ones, of which two are copies of old ones."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor([2, 1, 3, 1, 4, 1, 2])
    old = Vectors(
        torch.randn(7, 5, generator=generator), torch.randn(14, 4, generator=generator),
        torch.arange(7).repeat_interleave(counts), torch.tensor([0, 0, 1, 2, 3, 4, 5]),
    )  # fmt: skip
    new = Vectors(
        torch.randn(5, 5, generator=generator), torch.randn(8, 4, generator=generator),
        torch.tensor([0, 0, 1, 1, 2, 3, 4, 4]), torch.tensor([3, 6, 0, 7, 6]),
    )  # fmt: skip
    new.images[0], new.images[2], new.texts[0] = old.images[4], old.images[0], old.texts[8]
    itself = torch.tensor([8, *[-1] * 7])  # new pair 0 is old pair 8
    folds = torch.tensor([1, 1, 0, 0, 1, 0, 1])
    return old, new, Panel(old, folds, 2, torch.arange(14), itself), torch.rand(14, generator=generator)


@pytest.mark.parametrize("neighbors", [50, 3])
def test_a_panel_is_asked_as_plain_loops_do(neighbors):
    old, new, panel, trust = two_tables()
    config = AuditConfig(neighbors=neighbors, folds=2)
    base = EvidenceBase(new, config, panel=panel)
    maps = EvidenceBase(old, config).fit(trust)
    assert base.fold_of_image.tolist() == [1, 2, 1, 2, 2]  # 2: no copy was seen, so the maps of all pairs judge
    found = base.of(base.look(given_pairs(new)), maps, trust)
    u, v = centred_about(new.texts, old.texts), centred_about(new.images, old.images)
    old_u, old_v = centred(old.texts.double()), centred(old.images.double())[old.image_of_pair]
    of_pair = old.group_of_image[old.image_of_pair].tolist()
    for pair in range(8):
        image, itself = int(new.image_of_pair[pair]), int(panel.itself[pair])
        group = int(new.group_of_image[image])
        c_image, c_text = (old_v @ v[image]).tolist(), (old_u @ u[pair]).tolist()
        near = sorted((r for r in range(14) if of_pair[r] != group), key=lambda r: -c_image[r])[:neighbors]
        near = [r for r in near if r != itself]
        by_image = support([c_text[r] for r in near], [float(trust[r]) * math.exp(c_image[r] / 0.1) for r in near])
        near = sorted((r for r in range(14) if r != itself), key=lambda r: -c_text[r])[:neighbors]
        near = [r for r in near if of_pair[r] != group]
        by_text = support([c_image[r] for r in near], [float(trust[r]) * math.exp(c_text[r] / 0.1) for r in near])
        others = [r for r in range(14) if of_pair[r] == group and r != itself]
        other = support([c_text[r] for r in others], [float(trust[r]) for r in others])
        expected = torch.tensor([by_image, by_text, other])
        if neighbors < 14:
            expected[0] = found[pair, 2]  # captions of one image are equally near: which three are taken is not said
        torch.testing.assert_close(found[pair, 2:], expected, rtol=1e-4, atol=1e-4, equal_nan=True)
        one = maps[int(base.fold_of_image[image])]
        own = one.embed_images(new.images[image][None]) @ one.embed_texts(new.texts[pair][None]).T
        assert float(found[pair, 0]) == pytest.approx(float(own), abs=1e-5)
    assert found[:, 4].isnan().tolist() == [False, False, True, True, False, True, True, True]


def test_pairs_that_are_judged_never_speak_for_each_other():
    _, new, panel, trust = two_tables()
    config = AuditConfig(folds=2)
    maps = EvidenceBase(panel.vectors, config).fit(trust)
    together = EvidenceBase(new, config, panel=panel)
    found = together.of(together.look(given_pairs(new)), maps, trust)
    for pair in range(8):
        image = new.image_of_pair[pair][None]
        lonely = Vectors(new.images[image], new.texts[pair][None], torch.tensor([0]), new.group_of_image[image])
        alone = EvidenceBase(lonely, config, panel=replace(panel, itself=panel.itself[pair][None]))
        torch.testing.assert_close(
            alone.of(alone.look(given_pairs(lonely)), maps, trust)[0], found[pair], equal_nan=True
        )


def test_the_last_maps_are_fitted_on_all_pairs():
    data, trust = tiny()
    *_, whole = EvidenceBase(data, AuditConfig(folds=2)).fit(trust)
    mean = ((trust + 1e-6)[:, None] * data.texts).sum(dim=0) / (trust + 1e-6).sum()
    torch.testing.assert_close(whole.text_mean, mean)


def test_a_copy_of_the_pair_does_not_vouch_for_it():
    data, trust = tiny((3, 2, 3, 1, 4, 1))
    texts = data.texts.clone()
    texts[1] = texts[0]  # the pair is listed twice
    texts[5], texts[6], texts[7] = torch.zeros(3, 4)  # no known word, as TF-IDF has it
    base = EvidenceBase(replace(data, texts=texts), AuditConfig())
    found = base.of(base.look(given_pairs(base.data)), base.fit(trust), trust)
    u, group = centred(texts.double()), data.group_of_image[data.image_of_pair].tolist()
    for pair in (0, 5):
        others = [r for r in range(len(trust)) if group[r] == group[pair] and not torch.equal(texts[r], texts[pair])]
        expected = support([float(u[pair] @ u[r]) for r in others], [float(trust[r]) for r in others])
        torch.testing.assert_close(float(found[pair, 4]), expected, rtol=1e-3, atol=1e-3, equal_nan=True)
