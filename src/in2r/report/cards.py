"""A pair as a card, and cards as a section, in HTML. Every text of the user's goes through `text.escaped`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from in2r.report.page import FLAGGED, VERDICTS, DuplicateGroup, Neighbor, ReportPair
from in2r.report.text import escaped, isolated
from in2r.report.thumbnails import NEIGHBOR, PAIR, Pictures

CAPTION, SHORT, NAME = 600, 200, 80
"""characters shown of a pair's caption; of another caption or an id; of a column's name or value"""
OWN, NEIGHBORS, COPIES = 8, 4, 4
"""how many are shown of a pair's own columns; of its neighbours; of a group's pairs"""
WORDS = ("right", "wrong", "unsure")


@dataclass(frozen=True)
class Rendered:
    """HTML, and how many of the things that were given it shows."""

    html: str
    shown: int


class Cards:
    """Makes cards; keeps which pictures and which sources they refer to."""

    def __init__(self, source_column: str) -> None:
        self._source_column = source_column
        self.pictures = Pictures()
        self.sources: dict[str, int] = {}

    def pairs(self, pairs: Sequence[ReportPair], room: int) -> Rendered:
        """Make a card for each pair, as long as they take at most `room` bytes together."""
        return _within(room, (self._card(pair) for pair in pairs))

    def groups(self, groups: Sequence[DuplicateGroup], room: int) -> Rendered:
        """Make a heading and the cards of the first pairs for each group, within `room` bytes."""
        return _within(room, (self._group(group) for group in groups))

    def _group(self, group: DuplicateGroup) -> str:
        more = f", the first {COPIES} shown" if len(group.pairs) > COPIES else ""
        heading = f"{escaped(group.same, SHORT)} <small>{len(group.pairs):,} pairs{more}</small>"
        cards = "".join(self._card(pair) for pair in group.pairs[:COPIES])
        return f'<section class="group"><h3>{heading}</h3><div class="cards">{cards}</div></section>\n'

    def _card(self, pair: ReportPair) -> str:
        flagged = " data-flagged" if pair.verdict in FLAGGED else ""
        source = "" if pair.source is None else self.sources.setdefault(pair.source, len(self.sources))
        caption = isolated(pair.caption, CAPTION) if pair.caption.strip() else "<i>no caption</i>"
        return (
            f'<article class="card" tabindex="-1" aria-label="row {pair.row}" data-row="{pair.row}" '
            f'data-verdict="{escaped(pair.verdict, NAME)}" data-source="{source}"{flagged}>'
            f"{self._picture(pair.image, pair.file, PAIR)}"
            f'<div class="what"><p class="caption">{caption}</p>'
            f'<p class="place">row <b>{pair.row:,}</b> <span class="id">{isolated(pair.image, SHORT)}</span></p>'
            f"{self._own(pair)}{'' if pair.reason else _buttons()}</div>"
            f'<div class="judged">{_judgement(pair)}{_bars(pair.components)}{_suggestion(pair.suggestion)}'
            f"{self._neighbors(pair.neighbors)}</div></article>\n"
        )

    def _own(self, pair: ReportPair) -> str:
        source = {} if pair.source is None else {self._source_column: pair.source}
        entries = "".join(
            f"<div><dt>{isolated(name, NAME)}</dt><dd>{isolated(value, NAME)}</dd></div>"
            for name, value in [*source.items(), *list(pair.own.items())[:OWN]]
        )
        return f"<dl>{entries}</dl>" if entries else ""

    def _picture(self, image: str, file: Path | None, side: int) -> str:
        number, name = self.pictures.number(image, file, side), escaped(image, SHORT)
        return f'<div class="picture t{number}" role="img" aria-label="image {name}"><bdi>{name}</bdi></div>'

    def _neighbors(self, neighbors: Sequence[Neighbor]) -> str:
        if not neighbors:
            return ""
        items = "".join(
            f"<li>{self._picture(near.image, near.file, NEIGHBOR)}<p>{isolated(near.caption, SHORT)}</p></li>"
            for near in neighbors[:NEIGHBORS]
        )
        return f"<details><summary>Nearest trusted images</summary><ul>{items}</ul></details>"


def _within(room: int, parts: Iterable[str]) -> Rendered:
    taken: list[str] = []
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            break
        taken.append(part)
    return Rendered("".join(taken), len(taken))


def _judgement(pair: ReportPair) -> str:
    known = f" v-{pair.verdict}" if pair.verdict in VERDICTS else ""
    words = [f'<span class="chip{known}">{escaped(pair.verdict, NAME)}</span>']
    if pair.score is not None:
        words.append(f"<span>score <b>{pair.score:.3f}</b></span>")
    if pair.percentile is not None:
        words.append(f"<span>lowest {pair.percentile:.3g} %</span>")
    if pair.reason:
        words.append(f"<span>{isolated(pair.reason, SHORT)}</span>")
    return f'<p class="judgement">{"".join(words)}</p>'


def _bars(components: Mapping[str, float | None]) -> str:
    rows = "".join(
        f"<tr><th scope=row>{escaped(name, NAME)}</th><td>{_bar(value)}</td>"
        f"<td>{'–' if value is None else f'{value:.2f}'}</td></tr>"
        for name, value in components.items()
    )
    return f'<table class="bars">{rows}</table>' if rows else ""


def _bar(value: float | None) -> str:
    width = 0.0 if value is None else 100 * min(max(value, 0.0), 1.0)
    return (
        '<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" '
        f'height="6"/><rect class="value" width="{width:.1f}" height="6"/></svg>'
    )


def _suggestion(caption: str | None) -> str:
    return "" if caption is None else f'<p class="suggestion">Fits better: {isolated(caption, SHORT)}</p>'


def _buttons() -> str:
    buttons = "".join(
        f'<button type="button" class="{word}" data-word="{word}" aria-pressed="false">{word}</button>'
        for word in WORDS
    )
    return f'<div class="decide" role="group" aria-label="caption and image">{buttons}</div>'
