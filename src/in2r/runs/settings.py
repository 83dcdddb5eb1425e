"""All settings of a run: `in2r config show` prints them with their defaults and reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from in2r.config import deciding, fill, key, section, with_values
from in2r.errors import InputError
from in2r.files import expand_home
from in2r.methods import LossConfig, Method, MethodConfig, PartitionConfig, build_method, find_method
from in2r.methods.in2r import In2rConfig
from in2r.models.build import INTERACTION, REGION_NORM, ModelConfig, model_fault
from in2r.runs.presets import on_preset, presets, read_preset
from in2r.settings_text import merge, parse_overrides, read_yaml


@dataclass(frozen=True)
class DataConfig:
    """Section `data`."""

    path: str = key("", "folder of the data set (precomp layout, or a pair table with features)", decides="place")
    layout: Literal["auto", "precomp", "table"] = key("auto", "layout of the folder; auto looks at its files")
    dev_rule: Literal["scan", "ncr", "full"] = key(
        "scan",
        "part of a precomp dev split that is used: scan = 1,000 images; ncr = what the field's code does by mistake "
        "(200 on Flickr30K); full",
    )
    caption_vectors: str | None = key(
        None,
        "precomputed caption vectors: the suffix in {split}_SUFFIX.npy, or auto for a table's captions.npy",
    )
    split_seed: int = key(0, "seed of the split by images that is drawn if a pair table has none", low=0)
    skip_missing: bool = key(
        False, "leave out the rows of a pair table whose image is not there; false: refuse the table"
    )
    leave_out: str | None = key(
        None, "file of row numbers, such as an audit's drop.txt: these rows are not trained on", decides="place"
    )
    vocabulary: str | None = key(
        None, "vocabulary file (JSON); null = built from the training captions", decides="place"
    )
    min_count: int = key(4, "words rarer than this become <unk> (the field's)", low=1)
    word_vectors: str | None = key(
        None, "GloVe text file for the initial word embeddings; null = uniform ±0.1", decides="place"
    )
    residency: Literal["auto", "device", "pinned", "mapped"] = key(
        "auto",
        "where the features of train and dev lie while training, in the file's precision; no result depends on it. "
        "device: copied to the device; pinned: copied to page-locked main memory (on a CPU the same as device); "
        "mapped: read from the file batch by batch. auto: on CUDA the first of these that fits (pinned in at most half "
        "of the free memory); elsewhere mapped, because the system keeps a file that is read often in free memory",
        decides="computing",
    )


@dataclass(frozen=True)
class NoiseConfig:
    """Section `noise`: mismatches injected on purpose, for measuring."""

    index: str | None = key(None, "index file (see `in2r noise make`); null = the pairs as they are", decides="place")
    level: Literal["caption", "image"] | None = key(None, "declared protocol; the file is refused if it differs")
    ratio: float | None = key(None, "declared ratio; the file is refused if it differs", low=0, high=1)
    oracle: bool = key(
        False, "train on the truly matching pairs only: a ceiling that uses the truth, marked in every result"
    )
    hide_original: bool = key(
        False,
        "an analysis that uses the truth, marked in every result: a query finds nothing of its original image in the "
        "memory, neither the image nor a caption written for it",
        decides="main phase",
    )


@dataclass(frozen=True)
class TrainConfig:
    """Section `train`."""

    seed: int = key(0, "seed of everything drawn in the run", low=0)
    epochs: int = key(45, "epochs in all, the warm-up's included (IN²R's paper: 5 + 40)", low=1)
    batch_size: int = key(128, "pairs in a batch (IN²R's paper); images, with batch_of=images", low=2)
    batch_of: Literal["pairs", "images"] = key(
        "pairs",
        "what a batch is made of: pairs (the field's); or images, each encoded once beside captions_per_image of its "
        "pairs, drawn anew in each epoch, which are no negatives of each other",
    )
    captions_per_image: int = key(3, "batch_of images: pairs of an image in a batch, at most", low=1, high=10_000)
    optimizer: Literal["adam", "adamw"] = key("adam", "optimiser (IN²R's paper: Adam; its code: AdamW)")
    learning_rate: float = key(5e-4, "learning rate (IN²R's paper)", above=0, high=1e30)
    weight_decay: float = key(0.0, "decay of AdamW (IN²R's code: 1e-4)", low=0)
    schedule: Literal["cosine", "step"] = key("cosine", "cosine (IN²R's paper); or cuts, schedule step")
    schedule_per: Literal["epoch", "step"] = key(
        "epoch", "schedule cosine: the learning rate is set before each epoch (IN²R's paper), or before each step"
    )
    step_epochs: int = key(15, "schedule step: epochs between two cuts (IN²R's code)", low=1)
    step_factor: float = key(0.1, "schedule step: factor of a cut (IN²R's code)", above=0, high=1)
    schedule_from: Literal["start", "main", "phase"] = key(
        "start",
        "the epoch that the schedule counts from: the first one; or the first after the warm-up, which then runs at "
        "the full learning rate (NCR's family); phase: it runs anew in the warm-up and in each round after it",
    )
    ramp_steps: int = key(
        0,
        "steps of a network at the start of a phase, over which the learning rate rises linearly; at most a third of "
        "the phase",
        low=0,
    )
    gradient_clip: float = key(2.0, "largest gradient norm (IN²R's code)", above=0)
    order: Literal["interleaved", "alternating"] = key(
        "interleaved", "a step of A, a step of B; or a whole epoch of A, then one of B (IN²R's code)"
    )
    initial_weights: Literal["copy", "independent"] = key(
        "copy",
        "copy: B starts as A's copy (IN²R's code), so that A can search B's memory; or each from its own weights",
    )
    region_drop: float = key(0.2, "share of regions left out in training (VSE∞)", low=0, high=0.95)
    region_drop_by: Literal["region", "image"] = key(
        "region",
        "region: each region is left out with that chance (VSE∞); image: that share of an image's regions, rounded, so "
        "that all images keep equally many",
    )
    word_drop: float = key(
        0.2,
        "share of words changed in training: half masked, 10 % exchanged for a random one, 40 % deleted",
        low=0,
        high=0.95,
    )
    device: str = key("auto", "auto, cpu, cuda, cuda:1, mps: where everything runs", decides="computing")
    precision: Literal["auto", "float32", "bf16"] = key(
        "auto",
        "of the encoders' products in training; embeddings, losses and GPO's weights are float32 always. auto: bf16 on "
        "CUDA, float32 elsewhere",
    )
    threads: int | None = key(None, "CPU threads; null = PyTorch's default", low=1, high=1024, decides="computing")


@dataclass(frozen=True)
class CheckpointConfig:
    """Section `checkpoint`."""

    every_steps: int = key(1000, "steps between two checkpoints within an epoch (one more at each epoch's end)", low=1)
    keep: int = key(2, "number of newest checkpoints that are kept", low=1)
    warmups: str | None = key(
        None,
        "folder where the state after the warm-up is kept for other runs with the same warm-up, which then take it "
        "over bit-identically; null = each run trains its own",
    )


@dataclass(frozen=True)
class RecordConfig:
    """Section `record`."""

    tensorboard: bool = key(False, "also write TensorBoard events (needs the extra `tensorboard`)")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run."""

    data: DataConfig = section(DataConfig)
    noise: NoiseConfig = section(NoiseConfig)
    model: ModelConfig = section(ModelConfig)
    method: MethodConfig = section(In2rConfig, decides="main phase", choose=lambda name: find_method(name).Config)
    partition: PartitionConfig = section(PartitionConfig, decides="main phase")
    loss: LossConfig = section(LossConfig, decides="main phase")
    train: TrainConfig = section(TrainConfig)
    checkpoint: CheckpointConfig = section(CheckpointConfig, decides="keeping")
    record: RecordConfig = section(RecordConfig, decides="keeping")


