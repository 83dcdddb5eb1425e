"""What run.json and a line of log.jsonl must hold, as far as they are read again; see `form.read`."""

from dataclasses import dataclass
from typing import Any

from in2r.errors import InputError
from in2r.form import read

FORMAT = 1
"""`format_version` of run.json"""


@dataclass(frozen=True)
class Fingerprint:
    """The identity of the data."""

    hash: str
    splits: dict[str, dict[str, object]]


@dataclass(frozen=True)
class Data:
    """The data that the run was started with."""

    path: str
    fingerprint: Fingerprint
    encoder: dict[str, object] | None = None


@dataclass(frozen=True)
class Noise:
    """The injected mismatches."""

    file: str
    level: str
    nominal: float | None
    realised: float
    sha256: str
    oracle: bool


@dataclass(frozen=True)
class Vocabulary:
    """The run's words."""

    hash: str
    words: int


@dataclass(frozen=True)
class MethodFile:
    """The file of a user's own method."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Plan:
    """What the run was planned to need."""

    warmup_epochs: int


@dataclass(frozen=True)
class Imported:
    """The checkpoint of another repository."""

    file: str
    sha256: str
    repository: str
    epoch: int | None
    best_rsum: float | None
    options: dict[str, object]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class RunInfo:
    """run.json."""

    created: str
    versions: dict[str, str]
    device: str
    device_name: str | None
    threads: int
    seed: int
    method: str
    networks: tuple[str, ...]
    method_file: MethodFile | None
    data: Data
    noise: Noise | None
    vocabulary: Vocabulary | None
    word_vectors: dict[str, object] | None
    plan: Plan
    settings: dict[str, dict[str, object]]
    mark: str
    forced: tuple[str, ...] = ()
    imported: Imported | None = None
    """where the networks were trained by other code (`in2r import`)"""


@dataclass(frozen=True)
class EpochLine:
    """A line of log.jsonl, figures apart."""

    epoch: int
    steps: dict[str, int]


def require_info(values: Any, source: str) -> None:
    """Refuse a run.json that cannot be read.

    Raises:
        InputError: of another version of in2r, or not whole: key, what was expected, what was found.
    """
    version = values.get("format_version") if isinstance(values, dict) else None
    if isinstance(values, dict) and version != FORMAT:
        made = values.get("versions")
        by = made.get("in2r") if isinstance(made, dict) else None
        raise InputError(
            f"{source}: format_version {version}, written by in2r {by}; this in2r reads {FORMAT}; its model folder and "
            "its results can still be used"
        )
    read(RunInfo, values, source)
