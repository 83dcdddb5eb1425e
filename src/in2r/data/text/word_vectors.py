"""Pretrained word vectors from a GloVe text file: one word and its numbers a line."""

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.data.text.vocabulary import MASK, SPECIALS, Vocabulary
from in2r.errors import InputError
from in2r.files import naming

_WITHOUT_MARKS = str.maketrans("", "", "-.'")


@dataclass(frozen=True)
class Coverage:
    """How much of a vocabulary a word-vector file knows.

    Attributes:
        total: words of the vocabulary, special ones not counted.
        found: of these, with a vector under their own spelling.
        retried: of the rest, with a vector under their spelling without hyphens, periods and apostrophes.
        source: name of the file.
        sha256: hash of the file.
    """

    total: int
    found: int
    retried: int
    source: str
    sha256: str

    def record(self) -> dict[str, Any]:
        """Return the fields and the covered share for a result file."""
        return {**asdict(self), "covered": (self.found + self.retried) / self.total}


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The vectors that a file has for a vocabulary.

    Attributes:
        words: size of the vocabulary.
        rows: (k,) int64, the words that have a vector.
        vectors: (k, dim) float32.
        coverage: how many they are, and where they come from.
    """

    words: int
    rows: Tensor
    vectors: Tensor
    coverage: Coverage

    def matrix(self, generator: torch.Generator) -> Tensor:
        """Return initial word embeddings (words, dim) float32; rows without a vector are uniform in ±0.1.

        Args:
            generator: a CPU generator for the rows without a vector.
        """
        matrix = torch.empty(self.words, self.vectors.shape[1]).uniform_(-0.1, 0.1, generator=generator)
        matrix[self.rows] = self.vectors
        return matrix


def load_word_vectors(path: str | os.PathLike[str], vocabulary: Vocabulary, dim: int) -> WordVectors:
    """Read the vectors of a vocabulary's words from a text file.

    A word that the file does not know is tried again without - . and '; special words have no vector. The file
    is streamed and only the vectors that are needed are kept.

    Args:
        path: text file; a line is a word (it may hold spaces) and `dim` numbers, separated by single spaces.
        vocabulary: the words to cover.
        dim: numbers per word.

    Raises:
        InputError: missing file, another number of columns, a value that is no number (with its
            line), or no word of the vocabulary in it.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such word-vector file")
    spellings = {
        number: (word.encode(), word.translate(_WITHOUT_MARKS).encode())
        for number, word in enumerate(vocabulary.words)
        if word not in (*SPECIALS, MASK)
    }
    digest = hashlib.sha256()
    vectors = _read(file, {spelling for both in spellings.values() for spelling in both}, dim, digest)
    known = {
        number: own if own in vectors else stripped
        for number, (own, stripped) in spellings.items()
        if own in vectors or stripped in vectors
    }
    if not known:
        raise InputError(f"{file}: none of the {len(spellings)} words of the vocabulary is in this file")
    found = sum(own in vectors for own, _ in spellings.values())
    coverage = Coverage(len(spellings), found, len(known) - found, file.name, digest.hexdigest())
    chosen = torch.from_numpy(np.stack([vectors[spelling] for spelling in known.values()]))
    return WordVectors(len(vocabulary), torch.tensor(list(known)), chosen, coverage)


def _read(file: Path, wanted: set[bytes], dim: int, digest: "hashlib._Hash") -> dict[bytes, NDArray[np.float32]]:
    """Return the vectors of the wanted words, the first where a word comes twice; hash the file as well."""
    vectors: dict[bytes, NDArray[np.float32]] = {}
    with naming(file), file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            digest.update(line)
            if number == 1:
                _check_columns(file, line, dim)
            word = line.split(b" ", 1)[0]
            if word in wanted and word not in vectors:
                parts = line.rstrip().rsplit(b" ", dim)
                if parts[0] == word:  # else the word of this line holds spaces and only begins like ours
                    vectors[word] = _numbers(f"{file}, line {number}", parts[1:], dim)
    return vectors


def _check_columns(file: Path, line: bytes, dim: int) -> None:
    """Count on the first line, where GloVe's word holds no space; a header "count dim" is accepted."""
    columns = len(line.split()) - 1
    header = columns == 1 and line.split()[1] == str(dim).encode()
    if columns != dim and not header:
        raise InputError(f"{file}, line 1: {columns} numbers after the word; expected {dim} (`model.word_dim`)")


def _numbers(place: str, values: list[bytes], dim: int) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused
            vector = np.array(values, dtype=np.float64).astype(np.float32)
    except ValueError:
        raise InputError(f"{place}: a value that is not a number; expected {dim} numbers") from None
    finite = int(np.isfinite(vector).sum())
    if finite != dim:
        raise InputError(f"{place}: {finite} finite numbers; expected {dim}")
    return vector
