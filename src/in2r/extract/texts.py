"""Captions → a vector for each row of the table; a row without words gets zeros."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from in2r.encoders.base import TextEncoder
from in2r.errors import InputError
from in2r.extract.growing import append_rows
from in2r.extract.unfinished import Unfinished


def encode_captions(
    captions: Sequence[str], encoder: TextEncoder, work: Unfinished, *, batch: int, on_batch: Callable[[int], None]
) -> None:
    """Encode all captions from where the work stopped.

    Args:
        captions: a text for each row.
        encoder: what encodes them.
        work: where rows go.
        batch: texts in a pass of the encoder.
        on_batch: is told how many captions are done.

    Raises:
        InputError: the encoder returns what is no vector for each text.
    """
    progress = work.progress
    if not progress.caption_dim:
        progress.caption_dim = vector_dim(encoder)
    for rows in caption_vectors(captions, encoder, progress.caption_dim, batch, progress.captions):
        append_rows(work.captions, rows, progress.captions)
        progress.captions += len(rows)
        work.keep()
        on_batch(progress.captions)


def vector_dim(encoder: TextEncoder) -> int:
    """Return the length of an encoder's vectors."""
    return int(encoder.encode_texts(["a"]).shape[-1])


def caption_vectors(
    captions: Sequence[str], encoder: TextEncoder, dim: int, batch: int, start: int, stop: int | None = None
) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors (n, dim) of the captions from `start` on, batch by batch.

    Raises:
        InputError: as `encode_captions`.
    """
    stop = len(captions) if stop is None else stop
    for first in range(start, stop, batch):
        some = captions[first : min(first + batch, stop)]
        rows = np.zeros((len(some), dim), np.float32)
        filled = [place for place, text in enumerate(some) if text]
        if filled:
            found = encoder.encode_texts([some[place] for place in filled]).float().cpu().numpy()
            if found.shape != (len(filled), dim) or not np.isfinite(found).all():
                raise InputError(
                    f"captions {first} to {first + len(some) - 1}: the text encoder returned {found.shape}, or values "
                    f"that are not finite; expected {(len(filled), dim)}"
                )
            rows[filled] = found
        yield rows
