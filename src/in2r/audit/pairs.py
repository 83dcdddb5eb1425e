"""What an audit is given: vectors of all pairs that can be judged, and the user's whole table around them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.audit.evidence import Vectors
from in2r.audit.kept import Kept, Shown
from in2r.audit.voices import BLOCK
from in2r.data.duplicates import numbered
from in2r.data.features import Features, mean_regions, require_finite
from in2r.data.made_from import read_made_from
from in2r.data.noise import load_index
from in2r.data.pairs import DataSource, PairSet
from in2r.data.pictures import pictures_in, recorded_pictures
from in2r.data.sources import open_data
from in2r.data.table import TooFewToSplitError
from in2r.data.text.tfidf import Tfidf
from in2r.data.text.tokenizer import tokenize
from in2r.data.text.vocabulary import Vocabulary
from in2r.data.user_table import UserTable
from in2r.errors import InputError

FEWEST = 50
"""pairs, below which nothing can be told from chance"""
FEWEST_IMAGES = 10
"""two in each of five folds, which are mismatched with each other"""
EMPTY = "empty caption"
DIGEST = 16
"""bytes that stand for a row of values: two that differ share them by a chance of 1 in 2^128"""


@dataclass(frozen=True)
class Origin:
    """Where the judged pairs lie in a data folder.

    Attributes:
        source: the folder.
        splits: all of its splits, mismatched where noise was injected.
        pairs: (N,) int64, the place of each judged pair in all splits, one after the other.
        images: (n,) int64, the place of each of their images.
    """

    source: DataSource
    splits: Sequence[PairSet]
    pairs: Tensor
    images: Tensor


@dataclass(frozen=True)
class AuditPairs:
    """All rows of a table, and vectors of those that can be judged.

    Attributes:
        name: what the user calls the data, such as shop.csv.
        images: (rows,) the image of each row, as the table names it.
        captions: (rows,) the caption of each row; empty where captions are vectors alone.
        columns: the user's own columns by name, (rows,) each.
        judged: (N,) int64, the rows that have vectors, ascending.
        unjudged: row → why it has none.
        vectors: of the rows `judged`, in their order.
        same_caption: (N,) int64, equal for captions of the same words.
        table: the user's file, where there is one.
        files: image → its picture, where it is known.
        fingerprint: hashes of the data's files, where there are files.
        clean: (N,) whether each pair is right, where noise was injected; for measurement only.
        encoder: the record of what made the features, where there is one.
        words: what made vectors of captions; None where they have vectors of their own.
        origin: where they lie; None where no run is asked.
    """

    name: str
    images: Sequence[str]
    captions: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    judged: NDArray[np.int64]
    unjudged: Mapping[int, str]
    vectors: Vectors
    same_caption: NDArray[np.int64]
    table: UserTable | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] | None = None
    clean: NDArray[np.bool_] | None = None
    encoder: Mapping[str, Any] | None = None
    words: Tfidf | None = None
    origin: Origin | None = None

    def identity(self, seed: int) -> str:
        """Return a hash of the table and of the seed of the sample, 16 digits.

        Scores are no part of it: another machine rounds them otherwise.
        """
        digest = hashlib.sha256(str(seed).encode())
        for text in (*self.images, *self.captions):
            digest.update(text.encode() + b"\0")
        return digest.hexdigest()[:16]

    def shown(self) -> Shown:
        """Return what can be shown of the judged pairs."""
        rows = self.judged.tolist()
        return Shown(self.judged, [self.images[row] for row in rows], [self.captions[row] for row in rows], self.files)


def read_pairs(
    path: str | Path,
    *,
    text_dim: int,
    caption_vectors: str | None = None,
    layout: str = "auto",
    pictures: str | Path | None = None,
    noise: str | Path | None = None,
    against: Kept | None = None,
    for_runs: bool = False,
) -> AuditPairs:
    """Read all pairs of a data folder, whatever their split.

    Args:
        path: the folder.
        text_dim: width of TF-IDF vectors, where captions have none of their own.
        caption_vectors: file of caption vectors; None: captions.npy of a pair table, if it is there.
        layout: of the folder, as `open_data` takes it.
        pictures: a folder where an image's file has its id as name, with or without an ending; None: where
            image_verdicts.csv says.
        noise: a noise index file for the train split, whose pairs are then audited as it mismatches them.
        against: a kept audit, by which the pairs will be judged.
        for_runs: keep `origin`, which runs read features by; the mapped files then stay in memory.

    Raises:
        InputError: the folder cannot be read, or features are not finite. Without a kept audit: fewer than 50 pairs can
            be judged, or these have fewer than 10 images that are no copies of each other. With one: no pair can be
            judged, or the vectors are of another kind, encoder or width.
    """
    # a split cannot be drawn of one image; but a noise index belongs to the split that is drawn
    seed = None if against is not None and noise is None else 0

    def opened(vectors: str | bool | None) -> DataSource:
        return open_data(
            path,
            layout=layout,
            dev_rule="full",
            caption_vectors=vectors,
            split_seed=seed,
            skip_missing=True,
            announce=False,
        )

    try:
        source = opened(caption_vectors)
    except TooFewToSplitError as error:
        require_images(error.images, f"{path}: ")
        raise
    table = source.user_table()
    if caption_vectors is None and table is not None and source.unread_vectors() is not None:
        source = opened(True)
    if not source.split_names:
        raise InputError(f"{path}: no pairs of the layout that was chosen; leave --layout out")
    splits, clean = _mismatched([source.split(name) for name in source.split_names], noise)
    rows = _rows(source, table)
    images, captions, columns = _whole(source, splits, table, rows)
    texts_given = all(split.captions is not None for split in splits)
    unjudged = dict(table.left_out) if table is not None else {}
    empty = np.array([texts_given and not captions[row].strip() for row in rows.tolist()], dtype=bool)
    unjudged.update(dict.fromkeys(rows[empty].tolist(), EMPTY))
    order = np.argsort(rows, kind="stable")
    order = order[~empty[order]]
    require_pairs(len(order), f"{path}: ", FEWEST if against is None else 1)
    if against is not None:
        if against.encoder is not None and source.encoder() is None:
            raise InputError(
                f"{path}: no encoder.json, so nothing says whether its features are from the encoder of "
                f"{against.table}; make them by `in2r features`, or, if they are, copy encoder.json of that audit's "
                "data into the folder"
            )
        against.require_like(source.encoder(), splits[0].caption_vectors is not None, f"{path}: ")
    origin = Origin(source, splits, torch.from_numpy(order), _images_of(splits, torch.from_numpy(order))[0])
    vectors, same, words = _vectors(splits, origin.pairs, text_dim, against)
    require_comparable(vectors, against, f"{path}: ")
    return AuditPairs(
        name=_name(Path(path).resolve(), table),
        images=images,
        captions=captions,
        columns=columns,
        judged=rows[order],
        unjudged=unjudged,
        vectors=vectors,
        same_caption=same,
        table=table,
        files=recorded_pictures(Path(path)) if pictures is None else _pictures(Path(pictures), images),
        clean=None if noise is None else clean[order],
        fingerprint=source.fingerprint(),
        encoder=source.encoder(),
        words=words,
        origin=origin if for_runs else None,
    )


def _pictures(folder: Path, images: Sequence[str]) -> dict[str, Path]:
    """Return image → its file in a folder of pictures."""
    found = pictures_in(folder)
    return {image: found[image] for image in dict.fromkeys(images) if image in found}


def _name(folder: Path, table: UserTable | None) -> str:
    """Return what the user calls the data: the table that features were made from, else the folder."""
    made = read_made_from(folder)
    if made is not None:
        return made.name
    return folder.name if table is None else f"{folder.name}/{table.path.name}"


def require_pairs(count: int, place: str = "", fewest: int = FEWEST) -> None:
    """Raise `InputError` where too few pairs can be judged; `place` begins the message."""
    if count < fewest:
        raise InputError(f"{place}{count} pairs can be judged; an audit needs {fewest} or more")


def require_comparable(vectors: Vectors, against: Kept | None, place: str = "") -> None:
    """Raise `InputError` unless vectors are as wide as those of a kept audit; `place` begins the message.

    Without a kept audit: unless enough images are no copies of each other.
    """
    if against is not None:
        against.require_widths(vectors.images, vectors.texts, place)
    else:
        require_images(len(torch.unique(vectors.group_of_image)), place)


def require_images(count: int, place: str = "") -> None:
    """Raise `InputError` where too few images are no copies of each other; `place` begins the message."""
    if count < FEWEST_IMAGES:
        raise InputError(
            f"{place}pairs of {count} different image{'s' * (count != 1)} can be judged; an audit compares images and "
            f"needs {FEWEST_IMAGES} or more"
        )


def _mismatched(splits: Sequence[PairSet], noise: str | Path | None) -> tuple[Sequence[PairSet], NDArray[np.bool_]]:
    """Return the splits as a noise index mismatches train, and which pairs of all splits are right."""
    given, clean = [], []
    for split in splits:
        own = split.image_of_caption
        index = own
        if noise is not None and split.name == "train":
            index = load_index(noise, own).index
        given.append(replace(split, image_of_caption=index))
        clean.append(index == own)
    return given, np.concatenate(clean)


def _rows(source: DataSource, table: UserTable | None) -> NDArray[np.int64]:
    """Return the row of each pair of all splits, one split after the other."""
    found, start = [], 0
    for name in source.split_names:
        rows = np.asarray(source.caption_rows(name), dtype=np.int64)
        found.append(rows if table is not None else rows + start)  # the files of precomp splits follow each other
        start += len(rows)
    return np.concatenate(found)


def _whole(
    source: DataSource, splits: Sequence[PairSet], table: UserTable | None, rows: NDArray[np.int64]
) -> tuple[Sequence[str], Sequence[str], Mapping[str, Sequence[str]]]:
    """Return image and caption of every row, and the user's columns."""
    images = [split.image_ids[image] for split in splits for image in split.image_of_caption.tolist()]
    if table is not None:
        captions = [""] * len(table) if table.caption is None else table.columns[table.caption]
        named = list(table.columns[table.image])
        for row, image in zip(rows.tolist(), images, strict=True):
            named[row] = image  # another one where noise was injected
        return named, captions, table.columns
    captions = [text for split in splits for text in split.captions or [""] * len(split.image_of_caption)]
    parts = [split.name for split in splits for _ in split.image_of_caption]
    return images, captions, {"split": parts, "image": images, "caption": captions}


