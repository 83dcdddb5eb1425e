"""The report's page, filled from an audit."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from in2r.audit.result import Audit
from in2r.audit.verdicts import copy_groups, counts
from in2r.audit.witnesses import Witnesses
from in2r.report import (
    ChosenRows,
    DuplicateGroup,
    Neighbor,
    NoiseRate,
    ReportPage,
    ReportPair,
    SourceRow,
    choose_rows,
    score_histogram,
    write_report,
)
from in2r.report.page import FLAGGED
from in2r.seeds import numpy_generator

MOST_GROUPS = 50
"""groups of duplicates on the page"""
MOST_COPIES = 10
"""pairs of a group on the page"""
MOST_UNJUDGED = 100
"""rows without a judgement on the page"""
MOST_OWN = 8
"""of the user's columns on a card"""
HOW = (
    "No label was used. {rows:,} pairs were compared with pairs mismatched on purpose. Kinds of evidence, none of "
    "which needs training: {kinds}. A score is the probability that the pair matches."
)
HOW_AGAINST = (
    "No label was used. {rows:,} pairs were judged by the audit of {table}: its pairs alone were asked. Kinds of "
    "evidence: {kinds}. A score is the probability that the pair matches."
)


def write_page(path: Path, audit: Audit, source_column: str | None = None) -> None:
    """Write report.html.

    Args:
        path: the file.
        audit: what was found.
        source_column: a column of the user's table by which suspects are counted, such as shop or domain.
    """
    write_report(path, make_page(audit, source_column))


def shown_rows(audit: Audit) -> ChosenRows:
    """Return the rows that the page shows; the sample is the same whatever the cut."""
    cut = audit.config.cut if audit.verdicts.told else 0.0
    return choose_rows(audit.verdicts.score, cut, numpy_generator(audit.config.seed, "sample"))


def make_page(audit: Audit, source_column: str | None = None) -> ReportPage:
    """Fill the page: the worst pairs, those near the cut, a random sample, duplicates."""
    pairs, found, chosen = audit.pairs, audit.verdicts, shown_rows(audit)
    copies = _copies(audit)
    unjudged = sorted(pairs.unjudged)[:MOST_UNJUDGED]
    shown = dict.fromkeys(chain(chosen.worst, chosen.borderline, chosen.sample, *copies, unjudged))
    cards = _Cards(audit, source_column, list(shown))
    low, high = audit.judgement.interval
    share = audit.judgement.share
    return ReportPage(
        audit=audit.identity,
        title=pairs.name,
        images=len(pairs.vectors.images),
        verdicts=counts(found),
        cut=audit.config.cut if found.told else 0.0,
        histogram=score_histogram(found.score),
        method=_method(audit),
        components=audit.components(),
        noise=NoiseRate(1 - share, 1 - high, 1 - low) if found.told else None,
        noise_by_hand=_by_hand(audit),
        source_column=source_column or "source",
        sources=sources(audit, source_column),
        worst=[cards.of(row) for row in chosen.worst],
        borderline=[cards.of(row) for row in chosen.borderline],
        sample=[cards.of(row) for row in chosen.sample],
        duplicates=[DuplicateGroup("same image, same caption", [cards.of(row) for row in rows]) for rows in copies],
        unjudged=[cards.of(row) for row in unjudged],
        decided=audit.decided,
    )


def _by_hand(audit: Audit) -> NoiseRate | None:
    if audit.sampled is None or audit.sampled.share is None:
        return None
    return NoiseRate(audit.sampled.share, *audit.sampled.interval)


def _method(audit: Audit) -> str:
    figures = {"rows": len(audit.pairs.judged), "kinds": len(audit.base.names)}
    how = HOW if audit.against is None else HOW_AGAINST
    said = [*audit.doubts(), how.format(table="" if audit.against is None else audit.against.table, **figures)]
    if audit.by_hand is not None:
        said.append(
            f"By {audit.by_hand['decisions']:,} decisions by hand, a pair of score {audit.config.cut:.2f} is as likely "
            "wrong as right: the cut was fitted to them."
        )
    return " ".join(said)


class _Cards:
    """Makes the card of each of some rows."""

    def __init__(self, audit: Audit, source_column: str | None, rows: Sequence[int]) -> None:
        self._audit, self._source = audit, source_column
        witnesses = Witnesses(audit)
        self._shown = witnesses.shown
        self._witnesses = dict(zip(rows, witnesses.of(rows), strict=True))
        table = audit.pairs.table
        taken = {source_column, *((table.image, table.caption) if table is not None else ("image", "caption"))}
        self._own = [name for name in audit.pairs.columns if name not in taken][:MOST_OWN]

    def of(self, row: int) -> ReportPair:
        pairs, found, witness = self._audit.pairs, self._audit.verdicts, self._witnesses[row]
        verdict = str(found.names[row])
        return ReportPair(
            row=row,
            image=pairs.images[row],
            caption=pairs.captions[row],
            verdict=verdict,
            score=_known(found.score[row]),
            percentile=_known(found.percentile[row]),
            file=pairs.files.get(pairs.images[row]),
            components={name: _known(values[row]) for name, values in found.components.items()},
            source=pairs.columns[self._source][row] if self._source is not None else None,
            own={name: pairs.columns[name][row] for name in self._own if pairs.columns[name][row]},
            neighbors=[
                Neighbor(image, caption, self._shown.files.get(image)) for _, image, caption in witness.neighbors
            ],
            suggestion=witness.suggestion if verdict in FLAGGED else None,
            reason=pairs.unjudged.get(row, ""),
        )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def sources(audit: Audit, column: str | None) -> list[SourceRow]:
    """Count pairs and suspects of each source, the one with the most suspects first."""
    if column is None:
        return []
    values = np.array(audit.pairs.columns[column])
    flagged, found = np.isin(audit.verdicts.names, FLAGGED), []
    for name in np.unique(values).tolist():
        own = values == name
        scores = audit.verdicts.score[own]
        known = scores[~np.isnan(scores)]
        mean = float(known.mean()) if len(known) else None
        found.append(SourceRow(str(name), int(own.sum()), int((own & flagged).sum()), mean))
    return sorted(found, key=lambda row: -row.suspects)


def _copies(audit: Audit) -> list[list[int]]:
    """Return groups of rows with copies of one image and the same words, the largest first, some rows of each."""
    groups: dict[int, list[int]] = {}
    for row, group in zip(audit.pairs.judged.tolist(), copy_groups(audit.pairs).tolist(), strict=True):
        groups.setdefault(group, []).append(row)
    copies = sorted((rows for rows in groups.values() if len(rows) > 1), key=len, reverse=True)[:MOST_GROUPS]
    return [rows[:MOST_COPIES] for rows in copies]
