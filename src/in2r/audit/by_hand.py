"""What decisions by hand change: the rows that were decided, and the cut, which goes where both agree."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from in2r.audit.result import Audit
from in2r.audit.settings import AuditConfig
from in2r.audit.verdicts import KEPT, copies, copy_groups, decide
from in2r.evidence import recalibrate
from in2r.metrics import auroc
from in2r.report import Decisions, noise_rate
from in2r.report.page import FLAGGED


@dataclass(frozen=True)
class MovedCut:
    """How decisions by hand have moved the cut.

    Attributes:
        decisions: pairs decided as right or wrong that have a score.
        slope: a of `Recalibration`.
        offset: b.
        cut_before: the score below which a pair was a suspect.
        cut: the score below which it is one now.
        more_suspects: rows that are suspects or mismatches now and were not; below 0: that are none any more.
    """

    decisions: int
    slope: float
    offset: float
    cut_before: float
    cut: float
    more_suspects: int


def move_cut(audit: Audit, decisions: Decisions) -> Audit | None:
    """Return the audit with verdicts by the cut that decisions by hand suggest; its scores stay.

    The scores are recalibrated by the decisions (`recalibrate`). A pair is then a suspect where its recalibrated
    probability is below 0.5, and a mismatch where it is below 0.1: below the defaults of `AuditConfig`.

    Args:
        audit: what was found.
        decisions: of this audit, as `read_decisions` returns them.

    Returns:
        None where the decisions do not hold both a right and a wrong pair, where wrong ones have the higher scores, or
        where the evidence tells nothing: where score and truth meet is then not known.
    """
    pair_of_row = {row: pair for pair, row in enumerate(audit.pairs.judged.tolist())}
    known = [
        (pair_of_row[row], word == "right")
        for row, word in decisions.by_row().items()
        if row in pair_of_row and word != "unsure"
    ]
    right = torch.tensor([one for _, one in known], dtype=torch.bool)
    if not audit.verdicts.told or not right.any() or right.all():
        return None
    log_odds = audit.judgement.log_odds[[pair for pair, _ in known]]
    if auroc(log_odds.numpy(), right.numpy()) + 1 / math.sqrt(len(known)) < 0.5:  # reversed, beyond chance
        return None
    found = recalibrate(log_odds, right)
    usual = AuditConfig()
    config = replace(audit.config, cut=found.score_at(usual.cut), sure=found.score_at(usual.sure))
    verdicts = decide(audit.pairs, audit.base, audit.judgement, config)
    more = _flagged(verdicts.names) - _flagged(audit.verdicts.names)
    moved = MovedCut(len(known), found.slope, found.offset, audit.config.cut, config.cut, more)
    return replace(audit, config=config, verdicts=verdicts, by_hand=asdict(moved))


def follow(audit: Audit, decisions: Decisions) -> Audit:
    """Return the audit in which each row that was decided has the verdict of its decision; its score stays.

    A suspect or mismatch that is right is ok, or a duplicate; what is wrong is a mismatch. A duplicate that is right is
    ok where no copy of it is kept otherwise. Unsure changes nothing.
    """
    names = audit.verdicts.names.astype(object)
    decided = {row: word for row, word in decisions.by_row().items() if row not in audit.pairs.unjudged}
    judged = audit.pairs.judged
    copied = set(judged[copies(audit.pairs)].tolist())
    group = dict(zip(judged.tolist(), copy_groups(audit.pairs).tolist(), strict=True))
    for row, word in decided.items():
        if word == "wrong":
            names[row] = "mismatch"
        elif word == "right" and names[row] in FLAGGED:
            names[row] = "duplicate" if row in copied else "ok"
    kept = {group[row] for row in judged[np.isin(names[judged], KEPT)].tolist()}
    for row in sorted(row for row, word in decided.items() if word == "right" and names[row] == "duplicate"):
        if group[row] not in kept:
            names[row] = "ok"
            kept.add(group[row])
    verdicts = replace(audit.verdicts, names=names.astype(str), kept=np.isin(names.astype(str), KEPT))
    sampled = noise_rate(decisions)
    return replace(audit, verdicts=verdicts, decided=decided, sampled=sampled if sampled.share is not None else None)


def _flagged(names: Any) -> int:
    return int(np.isin(names, FLAGGED).sum())
