"""What figures are made of: the log of a run, or the records of a grid's group."""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from in2r.bench.groups import GroupRecords, read_group_records
from in2r.bench.protocols import Noise
from in2r.bench.records import ENSEMBLE, in_phases, read_record
from in2r.data.noise import describe_noise
from in2r.errors import InputError
from in2r.form import read
from in2r.runs.folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quantity:
    """A key of the log that exists for each network, or once for all, and how it is shown."""

    key: str
    title: str
    factor: float = 1.0


PERCENT = 100.0
QUANTITIES = (
    Quantity("peer_similarity_image", "peers' similarity, images"),
    Quantity("peer_similarity_text", "peers' similarity, texts"),
    Quantity("loss_sce", "SCE loss, mean"),
    Quantity("loss_contrast", "softmax loss, mean"),
    Quantity("loss_inter", "inter-modal loss"),
    Quantity("loss_intra_image", "intra-modal, images, sum"),
    Quantity("loss_intra_text", "intra-modal, texts, sum"),
    Quantity("loss_rect", "rectification loss, mean"),
    Quantity("clean_fraction", "clean set (% of pairs)", PERCENT),
    Quantity("estimated_noise_rate_sce", "estimated noise, sce (%)", PERCENT),
    Quantity("estimated_noise_rate_triplet-mean", "estimated noise, triplet (%)", PERCENT),
    Quantity("partition_precision", "clean set: precision (%)", PERCENT),
    Quantity("partition_recall", "clean set: recall (%)", PERCENT),
    Quantity("memory_fill", "memory filled (%)", PERCENT),
    Quantity("distinct_neighbors_i2t", "distinct neighbours, i2t"),
    Quantity("distinct_neighbors_t2i", "distinct neighbours, t2i"),
    Quantity("neighbors_same_image_i2t", "same-image share, i2t (%)", PERCENT),
    Quantity("neighbors_same_image_t2i", "same-image share, t2i (%)", PERCENT),
)
"""In the order of the panels. `loss_clean` and `loss_total` are weighted sums of others."""


@dataclass(frozen=True)
class _Fingerprint:
    hash: str


@dataclass(frozen=True)
class _Data:
    path: str
    fingerprint: _Fingerprint


@dataclass(frozen=True)
class _Info:
    """What is read of run.json."""

    seed: int
    method: str
    data: _Data
    noise: Noise | None


@dataclass(frozen=True)
class _Epoch:
    """What is read of an epoch's line in the log, figures of QUANTITIES apart."""

    epoch: int
    phase: Literal["warm-up", "main"]
    dev: dict[str, dict[str, float]]
    mixture: dict[str, dict[str, object]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Mixture:
    """What is read of the mixture that was fitted to a network's losses."""

    loss: str
    low: float
    high: float
    means: tuple[float, ...]
    variances: tuple[float, ...]
    weights: tuple[float, ...]
    counts: tuple[int, ...]
    boundary: float | None
    clean_counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class RunLog:
    """A run, as far as its own log tells."""

    name: str
    seed: int
    method: str
    data: str
    """name of the data folder"""
    fingerprint: str
    """of the data that it was trained with"""
    noise: Noise | None
    epochs: list[dict[str, Any]]

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of the networks: A, or A and B."""
        return tuple(row for row in self.epochs[0]["dev"] if row != ENSEMBLE)

    def describe_noise(self) -> str:
        """Say in a few words which mismatches were injected."""
        return describe_noise(None if self.noise is None else asdict(self.noise))

    def describe(self) -> str:
        """Say in one line what the run is."""
        return f"{self.name}: {self.method}, seed {self.seed}; {describe_data(self)}; {self.describe_noise()}"


def describe_data(log: RunLog) -> str:
    """Name data and their fingerprint."""
    return f"data {log.data} ({log.fingerprint[:12]})"


def read_log(path: str | Path) -> RunLog:
    """Read a run folder, or the record of a run (a .json file).

    Raises:
        InputError: neither of them, damaged, or no epoch has ended.
    """
    folder, is_record = RunFolder(path), Path(path).suffix == ".json"
    log = _of_record(Path(path)) if is_record else _of_folder(folder)
    if not log.epochs:
        raise InputError(f"{path}: no epoch has ended yet")
    for number, line in enumerate(log.epochs):
        if is_record:
            _require_epoch(line, str(path), f"epochs[{number}]")
        else:
            _require_epoch(line, str(folder.log_file), f"line {number + 1}")
    return log


def _require_epoch(line: dict[str, Any], source: str, key: str) -> None:
    epoch = read(_Epoch, line, source, key)
    for row in ("A", ENSEMBLE):
        if row not in epoch.dev:
            raise InputError(f"{source}: {key}.dev: no `{row}`")
    for row, recalls in epoch.dev.items():
        if "rsum" not in recalls:
            raise InputError(f"{source}: {key}.dev.{row}: no `rsum`")
    networks = [f"_{row}" for row in epoch.dev if row != ENSEMBLE]
    for name in (f"{quantity.key}{network}" for quantity in QUANTITIES for network in ("", *networks)):
        if line.get(name) is not None:
            read(float, line[name], source, f"{key}.{name}")
    for network, values in epoch.mixture.items():
        if values:  # it is empty where all losses were equal
            _require_mixture(values, source, f"{key}.mixture.{network}")


def _require_mixture(values: dict[str, Any], source: str, key: str) -> None:
    fit, place = read(_Mixture, values, source, key), f"{source}: {key}"
    for name in ("means", "variances", "weights"):
        if len(values[name]) != 2:
            raise InputError(f"{place}.{name}: expected 2 entries, got {values[name]}")
    if min(fit.variances) <= 0 or fit.low >= fit.high:
        raise InputError(f"{place}: expected variances above 0 and `low` below `high`")
    if not fit.counts or len(fit.clean_counts or fit.counts) != len(fit.counts):
        raise InputError(f"{place}: expected as many `clean_counts` as `counts`, and at least one")


def _of_record(file: Path) -> RunLog:
    record = read_record(file)
    data, method = record.result.protocol.data, record.config.method.name
    noise = record.result.protocol.noise
    return RunLog(record.name, record.seed, method, data.path, data.fingerprint_in_training, noise, list(record.log))


def _of_folder(folder: RunFolder) -> RunLog:
    values = folder.info()
    info = read(_Info, values, str(folder.info_file))
    lines = list(in_phases(folder.records(), values["settings"]))
    name, data = folder.path.resolve().name, Path(info.data.path).name
    return RunLog(name, info.seed, info.method, data, info.data.fingerprint.hash, info.noise, lines)


def read_groups(grid: str | Path, names: Iterable[str]) -> list[GroupRecords]:
    """Read the groups of a grid folder that have a record; one that has none yet is said and left out.

    Raises:
        InputError: as `bench.groups.read_group_records`, and where none of the groups has a record.
    """
    groups = read_group_records(grid, names)
    empty = ", ".join(found.group.name for found in groups if not found.records)
    measured = [found for found in groups if found.records]
    if not measured:
        raise InputError(f"{grid}: no record of group {empty} yet; `in2r bench run` makes them")
    if empty:
        logger.warning("%s: no record of group %s yet; left out", grid, empty)
    return measured
