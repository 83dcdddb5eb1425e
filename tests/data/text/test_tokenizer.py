import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in2r.data.text.tokenizer import tokenize


def nltk_tokens(text: str) -> list[str]:
    destructive = pytest.importorskip("nltk.tokenize.destructive")
    tokens: list[str] = destructive.NLTKWordTokenizer().tokenize(text.lower())
    return tokens


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A Dog runs .", "a dog runs ."),
        ("A dog runs.", "a dog runs ."),
        ("A dog's ball isn't red", "a dog 's ball is n't red"),
        ("the dogs' t-shirt, 2,000 balls: 3:30", "the dogs ' t-shirt , 2,000 balls : 3:30"),
        ('He said "go!"', "he said `` go ! ''"),
        ('a sign ("stop.")', "a sign ( `` stop . '' )"),
        ("cannot gonna wanna d'ye", "can not gon na wan na d 'ye"),
        ("she'd've couldn't've", "she'd 've couldn't 've"),
        ("wait... a man -- running–fast", "wait ... a man -- running – fast"),
        ("50% of $5 & #1 @ home", "50 % of $ 5 & # 1 @ home"),
        ("the u.s. flag in the u.s.", "the u.s. flag in the u.s ."),
        ("rock 'n' roll 'hello'", "rock 'n ' roll ' hello '"),
        ("naïve café “x” «y»", "naïve café “ x ” « y »"),
    ],
)
def test_treebank_conventions_by_hand(caption, expected):
    assert tokenize(caption) == expected.split()
    assert nltk_tokens(caption) == expected.split()


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A man sits. A dog runs.", "a man sits . a dog runs ."),
        ('They cheer." A dog (brown.) runs', "they cheer . '' a dog ( brown . ) runs"),
        ("a st. bernard with mr. j. smith", "a st. bernard with mr. j. smith"),
    ],
)
def test_periods_between_sentences_are_split_off_but_not_abbreviations(caption, expected):
    assert tokenize(caption) == expected.split()


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("一只狗在跑。", "一 只 狗 在 跑 。"),
        ("犬がボールで、遊ぶ", "犬 が ボ ー ル で 、 遊 ぶ"),
        ("개가 달린다.", "개 가 달 린 다 ."),
        ("a 狗dog runs", "a 狗 dog runs"),
        ("หมาวิ่ง", "ห ม า วิ่ ง"),
        ("собака бежит.", "собака бежит ."),
    ],
)
def test_other_scripts(caption, expected):
    assert tokenize(caption) == expected.split()


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("👗🔥", "👗 🔥"),
        ("🙂 dog👍.", "🙂 dog 👍 ."),
        ("it's👍🏽👍🏿!", "it 's 👍🏽 👍🏿 !"),
        ("❤️❤️‍🔥☀️✂", "❤️ ❤️‍🔥 ☀️ ✂"),
        ("👨‍👩‍👧👩🏿‍⚕️🙂‍↔️", "👨‍👩‍👧 👩🏿‍⚕️ 🙂‍↔️"),
        ("🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿🏳️‍🌈", "🇩🇪 🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🏳️‍🌈"),
        ('犬🐕 "🐕"', "犬 🐕 `` 🐕 ''"),
    ],
)
def test_an_emoji_is_a_token(caption, expected):
    assert tokenize(caption) == expected.split()


@pytest.mark.parametrize("caption", ["", " ", "\t\n", "\u3000"])
def test_blank_captions_have_no_tokens(caption):
    assert tokenize(caption) == []


def test_unicode_forms_and_case_do_not_matter():
    for text in ("Café", "Ünïcode", "개"):
        assert tokenize(unicodedata.normalize("NFD", text)) == tokenize(text)
    assert tokenize("TITLE I") == ["title", "i"]


def test_result_is_the_same_in_another_locale():
    code = r"from in2r.data.text.tokenizer import tokenize; print(ascii(tokenize('ISTANBUL \xdcber 犬')))"
    environment = {**os.environ, "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "3"}
    command = [sys.executable, "-X", "utf8=1", "-c", code]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert output.decode().strip() == ascii(tokenize("ISTANBUL Über 犬"))


# no doubled marks ('""', '::a'): there NLTK's substitutions get into each other's way
WORDS = [
    "dog",
    "dogs'",
    "dog's",
    "isn't",
    "we'll",
    "they've",
    "i'm",
    "o'clock",
    "t-shirt",
    "a",
    "2.5",
    "1,000",
]
WORDS += ["cannot", "gonna", "'hello", "'tis", "more'n", "x.y", "café", "3rd", "--", "...", "u.s", "d'ye"]
MARKS = list(",:;!?)([]%$#@&*–”“’")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "", '"', "(", "[", "“", "$"]),
            st.sampled_from(WORDS),
            st.sampled_from(["", "", *MARKS, '"']),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(["", ".", " .", '."', ".)", ".'", "!", "?"]),
)
@settings(max_examples=150, deadline=None)
def test_same_as_nltk_on_made_up_sentences(parts, end):
    text = " ".join("".join(part) for part in parts) + end
    assert tokenize(text) == nltk_tokens(text)


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_no_character_is_lost_and_no_token_is_empty(text):
    tokens = tokenize(text)
    assert all(tokens)
    quotes = str.maketrans("", "", "\"'`")
    plain = "".join(unicodedata.normalize("NFC", text.lower()).split())
    assert "".join(tokens).translate(quotes) == plain.translate(quotes)


def test_same_as_nltk_on_real_captions(shared):
    files = (shared / "data" / "flickr8k_precomp").glob("*_caps.txt")
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    differing = [line for line in lines[::5] if tokenize(line) != nltk_tokens(line)]
    assert len(lines) == 40_000
    assert differing == []
