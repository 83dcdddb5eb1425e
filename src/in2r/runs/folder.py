"""The run folder: its lock, its append-only record, its description."""

import errno
import fcntl
import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import yaml

from in2r.config import to_dict
from in2r.data.noise import sidecar_path
from in2r.errors import InputError
from in2r.files import is_temporary, read_json, remove_temporaries, write_json, write_text
from in2r.form import read
from in2r.runs.info import EpochLine, require_info
from in2r.runs.settings import RunConfig, resolve
from in2r.settings_text import read_yaml

log = logging.getLogger(__name__)

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EBADF, errno.EOPNOTSUPP, errno.ENOTSUP}
"""How file systems, of networks most of all, say that they do not lock files."""


class RunInUseError(InputError):
    """Another process is working in the run folder."""


class RunFolder:
    """Where everything of one run lies; the names of its files are the attributes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.info_file = self.path / "run.json"
        self.log_file = self.path / "log.jsonl"
        self.vocabulary_file = self.path / "vocabulary.json"
        self.noise_file = self.path / "noise_index.npy"
        self.left_out_file = self.path / "left_out.txt"
        self.checkpoints = self.path / "checkpoints"
        self.best_file = self.path / "best.safetensors"
        self.model = self.path / "model"

    def exists(self) -> bool:
        """Say whether a run was started here."""
        return self.config_file.is_file()

    def require(self) -> "RunFolder":
        """Raise `InputError` unless a run was started here."""
        if not self.exists():
            raise InputError(f"{self.path}: not a run folder (no {self.config_file.name}); `in2r train` makes one")
        return self

    def foreign_files(self) -> list[str]:
        """Return what lies in the folder, without the files of a start that was killed before the run existed."""
        names = sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []
        noise_record = sidecar_path(self.noise_file)
        copies = (self.vocabulary_file, self.noise_file, noise_record, self.left_out_file)
        own = ("lock", *(file.name for file in (self.info_file, *copies)))
        started = own if "lock" in names else ()
        return [name for name in names if name not in started and not is_temporary(name)]

    def config(self) -> RunConfig:
        """Read the run's resolved settings."""
        values = read_yaml(self.require().config_file)
        try:
            config = resolve(values)
        except InputError as error:
            raise InputError(f"{self.config_file}: {error}") from None
        recorded = self.info()["settings"]
        missing = [
            f"{name}.{key}" for name, keys in recorded.items() for key in keys if key not in values.get(name, {})
        ]
        if missing:  # it would silently take its default
            more = "" if len(missing) == 1 else f" (and {len(missing) - 1} more)"
            raise InputError(
                f"{self.config_file}: no `{missing[0]}`{more}; put back the value at the start, in `settings` of "
                f"{self.info_file.name}"
            )
        return config

    def info(self) -> dict[str, Any]:
        """Read what the run says of itself."""
        info = read_json(self.require().info_file)
        require_info(info, str(self.info_file))
        return dict(info)

    def warmup_epochs(self) -> int:
        """Return the epochs of the run's warm-up."""
        return int(self.info()["plan"]["warmup_epochs"])

    def write_config(self, config: RunConfig) -> None:
        """Write the resolved settings."""
        write_text(self.config_file, yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))

    def write_info(self, info: dict[str, Any]) -> None:
        """Write what the run says of itself."""
        write_json(self.info_file, info)

    def records(self) -> list[dict[str, Any]]:
        """Read the record: one mapping per epoch, from the first on; a last line that a kill cut off does not count."""
        records = []
        for number, line in enumerate(self._log_lines(), start=1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{self.log_file}: line {number} is not JSON ({error})") from None
            read(EpochLine, record, str(self.log_file), f"line {number}")
            if record["epoch"] != number:
                raise InputError(f"{self.log_file}: line {number} is of epoch {record['epoch']}; put the file back")
            records.append(record)
        return records

    def _log_lines(self) -> list[str]:
        """Return the complete lines of the record."""
        try:
            return self.log_file.read_text(encoding="utf-8").split("\n")[:-1] if self.log_file.exists() else []
        except UnicodeDecodeError:
            raise InputError(f"{self.log_file}: not UTF-8 text") from None
        except OSError as error:
            raise InputError(f"{self.log_file}: cannot be read ({error.strerror})") from None

    def append(self, record: dict[str, Any]) -> None:
        """Append one line to the record and bring it to disk."""
        try:
            with self.log_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self.log_file}: could not be written ({error.strerror})") from None

    def cut_records(self, lines: int) -> None:
        """Keep the first `lines` lines: what was written after the checkpoint will be written again."""
        self.require_records(lines)
        if self.log_file.is_file():
            write_text(self.log_file, "".join(f"{line}\n" for line in self._log_lines()[:lines]))

    def require_records(self, lines: int) -> None:
        """Raise `InputError` where the record has fewer lines than were written before the newest checkpoint."""
        found = len(self._log_lines())
        if found < lines:
            raise InputError(
                f"{self.log_file}: {found} lines, but {lines} epochs ended before the checkpoint; put the "
                f"file back, or, to train from the start, remove it and {self.checkpoints}"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the system releases it when the process ends, however it ends.

        Where the file system does not lock files, a warning says so and the folder is not held.

        Raises:
            RunInUseError: another process is working in the folder.
            InputError: the folder cannot be made, written or locked.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be a run folder ({error.strerror})") from None
        with (self.path / "lock").open("a+") as file:
            self._lock(file)
            try:
                file.truncate(0)
                os.write(file.fileno(), str(os.getpid()).encode())  # unbuffered: closing has nothing left to fail at
            except OSError as error:
                raise InputError(f"{file.name}: could not be written ({error.strerror})") from None
            for folder in (self.path, self.checkpoints):
                remove_temporaries(folder)
            yield

    def _lock(self, file: TextIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise RunInUseError(f"{self.path}: process {holder} is working in this run folder") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise InputError(f"{file.name}: cannot be locked ({error.strerror})") from None
            log.warning(
                "%s: the file system does not lock files (%s), so a second process would not be refused here; start "
                "only one at a time", self.path, error.strerror,
            )  # fmt: skip


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by null: JSON has no word for a figure that is undefined."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
