"""One audit from its data to what is known of every row."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from in2r.audit.evidence import MEANINGS, EvidenceBase, Scorer
from in2r.audit.judge import Judgement, judge
from in2r.audit.kept import Kept
from in2r.audit.pairs import AuditPairs
from in2r.audit.settings import AuditConfig
from in2r.audit.verdicts import Verdicts, counts, decide
from in2r.metrics import auroc
from in2r.report import Share

FEW = 1000
"""different images below which scores are a hint at most: the linear maps know too little, and the share is off"""


@dataclass(frozen=True)
class Audit:
    """What was asked, and what was found.

    Attributes:
        pairs: the table.
        config: the settings.
        base: the data set as witness.
        judgement: of the pairs that could be judged.
        verdicts: of every row.
        against: the kept audit by which the pairs were judged; None: by themselves.
        decided: row → "right", "wrong" or "unsure", as decided by hand.
        sampled: share of wrong pairs in the random sample, as decided by hand; None where nothing of it was decided.
        by_hand: how decisions by hand have moved the cut (`MovedCut`), of a kept audit those on its pairs; None where
            they have not.
    """

    pairs: AuditPairs
    config: AuditConfig
    base: EvidenceBase
    judgement: Judgement
    verdicts: Verdicts
    against: Kept | None = None
    by_hand: Mapping[str, Any] | None = None
    decided: Mapping[int, str] = field(default_factory=dict)
    sampled: Share | None = None

    @property
    def identity(self) -> str:
        """Decisions made by hand belong to it: `AuditPairs.identity`."""
        return self.pairs.identity(self.config.seed)

    def summary(self) -> dict[str, Any]:
        """Return the key figures as plain values."""
        found, low, high = self.judgement, *self.judgement.interval
        return {
            "identity": self.identity,
            "table": self.pairs.name,
            "against": None if self.against is None else self._old(self.against),
            "runs": [] if self.base.scorer is None else list(self.base.scorer.runs),
            "rows": len(self.pairs.images),
            "judged": len(self.pairs.judged),
            "images": len(self.pairs.vectors.images),
            "verdicts": counts(self.verdicts),
            "kept": int(self.verdicts.kept.sum()),
            "cut": self.config.cut if self.verdicts.told else None,
            "by_hand": self.by_hand,
            "noise_rate_by_hand": None if self.sampled is None else self.sampled.share,
            "noise_rate_by_hand_interval": None if self.sampled is None else list(self.sampled.interval),
            "doubts": self.doubts(),
            "noise_rate": 1 - found.share if self.verdicts.told else None,
            "noise_rate_interval": [1 - high, 1 - low] if self.verdicts.told else None,
            "moved_alone": found.moved_alone,
            "separation": found.separation,
            "components": dict(self.components()),
            "settings": asdict(self.config),
            "measurement_only": self.measured(),
        }

    @staticmethod
    def _old(kept: Kept) -> dict[str, Any]:
        """Say by which audit the pairs were judged."""
        return {"table": kept.table, "identity": kept.identity, "noise_rate": 1 - kept.model.share}

    def measured(self) -> dict[str, float] | None:
        """Compare with injected noise: its rate, and how well the order tells right from wrong; None without noise."""
        clean = self.pairs.clean
        if clean is None:
            return None
        found = {"noise_rate": float(1 - clean.mean())}
        if 0 < clean.sum() < len(clean):
            found["auroc"] = auroc(self.judgement.log_odds.numpy(), clean)
        return found

    def components(self) -> Mapping[str, str]:
        """Return each kind of evidence and what it means."""
        return {name: MEANINGS[name] for name in self.base.names}

    def _agrees(self, interval: tuple[float, float]) -> bool:
        """Tell whether an interval of the noise rate has something in common with the estimated one."""
        low, high = self.judgement.interval
        return not self.verdicts.told or (interval[0] <= 1 - low and 1 - high <= interval[1])

    def doubts(self) -> list[str]:
        """Say why the scores may mean little."""
        found = []
        place = "" if self.against is None else f" of {self.against.table}"
        if not self.verdicts.told:
            found.append(
                f"NOTHING TOLD: given pairs{place} look like pairs mismatched on purpose (AUROC "
                f"{self.judgement.separation:.2f}, by chance 0.50): the features do not fit the captions, or nearly "
                "all pairs are wrong; no pair is called a suspect"
            )
        asked = len(torch.unique(self.base.witness.group_of_image))
        if asked < FEW:
            found.append(
                f"FEW IMAGES{place}: {asked:,} different ones; with fewer than {FEW:,}, scores and noise rate are a "
                "hint at most; decide the random sample of report.html"
            )
        if self.sampled is not None and not self._agrees(self.sampled.interval):
            low, high = self.sampled.interval
            found.append(
                f"BY HAND: {100 * low:.0f} to {100 * high:.0f} % of the random sample are wrong, and the estimate is "
                f"{100 * (1 - self.judgement.share):.1f} %: believe your sample"
            )
        return found


def audit_pairs(
    pairs: AuditPairs,
    config: AuditConfig,
    scorer: Scorer | None = None,
    on_step: Callable[[str], None] = lambda what: None,
) -> Audit:
    """Judge every pair of a table.

    Args:
        pairs: the table, as `read_pairs` returns it.
        config: the settings.
        scorer: further evidence, of `trained similarity` and `trained lead`.
        on_step: called with what is done next.
    """
    on_step("neighbours")
    base = EvidenceBase(pairs.vectors, config, scorer)
    judgement = judge(base, on_step)
    on_step("verdicts")
    return Audit(pairs, config, base, judgement, decide(pairs, base, judgement))
