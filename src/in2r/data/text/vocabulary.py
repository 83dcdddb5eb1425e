"""Words and their numbers, and captions as packed integers."""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from in2r.data.text.tokenizer import tokenize
from in2r.errors import InputError
from in2r.files import read_json, write_json
from in2r.transfer import send

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
MASK = "<mask>"
MAX_WORDS = 256
"""Longer captions are cut: memory grows with the square of the longest one, and one web page among the captions would
end a run. The captions of the field's data sets have fewer than 100 words."""
MANY_UNKNOWN = 0.2
"""Share of unknown words above which captions are of another language or subject than the vocabulary; test captions of
the field's data sets have 1 to 3 %."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PackedTokens:
    """Token ids of many captions, one after the other.

    Attributes:
        ids: (total,) int32.
        offsets: (captions + 1,) int64; caption k is ids[offsets[k]:offsets[k + 1]], never empty.
    """

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def unknown_share(self) -> float:
        """Share of <unk> among the words (<start> and <end> not counted), in [0, 1]."""
        words = len(self.ids) - 2 * len(self)
        return float(np.count_nonzero(self.ids == Vocabulary.UNK)) / words if words else 0.0

    def unknown_words(self, vocabulary: str) -> str:
        """Say what share of the words a vocabulary of that name lacks, and how many captions hold no known word.

        Empty where the share is `MANY_UNKNOWN` or less and each caption that has words has a known one.
        """
        known = np.add.reduceat(self.ids > Vocabulary.UNK, self.offsets[:-1]) if len(self) else np.zeros(0)
        blank = np.flatnonzero((known == 0) & (np.diff(self.offsets) > 2))  # more than <start> and <end>
        share = self.unknown_share
        if share <= MANY_UNKNOWN and not len(blank):
            return ""
        said = f"{100 * share:.3g} % of the words are not in {vocabulary}"
        if len(blank):
            said += (
                f"; {len(blank)} of {len(self)} captions hold no known word, the first is item {blank[0]}: their "
                "vectors depend on the number of their words only"
            )
        return said

    def distinct(self) -> Tensor:
        """Return a number (captions,) int64 for each caption; captions of the same words have the same one."""
        numbers: dict[bytes, int] = {}
        ends = zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        return torch.tensor([numbers.setdefault(self.ids[a:b].tobytes(), len(numbers)) for a, b in ends])

    def gather(self, items: Tensor, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """Return the captions `items` (B,) int64, on the CPU, as ids (B, L) int64, zero-padded, and a mask (B, L) bool.

        L is the length of the longest of them. The ids are on the device. The mask, True where there is a token, is on
        the CPU, where lengths are known without waiting for a device.
        """
        chosen = items.numpy()
        start = self.offsets[chosen][:, None]
        length = self.offsets[chosen + 1][:, None] - start
        position = np.arange(length.max(initial=0))
        mask = position < length
        ids = np.where(mask, self.ids[np.minimum(start + position, len(self.ids) - 1)], Vocabulary.PAD)
        return send(torch.from_numpy(ids.astype(np.int64)), device), torch.from_numpy(mask)


class Vocabulary:
    """The ordered words of a model; a word's id is its position. <mask> is appended where it is missing."""

    PAD: ClassVar[int] = 0
    START: ClassVar[int] = 1
    END: ClassVar[int] = 2
    UNK: ClassVar[int] = 3

    def __init__(self, words: Iterable[str]) -> None:
        """Take the words in order, the four special ones first.

        Raises:
            InputError: the first four are not the special ones, a word occurs twice, or there are no others.
        """
        ordered = tuple(words)
        if ordered[:4] != SPECIALS:
            raise InputError(f"vocabulary starts with {' '.join(ordered[:4])!r}; expected {' '.join(SPECIALS)!r}")
        self.words: tuple[str, ...] = ordered if MASK in ordered else (*ordered, MASK)
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(word for number, word in enumerate(self.words) if self._ids[word] != number)
            raise InputError(f"vocabulary has {twice!r} twice")
        if len(self.words) == len(SPECIALS) + 1:
            raise InputError("vocabulary has only special words; use more captions or a lower `min_count`")
        self.mask_id: int = self._ids[MASK]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    @property
    def hash(self) -> str:
        """SHA-256 over the ordered words: two vocabularies with the same hash give the same ids."""
        return hashlib.sha256("\0".join(self.words).encode()).hexdigest()

    @classmethod
    def build(cls, captions: Iterable[str | Sequence[str]], min_count: int = 4) -> "Vocabulary":
        """Collect the words that occur at least `min_count` times, most frequent first, equals by spelling.

        Args:
            captions: texts, or lists of tokens. Give the training captions only, for a clean evaluation; the
                field's own files hold the words of the dev split too.
            min_count: smallest number of occurrences, ≥ 1.
        """
        if min_count < 1:
            raise InputError(f"`min_count` must be at least 1, got {min_count}")
        counts = Counter(chain.from_iterable(map(_tokens, captions)))
        kept = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls([*SPECIALS, *(word for _, word in kept if word not in SPECIALS)])

    def encode(self, captions: Iterable[str | Sequence[str]], max_length: int = MAX_WORDS) -> PackedTokens:
        """Return <start>, the words' ids (<unk> for others) and <end> for each caption, tokenised once.

        An empty caption becomes <start><end>. Captions of more than `max_length` words are cut, which is logged.
        """
        ids: list[int] = []
        offsets = [0]
        cut: list[int] = []
        get, unknown = self._ids.get, self.UNK
        for caption in captions:
            words = _tokens(caption)
            if len(words) > max_length:
                cut.append(len(offsets) - 1)
            ids.append(self.START)
            ids.extend(get(word, unknown) for word in words[:max_length])
            ids.append(self.END)
            offsets.append(len(ids))
        if cut:
            log.warning("%d captions were cut to %d words, the first is number %d", len(cut), max_length, cut[0])
        return PackedTokens(np.array(ids, dtype=np.int32), np.array(offsets, dtype=np.int64))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Vocabulary":
        """Read the field's JSON: {"word2idx": {word: id}, "idx2word": {"id": word}, "idx": size}.

        Raises:
            InputError: not such a file, ids not 0..n-1, the two tables disagree, or special words missing.
        """
        value = read_json(path)
        try:
            return cls(_ordered_words(value))
        except InputError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the field's JSON (see `load`), <mask> included."""
        by_number = {str(number): word for number, word in enumerate(self.words)}
        write_json(path, {"word2idx": self._ids, "idx2word": by_number, "idx": len(self.words)})


def _tokens(caption: str | Sequence[str]) -> Sequence[str]:
    return tokenize(caption) if isinstance(caption, str) else caption


def _ordered_words(value: Any) -> list[str]:
    if not isinstance(value, dict) or not isinstance(value.get("word2idx"), dict):
        expected = '{"word2idx": {word: id}, "idx2word": {"id": word}, "idx": size}'
        raise InputError(f'no "word2idx" table; expected {expected}')
    table: dict[str, Any] = value["word2idx"]
    by_number = {number: word for word, number in table.items() if type(number) is int}
    missing = next((number for number in range(len(table)) if number not in by_number), None)
    if missing is not None:
        last = len(table) - 1
        raise InputError(f"no word has id {missing}; expected {len(table)} words with ids 0..{last}, once each")
    words = [by_number[number] for number in range(len(table))]
    if value.get("idx", len(words)) != len(words):
        raise InputError(f'"idx" is {value["idx"]}, but "word2idx" has {len(words)} words')
    inverse = value.get("idx2word")
    if inverse is not None and inverse != {str(number): word for number, word in enumerate(words)}:
        raise InputError('"idx2word" is not the inverse of "word2idx"')
    return words