def load_config(source: str | Path | None = None, overrides: Iterable[str] = (), **sections: Any) -> RunConfig:
    """Resolve a run's settings: a preset's name or a YAML file, then sections, then `key=value` overrides.

    Raises:
        InputError: every fault of every section, in one line.
    """
    values = merge(merge(_source(source), sections), parse_overrides(overrides, RunConfig))
    return resolve(values)


def resolve(values: Mapping[str, Any]) -> RunConfig:
    """Fill a RunConfig from nested mappings; the method's own keys follow from `method.name`."""
    config = _at_home(fill(RunConfig, values))
    _check(config)
    return config


def paths(config: RunConfig) -> dict[str, str]:
    """Return the values of the keys that name a file or folder, as `section.key`, where they have one."""
    found = {**deciding(config, "place"), "checkpoint.warmups": config.checkpoint.warmups}
    return {name: path for name, path in found.items() if path}


def _at_home(config: RunConfig) -> RunConfig:
    """Expand `~` in all paths."""
    expanded, faults = {}, []
    for name, path in paths(config).items():
        try:
            expanded[name] = expand_home(path)
        except InputError as error:
            faults.append(f"`{name}`: {error}")
    if faults:
        raise InputError("configuration: " + "; ".join(faults))
    return with_values(config, expanded)


