import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import whole_set_log_posterior
from in2r.evidence.vectors import blocks, centred


def encoded(images=5, texts=9, dim=4, seed=0):
    """Unit vectors of images and captions, and the image of each caption."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(images + texts, dim, generator=generator, dtype=torch.float64)
    unit = drawn / drawn.norm(dim=1, keepdim=True)
    return unit[:images], unit[images:], torch.randint(images, (texts,), generator=generator)


def test_by_hand():
    # u.v/tau: caption 0 has (2, 0) with the images, caption 1 (0, 2).
    both = torch.eye(2)
    p = math.exp(2) / (math.exp(2) + 1)
    found = whole_set_log_posterior(both, both, torch.tensor([0, 0]), temperature=0.5)
    torch.testing.assert_close(found, torch.tensor([2 * math.log(p), 2 * math.log(1 - p)]))


def test_equals_plain_loops():
    images, texts, image_of_text = encoded()
    found = whole_set_log_posterior(images, texts, image_of_text, 0.2)
    for t, i in enumerate(image_of_text.tolist()):
        own = math.exp(float(texts[t] @ images[i]) / 0.2)
        over_images = sum(math.exp(float(texts[t] @ v) / 0.2) for v in images)
        over_texts = sum(math.exp(float(u @ images[i]) / 0.2) for u in texts)
        assert float(found[t]) == pytest.approx(math.log(own / over_images) + math.log(own / over_texts))


@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 600), st.integers(0, 99))
def test_blocks_and_order_do_not_matter(images, texts, block_bytes, seed):
    v, u, image_of_text = encoded(images, texts, seed=seed)
    whole = whole_set_log_posterior(v, u, image_of_text)
    assert (whole <= 1e-12).all()
    torch.testing.assert_close(whole_set_log_posterior(v, u, image_of_text, block_bytes=block_bytes), whole)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(k, generator=generator) for k in (images, texts))
    shuffled = whole_set_log_posterior(v[rows], u[columns], rows.argsort()[image_of_text[columns]])
    torch.testing.assert_close(shuffled, whole[columns])


def test_the_same_twice_and_without_gradient():
    images, texts, image_of_text = encoded(40, 200)
    found = [whole_set_log_posterior(images.requires_grad_(), texts, image_of_text, block_bytes=9999) for _ in range(2)]
    assert torch.equal(*found)
    assert not found[0].requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    images, texts, image_of_text = encoded(6, 20)
    images, texts = images.to(dtype), texts.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = whole_set_log_posterior(images, texts, image_of_text, block_bytes=200)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, whole_set_log_posterior(images.float(), texts.float(), image_of_text))


def test_large_logits_do_not_overflow():
    found = whole_set_log_posterior(torch.eye(3), torch.eye(3), torch.tensor([0, 1, 0]), temperature=1e-3)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, -2000.0]))


def test_wrong_arguments_are_named():
    images, texts, image_of_text = encoded()
    spoilt = texts.clone()
    spoilt[5, 2] = torch.nan
    with pytest.raises(ValueError, match="texts must be finite, row 5 is not"):
        whole_set_log_posterior(images, spoilt, image_of_text)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        whole_set_log_posterior(images, texts, image_of_text, temperature=0)
    with pytest.raises(ValueError, match=r"texts must be a matrix \(rows, 4\), got shape \(9, 3\)"):
        whole_set_log_posterior(images, texts[:, :3], image_of_text)
    with pytest.raises(ValueError, match=r"images must be a matrix \(rows, width\), got shape \(4,\)"):
        whole_set_log_posterior(images[0], texts, image_of_text)
    with pytest.raises(
        ValueError, match=r"image_of_text must be torch.int64 of shape \(9,\), got torch.int64 of \(8,\)"
    ):
        whole_set_log_posterior(images, texts, image_of_text[:8])
    with pytest.raises(ValueError, match=r"image_of_text must be in \[0, 2\), got \d to 4"):
        whole_set_log_posterior(images[:2], texts, image_of_text)


# What all evidence shares


@given(st.integers(0, 30), st.integers(0, 50), st.integers(1, 200), st.one_of(st.none(), st.integers(1, 9)))
def test_blocks_cover_all_rows_within_their_bytes(rows, row_bytes, block_bytes, most):
    found = list(blocks(rows, row_bytes, block_bytes, most))
    assert [row for part in found for row in range(part.start, part.stop)] == list(range(rows))
    for part in found:
        size = part.stop - part.start
        assert size == 1 or (size * row_bytes <= block_bytes and size <= (most or rows))


def test_centred_vectors():
    found = centred(torch.tensor([[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]]))
    assert found.tolist() == [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]
