"""LEMoN's score against loops and by hand."""

import math

import torch

from in2r.evidence import Side, lemon

K = 30


def drawn(pairs=20, neighbors=50, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def cosines(*shape):
        return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1

    def side():
        near = cosines(pairs, neighbors).sort(dim=1, descending=True).values
        near[cosines(pairs, neighbors) > 0.5] = -torch.inf  # may not be asked
        return Side(near, cosines(pairs, neighbors), cosines(pairs, neighbors))

    return cosines(pairs), side(), side()


def by_loops(similarity, side):
    """Sums of one side, with the published fixed setting."""
    found = []
    for near, cosine, own in zip(
        *(values.tolist() for values in (side.near, side.cosine, side.similarity)), strict=True
    ):
        asked = [r for r in range(len(near)) if near[r] > -math.inf][:K]
        terms = [(1 - cosine[r]) * math.exp(-0.1 * (1 - near[r])) * math.exp(-5 * (1 - own[r])) for r in asked]
        found.append(5 * sum(terms) / len(asked))
    return torch.tensor(found, dtype=torch.float64)


def test_the_score_equals_plain_loops():
    similarity, by_image, by_text = drawn()
    asked = [(side.near > -torch.inf).sum(dim=1) for side in (by_image, by_text)]
    assert any((count > K).any() and (count < 50).any() for count in asked)
    expected = -(1 - similarity) - by_loops(similarity, by_image) - by_loops(similarity, by_text)
    torch.testing.assert_close(lemon(similarity, by_image, by_text), expected)


def test_by_hand():
    def side(near, cosine, own):
        return Side(*(torch.tensor([values]) for values in (near, cosine, own)))

    nobody = side([-torch.inf], [0.0], [1.0])
    one = side([1.0, 0.5], [0.5, 1.0], [1.0, 1.0])  # an identical image whose caption is at 0.5; one more that agrees
    found = lemon(torch.tensor([0.8]), one, one)
    assert float(found) == -torch.tensor(0.2 + 5 * 0.25 + 5 * 0.25).item()
    assert lemon(torch.tensor([0.8]), one, nobody).isnan()


def test_far_neighbours_and_wrong_neighbours_count_less():
    similarity, by_image, by_text = drawn()
    nearer = Side((by_image.near + 0.2), by_image.cosine, by_image.similarity)
    better = Side(by_image.near, by_image.cosine, by_image.similarity + 0.2)
    before = lemon(similarity, by_image, by_text)
    assert (lemon(similarity, nearer, by_text) < before).all()  # what they say against the pair counts more
    assert (lemon(similarity, better, by_text) < lemon(similarity, nearer, by_text)).all()  # tau_2 is larger
