"""Text that is not ours, made safe for HTML: escaped, cut to a length, with nothing in it that hides."""

import html
import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"  # control characters; white space stays
    "\u202a-\u202e\u2066-\u2069"  # they turn the direction of what follows
    "\ud800-\udfff\ufdd0-\ufdef\ufff9-\uffff]"  # halves of a pair, no characters, marks of annotations
)


def escaped(text: str, most: int) -> str:
    """Return text for HTML, between tags or in a quoted attribute, of at most `most` characters of the original.

    Characters that cannot be seen but change how a text looks are shown by their number, such as ‹U+202E›: a caption
    that has one is worth a look. White space becomes single spaces.
    """
    cut = " ".join(text[:most].split())
    if len(text) > most:
        cut += f"… ({len(text):,} characters)"
    return html.escape(_HIDDEN.sub(lambda found: f"‹U+{ord(found[0]):04X}›", cut))


def isolated(text: str, most: int) -> str:
    """Return text as an element of its own, whose direction of writing is its own and ends with it."""
    return f"<bdi>{escaped(text, most)}</bdi>"
