import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.evidence import best_other_image
from in2r.evidence.vectors import centred


def made(images=6, texts=15, queries=7, networks=2, seed=0):
    """Embeddings of both networks, queries with the images to leave out, raw vectors, their images, whom to trust."""
    generator = torch.Generator().manual_seed(seed)

    def unit(rows):
        values = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
        return values / values.norm(dim=1, keepdim=True)

    image_of_text = torch.randint(images, (texts,), generator=generator)
    asked = torch.randint(texts, (queries,), generator=generator)
    trusted = torch.rand(texts, generator=generator) < 0.5
    v, u = ([unit(rows) for _ in range(networks)] for rows in (images, texts))
    return v, u, asked, image_of_text[asked], unit(texts), image_of_text, trusted


def by_loops(v, u, queries, given, vectors, image_of_text, trusted, temperature=0.05, raw_weight=10.0, floor=-0.2):
    """P (q, n) by its equation."""
    x = centred(vectors)
    rows = []
    for t, left_out in zip(queries.tolist(), given.tolist(), strict=True):
        terms = []
        for i in range(len(v[0])):
            own = [o for o in range(len(x)) if trusted[o] and image_of_text[o] == i]
            raw = max([floor, *(float(x[t] @ x[o]) for o in own)])
            learnt = sum(float(texts[t] @ images[i]) for images, texts in zip(v, u, strict=True)) / len(v)
            terms.append(0.0 if i == left_out else math.exp(learnt / temperature + raw_weight * raw))
        rows.append([term / sum(terms) for term in terms])
    return torch.tensor(rows, dtype=torch.float64)


def test_by_hand():
    # The network sees no difference. Raw: image 1 has a trusted caption of cosine 1, image 2 a doubted one and image 3
    # one of cosine -1, so the floor for both.
    images, texts = [torch.zeros(4, 2)], [torch.ones(4, 2)]
    vectors = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])
    image_of_text, trusted = torch.tensor([0, 1, 2, 3]), torch.tensor([True, True, False, True])
    query = torch.tensor([0])
    ids, prob = best_other_image(images, texts, query, query, vectors, image_of_text, trusted, raw_weight=1.0, top=2)
    assert ids[0, 0] == 1
    below = math.exp(1) + 2 * math.exp(-0.2)
    torch.testing.assert_close(prob, torch.tensor([[math.exp(1) / below, math.exp(-0.2) / below]]))


@given(
    st.integers(2, 8),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 4000),
    st.integers(0, 99),
)
def test_equals_plain_loops_in_any_blocks(images, texts, queries, networks, block_bytes, seed):
    given = made(images, texts, queries, networks, seed)
    ids, prob = best_other_image(*given, block_bytes=block_bytes)
    expected = by_loops(*given)
    k = min(5, images - 1)
    assert ids.shape == prob.shape == (queries, k)
    torch.testing.assert_close(prob, expected.topk(k).values)
    torch.testing.assert_close(prob, expected.gather(1, ids))
    assert (ids != given[3][:, None]).all()


@given(st.integers(2, 8), st.integers(1, 20), st.integers(0, 99))
def test_images_and_captions_may_come_in_any_order(images, texts, seed):
    v, u, queries, given, vectors, image_of_text, trusted = made(images, texts, seed=seed)
    ids, prob = best_other_image(v, u, queries, given, vectors, image_of_text, trusted)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(k, generator=generator) for k in (images, texts))
    place, position = rows.argsort(), columns.argsort()
    moved = best_other_image(
        [side[rows] for side in v],
        [side[columns] for side in u],
        position[queries],
        place[given],
        3 * vectors[columns] + 1,
        place[image_of_text[columns]],
        trusted[columns],
    )
    torch.testing.assert_close(moved[1], prob)
    torch.testing.assert_close(rows[moved[0]], ids)


def test_settings_reach_the_equation():
    arguments, settings = made(), {"temperature": 0.5, "raw_weight": 2.0, "floor": 0.1}
    _, prob = best_other_image(*arguments, **settings, top=3)
    torch.testing.assert_close(prob, by_loops(*arguments, **settings).topk(3).values)


