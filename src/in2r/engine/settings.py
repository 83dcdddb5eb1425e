"""All settings of a run: `in2r config show` prints them with their defaults and reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from in2r.build import ModelConfig
from in2r.config import fill, key, merge, parse_overrides, preset_file, presets, read_yaml
from in2r.errors import InputError, near
from in2r.methods import MethodConfig
from in2r.methods.in2r import In2rConfig


@dataclass(frozen=True)
class DataConfig:
    """Section `data`."""

    path: str = key("", "folder of the data set (precomp layout, or a pair table with features)")
    layout: Literal["auto", "precomp", "table"] = key("auto", "layout of the folder; auto looks at its files")
    dev_rule: Literal["scan", "ncr", "full"] = key(
        "scan",
        "part of a precomp dev split that is used: scan = 1,000 images; ncr = the field's slip (200 on "
        "Flickr30K); full",
    )
    caption_vectors: str | None = key(
        None,
        "precomputed caption vectors: the suffix in {split}_SUFFIX.npy, or auto for a table's captions.npy",
    )
    split_seed: int = key(0, "seed of the image-grouped split that is drawn where a pair table has none", low=0)
    skip_missing: bool = key(
        False, "leave out the rows of a pair table whose image is not there; false: refuse the table"
    )
    vocabulary: str | None = key(None, "vocabulary file (JSON); null = built from the training captions")
    min_count: int = key(4, "words rarer than this become <unk> (the field's)", low=1)
    word_vectors: str | None = key(None, "GloVe text file for the initial word embeddings; null = uniform ±0.1")
    residency: Literal["auto", "device", "pinned", "mapped"] = key(
        "auto",
        "where the features of train and dev lie while training, in the file's precision; nothing else depends on it. "
        "device: copied to where the run computes; pinned: copied to main memory and sent from page-locked memory (on "
        "a CPU the same as device); mapped: read from the file batch by batch. auto: on CUDA the first of these that "
        "fits (pinned in at most half of the free memory); elsewhere mapped, since the system itself keeps a file that "
        "is read often in free memory",
    )


@dataclass(frozen=True)
class NoiseConfig:
    """Section `noise`: mismatches injected on purpose, for measuring."""

    index: str | None = key(None, "index file (see `in2r noise make`); null = the pairs as they are")
    level: Literal["caption", "image"] | None = key(None, "declared protocol; the file is refused if it differs")
    ratio: float | None = key(None, "declared ratio; the file is refused if it differs", low=0, high=1)
    oracle: bool = key(
        False, "train on the truly matching pairs only: a ceiling that uses the truth, marked in every result"
    )
    hide_original: bool = key(
        False,
        "an analysis that uses the truth, marked in every result: a query finds nothing of its original image in the "
        "memory, neither the image nor a caption written for it",
    )


@dataclass(frozen=True)
class PartitionConfig:
    """Section `partition`: clean and noisy sets, made anew each epoch by each network for its peer."""

    loss: Literal["sce", "triplet-mean", "auto"] = key(
        "sce",
        "per-sample loss that is fitted; both are recorded. auto: sce where it calls many pairs noisy (sce_from), else "
        "triplet-mean, which does not call two fifths of clean pairs noisy",
    )
    sce_from: float = key(
        0.6,
        "loss auto: share of noisy pairs by the sce loss from which that loss is taken (it says 0.51 at 40 % noise, "
        "0.66 at 60 %; up to 40 % triplet-mean is within 0.02 of the truth: docs/results.md)",
        low=0,
        high=1,
    )
    threshold: float = key(0.5, "clean = clean probability above this (released code)", low=0, high=1)
    minimum_noisy_share: float = key(
        0.0,
        "share that counts as noisy when nothing is below the threshold (released code: 0.01)",
        low=0,
        high=0.5,
    )
    minimum_clean_share: float = key(
        0.01, "share, at least two pairs, that counts as clean when nothing is above the threshold", above=0, high=0.5
    )
    augmented: bool = key(False, "score augmented batches, as the released code does; false: stable losses")
    batch_size: int = key(128, "pairs that are each other's negatives in a per-sample loss", low=2)
    minimum_separation: float = key(
        2.0,
        "Ashman's D of the two components below which one Gaussian suffices (his bound for two modes; losses of one "
        "group that pile up at their lower end reach 2.3)",
        low=0,
    )
    single_mode: Literal["warmup", "split"] = key(
        "warmup",
        "when one suffices: warmup = the peer goes on with the warm-up loss on all pairs in this epoch; split = "
        "follow the two components all the same (released code)",
    )
    max_iter: int = key(10, "EM iterations (released code)", low=1)
    tol: float = key(1e-2, "EM stops below this gain (released code)", above=0)
    reg_covar: float = key(5e-4, "added to each variance (released code)", above=0)


@dataclass(frozen=True)
class TrainConfig:
    """Section `train`."""

    seed: int = key(0, "seed of everything drawn in the run", low=0)
    epochs: int = key(45, "epochs in all, the warm-up's included (paper: 5 + 40)", low=1)
    batch_size: int = key(128, "pairs in a batch (paper)", low=2)
    optimizer: Literal["adam", "adamw"] = key("adam", "optimiser (paper: Adam; released code: AdamW)")
    learning_rate: float = key(5e-4, "learning rate (paper)", above=0, high=1e30)
    weight_decay: float = key(0.0, "decay of AdamW (released code: 1e-4)", low=0)
    schedule: Literal["cosine", "step"] = key("cosine", "cosine over all epochs, set per epoch (paper); or step")
    step_epochs: int = key(15, "schedule step: epochs between two cuts (released code)", low=1)
    step_factor: float = key(0.1, "schedule step: factor of a cut (released code)", above=0, high=1)
    gradient_clip: float = key(2.0, "largest gradient norm (released code)", above=0)
    order: Literal["interleaved", "alternating"] = key(
        "interleaved", "a step of A, a step of B; or a whole epoch of A, then one of B (released code)"
    )
    initial_weights: Literal["copy", "independent"] = key(
        "copy", "B starts as a copy of A (released code), so that A can query B's memory; or on its own"
    )
    region_drop: float = key(0.2, "share of regions left out in training (VSE∞)", low=0, high=0.95)
    word_drop: float = key(
        0.2, "share of words touched in training: half masked, 10 % random, 40 % deleted", low=0, high=0.95
    )
    device: str = key("auto", "auto, cpu, cuda, cuda:1, mps: where everything runs")
    precision: Literal["auto", "float32", "bf16"] = key(
        "auto",
        "of the encoders' products in training; embeddings, losses and GPO's weights are float32 always. auto: bf16 on "
        "CUDA, float32 elsewhere",
    )
    threads: int | None = key(None, "CPU threads; null = PyTorch's default", low=1, high=1024)


@dataclass(frozen=True)
class CheckpointConfig:
    """Section `checkpoint`."""

    every_steps: int = key(1000, "steps between two checkpoints within an epoch (one more at each epoch's end)", low=1)
    keep: int = key(2, "newest checkpoints that stay on disk", low=1)
    warmups: str | None = key(
        None,
        "folder where the state after the warm-up is kept for runs that begin alike, and taken from, bit-identically; "
        "null = each run trains its own",
    )


@dataclass(frozen=True)
class RecordConfig:
    """Section `record`."""

    tensorboard: bool = key(False, "also write TensorBoard events (needs the extra `tensorboard`)")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run."""

    data: DataConfig = field(default_factory=DataConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: MethodConfig = field(default_factory=In2rConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    record: RecordConfig = field(default_factory=RecordConfig)


def load_config(source: str | Path | None = None, overrides: Iterable[str] = (), **sections: Any) -> RunConfig:
    """Resolve a run's settings: a preset's name or a YAML file, then sections, then `key=value` overrides.

    Raises:
        InputError: every fault of every section, in one line.
    """
    values = merge(merge(_source(source), sections), parse_overrides(overrides, RunConfig))
    return resolve(values)


def resolve(values: Mapping[str, Any]) -> RunConfig:
    """Fill a RunConfig from nested mappings; the method's own keys follow from `method.name`."""
    config = fill(RunConfig, values)
    _check(config)
    return config


def _source(source: str | Path | None) -> dict[str, Any]:
    if source is None:
        return {}
    if not Path(source).is_file():
        return _preset(source, f"{source}: neither a file nor a preset")
    values = read_yaml(source)
    if "preset" not in values:
        return values
    base = values.pop("preset")
    return merge(_preset(base, f"{source}: `preset` must name one, got {base!r}"), values)


def _preset(name: Any, fault: str) -> dict[str, Any]:
    if name not in presets():
        raise InputError(f"{fault}; presets: {', '.join(presets())}{near(str(name), presets())}")
    return read_yaml(preset_file(name))


def _check(config: RunConfig) -> None:
    """Refuse settings that contradict each other, or that nothing would heed."""
    for fault in (_method_fault(config), _noise_fault(config), _other_fault(config)):
        if fault:
            raise InputError(f"configuration: {fault}")


def _method_fault(config: RunConfig) -> str:
    method = config.method
    if not isinstance(method, In2rConfig):
        return ""
    attends = method.rectifier == "refiner" and method.refiner != "gcn"
    if attends and config.model.dim % method.refiner_heads:
        return f"`model.dim` ({config.model.dim}) must be a multiple of `method.refiner_heads` ({method.refiner_heads})"
    if method.memory_size is not None and method.memory_size < method.num_neighbors:
        return (
            f"`method.memory_size` ({method.memory_size}) must be at least `method.num_neighbors` "
            f"({method.num_neighbors})"
        )
    return ""


def _noise_fault(config: RunConfig) -> str:
    noise = config.noise
    if noise.hide_original and (noise.index is None or not isinstance(config.method, In2rConfig)):
        return "`noise.hide_original` needs a `noise.index` and `method.name=in2r`"
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


def _other_fault(config: RunConfig) -> str:
    train, positions = config.train, config.model.gpo_position_dim
    if train.weight_decay and train.optimizer != "adamw":
        return (
            f"`train.weight_decay` ({train.weight_decay:g}) is for `train.optimizer=adamw`; {train.optimizer} has none"
        )
    if positions % 2:
        return f"`model.gpo_position_dim` ({positions}) must be even: sines and cosines"
    return ""
