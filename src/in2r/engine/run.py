"""The run folder: its lock, its append-only record, its description."""

import fcntl
import json
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import sklearn
import torch
import yaml

import in2r
from in2r.config import to_dict
from in2r.engine.settings import RunConfig, resolve
from in2r.errors import InputError
from in2r.files import read_json, remove_temporaries, write_json, write_text


class RunFolder:
    """Where everything of one run lies; the names of its files are the attributes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.info_file = self.path / "run.json"
        self.log_file = self.path / "log.jsonl"
        self.vocabulary_file = self.path / "vocabulary.json"
        self.checkpoints = self.path / "checkpoints"
        self.best_file = self.path / "best.safetensors"
        self.model = self.path / "model"

    def exists(self) -> bool:
        """Say whether a run was begun here."""
        return self.config_file.is_file()

    def require(self) -> "RunFolder":
        """Raise `InputError` unless a run was begun here."""
        if not self.exists():
            raise InputError(f"{self.path}: not a run folder (no {self.config_file.name}); `in2r train` makes one")
        return self

    def config(self) -> RunConfig:
        """Read the run's resolved settings."""
        try:
            values = yaml.safe_load(self.require().config_file.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise InputError(f"{self.config_file}: not valid YAML ({' '.join(str(error).split())})") from None
        return resolve(values or {})

    def info(self) -> dict[str, Any]:
        """Read what the run says of itself."""
        info: dict[str, Any] = read_json(self.require().info_file)
        return info

    def write_config(self, config: RunConfig) -> None:
        """Write the resolved settings."""
        write_text(self.config_file, yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))

    def write_info(self, info: dict[str, Any]) -> None:
        """Write what the run says of itself."""
        write_json(self.info_file, info)

    def records(self) -> list[dict[str, Any]]:
        """Read the record: one mapping per epoch; a last line that a kill cut off does not count."""
        if not self.log_file.is_file():
            return []
        lines = self.log_file.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

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
        if self.log_file.is_file():
            kept = self.log_file.read_text(encoding="utf-8").split("\n")[:lines]
            write_text(self.log_file, "".join(f"{line}\n" for line in kept))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the system releases it when the process ends, however it ends.

        Raises:
            InputError: another process is working in the folder.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be a run folder ({error.strerror})") from None
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise InputError(f"{self.path}: process {holder} is working in this run folder") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            for folder in (self.path, self.checkpoints):
                remove_temporaries(folder)
            yield


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by null: JSON has no word for a figure that is undefined."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "in2r": in2r.__version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scikit-learn": sklearn.__version__,
        "platform": platform.platform(),
    }
