import argparse
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from in2r.cli import vocabulary as cli
from in2r.data.text.tokenizer import tokenize
from in2r.data.text.vocabulary import MAX_WORDS, SPECIALS, PackedTokens, Vocabulary
from in2r.errors import InputError

CAPTIONS = ["A dog runs.", "A dog, a cat.", "The cat sleeps", "", "…"]


def small() -> Vocabulary:
    return Vocabulary([*SPECIALS, "a", "dog", "."])


def test_words_are_counted_and_ordered_by_count_then_word():
    # a 3; . cat dog 2; the rest once
    vocabulary = Vocabulary.build(CAPTIONS, min_count=2)
    assert vocabulary.words == (*SPECIALS, "a", ".", "cat", "dog", "<mask>")
    assert (vocabulary.mask_id, len(vocabulary)) == (8, 9)
    assert Vocabulary.build(map(tokenize, CAPTIONS), min_count=2).hash == vocabulary.hash
    assert Vocabulary.build(reversed(CAPTIONS), min_count=2).hash == vocabulary.hash
    assert "dog" in vocabulary
    assert "runs" not in vocabulary


def test_default_keeps_words_that_occur_four_times():
    vocabulary = Vocabulary.build(["dog cat"] * 3 + ["dog"])
    assert vocabulary.words == (*SPECIALS, "dog", "<mask>")


def test_special_words_in_a_token_list_are_not_counted_twice():
    assert Vocabulary.build([["<unk>", "dog", "<mask>"]], 1).words == (*SPECIALS, "<mask>", "dog")


def test_order_does_not_depend_on_the_hash_seed():
    code = "from in2r.data.text.vocabulary import Vocabulary as V; print(V.build(['b a d c e f g'] * 2, 1).words)"
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": other}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    assert output.decode().strip() == str(Vocabulary.build(["b a d c e f g"] * 2, 1).words)


def test_encoding_by_hand():
    packed = small().encode(["A dog runs.", "", "dog"])
    assert packed.ids.tolist() == [1, 4, 5, 3, 6, 2, 1, 2, 1, 5, 2]
    assert packed.offsets.tolist() == [0, 6, 8, 11]
    assert (packed.ids.dtype, packed.offsets.dtype) == (np.int32, np.int64)
    assert packed.unknown_share == 1 / 5
    assert small().encode(["a a a a"], max_length=2).ids.tolist() == [1, 4, 4, 2]
    assert small().encode([""]).unknown_share == 0
    assert small().encode([""]).unknown_words("v.json") == small().encode([]).unknown_words("v.json") == ""


def test_a_caption_as_long_as_a_page_is_cut_and_said(caplog):
    packed = small().encode(["a", "dog " * 20_000, "a " * MAX_WORDS])
    assert np.diff(packed.offsets).tolist() == [3, MAX_WORDS + 2, MAX_WORDS + 2]
    assert f"1 captions were cut to {MAX_WORDS} words, the first is number 1" in caplog.text


def test_gathering_by_hand():
    packed = small().encode(["A dog runs.", "", "dog"])
    ids, mask = packed.gather(torch.tensor([2, 1, 2]))
    assert ids.tolist() == [[1, 5, 2], [1, 2, 0], [1, 5, 2]]
    assert mask.tolist() == [[True] * 3, [True, True, False], [True] * 3]
    assert (ids.dtype, mask.dtype) == (torch.int64, torch.bool)
    ids, mask = packed.gather(torch.tensor([], dtype=torch.int64))
    assert ids.shape == mask.shape == (0, 0)


@given(st.lists(st.lists(st.sampled_from(["a", "dog", "x"]), max_size=6), min_size=1, max_size=9), st.data())
@settings(max_examples=50, deadline=None)
def test_gathered_rows_are_the_captions(captions, data):
    packed = small().encode(captions)
    items = data.draw(st.lists(st.integers(0, len(captions) - 1), min_size=1, max_size=5))
    ids, mask = packed.gather(torch.tensor(items))
    assert ids.shape[1] == max(len(captions[item]) for item in items) + 2
    for row, item in enumerate(items):
        expected = packed.ids[packed.offsets[item] : packed.offsets[item + 1]].tolist()
        assert ids[row, mask[row]].tolist() == expected
        assert ids[row, ~mask[row]].eq(0).all()