def _images_of(splits: Sequence[PairSet], pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the images of some pairs of all splits, ascending, and the number of each pair's image among these."""
    starts = np.cumsum([0, *(len(split.images) for split in splits)])
    owners = [split.image_of_caption + start for split, start in zip(splits, starts, strict=False)]
    kept, image_of_pair = torch.unique(torch.from_numpy(np.concatenate(owners))[pairs], return_inverse=True)
    return kept, image_of_pair


def _vectors(
    splits: Sequence[PairSet], pairs: Tensor, text_dim: int, against: Kept | None
) -> tuple[Vectors, NDArray[np.int64], Tfidf | None]:
    """Return the vectors of some pairs of all splits, and which of their captions have the same words.

    Returns:
        Also what made vectors of the words, where captions have none of their own.
    """
    for split in splits:
        for features in (split.images, split.caption_vectors):
            if features is not None:
                require_finite(features)
    kept, image_of_pair = _images_of(splits, pairs)
    images = _read([split.images for split in splits], kept)
    given = [split.caption_vectors for split in splits if split.caption_vectors is not None]
    words = [text for split in splits for text in split.captions or ()]
    texts, tfidf = text_vectors(_read(given, pairs) if given else None, words, text_dim, against)
    if tfidf is not None:
        texts = texts[pairs]
    same = same_words([words[pair] for pair in pairs.tolist()]) if words else same_rows(texts).numpy()
    return Vectors(images, texts, image_of_pair, same_rows(images)), same, tfidf


def _read(parts: Sequence[Features], items: Tensor) -> Tensor:
    """Return (items, dim), the means of regions of some items of all parts; each is in memory once.

    Vectors without regions that are stored in float16 stay so, which halves the memory and rounds nothing.
    """
    half = all(part.dtype == np.float16 and part.regions == 1 for part in parts)
    found, start = torch.empty((len(items), parts[0].dim), dtype=torch.float16 if half else torch.float32), 0
    for part in parts:
        inside = ((items >= start) & (items < start + len(part))).nonzero().squeeze(1)
        for some in torch.split(inside, BLOCK):
            found[some] = mean_regions(part.select((items[some] - start).numpy())).to(found.dtype)
        start += len(part)
    return found


def text_vectors(
    own: Tensor | None, captions: Sequence[str], dim: int, against: Kept | None
) -> tuple[Tensor, Tfidf | None]:
    """Return captions' own vectors if they have some, else those of their words and what made them.

    That is fitted on the captions, or is that of a kept audit.
    """
    if own is not None:
        return own, None
    known = None if against is None else against.words
    tfidf = known or fit_words(captions, dim)
    return tfidf.vectors(captions), tfidf


def fit_words(captions: Sequence[str], dim: int) -> Tfidf:
    """Return what makes TF-IDF vectors of captions; words that occur once tell nothing.

    Raises:
        InputError: no word occurs twice.
    """
    try:
        vocabulary = Vocabulary.build(captions, min_count=2)
    except InputError:
        raise InputError("no word occurs twice in all captions; give captions as vectors") from None
    return Tfidf.fit(captions, vocabulary, dim)


def same_words(captions: Sequence[str]) -> NDArray[np.int64]:
    """Return (N,) int64, equal for captions of the same words in the same order."""
    return numbered(tuple(tokenize(text)) for text in captions)


def same_rows(values: Tensor) -> Tensor:
    """Return (rows,) int64, equal for rows of equal values."""
    return torch.from_numpy(numbered(digests(values)))


def digests(values: Tensor) -> Iterator[bytes]:
    """Yield a hash of each row; equal for rows of equal values, in whatever precision they are held."""
    blocks = (block.float().numpy() for block in torch.split(values, BLOCK))
    return (hashlib.blake2b(row, digest_size=DIGEST).digest() for block in blocks for row in block)
