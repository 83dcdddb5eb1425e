"""From settings to data: everything that training, evaluation and scoring of a run share."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from in2r.data.features import Features, require_finite
from in2r.data.noise import NoiseIndex, load_index
from in2r.data.pairs import DataSource, PairSet, require_usable
from in2r.data.sources import open_configured
from in2r.data.text.vocabulary import PackedTokens, Vocabulary
from in2r.errors import InputError
from in2r.models.build import Inputs, text_kind
from in2r.processes import ALONE, Processes
from in2r.runs.settings import RunConfig
from in2r.training.pairs import TrainingData

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """The opened data of a run."""

    config: RunConfig
    source: DataSource
    train: PairSet
    vocabulary: Vocabulary | None
    noise: NoiseIndex | None
    inputs: Inputs
    device: torch.device
    changes: tuple[str, ...] = ()
    """what has changed since the start of the run, and is used by force"""
    processes: Processes = ALONE
    """those that train the run together"""

    def texts(self, split: PairSet) -> Features | PackedTokens:
        """Return a split's captions as the text encoder takes them; warn where many words are unknown."""
        if self.vocabulary is None:
            assert split.caption_vectors is not None
            return split.caption_vectors
        assert split.captions is not None
        tokens = self.vocabulary.encode(split.captions)
        vocabulary = self.config.data.vocabulary or "the vocabulary"
        if split.name == "train" and tokens.unknown_share == 1:
            raise InputError(f"{vocabulary}: holds no word of the training captions in {self.source.path}")
        unknown = tokens.unknown_words(vocabulary)
        if unknown:
            log.warning("%s captions: %s", split.name, unknown)
        return tokens

    def split(self, name: str) -> PairSet:
        """Open a split, checked; its features have the dimensions of the training split's."""
        split = self.source.split(name)
        check_split(split, self.vocabulary is None)
        _require_same_dim(split.images, self.train.images)
        if self.vocabulary is None:
            _require_same_dim(split.caption_vectors, self.train.caption_vectors)
        return split

    def training_data(self) -> TrainingData:
        """Return the training pairs as batches; in an oracle run only the truly matching ones."""
        given = self.train.image_of_caption if self.noise is None else self.noise.index
        pairs = torch.arange(len(given))
        if self.config.noise.oracle:
            assert self.noise is not None
            pairs = pairs[torch.as_tensor(self.noise.clean)]
        if len(pairs) < 2:
            raise InputError(f"{self.source.path}: {len(pairs)} training pairs, at least two are needed")
        texts = self.texts(self.train)
        return TrainingData(
            images=self.train.images,
            texts=texts,
            image_of_pair=torch.as_tensor(given),
            pairs=pairs,
            device=self.device,
            region_drop=self.config.train.region_drop,
            word_drop=self.config.train.word_drop,
            vocabulary_size=0 if self.vocabulary is None else len(self.vocabulary),
            mask_id=0 if self.vocabulary is None else self.vocabulary.mask_id,
            by_image=self.config.train.batch_of == "images",
            region_drop_exact=self.config.train.region_drop_by == "image",
            processes=self.processes,
        )

    def noise_record(self) -> dict[str, Any] | None:
        """Describe the injected noise for results, or None."""
        if self.noise is None:
            return None
        return {
            "file": Path(str(self.config.noise.index)).name,
            "level": self.noise.level,
            "nominal": self.noise.nominal,
            "seed": self.noise.seed,
            "sha256": self.noise.sha256,
            "oracle": self.config.noise.oracle,
            "hide_original": self.config.noise.hide_original,
            **self.noise.statistics(),
        }


def open_setup(
    config: RunConfig,
    device: torch.device,
    vocabulary: Vocabulary | None = None,
    noise_file: Path | None = None,
    *,
    first: bool = True,
) -> Setup:
    """Open the data of a run and check it.

    Args:
        config: the run's settings.
        device: where it will compute.
        vocabulary: the run's own vocabulary where it exists already; else it is read or built from the settings.
        noise_file: the run's own copy of the noise index where it exists already; else the settings' file is read.
        first: look at every training feature for NaN and infinity, and say which split was drawn; once is enough for
            the same data.

    Raises:
        InputError: whatever cannot be used, with its place.
    """
    data = config.data
    if not data.path:
        raise InputError("configuration: `data.path` is empty; give the folder of the data set")
    source = open_configured(data, announce=first)
    _refuse_shared_images(source)
    train = source.split("train")
    if first and data.leave_out is not None:
        log.info(
            "%s training pairs are left, without the rows in %s", f"{len(train.image_of_caption):,}", data.leave_out
        )
    kind = text_kind(config.model, "vectors" if train.caption_vectors is not None else "words")
    check_split(train, kind == "vectors", first)
    if first and kind == "words":
        _say_odd_captions(train)
    if kind == "words" and vocabulary is None:
        assert train.captions is not None
        vocabulary = (
            Vocabulary.load(data.vocabulary) if data.vocabulary else Vocabulary.build(train.captions, data.min_count)
        )
    noise = None
    if config.noise.index is not None:
        file = noise_file or config.noise.index
        noise = load_index(file, train.image_of_caption, level=config.noise.level, ratio=config.noise.ratio)
    if kind == "words":
        assert vocabulary is not None
        inputs = Inputs(train.images.dim, "words", len(vocabulary), train.images.regions)
    else:
        assert train.caption_vectors is not None
        inputs = Inputs(train.images.dim, "vectors", train.caption_vectors.dim, train.images.regions)
    return Setup(config, source, train, vocabulary if kind == "words" else None, noise, inputs, device)


def _say_odd_captions(train: PairSet) -> None:
    """Log empty and repeated captions; they are trained on."""
    assert train.captions is not None
    empty = sum(not caption.strip() for caption in train.captions)
    again = len(train.captions) - empty - len({caption for caption in train.captions if caption.strip()})
    if empty or again:
        log.log(
            logging.WARNING if empty else logging.INFO,
            "of %d training captions %d are empty and %d repeat an earlier one; `in2r data check` names them",
            len(train.captions), empty, again,
        )  # fmt: skip


def _refuse_shared_images(source: DataSource) -> None:
    """Refuse images that lie in several splits; a precomp folder has no ids by which to find them."""
    shared = source.images_in_several_splits()
    if shared:
        image, line = shared[0]
        raise InputError(
            f"{source.path}: {len(shared)} images lie in several splits (image {image} in line {line}); all captions "
            "of an image belong to one"
        )


def _require_same_dim(found: Features | None, trained: Features | None) -> None:
    assert found is not None
    assert trained is not None
    if found.dim != trained.dim:
        raise InputError(f"{found.source}: dim {found.dim}, but {trained.source} has {trained.dim}")


def check_split(split: PairSet, vectors: bool, scan: bool = True) -> None:
    """Refuse a split that cannot be used, or not as the run takes captions; with `scan`, also NaN and infinity."""
    require_usable(split)
    if not vectors and split.captions is None:
        raise InputError(f"{split.images.source}: {split.name} has captions as vectors only, the run needs their texts")
    if not scan:
        return
    require_finite(split.images)
    if vectors:
        assert split.caption_vectors is not None
        require_finite(split.caption_vectors)
