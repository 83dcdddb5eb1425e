import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import has_other_captions, neighbor_evidence, own_caption_evidence, raw
from in2r.evidence.vectors import centred

NOTHING = math.log(1e-5)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def captions(images=6, texts=20, seed=0):
    """Vectors of captions, the image of each (one image may have many or none), and their probabilities."""
    generator = torch.Generator().manual_seed(seed)
    image_of_text = (torch.rand(texts, generator=generator) ** 2 * images).long()
    return drawn(texts, 4, seed=seed), image_of_text, torch.rand(texts, generator=generator, dtype=torch.float64)


# The other captions of the image


def test_own_by_hand():
    # Less their mean (0, 0): cosines of caption 0 with 1 is 0, with 2 is -1. Caption 3 has no other beside it.
    texts = torch.tensor([[1.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [0.0, -5.0]])
    prob = torch.tensor([0.9, 0.5, 0.25, 1.0])
    found = own_caption_evidence(texts, torch.tensor([7, 7, 7, 2]), prob, temperature=0.5)
    support = [
        0.5 * math.exp(-2) + 0.25 * math.exp(-4),
        (0.9 + 0.25) * math.exp(-2),
        0.5 * math.exp(-2) + 0.9 * math.exp(-4),
    ]
    torch.testing.assert_close(found, torch.tensor([*(math.log(1e-5 + s) for s in support), NOTHING]))


def own_by_loops(texts, image_of_text, prob):
    x = centred(texts)
    for t, image in enumerate(image_of_text):
        others = [o for o in range(len(x)) if o != t and image_of_text[o] == image]
        support = sum(float(prob[o]) * math.exp((float(x[t] @ x[o]) - 1) / 0.1) for o in others)
        yield math.log(1e-5 + support)


@given(st.integers(1, 8), st.integers(1, 30), st.integers(1, 2000), st.integers(1, 5), st.integers(0, 99))
def test_own_equals_plain_loops_in_any_blocks(images, texts, block_bytes, rows, seed):
    given = captions(images, texts, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "MOST_ROWS", rows)
        found = own_caption_evidence(*given, block_bytes=block_bytes)
    assert found.tolist() == pytest.approx(list(own_by_loops(*given)))


def test_an_image_may_have_all_captions():
    texts, _, prob = captions(texts=600)
    one = torch.zeros(600, dtype=torch.int64)
    found = own_caption_evidence(texts, one, prob, block_bytes=20_000)
    x = centred(texts)
    kernel = ((x @ x.T - 1) / 0.1).exp().fill_diagonal_(0)
    torch.testing.assert_close(found, (1e-5 + kernel @ prob).log())


def test_has_other_captions():
    assert has_other_captions(torch.tensor([5, 3, 5, -1])).tolist() == [True, False, True, False]
    assert not has_other_captions(torch.empty(0, dtype=torch.int64)).any()


# The captions of similar images


def test_neighbors_by_hand():
    # Images at 0, 60, 180 and 240 degrees, with mean 0. Image 0 finds image 1 at 60 degrees, then image 3 at 120;
    # image 2 finds 3, then 1.
    images = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)], [-1.0, 0.0], [-0.5, -math.sqrt(0.75)]])
    texts = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0], [-0.6, -0.8]])
    prob = torch.tensor([1.0, 0.5, 1.0, 0.8])
    found = neighbor_evidence(images, texts, torch.arange(4), prob, neighbors=2, temperature=0.5)
    like, unlike = math.exp(-0.4 / 0.5), math.exp(-1.6 / 0.5)  # captions of cosine 0.6 and -0.6
    near, far = 0.5 * math.exp(1), 0.8 * math.exp(-1)  # weights of images 1 and 3
    torch.testing.assert_close(found[0].exp().item(), 1e-6 + (near * like + far * unlike) / (near + far))
    near, far = 0.8 * math.exp(1), 0.5 * math.exp(-1)  # weights of images 3 and 1
    torch.testing.assert_close(found[2].exp().item(), 1e-6 + (near * like + far * unlike) / (near + far))


def neighbors_by_loops(images, texts, image_of_text, prob, neighbors):
    v, x = centred(images), centred(texts)
    for t, image in enumerate(image_of_text.tolist()):
        others = sorted((j for j in range(len(v)) if j != image), key=lambda j: -float(v[image] @ v[j]))[:neighbors]
        top = bottom = 0.0
        for j in others:
            for o in range(len(x)):
                if image_of_text[o] == j:
                    weight = float(prob[o]) * math.exp(float(v[image] @ v[j]) / 0.1)
                    top += weight * math.exp((float(x[t] @ x[o]) - 1) / 0.1)
                    bottom += weight
        yield math.log(1e-6 + (top / bottom if bottom else 0.0))


