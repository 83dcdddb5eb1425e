"""One of several workers: it claims a piece, encodes it, and takes the next, until all are done."""

import logging
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from in2r.claims import Claim
from in2r.data.verdicts import Verdict
from in2r.encoders.base import ImageEncoder, TextEncoder
from in2r.extract.growing import append_rows
from in2r.extract.images import Prepared, encode_prepared, prepared_batches, require_shape
from in2r.extract.options import Display, Options
from in2r.extract.shared import FINISH, Held, Piece, Shared
from in2r.extract.texts import caption_vectors, vector_dim
from in2r.files import atomic_path, require_free_space
from in2r.raw.source import Source

log = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at the pieces of others, where nothing is left to claim."""


class Worker:
    """Works on the pieces of a folder.

    Args:
        shared: the pieces.
        source: the pairs.
        encoder: of the images.
        texts: of the captions; None: they are not encoded.
        options: how.
        display: is told how much this worker has done, and how much all have done.
    """

    def __init__(
        self,
        shared: Shared,
        source: Source,
        encoder: ImageEncoder,
        texts: TextEncoder | None,
        options: Options,
        display: Display,
    ) -> None:
        self.shared, self.source, self.encoder, self.texts = shared, source, encoder, texts
        self.options, self.display = options, display
        self._all = sum(map(len, shared.pieces))
        self._made, self._items, self._dim = 0, 0, 0

    def work(self) -> Claim | None:
        """Work until all pieces are done; return the claim to finish the folder, or None where another one did.

        What is left is waited for while others work on it, and taken over from those that are gone.

        Raises:
            InputError: as `encode_images` and `encode_captions`.
        """
        said: list[str] = []
        while True:
            left = self.shared.left()
            if not self.shared.is_open():
                return None
            self.display.update("all workers", self._all - sum(map(len, left)), self._all)
            what: list[Piece | str] = [*left] or [FINISH]
            held, one = next(((held, one) for one in what if (held := self.shared.claim(one))), (None, None))
            if held is None:
                said = self._wait(what, said)
            elif isinstance(one, Piece):
                self._make(one, held, len(left) == len(self.shared.pieces))
            else:
                return held

    def _wait(self, what: list[Piece | str], said: list[str]) -> list[str]:
        """Say whom this worker waits for, unless it said so, and look again a little later."""
        notes = [note for note in map(self.shared.holder_note, what) if note is not None]
        if notes and notes != said:
            log.info("%s: nothing is left to claim; waits for %s", self.shared.out, ", ".join(notes))
        time.sleep(POLL)
        return notes

    def _make(self, piece: Piece, held: Claim, is_first: bool) -> None:
        try:
            with atomic_path(self.shared.file(piece)) as rows:
                found = (self._images if piece.side == "images" else self._captions)(piece, rows, is_first)
            self.shared.keep(piece, found)
        finally:
            held.release()
        self._made += 1
        left = len(self.shared.left())
        log.info(
            "%s: %s %d to %d; this worker made %d of %d pieces, %d are left", piece, piece.side, piece.start,
            piece.stop - 1, self._made, len(self.shared.pieces), left,
        )  # fmt: skip

    def _images(self, piece: Piece, file: Path, is_first: bool) -> Held:
        """Encode images into a file, which stays empty where none can be read."""
        options = self.options
        items = self.source.items[piece.start : piece.stop]
        rows, shape, regions, verdicts = 0, (), "", list[Verdict]()
        with closing(prepared_batches(items, self.encoder, options.batch, options.workers, options.pixels)) as batches:
            for some in batches:
                encoded = self._encoded(some)
                if encoded is not None:
                    values, regions = encoded
                    if not rows:
                        shape = values.shape[1:]
                        # the disk is asked for the space of all once, because others fill it meanwhile
                        require_free_space(
                            file.parent, values[0].nbytes * len(self.source.items if is_first else items)
                        )
                    require_shape(values, shape, some)
                    append_rows(file, values, rows)
                    rows += len(values)
                verdicts += [one.verdict for one in some]
                self._tell(len(some))
        return Held(rows, shape, regions, tuple(verdicts))

    def _encoded(self, some: list[Prepared]) -> tuple[NDArray[Any], str] | None:
        """Return what `encode_prepared` does; the short batch at a piece's end may hold nothing but an odd image."""
        if len(some) < self.options.batch and all(one.values is None for one in some):
            return None
        return encode_prepared(some, self.encoder, self.options.regions)

    def _captions(self, piece: Piece, file: Path, is_first: bool) -> Held:
        texts, captions = self.texts, self.source.captions
        assert texts is not None  # else it has no pieces
        assert captions is not None
        self._dim = self._dim or vector_dim(texts)
        rows = 0
        for values in caption_vectors(captions, texts, self._dim, self.options.batch, piece.start, piece.stop):
            append_rows(file, values, rows)
            rows += len(values)
            self._tell(len(values))
        return Held(rows, (self._dim,))

    def _tell(self, items: int) -> None:
        self._items += items
        self.display.update("this worker", self._items, self._all)
