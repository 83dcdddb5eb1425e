"""The whole way from a source of pairs to a data folder: settings, images, captions, the small files, the names."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from in2r.data.encoder_record import write_encoder
from in2r.data.made_from import write_made_from
from in2r.data.verdicts import FILE as VERDICTS
from in2r.data.verdicts import Verdict, read_verdicts, write_verdicts
from in2r.encoders.base import ImageEncoder, TextEncoder, has_text_side
from in2r.encoders.regions import Regions
from in2r.encoders.registry import open_encoder, open_text_encoder
from in2r.errors import InputError
from in2r.extract.images import encode_images
from in2r.extract.texts import encode_captions
from in2r.extract.unfinished import Unfinished
from in2r.files import write_json, write_text
from in2r.raw.image import MAX_PIXELS, require_pillow
from in2r.raw.source import Source

FIRST = 3
"""images that a message names"""


class Display(Protocol):
    """Shows how far a part of the work is."""

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` items are done."""
        ...


@dataclass(frozen=True)
class Options:
    """How features are made.

    Attributes:
        encoder: `KIND:NAME` of the image encoder.
        text_encoder: of the text encoder; None: the image encoder's own text side, if it has one.
        regions: see `to_regions`.
        batch: images or texts in a pass.
        workers: threads that decode.
        device: where encoders compute.
        pixels: images of more pixels are refused.
    """

    encoder: str
    text_encoder: str | None = None
    regions: Regions = 3
    batch: int = 32
    workers: int = 4
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    pixels: int = MAX_PIXELS


@dataclass(frozen=True)
class Made:
    """What was made.

    Attributes:
        verdicts: verdict → images that have it.
        image_shape: of images.npy.
        caption_shape: of captions.npy; None where there is none.
        again: whether an earlier call with the same settings had made it.
    """

    verdicts: Counter[str]
    image_shape: tuple[int, ...]
    caption_shape: tuple[int, ...] | None
    again: bool = False


def make_features(source: Source, out: Path, options: Options, display: Display) -> Made:
    """Encode the images and captions of a source and write a data folder; continues what the same call began.

    Args:
        source: the pairs.
        out: the data folder: absent, empty, or begun or finished by the same call.
        options: how.
        display: is told how far the work is.

    Raises:
        InputError: no image can be read, an encoder cannot be loaded, or the folder holds something else.
    """
    require_pillow()
    _require_some(source)
    encoder = open_encoder(options.encoder, options.device)
    texts = _text_encoder(encoder, options) if source.captions is not None else None
    work, settings = Unfinished(out), _settings(source, options, encoder, texts)
    if work.made(settings):
        return _made_before(out)
    with work.begun(settings):
        encode_images(
            source.items, encoder, work,
            regions=options.regions, batch=options.batch, workers=options.workers, pixels=options.pixels,
            on_batch=lambda done: display.update("images", done, len(source.items)),
        )  # fmt: skip
        if not work.progress.rows:
            unread = list(work.verdicts())
            work.remove()
            raise InputError(f"none of {len(unread):,} images can be read: {_named(unread)}")
        if texts is not None and source.captions is not None:
            encode_captions(
                source.captions, texts, work, batch=options.batch,
                on_batch=lambda done: display.update("captions", done, len(source.captions or [])),
            )  # fmt: skip
        return _finish(source, work, encoder, texts)


def _require_some(source: Source) -> None:
    """Refuse a table none of whose images was found: the folder or the column is the wrong one."""
    lost = [item.verdict for item in source.items if item.place is None and item.verdict is not None]
    if len(lost) == len(source.items):
        raise InputError(
            f"none of {len(lost):,} images was found: {_named(lost)}; check the folder of images and --image-column"
        )


def _named(verdicts: Sequence[Verdict]) -> str:
    first = ", ".join(f"{one.image!r} ({one.detail or one.verdict})" for one in verdicts[:FIRST])
    return first + (", ..." if len(verdicts) > FIRST else "")


def _text_encoder(encoder: ImageEncoder, options: Options) -> TextEncoder | None:
    if options.text_encoder is not None:
        return open_text_encoder(options.text_encoder, options.device)
    return cast(TextEncoder, encoder) if has_text_side(encoder) else None


def _settings(source: Source, options: Options, encoder: ImageEncoder, texts: TextEncoder | None) -> dict[str, object]:
    """Return what decides the result, by the names that a message can use."""
    return {
        **source.identity,
        "columns": source.columns,
        "encoding": source.encoding,
        "encoder": _deciding(encoder.record),
        "text encoder": None if texts is None else _deciding(texts.text_record),
        "regions": options.regions,
        "pixel limit": options.pixels,
    }


def _deciding(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "versions"}


def _finish(source: Source, work: Unfinished, encoder: ImageEncoder, texts: TextEncoder | None) -> Made:
    """Write the small files, then give the large ones their names, the table last: before, it is no data folder.

    A kill in between is repaired by the same call: what has its name already is left alone.
    """
    out, progress = work.out, work.progress
    seen = list(work.verdicts())
    mark = "\ufeff" if source.encoding is not None else ""  # else the ids would be read in the table's encoding
    write_text(out / "image_ids.txt", mark + "".join(f"{one.image}\n" for one in seen if one.encoded))
    write_verdicts(out / VERDICTS, [*seen, *source.left_out])
    image = {**encoder.record, "regions": work.progress.regions, "dim": progress.shape[-1]}
    text = None if texts is None else {**texts.text_record, "dim": progress.caption_dim}
    write_encoder(out, image, text)
    named = {"table": source.table, "columns": source.columns}
    write_json(out / "data.json", named | ({"encoding": source.encoding} if source.encoding else {}))
    write_made_from(out, source.name, progress.settings)
    for part in (work.captions, work.images):
        if part.is_file():
            part.replace(out / part.name)
    source.write_table(out / source.table)
    work.remove()
    shape = (progress.rows, *progress.shape)
    captions = None if texts is None else (progress.captions, progress.caption_dim)
    return Made(Counter(one.verdict for one in [*seen, *source.left_out]), shape, captions)


def _made_before(out: Path) -> Made:
    """Return what a finished folder holds."""
    images, captions = out / "images.npy", out / "captions.npy"
    verdicts = read_verdicts(out / VERDICTS).values()
    shapes = [np.load(path, mmap_mode="r").shape for path in (images, captions) if path.is_file()]
    return Made(Counter(one.verdict for one in verdicts), shapes[0], shapes[1] if shapes[1:] else None, again=True)
