"""The lead of a pair over strangers."""

import math

import pytest
import torch

from in2r.evidence import lead_over_strangers
from in2r.evidence.vectors import centred


def made(pairs=7, strangers=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    v, u, a, b = (centred(torch.randn(rows, 4, generator=generator)) for rows in (pairs, pairs, strangers, strangers))
    groups = torch.randint(4, (pairs, 2), generator=generator)
    return v, u, groups, a, b, torch.randint(4, (strangers,), generator=generator)


def test_by_hand():
    """Two strangers at similarities 0 and 0.5 to the image and 0 and 0 to the caption; the pair's own is 1."""
    v, u = torch.tensor([[1.0, 0, 0]]), torch.tensor([[1.0, 0, 0]])
    images, texts = torch.tensor([[0.0, 1, 0], [0, 0, 1]]), torch.tensor([[0.0, 1, 0], [0.5, 0.75**0.5, 0]])
    none = torch.tensor([[9]])
    lead = lead_over_strangers(v, u, none, images, texts, torch.tensor([0, 1]), temperature=0.5)
    expected = 2 / 0.5 - math.log((1 + math.e) / 2) - math.log(1)
    assert float(lead) == pytest.approx(expected, abs=1e-5)
    one = lead_over_strangers(v, u, torch.tensor([[1]]), images, texts, torch.tensor([0, 1]), temperature=0.5)
    assert float(one) == pytest.approx(2 / 0.5, abs=1e-5)  # the second stranger is the pair's own
    nobody = lead_over_strangers(v, u, torch.tensor([[1]]), images, texts, torch.tensor([1, 1]), temperature=0.5)
    assert math.isnan(float(nobody))


@pytest.mark.parametrize("block_bytes", [1, 2**26])
def test_equals_loops_whatever_the_block(block_bytes):
    v, u, groups, a, b, group = made()
    found = lead_over_strangers(v, u, groups, a, b, group, 0.1, block_bytes)
    for pair in range(len(v)):
        asked = [s for s in range(len(a)) if int(group[s]) not in groups[pair].tolist()]
        if not asked:
            assert math.isnan(float(found[pair]))
            continue
        own = float(v[pair] @ u[pair]) / 0.1
        sums = [
            sum(math.exp(float(one @ other[s]) / 0.1) for s in asked) for one, other in ((v[pair], b), (u[pair], a))
        ]
        expected = sum(own - math.log(total / len(asked)) for total in sums)
        assert float(found[pair]) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_caption_that_fits_everything_gains_nothing_by_fitting_its_image():
    v = centred(torch.randn(50, 8, generator=torch.Generator().manual_seed(1)))
    strange = v[10:]
    groups, group = torch.arange(2)[:, None], torch.arange(10, 50)
    say_little = torch.nn.functional.normalize(v.sum(dim=0, keepdim=True) + 1e-3, dim=1).repeat(2, 1)
    lead = lead_over_strangers(v[:2], say_little, groups, strange, strange, group)
    precise = lead_over_strangers(v[:2], v[:2], groups, strange, strange, group)
    assert (precise > lead + 5).all()


def test_shapes_that_do_not_fit_are_refused():
    v, u, groups, a, b, group = made()
    for wrong in ((v, u[:3], groups), (v, u, groups[:3]), (v, u[:, :3], groups), (v, u, groups[:, 0])):
        with pytest.raises(ValueError, match="must"):
            lead_over_strangers(*wrong, a, b, group)
    with pytest.raises(ValueError, match="temperature must be positive"):
        lead_over_strangers(v, u, groups, a, b, group, 0.0)
