"""Captions to tokens, without data files: the Penn Treebank conventions as NLTK's tokeniser applies them.

What is decided here, because a vocabulary depends on it:

- Text is lower-cased (`str.lower`, the same in every locale) and then brought to Unicode form NFC.
- One Latin sentence gives the tokens of NLTK's `word_tokenize` (version 3.10). NLTK finds sentences with a
  trained model; here a period before a space ends a sentence unless it belongs to initials ("u.s.", "j.") or
  to one of a few titles ("mr.").
- Han, kana and Hangul are split into characters, Thai, Lao, Burmese and Khmer into characters with their
  marks: these scripts are written without spaces (Hangul: with suffixed words), and a whole phrase would be
  one unknown word.
- An emoji is a token, with its modifiers, or a family or a flag of several characters; NLTK keeps those that touch
  each other, or a word, together.
"""

import re
import unicodedata

# characters that stand alone wherever they occur
_ALONE = r"\[\](){}<>;@#$%&?!*«»“”‘’„\u2012-\u2015"
_OPENERS = "([{<«“‘„`"
_CLOSERS = r"\])}>\"'»”’"
_EAST_ASIAN = (
    "\u1100-\u11ff\u2e80-\u303f\u3041-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\ua4cf\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003fffd"
)
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
_MARKS = "".join(
    chr(code)
    for block in (range(0x0E00, 0x0F00), range(0x1000, 0x10A0), range(0x1780, 0x1800))
    for code in block
    if unicodedata.category(chr(code)).startswith("M")
)
_PICTURES = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f1e5\U0001f200-\U0001faff"
_LETTERS_OF_FLAGS = "\U0001f1e6-\U0001f1ff"
# skin tones, the choice between picture and text, and the tags that spell the flag of a region
_PICTURE = rf"[{_PICTURES}][\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
_EMOJI = rf"{_PICTURE}(?:\u200d(?:{_PICTURE}|[\u2190-\u21ff]\ufe0f?))* | [{_LETTERS_OF_FLAGS}]{{1,2}}"
_CLITIC_START = r"(?:re|ve|ll|m|t|s|d|n)\b"
_OPENING_APOSTROPHE = rf"(?<!\w)'(?!{_CLITIC_START})(?=\w)"

_PIECE = re.compile(
    rf"""
      [{_EAST_ASIAN}]
    | [{_UNSPACED}][{_MARKS}]*
    | [{_ALONE}]
    | {_EMOJI}
    | \.{{2,}} | -- | `+ | '' | "
    | {_OPENING_APOSTROPHE}
    | [:,](?!\d)
    | (?: [^{_EAST_ASIAN}{_UNSPACED}{_ALONE}{_PICTURES}{_LETTERS_OF_FLAGS}.\-`'":,\s]
        | \.(?!\.) | -(?!-) | [:,](?=\d)
        | (?!{_OPENING_APOSTROPHE})'(?!')
      )+
    """,
    re.VERBOSE,
)
_SENTENCE_END = re.compile(rf"(.*[^.])\.([{_CLOSERS}]*)")
_ABBREVIATION = re.compile(r"\W*(?:(?:\w\.)*\w|mr|mrs|ms|dr|st|jr|sr|prof|vs)")
_CLITICS = (re.compile(r"(.*[^'])('[smd]?)"), re.compile(r"(.*[^'])('ll|'re|'ve|n't)"))
_FUSED = re.compile(
    r"\b(?:can(?=not\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na$)"
    r"|d(?='ye\b)|more(?='n\b))"
)
_FUSED_WORDS = frozenset(["cannot", "gimme", "gonna", "gotta", "lemme", "wanna"])


def tokenize(caption: str) -> list[str]:
    """Return the tokens of one caption, lower-cased; an empty list for an empty or blank one.

    Double quotes become `` (opening) and '' (closing); clitics are split off: "dog's" → dog 's.
    """
    tokens: list[str] = []
    chunks = unicodedata.normalize("NFC", caption.lower()).split()
    last = len(chunks) - 1
    for position, chunk in enumerate(chunks):
        if chunk.isascii() and chunk.isalnum() and chunk not in _FUSED_WORDS:
            tokens.append(chunk)  # most words: nothing to split
            continue
        end = _SENTENCE_END.fullmatch(chunk)
        if end and (position == last or not _ABBREVIATION.fullmatch(end[1])):
            _scan(end[1], tokens)
            tokens.append(".")
            _scan(end[2], tokens, closing=True)
        else:
            _scan(chunk, tokens)
    return tokens


def _scan(chunk: str, tokens: list[str], closing: bool = False) -> None:
    """Append the pieces of a chunk without spaces; a double quote at its start opens, unless `closing`."""
    before = ""
    for piece in _PIECE.findall(chunk):
        if piece in ('"', "''"):
            # two apostrophes at the very start of a caption close, as they do in NLTK
            opens = before[-1] in _OPENERS if before else not closing and (piece == '"' or bool(tokens))
            tokens.append("``" if opens else "''")
        elif len(piece) > 1:
            _split_word(piece, tokens)
        else:
            tokens.append(piece)
        before = piece


def _split_word(word: str, tokens: list[str]) -> None:
    """Append a word with its clitics ('s, 'll, n't, ...) and fused words (cannot, gonna, ...) taken apart."""
    tail: list[str] = []
    for clitic in _CLITICS:
        if match := clitic.fullmatch(word):
            word = match[1]
            tail.insert(0, match[2])
    tokens.extend(_FUSED.sub(r"\g<0> ", word).split())
    tokens.extend(tail)
