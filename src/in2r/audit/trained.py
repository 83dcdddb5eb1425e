"""The evidence of trained runs: a pair is judged by networks that were not trained on its image or a copy of it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.audit.evidence import TRAINED, Vectors, folds_of_images
from in2r.audit.pairs import AuditPairs, Origin, digests
from in2r.audit.settings import AuditConfig
from in2r.audit.voices import BLOCK
from in2r.config import with_values
from in2r.data.features import mean_regions
from in2r.data.left_out import LeftOut, read_row_numbers
from in2r.data.pairs import DataSource, PairSet
from in2r.data.rows import read_text
from in2r.data.sources import open_configured
from in2r.errors import InputError
from in2r.evidence import lead_over_strangers
from in2r.files import write_text
from in2r.models.build import INTERACTION
from in2r.models.folder import load
from in2r.models.retrieval import RetrievalModel
from in2r.results import export_model
from in2r.runs.folder import RunFolder
from in2r.runs.identity import changed_settings
from in2r.runs.settings import RunConfig
from in2r.seeds import torch_generator
from in2r.training.loop import Display
from in2r.training.train import reopen, resume_run, start_run

log = logging.getLogger(__name__)

HALVES = 2
"""runs of an audit, each without one half of the images: together they cost as many steps as one run on all pairs"""


def train_halves(
    out: Path, pairs: AuditPairs, config: AuditConfig, settings: RunConfig, display: Display
) -> list[Path]:
    """Train two runs, each without the pairs of one half of the images; resume what an earlier call began.

    A run reads the train split without its half, and is selected on the dev split. Both judge pairs of dev and test.

    Args:
        out: the folder of both runs.
        pairs: what is audited.
        config: the audit's settings.
        settings: of the runs; `data` is the audited folder.
        display: shows their progress.

    Returns:
        The run folders.

    Raises:
        InputError: the data cannot be trained on, or the folder holds runs of other settings.
    """
    if settings.model.backbone in INTERACTION:
        raise InputError(
            f"model.backbone={settings.model.backbone} compares words with regions; an audit needs a vector for each "
            "item"
        )
    if pairs.origin is None or "train" not in pairs.origin.source.split_names:
        raise InputError(f"{pairs.name}: no row belongs to the train split, so nothing can be trained on")
    half = folds_of_images(pairs.vectors.group_of_image, config)[pairs.vectors.image_of_pair] % HALVES
    found = []
    for number in range(HALVES):
        rows = "".join(f"{row}\n" for row in pairs.judged[(half == number).numpy()].tolist())
        file, run = out / f"without_{number}.txt", RunFolder(out / f"half_{number}")
        chosen = with_values(settings, {"data.leave_out": str(file)})
        if run.exists():
            _require_same(run, chosen, rows)
            resume_run(run.path, display)
        else:
            out.mkdir(parents=True, exist_ok=True)
            write_text(file, rows)
            start_run(run.path, chosen, display)
        export_model(run, reopen(run))
        found.append(run.path)
    return found


def _require_same(run: RunFolder, settings: RunConfig, rows: str) -> None:
    faults = changed_settings(run.info()["settings"], settings)
    if read_text(run.left_out_file) != rows:
        faults.append("the rows that are left out")
    if faults:
        raise InputError(
            f"{run.path}: was trained with other settings: {', '.join(faults)}; remove {run.path.parent}, or give "
            "another folder by --out"
        )


@dataclass(frozen=True)
class TrainedScorer:
    """The evidence of runs for any pairs of an audit's images and captions.

    Attributes:
        names: of both kinds of evidence.
        runs: the run folders.
        model_of_image: (n,) int64, which run judges an image's pairs.
        vectors: what is audited.
        images: (n, D), by the run that judges the image.
        texts: (N, D), by the run that judges the caption's own image.
        strangers: (S,) int64, random pairs.
        strange: of each run, their images and captions (S, D).
        temperature: of the lead.
    """

    names: Sequence[str]
    runs: Sequence[str]
    model_of_image: Tensor
    vectors: Vectors
    images: Tensor
    texts: Tensor
    strangers: Tensor
    strange: Sequence[tuple[Tensor, Tensor]]
    temperature: float

    def __call__(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return similarity and lead, (P, 2); NaN where no run judges both the image and the caption's own one."""
        data, result = self.vectors, torch.full((len(images), len(self.names)), torch.nan)
        home = data.image_of_pair[texts]
        model = self.model_of_image[images]
        known = model == self.model_of_image[home]
        group_of_stranger = data.group_of_image[data.image_of_pair[self.strangers]]
        for number, strange in enumerate(self.strange):
            for some in torch.split((known & (model == number)).nonzero().squeeze(1), BLOCK):
                v, u = self.images[images[some]], self.texts[texts[some]]
                groups = torch.stack([data.group_of_image[images[some]], data.group_of_image[home[some]]], dim=1)
                lead = lead_over_strangers(v, u, groups, *strange, group_of_stranger, self.temperature)
                result[some] = torch.stack([(v * u).sum(dim=1), lead], dim=1)
        return result


