"""What a report shows, as plain data: pairs, sections, key figures. Whoever judged the pairs fills it in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

VERDICTS = ("ok", "suspect", "mismatch", "duplicate", "empty", "unreadable", "vague")
FLAGGED = ("suspect", "mismatch")
"""the verdicts that say: this caption describes another image"""


@dataclass(frozen=True)
class Neighbor:
    """A trusted image near a pair's image, with its caption."""

    image: str
    caption: str
    file: Path | None = None


@dataclass(frozen=True)
class ReportPair:
    """One row of the user's table, and what was found about it.

    Attributes:
        row: the 0-based row of the user's table.
        image: the image's id; one id is one picture on the page.
        caption: the caption, as the user's table has it.
        verdict: one of `VERDICTS`.
        score: in [0, 1], low = bad; None where the pair could not be scored.
        percentile: the percentage of scored pairs whose score is no higher, 0 to 100.
        file: the user's image file, from which a thumbnail is made.
        components: name → value in [0, 1], low = bad, or None where it is not known.
        source: where the pair is from: the value of a column such as shop or domain.
        own: the user's other columns, name → value.
        neighbors: the nearest trusted images, the nearest first.
        suggestion: a caption of the data set that fits the image better.
        reason: why the pair could not be judged; such a pair cannot be decided on either.
    """

    row: int
    image: str
    caption: str
    verdict: str
    score: float | None = None
    percentile: float | None = None
    file: Path | None = None
    components: Mapping[str, float | None] = field(default_factory=dict)
    source: str | None = None
    own: Mapping[str, str] = field(default_factory=dict)
    neighbors: Sequence[Neighbor] = ()
    suggestion: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class DuplicateGroup:
    """Pairs that are copies of each other; `same` says in what, such as "same image, same caption"."""

    same: str
    pairs: Sequence[ReportPair]


@dataclass(frozen=True)
class SourceRow:
    """One source in figures; `suspects` counts its pairs with a verdict of `FLAGGED`."""

    name: str
    pairs: int
    suspects: int
    mean_score: float | None


@dataclass(frozen=True)
class NoiseRate:
    """The estimated share of wrong pairs, in [0, 1], and where it probably lies."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class ReportPage:
    """A whole report.

    Attributes:
        audit: the identity of the audit; decisions belong to it. Another table or other scores are another audit.
        title: the page's title, such as the name of the user's table.
        images: distinct images.
        verdicts: verdict → how many pairs of the whole table have it.
        cut: the suggested cut: pairs with a lower score are suspects or mismatches.
        histogram: how many of all scored pairs fall into each of equally wide bins from 0 to 1.
        method: how the scores were made, in a sentence or two.
        components: name → what it says, in one sentence.
        noise: the estimated noise rate; None where it is not known.
        noise_by_hand: the share of wrong pairs in a random sample that was decided before; None where none was.
        source_column: the name of the column that pairs' `source` is from.
        sources: figures of each source.
        worst: pairs, the lowest score first.
        borderline: pairs on both sides of the cut.
        sample: pairs drawn at random among the scored ones, in the order in which they were drawn.
        duplicates: groups of copies.
        unjudged: pairs that could not be judged, each with its `reason`.
        decided: row → what a person decided before; the page begins with it.
    """

    audit: str
    title: str
    images: int
    verdicts: Mapping[str, int]
    cut: float
    histogram: Sequence[int]
    method: str
    components: Mapping[str, str]
    noise: NoiseRate | None = None
    noise_by_hand: NoiseRate | None = None
    source_column: str = "source"
    sources: Sequence[SourceRow] = ()
    worst: Sequence[ReportPair] = ()
    borderline: Sequence[ReportPair] = ()
    sample: Sequence[ReportPair] = ()
    duplicates: Sequence[DuplicateGroup] = ()
    unjudged: Sequence[ReportPair] = ()
    decided: Mapping[int, str] = field(default_factory=dict)

    @property
    def pairs(self) -> int:
        """All pairs of the table."""
        return sum(self.verdicts.values())

    @property
    def suspects(self) -> int:
        """All pairs with a verdict of `FLAGGED`."""
        return sum(self.verdicts.get(verdict, 0) for verdict in FLAGGED)
