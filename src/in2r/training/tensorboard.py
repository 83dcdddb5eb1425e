"""The epoch records as TensorBoard scalars, for those who look there."""

from pathlib import Path
from typing import Any

from in2r.errors import InputError
from in2r.files import naming


class TensorBoard:
    """Writes what `log.jsonl` holds; a resumed run hides what it will write again.

    Args:
        folder: where the event files go.
        epoch: number of finished epochs.

    Raises:
        InputError: tensorboard is not installed.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError('record.tensorboard=true needs tensorboard: pip install "in2r[tensorboard]"') from None
        self._folder = folder
        with naming(folder):
            self._writer = SummaryWriter(str(folder), purge_step=epoch + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Write one epoch's numbers; nested ones are named with slashes."""
        with naming(self._folder):
            for name, value in scalars(record).items():
                self._writer.add_scalar(name, value, record["epoch"])
            self._writer.flush()


def scalars(record: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return all numbers of a nested record under slash-joined names."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            found[f"{prefix}{name}"] = float(value)
    return found
