"""What figures are made of: the log of a run, or the records of a grid's group."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from in2r.bench.groups import GroupRecords, read_group_records
from in2r.bench.protocols import NOISE
from in2r.bench.records import read_record
from in2r.errors import InputError
from in2r.form import require_form
from in2r.results.protocol import describe_noise
from in2r.runs.folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quantity:
    """A key of the log that exists for each network, or once for both, and how it is shown."""

    key: str
    title: str
    factor: float = 1.0


PERCENT = 100.0
QUANTITIES = (
    Quantity("peer_similarity_image", "peers' similarity, images"),
    Quantity("peer_similarity_text", "peers' similarity, texts"),
    Quantity("loss_sce", "SCE loss, mean"),
    Quantity("loss_inter", "inter-modal loss, sum"),
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


_LOG_NOISE = ({**NOISE, "oracle": bool}, None)
_INFO = {"seed": int, "method": str, "data": {"path": str, "fingerprint": {"hash": str}}, "noise": _LOG_NOISE}
_RECORD = {"protocol": {"method": str, "data": {"path": str, "fingerprint_in_training": str}, "noise": _LOG_NOISE}}
_EPOCH = {
    "epoch": int,
    "phase": str,
    "dev": {row: {"rsum": float} for row in ("A", "B", "ensemble")},
    "mixture?": {str: {str: object}},
    **{f"{quantity.key}{network}?": (float, None) for quantity in QUANTITIES for network in ("", "_A", "_B")},
}
_MIXTURE = {
    "loss": str,
    "low": float,
    "high": float,
    **{name: [float, float] for name in ("means", "variances", "weights")},
    "boundary": (float, None),
    "counts": [int],
    "clean_counts?": [int],
}
"""What figures read of run.json, of a result and of an epoch's record."""


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
    noise: dict[str, Any] | None
    """as in run.json"""
    epochs: list[dict[str, Any]]

    def describe(self) -> str:
        """Say in one line what the run is."""
        return f"{self.name}: {self.method}, seed {self.seed}; {describe_data(self)}; {describe_noise(self.noise)}"


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
    for number, epoch in enumerate(log.epochs, start=1):
        _require_epoch(epoch, f"{path}: epoch {number}" if is_record else f"{folder.log_file}: line {number}")
    return log


def _require_epoch(epoch: Any, place: str) -> None:
    require_form(epoch, _EPOCH, place)
    for network, fit in epoch.get("mixture", {}).items():
        here = f"{place}.mixture.{network}"
        if not fit:  # all losses were equal
            continue
        require_form(fit, _MIXTURE, here)
        if min(fit["variances"]) <= 0 or fit["low"] >= fit["high"]:
            raise InputError(f"{here}: expected variances above 0 and `low` below `high`")
        if not fit["counts"] or len(fit.get("clean_counts", fit["counts"])) != len(fit["counts"]):
            raise InputError(f"{here}: expected as many `clean_counts` as `counts`, and at least one")


def _of_record(file: Path) -> RunLog:
    record = read_record(file)
    require_form(record.name, str, f"{file}: name")
    require_form(record.seed, int, f"{file}: seed")
    require_form(record.result, _RECORD, f"{file}: result")
    protocol = record.result["protocol"]
    data = protocol["data"]
    fingerprint = data["fingerprint_in_training"]
    return RunLog(
        record.name, record.seed, protocol["method"], data["path"], fingerprint, protocol["noise"], record.epochs
    )


def _of_folder(folder: RunFolder) -> RunLog:
    info = folder.info()
    require_form(info, _INFO, str(folder.info_file))
    data = info["data"]
    return RunLog(
        folder.path.resolve().name,
        info["seed"],
        info["method"],
        Path(data["path"]).name,
        data["fingerprint"]["hash"],
        info["noise"],
        folder.records(),
    )


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
