"""What can be shown beside a doubted pair: the nearest trusted images, and a caption of the data that fits better."""

import torch

from in2r.audit.result import Audit

NEIGHBORS = 3
"""trusted images shown beside a pair"""


class Witnesses:
    """Looks up what speaks against a row of an audited table."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._pair_of_row = {row: pair for pair, row in enumerate(audit.pairs.judged.tolist())}
        self._trust = audit.judgement.score
        self._words = torch.from_numpy(audit.pairs.same_caption)
        self._words_of_reference = self._words[audit.base.references]
        self._embedded: dict[int, torch.Tensor] = {}

    def neighbors(self, row: int) -> list[tuple[int, str, str]]:
        """Return (row, image, caption) of the nearest trusted images; none for a row that was not judged."""
        pair = self._pair_of_row.get(row)
        if pair is None:
            return []
        image = int(self._audit.pairs.vectors.image_of_pair[pair])
        rows = [
            int(self._audit.pairs.judged[near]) for near in self._audit.base.neighbors(image, self._trust, NEIGHBORS)
        ]
        return [(other, self._audit.pairs.images[other], self._audit.pairs.captions[other]) for other in rows]

    def suggestion(self, row: int) -> str | None:
        """Return the caption of the data set that fits the row's image best by the linear maps; None if not judged.

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
            self._embedded[fold] = maps.embed_texts(data.texts[base.references])
        similarity = self._embedded[fold] @ maps.embed_images(data.images[image : image + 1])[0]
        similarity[self._words_of_reference == self._words[pair]] = -torch.inf  # its own words are no suggestion
        place = int(similarity.argmax())
        if similarity[place].isinf():
            return None
        return self._audit.pairs.captions[int(self._audit.pairs.judged[int(base.references[place])])] or None
