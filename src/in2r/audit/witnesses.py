"""What can be shown beside a doubted pair: the nearest trusted images, and a caption of the data that fits better."""

import torch

from in2r.audit.pairs import same_words
from in2r.audit.result import Audit

NEIGHBORS = 3
"""trusted images shown beside a pair"""


class Witnesses:
    """Looks up what speaks against a row of an audited table.

    Attributes:
        shown: of the pairs that are asked; those of the table, or of the kept audit by which it was judged.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit, kept = audit, audit.against
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
        self._embedded: dict[int, torch.Tensor] = {}

    def neighbors(self, row: int) -> list[tuple[int, str, str]]:
        """Return (row, image, caption) of the nearest trusted images; none for a row that was not judged.

        Rows are of the table of the pairs that are asked.
        """
        pair = self._pair_of_row.get(row)
        if pair is None:
            return []
        image = int(self._audit.pairs.vectors.image_of_pair[pair])
        near, shown = self._audit.base.neighbors(image, self._trust, NEIGHBORS), self.shown
        return [(int(shown.rows[other]), shown.images[other], shown.captions[other]) for other in near]

    def suggestion(self, row: int) -> str | None:
        """Return the caption asked that fits the row's image best by the linear maps; None if the row was not judged.

        Captions of trusted pairs and of suspects are looked at: a caption that has moved may be found again.
        """
        pair = self._pair_of_row.get(row)
        if pair is None:
            return None
        data, base = self._audit.pairs.vectors, self._audit.base
        image = int(data.image_of_pair[pair])
        fold = int(base.fold_of_image[image])
        maps = self._audit.judgement.maps[fold]
        if fold not in self._embedded:
            self._embedded[fold] = maps.embed_texts(base.witness.texts[base.references])
        similarity = self._embedded[fold] @ maps.embed_images(data.images[image : image + 1])[0]
        similarity[self._words_of_reference == self._words[pair]] = -torch.inf  # its own words are no suggestion
        place = int(similarity.argmax())
        if similarity[place].isinf():
            return None
        return self.shown.captions[int(base.references[place])] or None
