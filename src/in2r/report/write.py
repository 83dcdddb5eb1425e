"""The page as one file: template, style, script, cards and pictures, within a size, under a content policy."""

import base64
import hashlib
import html
import json
import os
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from in2r.errors import InputError
from in2r.files import write_text
from in2r.report.cards import NAME, WORDS, Cards, Rendered
from in2r.report.head import head
from in2r.report.page import ReportPage
from in2r.report.text import escaped
from in2r.report.thumbnails import embed

MAX_BYTES, LEAST_BYTES = 10_000_000, 500_000
HEAD_BYTES = 200_000
"""more than template, style, script and head take"""
NOTE_BYTES = 500
"""more than the note on pictures takes"""
TITLE = 120


@dataclass(frozen=True)
class Section:
    """One tab: `share` is its part of the room for cards."""

    key: str
    title: str
    most: int
    share: float
    text: str


SECTIONS = (
    Section("worst", "Worst first", 200, 0.5,
            "The lowest scores, the worst first. What you decide here says how often a suspect is truly wrong, not how "
            "many of all pairs are."),
    Section("borderline", "Borderline", 60, 0.15,
            "The pairs next to the suggested cut, on both sides of it. What you decide here says where the cut should "
            "lie."),
    Section("sample", "Random sample", 100, 0.2,
            "Drawn at random from all scored pairs: the one section that says without bias how many pairs are wrong. "
            "Decide them in order: the estimate counts up to the first undecided pair, so say unsure rather than skip "
            "one. Score and evidence appear once a pair is decided, so that they do not lead the eye."),
    Section("duplicates", "Duplicates", 50, 0.1, "Pairs that are stored more than once."),
    Section("unjudged", "Not judged", 100, 0.05,
            "Rows whose image could not be read or whose caption has no words, in the order of your table."),
)  # fmt: skip


def write_report(path: str | os.PathLike[str], page: ReportPage, *, max_bytes: int = MAX_BYTES) -> None:
    """Write a report as one HTML file that loads nothing from elsewhere.

    A section shows its first pairs (`SECTIONS`), fewer where their texts are very long.
    Pictures take the bytes that are left, those of pairs first. What is left out is counted on the page.

    Args:
        path: the file, such as report.html; replaced if it is there.
        page: what to show. All its texts may hold anything.
        max_bytes: the file's largest size.

    Raises:
        InputError: `max_bytes` is under 500,000.
    """
    if max_bytes < LEAST_BYTES:
        raise InputError(f"max_bytes must be at least {LEAST_BYTES:,}, got {max_bytes:,}")
    cards, top = Cards(page.source_column), head(page)
    room = (max_bytes - HEAD_BYTES) // 2  # for cards: what they name again elsewhere, such as sources, takes no more
    sections = [_render(section, page, cards, int(section.share * room)) for section in SECTIONS]
    bare = len(_filled(page, top, cards, sections, "", "").encode())
    pictures = embed(cards.pictures.wanted(), max_bytes - bare - NOTE_BYTES)
    write_text(path, _filled(page, top, cards, sections, pictures.css, pictures.note()))


def _render(section: Section, page: ReportPage, cards: Cards, room: int) -> Rendered:
    things = getattr(page, section.key)[: section.most]
    return cards.groups(things, room) if section.key == "duplicates" else cards.pairs(things, room)


def _filled(page: ReportPage, top: str, cards: Cards, sections: list[Rendered], css: str, note: str) -> str:
    style, script = _asset("report.css") + css, _asset("report.js")
    return Template(_asset("report.html")).substitute(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        title=escaped(page.title, TITLE),
        audit=escaped(page.audit, NAME),
        decided=html.escape(json.dumps({row: word for row, word in page.decided.items() if word in WORDS})),
        head=top,
        pictures=f'<p class="note">{note}</p>' if note else "",
        tabs="".join(_tab(section, rendered) for section, rendered in zip(SECTIONS, sections, strict=True)),
        panels="".join(_panel(section, rendered, page) for section, rendered in zip(SECTIONS, sections, strict=True)),
        verdicts="".join(_option(escaped(name, NAME), escaped(name, NAME)) for name in page.verdicts),
        sources="".join(_option(str(number), escaped(name, NAME)) for name, number in sorted(cards.sources.items())),
    )


def _tab(section: Section, rendered: Rendered) -> str:
    return (
        f'<button type="button" role="tab" id="tab-{section.key}" aria-controls="{section.key}" aria-selected="false" '
        f'tabindex="-1">{section.title} <small>{rendered.shown}</small></button>'
    )


def _panel(section: Section, rendered: Rendered, page: ReportPage) -> str:
    given = len(getattr(page, section.key))
    things = "groups" if section.key == "duplicates" else "pairs"
    cut = f" Shown: the first {rendered.shown} of {given:,} {things}." if rendered.shown < given else ""
    body = rendered.html or '<p class="note">None.</p>'
    grid = "" if section.key == "duplicates" else "cards"
    return (
        f'<section class="panel" id="{section.key}" role="tabpanel" aria-labelledby="tab-{section.key}">'
        f'<h2>{section.title}</h2><p class="note">{section.text}{cut}</p><div class="{grid}">{body}</div>'
        '<p class="note nothing" hidden>No pair here passes the filters.</p></section>\n'
    )


def _option(value: str, name: str) -> str:
    return f'<option value="{value}">{name}</option>'


def _asset(name: str) -> str:
    return files("in2r.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash by which a content policy allows an element with this text, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
