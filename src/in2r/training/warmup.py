"""Warm-ups that several runs share: trained once, then taken over, bit-identical to training them again."""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from in2r.errors import InputError
from in2r.methods import Method, warmup_of
from in2r.runs.folder import RunFolder
from in2r.runs.identity import belonging, has_own_warmup, versions, warmup_identity
from in2r.tensors import load_tensors, save_tensors
from in2r.training.setup import Setup
from in2r.training.state import RunState, under

log = logging.getLogger(__name__)


class WarmupStore:
    """The folder `checkpoint.warmups`, as one run sees it.

    Args:
        setup: the opened data, with the settings.
        method: the run's method.
        folder: the run.
        words: what is recorded of the initial word vectors; None where a resumed run has not read them again.
    """

    def __init__(self, setup: Setup, method: Method, folder: RunFolder, words: dict[str, Any] | None) -> None:
        self.setup, self.method, self.folder, self._words = setup, method, folder, words
        self.kept = setup.config.checkpoint.warmups

    def identity(self, state: RunState) -> dict[str, Any]:
        """Return all that decides the state after n epochs of warm-up; runs that agree in it share one."""
        setup = self.setup
        found = {
            "warmup": warmup_identity(setup.config, self.method),
            "fingerprint": setup.source.fingerprint(),
            "vocabulary": None if setup.vocabulary is None else setup.vocabulary.hash,
            "word_vectors": self._words or self.folder.info()["word_vectors"],
            "noise": None if setup.noise is None else setup.noise.sha256,
            "computed_on": state.computed_on(),
            "versions": versions(),
        }
        return dict(json.loads(json.dumps(found)))

    def offer(self, state: RunState) -> None:
        """Keep the state after the last epoch of the warm-up, where a folder is given for it."""
        epochs = warmup_of(self.method)[0]
        if self.kept is None or state.epoch != epochs or state.started_as is None:
            return
        who = self.identity(state)
        best, selection = load_tensors(self.folder.best_file)
        kept = state.network_tensors() if has_own_warmup(self.method) else backbones_only(state)
        tensors = kept | {f"best.{key}": value for key, value in best.items()}
        meta = {"identity": who, "step": state.step, "selection": selection, "records": self.folder.records()}
        try:
            save_tensors(_file(self.kept, who, epochs), tensors, meta)
        except InputError as error:  # this costs other runs time, and this run nothing
            log.warning("%s", error)

    def adopt(self, state: RunState) -> list[dict[str, Any]]:
        """Start after the longest kept warm-up that is this run's, where there is one.

        Returns:
            Its epochs' records, to be written to the log; `taken_over` = 1 says that their `seconds` are those of the
            run that trained them. What a run started as is kept with its state: one that is resumed under other
            settings, data or threads has nothing to offer.
        """
        who = self.identity(state)
        if state.step == 0:
            state.started_as = _digest(who)
        elif state.started_as != _digest(who):
            state.started_as = None
        if self.kept is None or state.step:
            return []
        epochs = min(warmup_of(self.method)[0], self.setup.config.train.epochs)
        for done in range(epochs, 0, -1):
            found = self._read(_file(self.kept, who, done))
            if found is not None and found[1].get("identity") == who:
                log.info("%d epochs of warm-up taken over from %s", done, self.kept)
                return self._take_over(state, *found)
        return []

    def _read(self, file: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if not file.is_file():
            return None
        try:
            return load_tensors(file)
        except InputError as error:
            log.warning("%s; the warm-up is trained again", error)
            return None

    def _take_over(
        self, state: RunState, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        own = state.network_tensors()  # what the method keeps beside the backbones is as it was made
        state.load_networks({**own, **tensors})
        selection = meta["selection"]
        save_tensors(self.folder.best_file, under("best.", tensors), {**selection, **belonging(self.folder)})
        state.best = {key: selection[key] for key in ("rsum", "epoch")}
        state.epoch = state.lines = len(meta["records"])
        state.step = meta["step"]
        return [{**record, "taken_over": 1} for record in meta["records"]]


def backbones_only(state: RunState) -> dict[str, Tensor]:
    """Return backbones and their optimiser's state: all that a loss of methods/warmup.py changes."""
    return {name: value for name, value in state.network_tensors().items() if ".own." not in name}


def _file(folder: str, who: dict[str, Any], epochs: int) -> Path:
    return Path(folder) / f"{_digest(who)}-{epochs}.safetensors"


def _digest(who: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(who, sort_keys=True).encode()).hexdigest()[:16]
