"""TF-IDF vectors of captions: what is alike, and captions without a known word."""

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from in2r.data.text.tfidf import Tfidf, tfidf_vectors
from in2r.data.text.vocabulary import PackedTokens, Vocabulary

CAPTIONS = [[4, 5, 6], [4, 5, 7], [8, 9], [8, 9, 9], [], [5, 6, 4]]
"""word numbers; 4 is the first after the special ones"""


def packed(captions: list[list[int]]) -> PackedTokens:
    whole = [[Vocabulary.START, *words, Vocabulary.END] for words in captions]
    offsets = np.cumsum([0, *map(len, whole)])
    return PackedTokens(np.array([token for words in whole for token in words], dtype=np.int32), offsets)


def test_inner_products_are_those_of_scikit_learns_tfidf() -> None:
    vectors = tfidf_vectors(packed(CAPTIONS), 5)
    assert vectors.dtype == torch.float32
    texts = [" ".join(f"w{word}" for word in words) for words in CAPTIONS]
    theirs = TfidfVectorizer().fit_transform(texts).toarray()
    torch.testing.assert_close(vectors @ vectors.T, torch.from_numpy(theirs @ theirs.T).float(), rtol=0, atol=1e-5)


def test_captions_of_the_same_words_are_equal_and_an_empty_one_is_zero() -> None:
    vectors = tfidf_vectors(packed(CAPTIONS), 2)
    assert vectors.shape == (6, 2)
    torch.testing.assert_close(vectors[0], vectors[5])
    assert vectors[4].abs().max() < 1e-6
    cosines = torch.nn.functional.cosine_similarity(vectors[:1], vectors[1:4])
    assert cosines[0] > 0.8
    assert cosines[1:].max() < 0.2


def test_unknown_words_count_for_nothing() -> None:
    unknown = [[*words, Vocabulary.UNK] for words in CAPTIONS]
    torch.testing.assert_close(tfidf_vectors(packed(unknown), 3), tfidf_vectors(packed(CAPTIONS), 3))


def test_few_words_and_one_caption() -> None:
    assert tfidf_vectors(packed([[4], [4]]), 8).shape == (2, 1)
    assert len(tfidf_vectors(packed([[4, 5]]), 8)) == 1
    assert torch.equal(tfidf_vectors(packed([[], []]), 8), torch.zeros(2, 1))


TEXTS = ["a red dog", "a red cat", "two birds", "two birds birds", "", "red dog a"]


def fitted(dim: int) -> Tfidf:
    return Tfidf.fit(TEXTS, Vocabulary.build(TEXTS, min_count=1), dim)


def test_further_captions_get_the_vectors_of_those_that_were_fitted() -> None:
    found = fitted(5).vectors(TEXTS)
    texts = [text or "!" for text in TEXTS]
    theirs = TfidfVectorizer(token_pattern=r"\w+").fit_transform(texts).toarray()
    torch.testing.assert_close(found @ found.T, torch.from_numpy(theirs @ theirs.T).float(), rtol=0, atol=1e-5)
    for number, text in enumerate(TEXTS):
        torch.testing.assert_close(fitted(5).vectors([text])[0], found[number])
    assert torch.equal(fitted(2).vectors(["Red a DOG"]), fitted(2).vectors(["a red dog"]))


def test_a_caption_without_a_known_word_is_zero() -> None:
    found = fitted(2)
    assert torch.equal(found.vectors(["green frogs", ""]), torch.zeros(2, 2))
    assert found.weights.shape == (len(found.vocabulary),)
    assert found.directions.shape == (len(found.vocabulary), 2)
