import hashlib

import pytest
import torch

from in2r.data.text.vocabulary import SPECIALS, Vocabulary
from in2r.data.text.word_vectors import load_word_vectors
from in2r.errors import InputError

LINES = [
    "the 9 9 9",
    "dog 1 2 3",
    ". . 7 7 7",
    "tshirt 4 5 6",
    "dog 8 8 8",
    "at name@x.org 1 1 1",
    "<unk> 5 5 5",
    "é -1 0.5 1e-1",
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vocabulary() -> Vocabulary:
    return Vocabulary([*SPECIALS, "dog", "t-shirt", "zebra", "é", ".", "at"])


def write(folder, lines=LINES):
    path = folder / "glove.txt"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_known_words_get_their_vector_and_the_rest_is_uniform(tmp_path):
    path = write(tmp_path)
    found = load_word_vectors(path, vocabulary(), 3)
    matrix, coverage = found.matrix(generator()), found.coverage
    assert matrix.shape == (11, 3)
    assert matrix.dtype == torch.float32
    expected = {4: [1, 2, 3], 5: [4, 5, 6], 7: [-1, 0.5, 0.1]}  # the first "dog" counts
    for row in range(11):
        if row in expected:
            torch.testing.assert_close(matrix[row], torch.tensor(expected[row], dtype=torch.float32))
        else:  # also <unk>, and "." and "at", with which only longer entries begin
            assert matrix[row].abs().max() <= 0.1
    assert (coverage.total, coverage.found, coverage.retried) == (6, 2, 1)
    assert coverage.source == "glove.txt"
    assert coverage.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert coverage.record()["covered"] == 0.5


def test_rows_without_a_vector_depend_on_the_generator_only(tmp_path):
    found = load_word_vectors(write(tmp_path), vocabulary(), 3)
    first, again, other = (found.matrix(generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    differs = (first != other).any(1)
    assert differs.tolist() == [row not in (4, 5, 7) for row in range(11)]


def test_a_count_and_dim_header_is_skipped(tmp_path):
    assert load_word_vectors(write(tmp_path, ["2 3", *LINES]), vocabulary(), 3).coverage.found == 2


@pytest.mark.parametrize(
    ("lines", "dim", "message"),
    [
        (LINES, 4, r"glove\.txt, line 1: 3 numbers after the word; expected 4"),
        (LINES, 2, r"glove\.txt, line 1: 3 numbers after the word; expected 2"),
        (["the 1 2 3", "dog 1 2"], 3, r"glove\.txt, line 2: 2 finite numbers; expected 3"),
        (["the 1 2 3", "dog 1 nan 2"], 3, r"glove\.txt, line 2: 2 finite numbers; expected 3"),
        (["the 1 2 3", "dog 1 1e39 2"], 3, r"glove\.txt, line 2: 2 finite numbers; expected 3"),
        (["the 1 2 3", "dog 1 x 2"], 3, r"glove\.txt, line 2: a value that is not a number"),
        (["the 1 2 3"], 3, r"none of the 6 words of the vocabulary is in this file"),
        ([], 3, "none of the 6 words"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path, lines, dim, message):
    with pytest.raises(InputError, match=message):
        load_word_vectors(write(tmp_path, lines), vocabulary(), dim)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt: no such word-vector file"):
        load_word_vectors(tmp_path / "none.txt", vocabulary(), 3)