def _source(source: str | Path | None) -> dict[str, Any]:
    if source is None:
        return {}
    if str(source) in presets() or not Path(source).is_file():  # a file of a preset's name is meant by ./NAME
        settings = read_preset(str(source))
        if "name" not in settings.get("method", {}):
            raise InputError(f"{source}: names no method; put it after one, such as corroborate+{source}")
        return settings
    values = read_yaml(source)
    try:
        return on_preset(values)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _check(config: RunConfig) -> None:
    """Refuse settings that contradict each other, or that have no effect."""
    method = build_method(config.method, config.partition, config.loss)
    faults = (
        method.fault(config.model.dim),
        _noise_fault(config),
        model_fault(config.model),
        _pair_fault(config, method),
        _other_fault(config),
    )
    for fault in faults:
        if fault:
            raise InputError(f"configuration: {fault}")


def _noise_fault(config: RunConfig) -> str:
    noise = config.noise
    if noise.hide_original and (noise.index is None or not find_method(config.method.name).looks_up):
        return "`noise.hide_original` needs a `noise.index` and a method that looks pairs up, such as in2r"
    if noise.index is not None and config.data.leave_out is not None:
        return "`data.leave_out` does not go with a `noise.index`, which is of all training pairs"
    if noise.index is not None:
        return ""
    if noise.oracle:
        return "`noise.oracle` needs a `noise.index` to know the truth from"
    nothing = "is declared without a `noise.index`, so nothing would be mismatched; `in2r noise make` creates one"
    if noise.ratio:
        return f"`noise.ratio` ({noise.ratio:g}) {nothing}"
    if noise.level is not None and noise.ratio is None:  # ratio 0 says itself that nothing is
        return f"`noise.level` ({noise.level}) {nothing}"
    return ""


def _pair_fault(config: RunConfig, method: Method) -> str:
    """Say what the method asks of a backbone that this one does not have."""
    model, name = config.model, config.method.name
    if model.backbone in INTERACTION and method.compares_vectors:
        return f"{name} compares vectors, and model.backbone={model.backbone} makes none that tell what S is"
    if model.backbone not in INTERACTION and method.reads_parts:
        return (
            f"{name} reads regions and words ({', '.join(method.reads_parts)}), and model.backbone={model.backbone} "
            "makes one vector of each item; leave that setting out, or use model.backbone=sgr, saf or scan"
        )
    if model.backbone != "scan":
        return ""
    if method.reads_vectors:
        return (
            f"{name} reads the vector of a whole image and of a whole caption ({', '.join(method.reads_vectors)}), and "
            "model.backbone=scan learns none; use model.backbone=gpo, vsepp, sgr or saf"
        )
    if method.needs_bounded and model.scan_pooling == "lse":
        return (
            f"{name} takes S for a number in [-1, 1], which model.scan_pooling=lse exceeds; set model.scan_pooling=mean"
        )
    return ""


def _other_fault(config: RunConfig) -> str:
    train, positions = config.train, config.model.gpo_position_dim
    if train.weight_decay and train.optimizer != "adamw":
        return (
            f"`train.weight_decay` ({train.weight_decay:g}) is for `train.optimizer=adamw`; {train.optimizer} has none"
        )
    if config.model.backbone in REGION_NORM and train.region_drop:
        return (
            f"`train.region_drop` ({train.region_drop:g}) must be 0 for model.backbone={config.model.backbone}: its "
            "BatchNorm has one channel per region, whose statistics would be those of the regions that stay"
        )
    whole = any(walk.whole for walk in find_method(config.method.name).sets)
    if train.batch_of == "images" and train.captions_per_image > 1 and whole:
        return (
            f"`train.captions_per_image` ({train.captions_per_image}) must be 1 for {config.method.name}, which needs "
            "batches of one size"
        )
    if positions % 2:
        return f"`model.gpo_position_dim` ({positions}) must be even: sines and cosines"
    return ""
