"""What a person decided on a report's page: the file, and which share of the pairs is wrong by it."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from in2r.errors import InputError
from in2r.files import read_json, write_json
from in2r.form import read
from in2r.report.page import FLAGGED

FORMAT = 1
Z = 1.959964
"""the normal distribution's quantile of a two-sided 95 % interval"""

Word = Literal["right", "wrong", "unsure"]


@dataclass(frozen=True)
class Decision:
    """Whether the caption of the pair in a row (0-based) of the user's table describes its image."""

    row: int
    decision: Word


@dataclass(frozen=True)
class Decisions:
    """A file `decisions.json`, as the page writes it.

    Attributes:
        format: the version of this layout.
        audit: the identity of the audit that the decisions belong to.
        sample: the rows of the random sample, in the order in which they were drawn.
        decisions: at most one for each row.
        given: the rows with which the page began; one of them that is not in `decisions` was taken back.
    """

    format: int
    audit: str
    sample: tuple[int, ...]
    decisions: tuple[Decision, ...]
    given: tuple[int, ...] = ()

    def by_row(self) -> dict[int, Word]:
        """Return row → decision."""
        return {each.row: each.decision for each in self.decisions}


@dataclass(frozen=True)
class Share:
    """A share of wrong pairs, counted by hand. Pairs decided as unsure are in neither the share nor its interval."""

    wrong: int
    right: int
    unsure: int

    @property
    def share(self) -> float | None:
        """Wrong / (wrong + right); None where there is neither."""
        decided = self.wrong + self.right
        return self.wrong / decided if decided else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.wrong, self.wrong + self.right)


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's score: (0, 1) where nothing was counted.

    With p = count / total, n = total and z = 1.96: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    >>> [round(end, 3) for end in wilson(8, 10)]
    [0.49, 0.943]
    """
    if total == 0:
        return 0.0, 1.0
    p, spread = count / total, Z * Z / total
    half = math.sqrt(spread * (p * (1 - p) + spread / 4))
    return max(0.0, (p + spread / 2 - half) / (1 + spread)), min(1.0, (p + spread / 2 + half) / (1 + spread))


def read_decisions(path: str | os.PathLike[str]) -> Decisions:
    """Read the decisions that were made on the page of an audit; `check_decisions` compares them with the audit.

    Raises:
        InputError: no such file or no JSON; a key is missing or has a wrong value; another format.
    """
    found = read(Decisions, read_json(path), str(path))
    if found.format != FORMAT:
        raise InputError(f"{path}: format: expected {FORMAT}, got {found.format}; export it again from this report")
    return found


def check_decisions(
    found: Decisions, path: str | os.PathLike[str], *, audit: str, pairs: int, sample: Sequence[int] | None = None
) -> None:
    """Refuse decisions that were not made on the page of an audit.

    Args:
        found: the decisions.
        path: their file, for messages.
        audit: the identity of the audit.
        pairs: how many rows its table has.
        sample: the rows of its random sample, in the order in which they were drawn; None: it is not known yet.

    Raises:
        InputError: decisions of another audit; a row that the table does not have, or that stands twice; another random
            sample.
    """
    if found.audit != audit:
        raise InputError(
            f"{path}: decisions of another audit ({found.audit}; this one is {audit}); "
            "give the audit whose report.html they were made on"
        )
    _check_rows(path, "decisions[{}].row", [each.row for each in found.decisions], pairs)
    _check_rows(path, "sample[{}]", found.sample, pairs)
    _check_rows(path, "given[{}]", found.given, pairs)
    if sample is not None:
        _check_sample(path, found.sample, sample)


def write_decisions(path: str | os.PathLike[str], decisions: Decisions) -> None:
    """Write decisions as the page does."""
    write_json(path, asdict(decisions))


def changed(before: Decisions, after: Decisions) -> int:
    """Count the rows that a later file decides differently, or takes back."""
    known, own = before.by_row(), after.by_row()
    back = sum(row in known and row not in own for row in after.given)
    return back + sum(known.get(row, word) != word for row, word in own.items())


def joined(parts: Sequence[Decisions]) -> Decisions:
    """Return the decisions of the files of one audit; of a row that several files decide, the last word counts.

    A decision that a later file took back counts no more.
    """
    by_row: dict[int, Word] = {}
    for part in parts:
        own = part.by_row()
        by_row = {row: word for row, word in by_row.items() if row not in part.given or row in own} | own
    longest = max((part.sample for part in parts), key=len)
    return Decisions(FORMAT, parts[0].audit, longest, tuple(Decision(row, word) for row, word in by_row.items()))


def _check_sample(path: str | os.PathLike[str], found: Sequence[int], drawn: Sequence[int]) -> None:
    """Refuse what was not drawn: a page shows the first rows of the sample, or all."""
    if len(found) > len(drawn):
        raise InputError(f"{path}: sample: {len(found)} rows, but this audit drew {len(drawn)}; export the file again")
    for place, (row, own) in enumerate(zip(found, drawn, strict=False)):
        if row != own:
            raise InputError(
                f"{path}: sample[{place}]: row {row}, but this audit drew row {own}; the sample is chance's alone, so "
                "export the file again from this audit's report.html"
            )


def _check_rows(path: str | os.PathLike[str], key: str, rows: Sequence[int], pairs: int) -> None:
    seen: dict[int, int] = {}
    for place, row in enumerate(rows):
        if not 0 <= row < pairs:
            raise InputError(f"{path}: {key.format(place)}: expected a row from 0 to {pairs - 1}, got {row}")
        if row in seen:
            raise InputError(f"{path}: {key.format(place)}: row {row} stands already in {key.format(seen[row])}")
        seen[row] = place


def precision(decisions: Decisions, verdicts: Sequence[str]) -> dict[str, Share]:
    """Count the decisions of each verdict; `flagged` holds those of suspect and mismatch together.

    For these two, the share of wrong pairs is their precision: among the pairs that were decided, which are mostly
    the worst, not among all pairs of the verdict. For ok, it is the share that the audit missed, likewise.

    Args:
        decisions: what `read_decisions` returned.
        verdicts: (pairs,), the audit's verdict on each row.

    Returns:
        Verdict → counts, for each verdict of which a pair was decided, and `flagged`.
    """
    words: dict[str, list[Word]] = {"flagged": []}
    for row, word in decisions.by_row().items():
        words.setdefault(verdicts[row], []).append(word)
        if verdicts[row] in FLAGGED:
            words["flagged"].append(word)
    return {verdict: _count(found) for verdict, found in words.items()}


def noise_rate(decisions: Decisions) -> Share:
    """Estimate the share of wrong pairs among all scored ones from the random sample, up to its first undecided pair.

    The sample alone is unbiased: other sections were chosen by score. Later pairs of the sample do not count: one that
    is also among the worst may have been decided there, and pairs that were picked out are no random sample.
    """
    by_row = decisions.by_row()
    words: list[Word] = []
    for row in decisions.sample:
        if row not in by_row:
            break
        words.append(by_row[row])
    return _count(words)


def _count(words: Sequence[Word]) -> Share:
    return Share(words.count("wrong"), words.count("right"), words.count("unsure"))
