"""Audit vectors of your own, keep the audit, and judge tomorrow's pairs by it.

    python examples/audit_feed.py

Here both sides are drawn: 2,000 pairs of which one in five is wrong, then 200 new ones of which every second is wrong.
Put the vectors of your image encoder and of your text encoder in their place; they need no common space.
"""

import tempfile

import numpy as np

from in2r import Auditor

rng = np.random.default_rng(0)
to_image, to_text = rng.standard_normal((12, 64)), rng.standard_normal((12, 48))


def draw(pairs: int, wrong: int) -> tuple[np.ndarray, np.ndarray]:
    """Return image and caption vectors of pairs; the captions of the first `wrong` have moved."""
    topics = rng.standard_normal((pairs, 12))
    images = topics @ to_image + rng.standard_normal((pairs, 64))
    captions = topics @ to_text + rng.standard_normal((pairs, 48))
    captions[:wrong] = np.roll(captions[:wrong], 1, axis=0)
    return images, captions


images, captions = draw(2000, wrong=400)
auditor = Auditor(seed=0).fit(images, caption_vectors=captions)
suspects = auditor.suspects()
print(f"noise rate {auditor.noise_rate_:.1%} (truth: 20.0%), {len(suspects)} suspects")
print(f"of the 100 worst, {np.sum(suspects[:100] < 400)} are wrong")

with tempfile.TemporaryDirectory() as folder:
    auditor.write(folder)  # report.html, pairs.csv, ..., and what judges new pairs
    kept = Auditor.load(folder)

images, captions = draw(200, wrong=100)
scores = kept.score_samples(images, caption_vectors=captions)
print(f"new pairs: mean score of wrong ones {scores[:100].mean():.2f}, of right ones {scores[100:].mean():.2f}")