@given(
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(1, 9999),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_neighbors_equal_plain_loops_in_any_blocks(images, texts, neighbors, block_bytes, width, seed):
    given = drawn(images, 3, seed=seed + 1), *captions(images, texts, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "WIDTH", width)
        patch.setattr(raw, "DEPTH", 1 + width // 2)
        found = neighbor_evidence(*given, neighbors, block_bytes=block_bytes)
    assert found.tolist() == pytest.approx(list(neighbors_by_loops(*given, neighbors)))


def test_neighbors_without_weight_say_nothing():
    texts, image_of_text, _ = captions()
    found = neighbor_evidence(drawn(6, 3), texts, image_of_text, torch.zeros(20))
    torch.testing.assert_close(found, torch.full_like(found, math.log(1e-6)))
    alone = neighbor_evidence(drawn(1, 3), texts, torch.zeros(20, dtype=torch.int64), torch.ones(20))
    torch.testing.assert_close(alone, torch.full_like(found, math.log(1e-6)))


def test_a_small_temperature_does_not_underflow():
    # All images are equally far (cosine -1/2), e^-500 in weight. Of two neighbours' captions one is the same.
    texts = torch.tensor([[1.0], [1.0], [-2.0]])
    found = neighbor_evidence(torch.eye(3), texts, torch.arange(3), torch.ones(3), temperature=1e-3)
    torch.testing.assert_close(found[:2], torch.full((2,), math.log(0.5 + 1e-6)))


# Both


@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 99), st.floats(0.1, 10))
def test_order_length_and_place_of_the_vectors_do_not_matter(images, texts, seed, scale):
    v, (x, image_of_text, prob) = drawn(images, 3, seed=seed + 1), captions(images, texts, seed)
    own, near = own_caption_evidence(x, image_of_text, prob), neighbor_evidence(v, x, image_of_text, prob, 3)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(k, generator=generator) for k in (images, texts))
    moved, placed = scale * x[columns] + 1, rows.argsort()[image_of_text[columns]]
    torch.testing.assert_close(own_caption_evidence(moved, placed, prob[columns]), own[columns])
    torch.testing.assert_close(neighbor_evidence(scale * v[rows] - 1, moved, placed, prob[columns], 3), near[columns])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    texts, image_of_text, prob = captions()
    half = [values.to(dtype) for values in (drawn(6, 3), texts, prob)]
    images, texts, prob = (values.float() for values in half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        own = own_caption_evidence(half[1], image_of_text, half[2])
        near = neighbor_evidence(half[0], half[1], image_of_text, half[2], 3)
    assert own.dtype == near.dtype == torch.float32
    torch.testing.assert_close(own, own_caption_evidence(texts, image_of_text, prob))
    torch.testing.assert_close(near, neighbor_evidence(images, texts, image_of_text, prob, 3))


def test_wrong_arguments_are_named():
    texts, image_of_text, prob = captions()
    with pytest.raises(ValueError, match="floor must be positive, got 0"):
        own_caption_evidence(texts, image_of_text, prob, floor=0)
    with pytest.raises(ValueError, match=r"prob must have shape \(20,\), got \(20, 1\)"):
        own_caption_evidence(texts, image_of_text, prob[:, None])
    with pytest.raises(ValueError, match=r"image_of_text must be torch.int64 of shape \(20,\), got torch.float64"):
        own_caption_evidence(texts, image_of_text.double(), prob)
    with pytest.raises(ValueError, match=r"image_of_text must be in \[0, 2\)"):
        neighbor_evidence(drawn(2, 3), texts, image_of_text, prob)
    with pytest.raises(ValueError, match="prob must be finite and at least 0"):
        own_caption_evidence(texts, image_of_text.clamp(max=1), prob - 2)
    with pytest.raises(ValueError, match="vectors must be finite, row 0 is not"):
        own_caption_evidence(texts * torch.nan, image_of_text.clamp(max=1), prob)
    with pytest.raises(ValueError, match="neighbors must be a whole number of at least 1, got 0"):
        neighbor_evidence(drawn(6, 3), texts, image_of_text, prob, neighbors=0)
    with pytest.raises(ValueError, match="images must be a matrix"):
        neighbor_evidence(drawn(6), texts, image_of_text, prob)
