"""Images → rows of features: decoded by threads in their order, encoded in batches, written as they come."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.verdicts import REFUSED, TOO_LARGE, Verdict
from in2r.encoders.base import ImageEncoder
from in2r.encoders.regions import Regions, describe, to_regions
from in2r.errors import InputError
from in2r.extract.growing import DTYPE, append_rows
from in2r.extract.unfinished import Unfinished
from in2r.files import require_free_space
from in2r.raw.image import pixel_limit
from in2r.raw.places import Item, look_at

LONGEST = 50
"""times as long as wide: encoders bring the short side to a fixed size, and the long one grows with it"""

LARGEST = float(np.finfo(DTYPE).max)


@dataclass(frozen=True)
class Prepared:
    """An image that was looked at, with the encoder's input where it is readable."""

    verdict: Verdict
    values: NDArray[Any] | None = None


def encode_images(
    items: Sequence[Item],
    encoder: ImageEncoder,
    work: Unfinished,
    *,
    regions: Regions,
    batch: int,
    workers: int,
    pixels: int,
    on_batch: Callable[[int], None],
) -> None:
    """Look at all images from where the work stopped, and encode those that can be read.

    Memory holds the decoded input of a few batches, however many images there are.

    Args:
        items: the images.
        encoder: what encodes them.
        work: where rows and verdicts go.
        regions: see `to_regions`.
        batch: images in a pass of the encoder.
        workers: threads that read and decode.
        pixels: see `read_image`.
        on_batch: is told how many images have a verdict.

    Raises:
        InputError: the encoder fails on every image of a batch, or returns what is no feature.
    """
    progress = work.progress
    left = islice(items, progress.looked_at, None)
    with closing(prepared_batches(left, encoder, batch, workers, pixels)) as batches:
        for some in batches:
            encoded = encode_prepared(some, encoder, regions)
            if encoded is not None:
                rows, progress.regions = encoded
                if not progress.rows:
                    progress.shape = rows.shape[1:]
                    require_free_space(work.path, len(items) * rows[0].nbytes)
                require_shape(rows, progress.shape, some)
                append_rows(work.images, rows, progress.rows)
                progress.rows += len(rows)
            work.add_verdicts([one.verdict for one in some])
            work.keep()
            on_batch(progress.looked_at)


def prepared_batches(
    items: Iterable[Item], encoder: ImageEncoder, batch: int, workers: int, pixels: int
) -> Generator[list[Prepared], None, None]:
    """Yield images batch by batch, in their order; close it when you stop. Arguments are those of `encode_images`."""
    with pixel_limit(pixels), closing(_prepared(iter(items), encoder, workers, batch, pixels)) as stream:
        while some := list(islice(stream, batch)):
            yield some


def _prepared(
    items: Iterator[Item], encoder: ImageEncoder, workers: int, batch: int, pixels: int
) -> Generator[Prepared, None, None]:
    """Yield images in their order, read and prepared by threads that are at most two batches ahead."""

    def prepare(item: Item) -> Prepared:
        return prepare_image(item, encoder, pixels)

    waiting: deque[Future[Prepared]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="in2r-image")
    try:
        for item in items:
            waiting.append(pool.submit(prepare, item))
            if len(waiting) >= 2 * batch + workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also where the reader stops early, as after ^C
        pool.shutdown(wait=True, cancel_futures=True)


def prepare_image(item: Item, encoder: ImageEncoder, pixels: int) -> Prepared:
    """Look at an image and make the encoder's input of it; open `pixel_limit` around all calls."""
    picture = look_at(item, pixels)
    image, verdict = picture.image, picture.verdict
    if image is None:
        return Prepared(verdict)
    if max(image.size) > LONGEST * min(image.size):
        return Prepared(verdict.changed(TOO_LARGE, f"more than {LONGEST} times as long as wide"))
    try:
        return Prepared(verdict, encoder.prepare(image))
    except Exception as error:  # one odd image must not end the work on all
        return Prepared(verdict.changed(REFUSED, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"))


def encode_prepared(
    some: Sequence[Prepared], encoder: ImageEncoder, regions: Regions
) -> tuple[NDArray[Any], str] | None:
    """Return the rows (n, regions, d), or (n, d) of one region, and how they are pooled.

    The rows are float16, of the readable images; None where there is none.

    Raises:
        InputError: the encoder fails on every image, or returns what is no feature.
    """
    values = [one.values for one in some if one.values is not None]
    if not values:
        _refuse_useless(some)
        return None
    if len({value.shape for value in values}) > 1:
        shapes = " and ".join(sorted({str(value.shape) for value in values}))
        raise InputError(f"the encoder prepares images to the shapes {shapes}; they must have one")
    encoded = encoder.encode(np.stack(values))
    found = to_regions(encoded, regions).cpu().numpy()
    finite = np.isfinite(found).all(axis=(1, 2))
    if len(found) != len(values):
        raise InputError(f"the encoder returned {len(found)} rows for {len(values)} images; expected one for each")
    if not finite.all():
        wrong = [one.verdict.file for one in some if one.values is not None][int(np.argmin(finite))]
        raise InputError(f"{wrong}: the encoder returned values that are not finite")
    rows = np.clip(found, -LARGEST, LARGEST).astype(DTYPE)
    return (rows[:, 0] if rows.shape[1] == 1 else rows), describe(encoded, regions)


def _refuse_useless(some: Sequence[Prepared]) -> None:
    """Refuse an encoder that fails on all images of a batch: the fault is its own, not the images'."""
    refused = [one.verdict for one in some if one.verdict.verdict == REFUSED]
    if len(refused) == len(some):
        raise InputError(f"{refused[0].file}: the encoder's preprocessing fails on every image: {refused[0].detail}")


def require_shape(rows: NDArray[Any], expected: tuple[int, ...], some: Sequence[Prepared]) -> None:
    """Refuse the rows of a batch that are of another shape than those before."""
    if rows.shape[1:] != expected:
        place = next(one.verdict.file for one in some if one.values is not None)
        raise InputError(
            f"{place}: the encoder returned rows of {rows.shape[1:]}, before of {expected}; they must agree"
        )