def trained_scorer(runs: Sequence[Path], pairs: AuditPairs, config: AuditConfig, device: str = "auto") -> TrainedScorer:
    """Return the evidence of runs.

    Args:
        runs: run folders. Each image needs one that was not trained on it; a run on other data has seen none of them.
        pairs: what is audited.
        config: the audit's settings.
        device: where the networks compute.

    Raises:
        InputError: no run; one that compares words with regions, or takes other features; an image that all were
            trained on.
    """
    data, origin = pairs.vectors, pairs.origin
    if origin is None:
        raise InputError(f"{pairs.name}: not from a data folder, whose features a run could read")
    models = [_model(run, origin, device) for run in runs]
    knows = torch.stack([_images_trained_on(run, origin, data, pairs.judged) for run in runs])
    unjudged = int(knows.all(dim=0).sum())
    if unjudged:
        raise InputError(
            f"{', '.join(map(str, runs))}: trained on {unjudged:,} of the {len(data.images):,} images, so another run "
            "must judge these; --train trains two, each of which judges what the other has seen"
        )
    fold = folds_of_images(data.group_of_image, config)
    place = (~knows).cumsum(dim=0) - 1  # of each run among those that have not seen an image
    chosen = ~knows & (place == fold % (~knows).sum(dim=0))
    model_of_image = chosen.int().argmax(dim=0)
    drawn = torch.randperm(len(data.image_of_pair), generator=torch_generator(config.seed, "strangers of runs"))
    strangers = drawn[: config.strangers]
    width = max(model.dim for model in models)
    images, texts = torch.zeros(len(data.images), width), torch.zeros(len(data.image_of_pair), width)
    strange = []
    for number, model in enumerate(models):
        own = (model_of_image == number).nonzero().squeeze(1)
        images[own, : model.dim] = _images(model, origin, own)
        own = (model_of_image[data.image_of_pair] == number).nonzero().squeeze(1)
        texts[own, : model.dim] = _texts(model, origin, own)
        both = torch.zeros(2, len(strangers), width)
        both[0, :, : model.dim] = _images(model, origin, data.image_of_pair[strangers])
        both[1, :, : model.dim] = _texts(model, origin, strangers)
        strange.append((both[0], both[1]))
    names = [str(run) for run in runs]
    return TrainedScorer(
        TRAINED, names, model_of_image, data, images, texts, strangers, strange, config.lead_temperature
    )


def _model(run: Path, origin: Origin, device: str) -> RetrievalModel:
    model = load(RunFolder(run).require().model, device, data=origin.source.path)
    if model.interacts:
        raise InputError(f"{run}: compares words with regions; an audit needs a run with a vector for each item")
    return model


