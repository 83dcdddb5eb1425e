"""The whole way from a source of pairs to a data folder: settings, images, captions, the small files, the names."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from in2r.data.encoder_record import write_encoder
from in2r.data.features import open_npy
from in2r.data.made_from import write_made_from
from in2r.data.pieces import piece_files
from in2r.data.table_layout import file_or_pieces
from in2r.data.verdicts import FILE as VERDICTS
from in2r.data.verdicts import Verdict, read_verdicts, write_verdicts
from in2r.encoders.base import ImageEncoder, TextEncoder, has_text_side
from in2r.encoders.registry import open_encoder, open_text_encoder
from in2r.errors import InputError
from in2r.extract.images import encode_images
from in2r.extract.options import Display, Options
from in2r.extract.shared import Shared
from in2r.extract.texts import encode_captions
from in2r.extract.together import Worker
from in2r.extract.unfinished import Progress, Unfinished, was_made
from in2r.files import write_json, write_text
from in2r.raw.image import require_pillow
from in2r.raw.source import Source

FIRST = 3
"""images that a message names"""


class Work(Protocol):
    """The work on a folder whose arrays are made."""

    @property
    def out(self) -> Path:
        """The data folder."""
        ...

    @property
    def progress(self) -> Progress:
        """What was made."""
        ...

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts on all images, in their order."""
        ...

    def place(self) -> None:
        """Give the arrays their places."""
        ...

    def remove(self) -> None:
        """Remove what is left of the work."""
        ...


@dataclass(frozen=True)
class Made:
    """What was made.

    Attributes:
        verdicts: verdict → images that have it.
        image_shape: of images.npy, or of its pieces together.
        caption_shape: of captions.npy, or of its pieces; None where there is none.
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
    settings = _settings(source, options, encoder, texts)
    if was_made(out, settings):
        return _made_before(out)
    if options.pieces is not None:
        return _make_together(source, out, settings, options, encoder, texts, display)
    with Unfinished(out).begun(settings) as work:
        encode_images(
            source.items, encoder, work,
            regions=options.regions, batch=options.batch, workers=options.workers, pixels=options.pixels,
            on_batch=lambda done: display.update("images", done, len(source.items)),
        )  # fmt: skip
        _require_rows(work)
        if texts is not None and source.captions is not None:
            encode_captions(
                source.captions, texts, work, batch=options.batch,
                on_batch=lambda done: display.update("captions", done, len(source.captions or [])),
            )  # fmt: skip
        return _finish(source, work, encoder, texts)


def _make_together(
    source: Source,
    out: Path,
    settings: dict[str, object],
    options: Options,
    encoder: ImageEncoder,
    texts: TextEncoder | None,
    display: Display,
) -> Made:
    """Work on the pieces of a folder with whoever else does; one of all finishes it."""
    assert options.pieces is not None
    captions = len(source.captions) if texts is not None and source.captions is not None else 0
    shared = Shared(out, settings, options.pieces, len(source.items), captions)
    shared.begin()
    end = Worker(shared, source, encoder, texts, options, display).work()
    if end is None:
        if not was_made(out, settings):
            raise InputError(f"{out}: another process gave this work up; its message says why")
        return _made_before(out)
    try:
        shared.sum_up()
        _require_rows(shared)
        return _finish(source, shared, encoder, texts)
    finally:
        end.release()


def _require_rows(work: Work) -> None:
    """Refuse a source none of whose images can be read."""
    if not work.progress.rows:
        unread = list(work.verdicts())
        work.remove()
        raise InputError(f"none of {len(unread):,} images can be read: {_named(unread)}")


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


def _finish(source: Source, work: Work, encoder: ImageEncoder, texts: TextEncoder | None) -> Made:
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
    work.place()
    source.write_table(out / source.table)
    work.remove()
    shape = (progress.rows, *progress.shape)
    captions = None if texts is None else (progress.captions, progress.caption_dim)
    return Made(Counter(one.verdict for one in [*seen, *source.left_out]), shape, captions)


def _made_before(out: Path) -> Made:
    """Return what a finished folder holds; remove what a kill in the last moment left of the work."""
    shutil.rmtree(out / "unfinished", ignore_errors=True)
    verdicts = read_verdicts(out / VERDICTS).values()
    images, captions = (_shape(file_or_pieces(out / name)) for name in ("images.npy", "captions.npy"))
    assert images is not None  # else it was not made
    return Made(Counter(one.verdict for one in verdicts), images, captions, again=True)


def _shape(path: Path) -> tuple[int, ...] | None:
    """Return the shape of an array in a file, or in pieces; None where there is none."""
    if not path.exists():
        return None
    files = piece_files(path) if path.is_dir() else [path]
    shapes = [open_npy(file).shape for file in files]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])
