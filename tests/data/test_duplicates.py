"""Items that no model can tell apart, found in the files."""

import numpy as np

from in2r.data.duplicates import find_copies
from in2r.data.features import Features


def features(array: np.ndarray, rows: list[int], lengths: list[int] | None = None) -> Features:
    return Features(array, np.array(rows), None if lengths is None else np.array(lengths))


def test_images_are_identical_if_all_their_real_regions_are() -> None:
    array = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)
    array[2] = array[0]
    array[3] = array[0][::-1]  # the same regions in another order
    texts = [""] * 4
    assert find_copies(features(array, [0, 1, 2, 3]), texts).images.tolist() == [0, 1, 0, 2]
    assert find_copies(features(array, [1, 0, 1]), texts).images.tolist() == [0, 1, 0]
    array[2, 1] = 7  # beyond the length of the third
    assert find_copies(features(array, [0, 1, 2, 3]), texts).images.tolist() == [0, 1, 2, 3]
    assert find_copies(features(array, [0, 1, 2, 3], [1, 2, 1, 1]), texts).images.tolist() == [0, 1, 0, 2]
    assert find_copies(features(array, [0, 2], [2, 1]), texts).images.tolist() == [0, 1]


def test_captions_are_identical_if_their_words_or_vectors_are() -> None:
    images = features(np.zeros((1, 1, 1), np.float32), [0])
    texts = ["A dog runs", "a dog  runs", "a dog runs.", "zxcv", "qqq", "A DOG RUNS "]
    assert find_copies(images, texts).captions.tolist() == [0, 0, 1, 2, 3, 0]
    vectors = np.array([[1, 2], [1, 3], [1, 2]], np.float16)[:, None]
    assert find_copies(images, features(vectors, [0, 1, 2, 0])).captions.tolist() == [0, 1, 0, 0]