def test_saved_file_is_the_fields_json_and_loads_again(tmp_path):
    vocabulary = Vocabulary.build(["Ünïcode 犬 dog's"], 1)
    vocabulary.save(tmp_path / "vocab.json")
    value = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert value["idx"] == len(value["word2idx"]) == len(value["idx2word"]) == len(vocabulary)
    assert value["idx2word"]["3"] == "<unk>"
    assert value["word2idx"]["犬"] == vocabulary.words.index("犬")
    loaded = Vocabulary.load(tmp_path / "vocab.json")
    assert (loaded.words, loaded.hash) == (vocabulary.words, vocabulary.hash)


def test_hash_depends_on_words_and_order():
    hashes = {Vocabulary([*SPECIALS, *words]).hash for words in (["a", "b"], ["b", "a"], ["a"], ["ab"])}
    assert len(hashes) == 4


def as_file(words: dict[str, int], **changes: object) -> dict[str, object]:
    inverse = {str(number): word for word, number in words.items()}
    return {"word2idx": words, "idx2word": inverse, "idx": len(words), **changes}


GOOD = {word: number for number, word in enumerate([*SPECIALS, "a", "dog"])}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], 'no "word2idx" table'),
        (as_file({**GOOD, "dog": 6}), r"no word has id 5; expected 6 words with ids 0\.\.5"),
        (as_file({**GOOD, "dog": 4}), "no word has id 5"),
        (as_file({**GOOD, "dog": "5"}), "no word has id 5"),
        (as_file({**GOOD, "<start>": 2, "<end>": 1}), "expected '<pad> <start> <end> <unk>'"),
        (as_file({"a": 0, "b": 1}), "starts with 'a b'"),
        (as_file(GOOD, idx=7), '"idx" is 7, but "word2idx" has 6 words'),
        (as_file(GOOD, idx2word={"0": "<pad>"}), '"idx2word" is not the inverse'),
        (as_file(dict(list(GOOD.items())[:4])), "only special words"),
    ],
)
def test_inconsistent_files_are_refused_with_their_name(tmp_path, value, message):
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=f"vocab.json: .*{message}"):
        Vocabulary.load(path)


def test_other_bad_input_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: no such file"):
        Vocabulary.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="'a' twice"):
        Vocabulary([*SPECIALS, "a", "b", "a"])
    with pytest.raises(InputError, match="only special words; use more captions or a lower `min_count`"):
        Vocabulary.build(["a dog"])
    with pytest.raises(InputError, match="`min_count` must be at least 1, got 0"):
        Vocabulary.build(["a dog"], 0)


def test_packed_tokens_count_captions():
    assert len(PackedTokens(np.array([1, 2], np.int32), np.array([0, 2], np.int64))) == 1


def test_command_builds_from_the_splits_asked_for_and_never_overwrites(tmp_path, capsys):
    for split, word in (("train", "dog"), ("dev", "cat")):
        np.save(tmp_path / f"{split}_ims.npy", np.ones((2, 1, 4), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text(f"a {word}\n" * 9 + "rare\n")

    def run(*arguments: str) -> None:
        parser = argparse.ArgumentParser()
        cli.register(parser.add_subparsers())
        args = parser.parse_args(["vocab", "build", str(tmp_path), "--out", str(tmp_path / "v.json"), *arguments])
        assert args.run(args) == 0

    run()
    assert Vocabulary.load(tmp_path / "v.json").words == (*SPECIALS, "a", "dog", "<mask>")
    assert "5.26%" in capsys.readouterr().out  # 1 of 19 words
    with pytest.raises(InputError, match=r"v\.json: exists; .* --force"):
        run()
    run("--force", "--splits", "train,dev", "--min-count", "2")
    assert Vocabulary.load(tmp_path / "v.json").words == (*SPECIALS, "a", "cat", "dog", "rare", "<mask>")
    (tmp_path / "pairs.tsv").write_text("image\tcaption\n")
    run("--force", "--layout", "precomp")


def test_public_flickr30k_vocabulary_is_read_and_written(shared, tmp_path):
    vocabulary = Vocabulary.load(shared / "data" / "vocabulary" / "flickr30k_vocab.json")
    assert (len(vocabulary), vocabulary.mask_id, vocabulary.words[4]) == (8482, 8481, "raining")
    vocabulary.save(tmp_path / "again.json")
    assert Vocabulary.load(tmp_path / "again.json").hash == vocabulary.hash


def test_captions_of_the_same_words_have_the_same_number():
    words = Vocabulary.build(["a dog", "a dog runs", "a"], 1)
    packed = words.encode(["a dog", "A dog", "a", "a dog runs", "a dog"])
    assert packed.distinct().tolist() == [0, 0, 1, 2, 0]
