"""What a run began as: what run.json says of it, and the mark by which its own files are told from another run's."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from in2r.config import to_dict
from in2r.device import device_name
from in2r.errors import InputError
from in2r.runs.folder import MOVABLE, RunFolder, versions
from in2r.runs.settings import RunConfig
from in2r.training.setup import Setup

if TYPE_CHECKING:
    from in2r.training.loop import Trainer
    from in2r.training.plan import Plan

_DECIDES = {
    **dict.fromkeys(("data.path", "data.vocabulary", "data.word_vectors", "noise.index"), "place"),
    **dict.fromkeys(("data.residency", "train.device", "train.threads"), "computing"),
    **dict.fromkeys(("method", "partition", "noise.hide_original"), "main phase"),
    **dict.fromkeys(("checkpoint", "record"), "keeping"),
}
"""key or section → what it decides; all others decide what is learnt"""


def deciding(config: RunConfig, *kinds: str) -> dict[str, Any]:
    """Return the settings that decide one of these things: dotted key → value.

    Args:
        config: the settings of a run.
        kinds: of "learning", "main phase", "place", "computing", "keeping".
    """
    found = {}
    for section, values in to_dict(config).items():
        for name, value in values.items():
            key = f"{section}.{name}"
            if _DECIDES.get(key, _DECIDES.get(section, "learning")) in kinds:
                found[key] = value
    return found


def describe(setup: Setup, trainer: "Trainer", plan: "Plan") -> dict[str, Any]:
    """Return what run.json says of a run that begins."""
    vocabulary, memory = setup.vocabulary, trainer.nets["A"].memory
    info = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "device": str(setup.device),
        "device_name": device_name(setup.device),
        "threads": torch.get_num_threads(),
        "seed": setup.config.train.seed,
        "method": trainer.method.name,
        "data": {"path": str(setup.source.path), "fingerprint": setup.source.fingerprint()},
        "noise": setup.noise_record(),
        "vocabulary": None if vocabulary is None else {"hash": vocabulary.hash, "words": len(vocabulary)},
        "word_vectors": trainer.word_coverage,
        "training_pairs": len(trainer.data.pairs),
        "memory_size": None if memory is None else memory.capacity,
        "plan": plan.record(),
        "settings": to_dict(setup.config),
    }
    return {**info, "mark": _mark(info)}


def _mark(info: Mapping[str, Any]) -> str:
    """Return a hash of all that decides what a run learns: runs that agree in it learn the same."""
    decides = {
        "settings": {
            f"{section}.{name}": value
            for section, values in info["settings"].items()
            for name, value in values.items()
            if f"{section}.{name}" not in MOVABLE
        },
        "data": info["data"]["fingerprint"]["hash"],
        "noise": (info["noise"] or {}).get("sha256"),
        "vocabulary": (info["vocabulary"] or {}).get("hash"),
        "word_vectors": (info["word_vectors"] or {}).get("sha256"),
    }
    return sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def belonging(folder: RunFolder) -> dict[str, Any]:
    """Return whose a checkpoint or best weights are: the run's mark, and the data that it began with."""
    info = folder.info()
    return {"run": info["mark"], "data": info["data"]["fingerprint"]["hash"]}


def require_own(folder: RunFolder, file: Path, meta: Mapping[str, Any]) -> None:
    """Refuse a checkpoint or best weights of another run.

    Args:
        folder: the run.
        file: what was read, for the message.
        meta: its metadata.
    """
    found, own = meta.get("run"), folder.info()["mark"]
    if found != own:
        raise InputError(
            f"{file}: of another run (mark {str(found)[:12]}, this one's is {own[:12]}); put this run's own back"
        )
