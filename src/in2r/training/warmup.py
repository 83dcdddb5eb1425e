"""Warm-ups that several runs begin with: trained once, then taken over, bit-identical to training them afresh."""

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from in2r.config import to_dict
from in2r.device import computed_on
from in2r.errors import InputError
from in2r.runs.checkpoints import load_optimizer, optimizer_tensors
from in2r.runs.folder import versions
from in2r.runs.identity import belonging
from in2r.tensors import load_tensors, save_tensors

if TYPE_CHECKING:
    from in2r.training.loop import Trainer

log = logging.getLogger(__name__)

_WHERE = ("device", "precision", "threads")
"""Keys of section `train` that are replaced by what they came to on this machine."""
_PATHS = ("path", "vocabulary", "word_vectors", "residency")
"""Keys of section `data` that say where things lie; their contents are compared."""


def identity(trainer: "Trainer") -> dict[str, Any]:
    """Return all that decides the state after n epochs of warm-up; runs that agree in it begin alike."""
    config, setup = to_dict(trainer.config), trainer.setup
    fingerprint = setup.source.fingerprint()
    # a resumed run does not read its word vectors again
    words = trainer.word_coverage or trainer.folder.info()["word_vectors"]
    found = {
        "loss": trainer.method.warmup()[1],
        "model": config["model"],
        "train": {name: value for name, value in config["train"].items() if name not in _WHERE},
        "data": {name: value for name, value in config["data"].items() if name not in _PATHS},
        "fingerprint": fingerprint,
        "vocabulary": None if setup.vocabulary is None else setup.vocabulary.hash,
        "word_vectors": words,
        "noise": None if setup.noise is None else setup.noise.sha256,
        "oracle": config["noise"]["oracle"],
        "computed_on": computed_on(trainer.device, trainer.nets["A"].encoder.precision),
        "versions": versions(),
    }
    return dict(json.loads(json.dumps(found)))


def offer_warmup(trainer: "Trainer") -> None:
    """Keep the state after the last epoch of the warm-up, where a folder is given for it."""
    folder, epochs = trainer.config.checkpoint.warmups, trainer.method.warmup()[0]
    if folder is None or trainer.epoch != epochs or trainer.began_as is None:
        return
    who = identity(trainer)
    tensors: dict[str, torch.Tensor] = {}
    for name, net in trainer.nets.items():
        tensors |= {f"net.{name}.{key}": value for key, value in net.encoder.state_dict().items()}
        tensors |= optimizer_tensors(trainer.optimizers[name], f"optimizer.{name}")
    best, selection = load_tensors(trainer.folder.best_file)
    tensors |= {f"best.{key}": value for key, value in best.items()}
    own = trainer.memory_record()
    records = [{key: value for key, value in line.items() if key not in own} for line in trainer.folder.records()]
    meta = {"identity": who, "step": trainer.step, "selection": selection, "records": records}
    try:
        save_tensors(_file(folder, who, epochs), tensors, meta)
    except InputError as error:  # others lose time by it, this run nothing
        log.warning("%s", error)


def adopt_warmup(trainer: "Trainer") -> None:
    """Begin after the longest kept warm-up that is this run's, where there is one.

    Its records come into the log with `taken_over` = 1: their `seconds` are those of the run that trained them. What a
    run began as is kept with its state: one that goes on under other settings, data or threads has nothing to offer.
    """
    folder, epochs = trainer.config.checkpoint.warmups, trainer.method.warmup()[0]
    who = identity(trainer)
    if trainer.step == 0:
        trainer.began_as = _digest(who)
    elif trainer.began_as != _digest(who):
        trainer.began_as = None
    if folder is None or trainer.step:
        return
    for done in range(min(epochs, trainer.config.train.epochs), 0, -1):
        file = _file(folder, who, done)
        if not file.is_file():
            continue
        try:
            tensors, meta = load_tensors(file)
        except InputError as error:
            log.warning("%s; the warm-up is trained afresh", error)
            continue
        if meta.get("identity") == who:
            _take_over(trainer, tensors, meta)
            log.info("%d epochs of warm-up taken over from %s", done, file)
            return


def _take_over(trainer: "Trainer", tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
    for name, net in trainer.nets.items():
        net.encoder.load_state_dict(_under(f"net.{name}.", tensors))
        load_optimizer(trainer.optimizers[name], tensors, f"optimizer.{name}")
    selection = meta["selection"]
    save_tensors(trainer.folder.best_file, _under("best.", tensors), {**selection, **belonging(trainer.folder)})
    trainer.best = {key: selection[key] for key in ("rsum", "epoch")}
    for line in meta["records"]:
        trainer.write_record({**line, **trainer.memory_record(), "taken_over": 1})
    trainer.epoch = trainer.lines = len(meta["records"])
    trainer.step = meta["step"]
    trainer.save()


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _file(folder: str, who: dict[str, Any], epochs: int) -> Path:
    return Path(folder) / f"{_digest(who)}-{epochs}.safetensors"


def _digest(who: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(who, sort_keys=True).encode()).hexdigest()[:16]
