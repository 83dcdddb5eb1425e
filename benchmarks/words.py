"""Captions in which one word is exchanged for another word of the same kind: wrong pairs that are hard to tell."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

KINDS = tuple(
    words.split()
    for words in (
        "red blue green yellow white black brown orange pink purple grey gray tan blond",
        "two three four five six",
        "man woman boy girl lady toddler baby",
        "men women boys girls ladies toddlers babies",
        "dog cat horse bird cow sheep",
        "dogs cats horses birds cows",
        "beach street park mountain forest lake river pool field desert playground sidewalk road hill",
        "ball frisbee stick bicycle bike skateboard motorcycle car surfboard toy swing guitar bench",
        "shirt jacket hat dress coat helmet sweater shorts jeans hoodie uniform",
        "snow grass water sand dirt mud rocks",
        "running sitting standing walking swimming climbing sleeping dancing",
        "runs sits stands walks swims climbs sleeps dances",
    )
)
"""Frequent words of captions of photographs, by kind; each fits where another of its kind stands."""
KIND_OF = {word: kind for kind in KINDS for word in kind}


def exchange_words(captions: Sequence[str], ratio: float, seed: int) -> tuple[list[str], NDArray[np.bool_]]:
    """Exchange one word in a share of the captions.

    Args:
        captions: (N,) texts whose words stand between blanks.
        ratio: share of all captions that are changed; fewer where too few have a word of `KINDS`.
        seed: of which captions, which of their words, and which word in its place: one that the caption has not.

    Returns:
        The captions, and (N,) bool which of them are as they were.
    """
    draws, found = np.random.default_rng(seed), list(captions)
    right = np.ones(len(found), dtype=bool)
    for number in draws.permutation(len(found)).tolist():
        if (~right).sum() >= int(ratio * len(found)):
            break
        words = found[number].split()
        known = [place for place, word in enumerate(words) if word.lower() in KIND_OF]
        if known:
            place = int(draws.choice(known))
            there = {word.lower() for word in words}
            words[place] = str(draws.choice([word for word in KIND_OF[words[place].lower()] if word not in there]))
            found[number], right[number] = " ".join(words), False
    return found, right
