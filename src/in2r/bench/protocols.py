"""What a result says of how it was measured, and what must be equal before two figures may be compared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from in2r.runs.info import MethodFile


@dataclass(frozen=True)
class Noise:
    """The injected mismatches."""

    level: str
    nominal: float | None
    """the ratio that the index was drawn for, in [0, 1]; None = the file does not say"""
    realised: float
    sha256: str
    oracle: bool = False
    """the run was trained on the truly matching pairs only"""
    hide_original: bool = False
    """the run found nothing of a query's original image in the memory"""


@dataclass(frozen=True)
class Data:
    """The data, and how captions were given."""

    path: str
    fingerprint: str
    fingerprint_in_training: str
    captions_as: str
    caption_vectors: str | None
    dev_rule: str


@dataclass(frozen=True)
class Selection:
    """How the epoch was selected, and which one it is."""

    rule: str
    epoch: int


@dataclass(frozen=True)
class Trained:
    """When and on what a run was trained."""

    created: str
    versions: dict[str, str]
    device: str
    device_name: str | None
    threads: int


@dataclass(frozen=True)
class Duplicates:
    """How many test items have an identical copy elsewhere, and what a copy of the right item counts as."""

    counted_as: str = "wrong"
    """right, or wrong as in the literature: the only way that an older in2r had"""
    images: int = 0
    captions: int = 0


@dataclass(frozen=True)
class Evaluated:
    """What a run was tested on."""

    split: str
    images: int
    captions: int
    folds: int
    tie_rule: str
    duplicates: Duplicates = Duplicates()


@dataclass(frozen=True)
class Forced:
    """Changes of data or settings in spite of which a run was trained, or tested."""

    training: tuple[str, ...] = ()
    now: tuple[str, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """The part of a result's `protocol` that tables and figures read."""

    data: Data
    noise: Noise | None
    finished: bool
    epochs_done: int
    steps_per_network: dict[str, int]
    selection: Selection
    trained: Trained
    date: str
    evaluated: Evaluated
    method_file: MethodFile | None = None
    forced: Forced = Forced()
    changed_settings: tuple[str, ...] = ()

    @property
    def was_forced(self) -> bool:
        """Whether the run was trained or tested in spite of changed data or settings."""
        return bool(self.forced.training or self.forced.now)

    @property
    def seed_noise(self) -> tuple[str, float] | None:
        """The hash and the realised ratio of the noise index, which runs of one seed must agree in."""
        return None if self.noise is None else (self.noise.sha256, self.noise.realised)

    def shared(self) -> dict[str, Any]:
        """Return what runs of any seed must agree in: noise, candidates, selection, data, as plain values.

        The steps, the method and its settings are what is compared; they do not count.
        """
        noise, data, evaluated = self.noise, self.data, self.evaluated
        ratio = None if noise is None else noise.nominal
        if noise is not None and ratio is None:
            ratio = round(noise.realised, 2)
        return {
            "noise_level": None if noise is None else noise.level,
            "noise_ratio": ratio,
            **{name: getattr(evaluated, name) for name in ("split", "images", "captions", "folds", "tie_rule")},
            "duplicates": evaluated.duplicates.counted_as,
            "selection": self.selection.rule,
            **{
                name: getattr(data, name)
                for name in ("fingerprint", "fingerprint_in_training", "captions_as", "caption_vectors", "dev_rule")
            },
        }


def agree(some: Mapping[int, Protocol], others: Mapping[int, Protocol]) -> bool:
    """Say whether runs were measured alike: in what all seeds share, and in the noise index of each common seed.

    Args:
        some: seed → the protocol of a run.
        others: the same of other runs.
    """
    shared = [protocol.shared() for protocol in (*some.values(), *others.values())]
    seeds = some.keys() & others.keys()
    return all(entry == shared[0] for entry in shared) and all(
        some[seed].seed_noise == others[seed].seed_noise for seed in seeds
    )


def describe(protocols: Mapping[int, Protocol]) -> str:
    """Say in a line what runs of one protocol have in common, with the noise index of every seed."""
    seeds = sorted(protocols)
    first = protocols[seeds[0]]
    data, evaluated = first.data, first.evaluated
    folds = "all at once" if evaluated.folds == 1 else f"mean of {evaluated.folds} folds"
    vectors = f" ({data.caption_vectors})" if data.caption_vectors else ""
    trained = data.fingerprint_in_training
    copies = ", copies of the right item count as right" if evaluated.duplicates.counted_as == "right" else ""
    other = "" if trained == data.fingerprint else f", TRAINED ON OTHER DATA {trained[:12]}"
    return "; ".join(
        [
            _noise({seed: protocols[seed] for seed in seeds}),
            f"{evaluated.split} split, {evaluated.images:,} images, {evaluated.captions:,} captions, {folds}{copies}",
            f"data {data.path} {data.fingerprint[:12]}{other}",
            f"captions as {data.captions_as}{vectors}",
            f"dev rule {data.dev_rule}",
            f"selection: {first.selection.rule.replace(';', ',')}",
        ]
    )


def _noise(protocols: Mapping[int, Protocol]) -> str:
    found = {seed: protocol.noise for seed, protocol in protocols.items() if protocol.noise is not None}
    if not found:
        return "no injected noise"
    first = next(iter(protocols.values())).shared()
    index = ", ".join(f"{noise.sha256[:12]} (seed {seed})" for seed, noise in found.items())
    realised = _range(noise.realised for noise in found.values())
    return f"{first['noise_level']}-level noise {first['noise_ratio']:g} (realised {realised}), index {index}"


def _range(values: Iterable[float]) -> str:
    texts = sorted({f"{value:.4f}" for value in values})
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"
