"""New pairs judged by a kept audit: its pairs alone are asked, and the new ones never speak for each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.audit.evidence import CHOSEN, EvidenceBase, Panel, Vectors, given_pairs
from in2r.audit.judge import OTHER, Judgement, beaten, interval_by_draws, without_siblings
from in2r.audit.kept import Kept, Packed, Shown
from in2r.audit.pairs import AuditPairs, same_rows, same_words
from in2r.audit.result import Audit
from in2r.audit.settings import AuditConfig
from in2r.audit.verdicts import copies, decide
from in2r.data.text.tfidf import Tfidf
from in2r.data.text.vocabulary import MASK, Vocabulary
from in2r.evidence import changed_share, log_odds_of

MOST_ASKED = 100_000
"""pairs of a kept audit, references and the other captions of their images: bounds its file"""
MOST_WORDS = 50_000
"""known words of a kept audit, the most frequent ones: bounds its file, and rarer words hardly move a caption"""
PRIOR = 10.0
"""pairs at the old share that are assumed beforehand, when that of new pairs is estimated"""


def keep(audit: Audit) -> Kept:
    """Return what is needed of an audit to judge further pairs: the pairs that it asked, and what it fitted."""
    base, found, pairs = audit.base, audit.judgement, audit.pairs
    copied = torch.from_numpy(copies(pairs))  # a copy says nothing new
    references = base.references[~copied[base.references]]
    others = base.with_siblings(references)
    others = others[~copied[others] & ~torch.isin(others, references)][: max(0, MOST_ASKED - len(references))]
    asked = torch.cat([references, others]).sort().values
    data = pairs.vectors
    images, image_of_pair = torch.unique(data.image_of_pair[asked], return_inverse=True)
    rows = pairs.judged[asked.numpy()]
    names = [pairs.images[row] for row in rows.tolist()]
    files = {name: pairs.files[name].absolute() for name in names if name in pairs.files}
    return Kept(
        table=pairs.name,
        identity=audit.identity,
        config=audit.config,
        kinds=base.names,
        encoder=pairs.encoder,
        by_hand=audit.by_hand,
        words=None if pairs.words is None else _most_frequent(pairs.words),
        shown=Shown(rows, names, [pairs.captions[row] for row in rows.tolist()], files),
        images=Packed.of(data.images[images]),
        texts=Packed.of(data.texts[asked]),
        image_of_pair=image_of_pair,
        group_of_image=torch.unique(data.group_of_image[images], return_inverse=True)[1],
        fold_of_image=base.fold_of_image[images],
        references=torch.searchsorted(asked, references),
        trust=found.score[asked],
        maps=found.maps,
        model=found.model,
        apart=found.apart,
        wrong=found.wrong,
        ways=found.ways,
        moved_alone=found.moved_alone,
        separation=found.separation,
    )


def _most_frequent(words: Tfidf) -> Tfidf:
    if len(words.vocabulary) <= MOST_WORDS:
        return words
    kept = [word for word in words.vocabulary.words[:MOST_WORDS] if word != MASK]
    count = len(kept)
    last = words.vocabulary.mask_id
    chosen = [*range(count), last]
    return Tfidf(Vocabulary(kept), words.weights[chosen], words.directions[chosen])


def audit_against(
    pairs: AuditPairs, kept: Kept, config: AuditConfig, on_step: Callable[[str], None] = lambda what: None
) -> Audit:
    """Judge every pair of a new table by a kept audit.

    Args:
        pairs: the new table, whose vectors are of the kept audit's kind and widths.
        kept: the audit.
        config: its settings; `cut`, `sure` and `vague` may differ.
        on_step: called with what is done next.
    """
    on_step("neighbours")
    old = kept.vectors()
    pairs = replace(pairs, vectors=replace(pairs.vectors, group_of_image=_groups(pairs.vectors, kept)))
    panel = Panel(old, kept.fold_of_image, len(kept.maps) - 1, kept.references, _itself(pairs, kept))
    unknown = _Unknown(
        kept.kinds[len(CHOSEN[config.evidence]) :], torch.zeros(len(pairs.vectors.images), dtype=torch.int64)
    )
    base = EvidenceBase(pairs.vectors, config, unknown if unknown.names else None, panel)
    on_step("evidence")
    judgement = judge_against(base, kept)
    on_step("verdicts")
    return Audit(pairs, config, base, judgement, decide(pairs, base, judgement), against=kept, by_hand=kept.by_hand)


def judge_against(base: EvidenceBase, kept: Kept) -> Judgement:
    """Judge new pairs by what was fitted on the old ones; the share that matches is estimated anew.

    A pair whose image has no other captions among the old pairs is judged by the model without them.
    """
    evidence = base.of(base.look(given_pairs(base.data)), kept.maps, kept.trust)
    rest = without_siblings(base.names)
    ratio = kept.apart.log_ratio(evidence[:, rest])
    if len(rest) < len(base.names):
        ratio = torch.where(evidence[:, OTHER].isnan(), ratio, kept.model.log_ratio(evidence))
    share = changed_share(ratio, kept.model.share, PRIOR)
    log_odds = ratio + log_odds_of(share)
    return Judgement(
        score=torch.sigmoid(log_odds).float(),
        log_odds=log_odds,
        components=beaten(evidence, kept.wrong, kept.ways),
        evidence=evidence,
        share=share,
        interval=interval_by_draws(base, lambda times, _: changed_share(ratio, kept.model.share, PRIOR, times), share),
        moved_alone=kept.moved_alone,
        separation=kept.separation,
        model=kept.model,
        apart=kept.apart,
        wrong=kept.wrong,
        ways=kept.ways,
        maps=kept.maps,
    )


@dataclass(frozen=True)
class _Unknown:
    """The evidence of trained runs, which are not kept: not known."""

    names: Sequence[str]
    model_of_image: Tensor
    runs: Sequence[str] = ()

    def __call__(self, images: Tensor, texts: Tensor) -> Tensor:
        return torch.full((len(images), len(self.names)), torch.nan)


def _groups(new: Vectors, kept: Kept) -> Tensor:
    """Return the group of each new image: that of the old image of which it is a copy, or one of its own."""
    of_old = dict(zip((row.tobytes() for row in kept.images.half.numpy()), kept.group_of_image.tolist(), strict=True))
    first = int(kept.group_of_image.max()) + 1
    own = zip((row.tobytes() for row in kept.images.like(new.images).numpy()), new.group_of_image.tolist(), strict=True)
    return torch.tensor([of_old.get(row, first + group) for row, group in own])


def _itself(pairs: AuditPairs, kept: Kept) -> Tensor:
    """Return of each new pair the old one with a copy of its image and the same words, or -1."""
    old_words, new_words = _same_captions(pairs, kept)
    of_old = zip(kept.group_of_image[kept.image_of_pair].tolist(), old_words.tolist(), strict=True)
    place = {key: pair for pair, key in enumerate(of_old)}
    data = pairs.vectors
    of_new = zip(data.group_of_image[data.image_of_pair].tolist(), new_words.tolist(), strict=True)
    return torch.tensor([place.get(key, -1) for key in of_new])


def _same_captions(pairs: AuditPairs, kept: Kept) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (K,) of the old and (N,) of the new captions, equal for the same words, or vectors where texts lack."""
    texts = [pairs.captions[row] for row in pairs.judged.tolist()]
    old = list(kept.shown.captions)
    if any(texts) and any(old):
        both = same_words([*old, *texts])
    else:
        both = same_rows(torch.cat([kept.texts.half, kept.texts.like(pairs.vectors.texts)])).numpy()
    return both[: len(old)], both[len(old) :]