def test_without_trust_without_queries_without_other_images():
    v, u, queries, given, vectors, image_of_text, trusted = made()
    _, prob = best_other_image(v, u, queries, given, vectors, image_of_text, torch.zeros_like(trusted))
    torch.testing.assert_close(prob, by_loops(v, u, queries, given, vectors, image_of_text, 0 * trusted).topk(5).values)
    ids, _ = best_other_image(v, u, queries[:0], given[:0], vectors, image_of_text, trusted)
    assert ids.shape == (0, 5)
    zeros = torch.zeros_like(image_of_text)
    ids, _ = best_other_image([v[0][:1]], u[:1], queries, 0 * queries, vectors, zeros, trusted)
    assert ids.shape == (7, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    v, u, queries, given, vectors, *rest = made()
    half = [side.to(dtype) for side in v], [side.to(dtype) for side in u], queries, given, vectors.to(dtype), *rest
    full = (
        [side.float() for side in half[0]],
        [side.float() for side in half[1]],
        queries,
        given,
        half[4].float(),
        *rest,
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = best_other_image(*half)
    assert found[1].dtype == torch.float32
    torch.testing.assert_close(found, best_other_image(*full))


def test_wrong_arguments_are_named():
    v, u, queries, given, vectors, image_of_text, trusted = made()
    with pytest.raises(ValueError, match="of the same networks, got 2 and 1"):
        best_other_image(v, u[:1], queries, given, vectors, image_of_text, trusted)
    with pytest.raises(ValueError, match="same images and captions"):
        best_other_image([v[0], v[1][:3]], u, queries, given, vectors, image_of_text, trusted)
    with pytest.raises(ValueError, match=r"queries must be in \[0, 15\), got \d+ to 15"):
        best_other_image(
            v, u, queries.clone().fill_(15).index_fill(0, torch.tensor([0]), 3), given, vectors, image_of_text, trusted
        )
    with pytest.raises(ValueError, match=r"given must be torch.int64 of shape \(7,\)"):
        best_other_image(v, u, queries, given[:6], vectors, image_of_text, trusted)
    with pytest.raises(ValueError, match=r"trusted must be torch\.bool"):
        best_other_image(v, u, queries, given, vectors, image_of_text, trusted.float())
    with pytest.raises(ValueError, match=r"floor must be in \[-1, 1\] and raw_weight at least 0, got 5 and 10"):
        best_other_image(v, u, queries, given, vectors, image_of_text, trusted, floor=5)
    with pytest.raises(ValueError, match="images must be finite, row 0 is not"):
        best_other_image([v[0] + torch.inf, v[1]], u, queries, given, vectors, image_of_text, trusted)
    with pytest.raises(ValueError, match="top must be a whole number of at least 1, got 0"):
        best_other_image(v, u, queries, given, vectors, image_of_text, trusted, top=0)


MEMORY = """
import torch
from in2r.evidence import best_other_image, neighbor_evidence, own_caption_evidence, whole_set_log_posterior

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

def rise(call):
    '''Return the bytes by which this process grew while it ran.'''
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before = peak()
    call()
    return peak() - before

def calls(n, m, block_bytes):
    images, texts = torch.randn(n, 8), torch.randn(m, 8)
    owner, prob, some = torch.arange(m) % n, torch.rand(m), torch.arange(m) % 3 == 0
    one = torch.zeros(m, dtype=torch.int64)
    asked = torch.arange(0, m, 4)
    keys = dict(block_bytes=block_bytes)
    return [
        lambda: whole_set_log_posterior(images, texts, owner, **keys),
        lambda: own_caption_evidence(texts, owner, prob, **keys),
        lambda: own_caption_evidence(texts[:n], one[:n], prob[:n], **keys),
        lambda: neighbor_evidence(images, texts, owner, prob, **keys),
        lambda: best_other_image([images], [texts], asked, owner[asked], texts, owner, some, **keys),
    ]

for call in calls(50, 200, 2**20):
    call()  # what is loaded at first use
for call in calls(2000, 6000, 2**21):
    print(rise(call))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no /proc/self/clear_refs")
def test_all_evidence_stays_within_its_blocks() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    rises = [int(line) for line in done.stdout.splitlines()]
    assert len(rises) == 5
    for rise in rises:  # a whole matrix would take 16 MB (of the images alone) to 144 MB
        assert rise < 10 * 2**20  # of a budget of 2 MiB; the allocator adds some of its own
