"""What can be shown beside doubted pairs: the nearest trusted images, and a caption of the data that fits better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from in2r.audit.pairs import same_words
from in2r.audit.result import Audit
from in2r.evidence.vectors import BLOCK_BYTES, blocks

NEIGHBORS = 3
"""trusted images shown beside a pair"""


@dataclass(frozen=True)
class Witness:
    """What speaks against a row.

    Attributes:
        neighbors: (row, image, caption) of the nearest trusted images, the nearest first; rows of the table of the
            pairs that were asked.
        suggestion: the caption that fits the image best; None where there is none.
    """

    neighbors: Sequence[tuple[int, str, str]] = ()
    suggestion: str | None = None


class Witnesses:
    """Looks up what speaks against rows of an audited table.

    Attributes:
        shown: of the pairs that are asked: those of the table, or of the kept audit by which it was judged.
    """

    def __init__(self, audit: Audit, block_bytes: int = BLOCK_BYTES) -> None:
        self._audit, self._block_bytes, kept = audit, block_bytes, audit.against
        self._pair_of_row = {row: pair for pair, row in enumerate(audit.pairs.judged.tolist())}
        own = audit.pairs.shown()
        if kept is None:
            self.shown, self._trust = own, audit.judgement.score
            words = of_witness = audit.pairs.same_caption
        else:
            self.shown, self._trust = kept.shown, kept.trust
            both = same_words([*own.captions, *kept.shown.captions])
            words, of_witness = both[: len(own.captions)], both[len(own.captions) :]
        self._words = torch.from_numpy(words)
        self._words_of_reference = torch.from_numpy(of_witness)[audit.base.references]

    def of(self, rows: Sequence[int]) -> list[Witness]:
        """Return what speaks against each of the rows; nothing against a row that was not judged.

        A suggestion is the caption asked that fits best by the linear maps, of other words than the row's own. Captions
        of trusted pairs and of suspects are looked at: a caption that has moved may be found again.

        Args:
            rows: of the audited table, from 0, in any order.
        """
        judged, shown = self._audit.pairs.judged, self.shown
        pairs = torch.tensor([self._pair_of_row[row] for row in rows if row in self._pair_of_row], dtype=torch.int64)
        images = self._audit.pairs.vectors.image_of_pair[pairs]
        near = self._audit.base.neighbors(images, self._trust, NEIGHBORS)
        best = {pair: shown.captions[other] or None for pair, other in self._suggestions(pairs)}
        found = {
            int(judged[pair]): Witness(
                [(int(shown.rows[other]), shown.images[other], shown.captions[other]) for other in own], best.get(pair)
            )
            for pair, own in zip(pairs.tolist(), near, strict=True)
        }
        return [found.get(row, Witness()) for row in rows]

    def _suggestions(self, pairs: torch.Tensor) -> Iterator[tuple[int, int]]:
        """Yield (pair, the asked pair whose caption fits its image best), block by block."""
        data, base = self._audit.pairs.vectors, self._audit.base
        fold_of_pair, words = base.fold_of_image[data.image_of_pair[pairs]], self._words_of_reference
        for fold, maps in enumerate(self._audit.judgement.maps):
            own = pairs[fold_of_pair == fold]
            if not len(own):
                continue
            texts = maps.embed_texts(base.witness.texts[base.references]).T
            for block in blocks(len(own), 5 * len(words), self._block_bytes):  # a float32 and a bool for each reference
                some = own[block]
                alike = maps.embed_images(data.images[data.image_of_pair[some]]) @ texts
                alike.masked_fill_(words == self._words[some, None], -torch.inf)  # its own words are no suggestion
                value, place = alike.max(dim=1)
                known = value > -torch.inf
                yield from zip(some[known].tolist(), base.references[place[known]].tolist(), strict=True)
