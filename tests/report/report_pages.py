"""Pages with few pairs, made by hand."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from in2r.report import DuplicateGroup, Neighbor, NoiseRate, ReportPage, ReportPair, SourceRow, write_report

ATTACK = '</script></style><img src=x onerror="hacked=1"><script>hacked=1</script>'


def pair(row: int, **changes: Any) -> ReportPair:
    """A pair whose verdict follows its row: 0 and 1 are mismatches, 2 a suspect, the others ok."""
    verdict = "mismatch" if row < 2 else "suspect" if row == 2 else "ok"
    plain = {
        "image": f"{row}.jpg",
        "caption": f"caption {row}",
        "verdict": verdict,
        "score": row / 10,
        "percentile": 10.0 * (row + 1),
        "components": {"own similarity": 0.25, "neighbours": None},
        "source": "shop A" if row % 2 else "shop B",
    }
    return ReportPair(row, **{**plain, **changes})


def page(**changes: Any) -> ReportPage:
    """A page with rows 0 to 4 as the worst, 2 and 3 at the cut, and 4, 0, 3 as the sample."""
    plain: dict[str, Any] = {
        "audit": "abc123",
        "title": "shop.csv",
        "images": 9,
        "verdicts": {"ok": 7, "suspect": 1, "mismatch": 2},
        "cut": 0.3,
        "histogram": (2, 1, 3, 4),
        "method": "By hand.",
        "components": {"own similarity": "How alike both are."},
        "noise": NoiseRate(0.3, 0.11, 0.6),
        "source_column": "shop",
        "sources": (SourceRow("shop A", 5, 1, 0.5), SourceRow("shop B", 5, 2, 0.25)),
        "worst": [pair(row) for row in range(5)],
        "borderline": [pair(2), pair(3)],
        "sample": [pair(4), pair(0), pair(3)],
    }
    return ReportPage(**{**plain, **changes})


def hostile(text: str) -> ReportPage:
    """A page on which every text of the user's is the given one."""
    attacked = pair(
        0, image=text, caption=text, source=text, own={text: text}, components={text: 0.5}, suggestion=text,
        neighbors=[Neighbor(text, text)], file=Path("no-such-file.jpg"),
    )  # fmt: skip
    return page(
        title=text, method=text, components={text: text}, source_column=text, sources=[SourceRow(text, 1, 1, 0.5)],
        worst=[attacked, pair(1)], duplicates=[DuplicateGroup(text, [attacked])],
        unjudged=[pair(5, score=None, verdict="unreadable", reason=text)], decided={1: text},
    )  # fmt: skip


class Read(HTMLParser):
    """A page as a parser reads it: elements with attributes, and all text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[tuple[str, str]] = []
        self._inside = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self._texts.append((self._inside, data))

    def texts(self, tag: str) -> list[str]:
        """The texts that stand directly in elements of a kind."""
        return [text for inside, text in self._texts if inside == tag]

    @property
    def text(self) -> str:
        """All text but style and script, with single spaces."""
        return " ".join("".join(text for tag, text in self._texts if tag not in ("style", "script")).split())

    def cards(self, panel: str) -> list[int]:
        """The rows of a section's cards, from top to bottom."""
        rows, inside = [], ""
        for tag, attributes in self.elements:
            if tag == "section" and attributes.get("class") == "panel":
                inside = str(attributes["id"])
            if tag == "article" and inside == panel:
                rows.append(int(str(attributes["data-row"])))
        return rows

    @property
    def pictures(self) -> list[str]:
        """The embedded pictures, as base64."""
        return re.findall(r"url\(data:image/jpeg;base64,([^)]+)\)", "".join(self.texts("style")))


def written(path: Path, report: ReportPage, **options: Any) -> Read:
    write_report(path, report, **options)
    return Read(path)