def _images_trained_on(run: Path, origin: Origin, vectors: Vectors, rows: NDArray[np.int64]) -> Tensor:
    """Return (n,) bool: images of which a run has trained on a pair, or on one of a copy.

    Of a run that was trained on other data, images with equal features count as copies.
    """
    folder = RunFolder(run).require()
    data, path = folder.config().data, origin.source.path
    whole = open_configured(with_values(folder.config(), {"data.path": str(path), "data.leave_out": None}).data)
    source: DataSource = whole
    trained_on = folder.info()["data"]["fingerprint"]["splits"]["train"]["hash"]
    try:
        if data.leave_out is not None:
            source = LeftOut(whole, read_row_numbers(folder.left_out_file), str(folder.left_out_file))
        same = "train" in source.split_names and source.fingerprint()["splits"]["train"]["hash"] == trained_on
    except InputError:  # rows that these data do not have
        same = False
    if not same:
        if Path(data.path).resolve() == path.resolve():
            raise InputError(f"{run}: {path} has changed since it was trained on; what it has seen is not known")
        seen = _copies_elsewhere(folder, vectors.images).nonzero().squeeze(1)
    else:
        seen = vectors.image_of_pair[torch.from_numpy(np.isin(rows, source.caption_rows("train")))]
    groups = torch.zeros(int(vectors.group_of_image.max()) + 1, dtype=torch.bool)
    groups[vectors.group_of_image[seen]] = True
    return groups[vectors.group_of_image]


def _copies_elsewhere(run: RunFolder, images: Tensor) -> Tensor:
    """Return (n,) bool: which images (n, f) have the features of an image that a run was trained on elsewhere."""
    config = run.config()
    file = str(run.left_out_file) if config.data.leave_out is not None else None
    try:
        found = open_configured(with_values(config, {"data.leave_out": file}).data).split("train").images
    except InputError as error:
        log.warning(
            "%s: trained on other data, which cannot be read (%s); what it has seen is not known", run.path, error
        )
        return torch.zeros(len(images), dtype=torch.bool)
    known = {
        digest
        for part in np.array_split(np.arange(len(found)), max(1, len(found) // BLOCK))
        for digest in digests(mean_regions(found.select(part)))
    }
    return torch.tensor([digest in known for digest in digests(images)], dtype=torch.bool)


def _images(model: RetrievalModel, origin: Origin, images: Tensor) -> Tensor:
    """Return the vectors (k, dim) of some of the audit's images."""

    def encode(split: PairSet, items: Tensor) -> NDArray[np.float32]:
        values, mask = split.images.gather(items)
        return model.encode_images(values.numpy(), None if mask is None else mask.sum(dim=1).numpy())

    return _encoded(encode, origin.splits, [len(split.images) for split in origin.splits], origin.images[images], model)


def _texts(model: RetrievalModel, origin: Origin, pairs: Tensor) -> Tensor:
    """Return the vectors (k, dim) of the captions of some of the audit's pairs."""

    def encode(split: PairSet, items: Tensor) -> NDArray[np.float32]:
        if model.info["inputs"]["text"] == "vectors":
            if split.caption_vectors is None:
                raise InputError(f"{split.images.source}: no caption vectors, which the run was trained on")
            return model.encode_captions(split.caption_vectors.gather(items)[0][:, 0].numpy())
        if split.captions is None:
            raise InputError(f"{split.images.source}: no captions as text, which the run was trained on")
        return model.encode_captions([split.captions[item] for item in items.tolist()])

    counts = [len(split.image_of_caption) for split in origin.splits]
    return _encoded(encode, origin.splits, counts, origin.pairs[pairs], model)


def _encoded(
    encode: Callable[[PairSet, Tensor], NDArray[np.float32]],
    splits: Sequence[PairSet],
    counts: Sequence[int],
    places: Tensor,
    model: RetrievalModel,
) -> Tensor:
    """Encode items whose places are counted over all splits, block by block."""
    found, start = torch.empty(len(places), model.dim), 0
    for split, count in zip(splits, counts, strict=True):
        inside = ((places >= start) & (places < start + count)).nonzero().squeeze(1)
        for some in torch.split(inside, BLOCK) if len(inside) else ():
            found[some] = torch.from_numpy(encode(split, places[some] - start))
        start += count
    return found
