"""The loop: warm-up, division, the networks' steps, validation; killed at any moment, a run resumes bit-identically."""

import logging
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from in2r.data.text.word_vectors import WordVectors, load_word_vectors
from in2r.errors import InputError, MethodError
from in2r.methods import Division, Now, Walk, build_method, warmup_of
from in2r.runs.checkpoints import checkpoints, load_newest, save_checkpoint, save_divisions
from in2r.runs.folder import RunFolder
from in2r.runs.identity import belonging
from in2r.tensors import save_tensors
from in2r.training.division import Divider
from in2r.training.evaluation import evaluate_split
from in2r.training.health import Truth
from in2r.training.interrupts import Interrupts, deferred_interrupts
from in2r.training.networks import build_networks, network_names, peer_of, renew
from in2r.training.order import Batching, EpochOrder
from in2r.training.residency import settle_features
from in2r.training.schedule import rate_factor
from in2r.training.setup import Setup
from in2r.training.state import RunState
from in2r.training.step import Learner, averaged_over
from in2r.training.tensorboard import TensorBoard
from in2r.training.together import share_division, share_state
from in2r.training.warmup import WarmupStore

log = logging.getLogger(__name__)

CHECK_EVERY = 50
"""Steps between two looks at whether the losses are finite (a look synchronises the device)."""


class Display(Protocol):
    """Shows the progress of a run."""

    def epoch(self, epoch: int, epochs: int, phase: str, steps: int, done: int) -> None:
        """Show that an epoch starts, at iteration `done` of `steps`."""
        ...

    def step(self) -> None:
        """Show that one iteration of one network is done."""
        ...

    def record(self, record: dict[str, Any]) -> None:
        """Show the epoch's record, which is written."""
        ...


class Trainer:
    """One run from its settings to its best model.

    Args:
        folder: the run folder, locked by the caller.
        setup: the opened data.
        display: shows its progress.

    Attributes:
        state: everything that changes in training.
    """

    def __init__(self, folder: RunFolder, setup: Setup, display: Display) -> None:
        self.folder, self.setup, self.display, self.processes = folder, setup, display, setup.processes
        self.config, self.device = setup.config, setup.device
        self.method = build_method(self.config.method, self.config.partition, self.config.loss)
        self.names = network_names(self.method)
        truth = None
        if setup.noise is not None:
            truth = Truth(setup.noise, torch.as_tensor(setup.train.image_of_caption), self.device)
        self.word_coverage: dict[str, Any] | None = None
        train, dev = setup.training_data(), setup.split("dev")
        words = None if checkpoints(folder.checkpoints) else self._word_vectors
        self.state = RunState(*build_networks(setup, self.method, len(train.image_of_pair), words))
        nets = self.state.nets
        settled = settle_features(self.config, nets.values(), train, dev, setup.texts(dev))
        self.residency, self.data = settled.residency, settled.train
        self.dev, self.dev_texts = settled.dev, settled.dev_texts
        self.divider = Divider(self.data, self.method, self.config, truth)
        self.learner = Learner(self.method, self.data, self.config, self.method.fixed_columns(self.data), truth)
        self.warmups = WarmupStore(setup, self.method, folder, self.word_coverage)
        self._unchecked: list[tuple[str, int, Tensor]] = []
        self._tensorboard: TensorBoard | None = None

    @cached_property
    def _word_vectors(self) -> WordVectors | None:
        """The initial word vectors: of the first weights, and of the fresh ones after the warm-up."""
        file = self.config.data.word_vectors
        if file is None or self.setup.vocabulary is None:
            return None
        vectors = load_word_vectors(file, self.setup.vocabulary, self.config.model.word_dim)
        self.word_coverage = vectors.coverage.record()
        return vectors

    # --- the run

    def run(self) -> None:
        """Train from the present position to the last epoch, or until an interrupt: then a checkpoint is written first.

        Raises:
            KeyboardInterrupt: after ^C, with the iteration that was under way done and saved.
        """
        state = self.state
        self.processes.together(self._start)
        share_state(state, self.folder, len(self.data.image_of_pair), self.processes)
        self.learner = replace(self.learner, averaged=averaged_over(self.processes, state.nets))
        cuda = [self.device] if self.device.type == "cuda" else []
        with deferred_interrupts(self.processes.count > 1) as interrupts, torch.random.fork_rng(devices=cuda):
            while state.epoch < self.config.train.epochs and interrupts.asked is None:
                self._run_epoch(interrupts)
            if interrupts.asked is not None:
                log.warning("interrupted by %s; step %d is done and saved", interrupts.asked.name, state.step)

    def _start(self) -> None:
        """Bring the record to the present position, and take over a warm-up: the first process alone does."""
        if not self.processes.first:
            return
        state = self.state
        self.folder.cut_records(state.lines)
        if self.config.record.tensorboard:
            self._tensorboard = TensorBoard(self.folder.path / "tensorboard", state.epoch)
        for record in self.warmups.adopt(state):
            self._write_record(record)
        if state.epoch and not checkpoints(self.folder.checkpoints):
            self.save()

    def _run_epoch(self, interrupts: Interrupts) -> None:
        """Divide the pairs, make the steps, validate."""
        started, state = time.monotonic(), self.state
        self._begin()
        if state.divided_at == state.step:
            self._keep_divisions()
        orders = {name: self._order(name) for name in self.names}
        sequence = list(self._sequence({name: len(order) for name, order in orders.items()}))
        if not sequence:
            raise InputError(f"epoch {state.epoch + 1}: fewer than two pairs to train on")
        self.display.epoch(state.epoch, self.config.train.epochs, self.phase, len(sequence), state.position)
        while state.position < len(sequence):
            name, index = sequence[state.position]
            self._set_learning_rate(name, index, len(orders[name]))
            self._iterate(name, index, orders[name])
            state.position += 1
            state.step += 1
            self.display.step()
            self._hear(interrupts)
            due = state.step % self.config.checkpoint.every_steps == 0 and state.position < len(sequence)
            if due or interrupts.asked is not None:
                self.save()
            if interrupts.asked is not None:
                return
        self._check_finite()
        self._finish_epoch(orders, started)

    def _hear(self, interrupts: Interrupts) -> None:
        """Let an interrupt of one process be one of all: they stop after the same step."""
        [number] = self.processes.largest(interrupts.asked or 0)
        interrupts.asked = signal.Signals(number) if number else None

    @property
    def rounds(self) -> tuple[int, ...]:
        """Return the epochs of the run before which a round begins."""
        warmup = warmup_of(self.method)[0]
        return tuple(warmup + epoch for epoch in self.method.rounds(self.config.train.epochs - warmup))

    def _round(self) -> dict[str, int]:
        """Return the number of the present round, from 1, as the record has it; nothing where there is none."""
        begun = sum(start <= self.state.epoch for start in self.rounds)
        return {"round": begun} if begun else {}

    @property
    def in_warmup(self) -> bool:
        """Say whether the present epoch is one of the warm-up."""
        return self.state.epoch < warmup_of(self.method)[0]

    @property
    def phase(self) -> str:
        """Return the name of the present epoch's phase."""
        return "warm-up" if self.in_warmup else "main"

    def _now(self, name: str = "", step: int = 0) -> Now:
        warmup = warmup_of(self.method)[0]
        return Now(self.state.epoch - warmup, self.config.train.epochs - warmup, self.config.train.seed, name, step)

    def _rate(self, step: int, steps: int) -> float:
        """Return the backbone's learning rate in a step of a network's `steps` in this epoch."""
        train, main = self.config.train, warmup_of(self.method)[0]
        starts = sorted({0, main, *self.rounds})
        return train.learning_rate * rate_factor(train, starts, main, self.state.epoch, step, steps)

    def _set_learning_rate(self, name: str, step: int, steps: int) -> None:
        """Set the learning rates of a network's optimisers."""
        rate, own = self._rate(step, steps), self.method.optimizers()
        for which, optimizer in self.state.optimizers[name].items():
            for group in optimizer.param_groups:
                group["lr"] = rate * own.get(which, 1.0)

    def _begin(self) -> None:
        """Before an epoch of the main phase, divide the pairs; before the first round, take fresh weights."""
        state, rounds = self.state, self.rounds
        if self.in_warmup:
            return
        if not state.divided:
            if not rounds or state.epoch in rounds:
                self._divide()
            else:
                state.require_pairs(self.folder.checkpoints, len(self.data.image_of_pair))
            if state.epoch in rounds:
                for net in state.nets.values():
                    net.keep_before()
                if state.epoch == rounds[0] and self.method.fresh_weights:
                    renew(state, self.setup, self.method, self._word_vectors)
            share_division(state, self.processes)
            self.divider.record(state.divisions, state.means)
            state.divided = True
        self.method.begin_epoch(state.nets, self.data, self._now())

    def _divide(self) -> None:
        state = self.state
        try:
            state.divisions = self.divider.divide(state.nets, self._now(), state.epoch)
        except MethodError:
            raise
        except InputError as error:
            raise self._stopped(str(error)) from None
        state.divided_at = state.step

    def _keep_divisions(self) -> None:
        """Write the divisions, once for all checkpoints until the next ones; from here on they are that file's."""
        state = self.state
        if self.processes.first:
            packed = state.pack_divisions(self.folder)
            state.take_divisions(*save_divisions(self.folder.checkpoints, state.step, *packed))

    def _division(self, name: str) -> Division | None:
        return None if self.in_warmup else self.state.divisions[name]

    def _order(self, name: str) -> EpochOrder:
        """Return which pairs a network's steps see in this epoch."""
        pairs, walks = self.data.pairs, self.method.sets
        division = self._division(name)
        sets = {walk.name: pairs[:0] for walk in walks} | {walks[0].name: pairs}
        if division is not None and division.split:
            sets = {walk.name: pairs[division.sets[pairs] == index] for index, walk in enumerate(walks)}
        else:
            walks = (Walk(walks[0].name), *walks[1:])
        return EpochOrder(walks, sets, self._batching(division), self.config.train.seed, name, self.state.epoch)

    def _batching(self, division: Division | None) -> Batching:
        train = self.config.train
        if train.batch_of == "pairs":
            return Batching(train.batch_size)
        images, weights = self.data.image_of_pair, None
        if division is not None:
            images = images if division.images is None else division.images
            weights = division.columns.get("weight")
        return Batching(train.batch_size, images, train.captions_per_image, weights)

    def _sequence(self, steps: dict[str, int]) -> Iterator[tuple[str, int]]:
        """Yield network and iteration in the order in which they are made."""
        if self.config.train.order == "alternating":
            yield from ((name, index) for name in self.names for index in range(steps[name]))
        else:
            longest = range(max(steps.values()))
            yield from ((name, index) for index in longest for name in self.names if index < steps[name])

    def _iterate(self, name: str, index: int, order: EpochOrder) -> None:
        """Make one iteration of one network; its peer is only read."""
        state = self.state
        nets = state.nets[name], state.nets[peer_of(name, self.names)]
        where = (name, state.epoch, index)
        try:
            finite = self.learner.iterate(
                nets, state.optimizers[name], order, self._division(name), self._now(name, index), where, state.means
            )
        except MethodError:
            raise
        except InputError as error:
            raise self._diverged(name, index, str(error)) from None
        self._unchecked.append((name, index, finite))
        if self.device.type == "cpu" or len(self._unchecked) >= CHECK_EVERY:
            self._check_finite()

    # --- what may go wrong

    def _check_finite(self) -> None:
        """Stop at the first loss that is not finite, with its step and pairs; nothing of it was saved."""
        unchecked, self._unchecked = self._unchecked, []
        if not unchecked or bool(torch.stack([loss for *_, loss in unchecked]).isfinite().all()):
            return
        name, index, _ = next(entry for entry in unchecked if not bool(entry[2].isfinite()))
        raise self._diverged(name, index, "the loss or its gradient is not finite")

    def _diverged(self, name: str, index: int, fault: str) -> InputError:
        driving = self._order(name).batch(self.method.sets[0].name, index)
        pairs = [] if driving is None else driving.tolist()
        listed = ", ".join(map(str, pairs[:8])) + (", ..." if len(pairs) > 8 else "")
        return self._stopped(f"step {index + 1} of network {name} (pairs {listed}): {fault}")

    def _stopped(self, fault: str) -> InputError:
        return InputError(
            f"{self.folder.path}: epoch {self.state.epoch + 1}, {fault}; the last checkpoint is kept; try a lower "
            "train.learning_rate"
        )

    # --- end of an epoch, checkpoints

    def _finish_epoch(self, orders: dict[str, EpochOrder], started: float) -> None:
        state = self.state
        backbones = {name: net.backbone for name, net in state.nets.items()}
        try:
            rows, health = evaluate_split(backbones, self.dev, self.dev_texts, self.device, processes=self.processes)
        except InputError as error:
            raise self._stopped(f"validation: {error}") from None
        record: dict[str, Any] = {
            "epoch": state.epoch + 1,
            "phase": self.phase,
            **self._round(),
            "learning_rate": self._rate(len(orders["A"]) - 1, len(orders["A"])),
            "steps": {name: len(order) for name, order in orders.items()},
            "left_out": {name: order.left_out for name, order in orders.items()},
            "cost": state.cost(),
            "dev": rows,
            **health,
        }
        record |= self._figures_of_method(state.means.read(), record)
        if not self.in_warmup:
            record |= self._figures_of_method(self.method.end_epoch(state.nets, self._now()), record)
            mixtures = {division.judge: division.mixture for division in state.divisions.values() if division.mixture}
            record |= {"mixture": {name: mixtures[name] for name in sorted(mixtures)}} if mixtures else {}
        record["seconds"] = round(time.monotonic() - started, 2)
        if rows["ensemble"]["rsum"] > state.best["rsum"]:
            state.best = {"rsum": rows["ensemble"]["rsum"], "epoch": state.epoch + 1}
            self._save_best(rows)
        # after the best weights: whoever reads the last record finds the selection made
        self._write_record(record)
        state.end_epoch()
        self.save()
        if self.processes.first:
            self.warmups.offer(state)
        self.display.record(record)

    def _save_best(self, rows: Mapping[str, Mapping[str, float]]) -> None:
        if self.processes.first:
            about = {**self.state.best, "dev": rows, "networks": list(self.names), **belonging(self.folder)}
            save_tensors(self.folder.best_file, self.state.backbone_tensors(), about)

    def _figures_of_method(self, figures: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a method has to say of an epoch; refuse what would break the record."""
        for name, value in dict(figures).items():
            if name in record or name in ("mixture", "seconds"):
                raise MethodError(f"method {self.method.config.name}: figure `{name}` is a key of every record")
            if value is not None and not isinstance(value, (int, float)):
                raise MethodError(f"method {self.method.config.name}: figure `{name}` is no number: {value!r}")
        return dict(figures)

    def _write_record(self, record: dict[str, Any]) -> None:
        if not self.processes.first:
            return
        self.folder.append(record)
        if self._tensorboard is not None:
            self._tensorboard.write(record)

    def save(self) -> None:
        """Write a checkpoint of the present position."""
        self._check_finite()
        if not self.processes.first:
            return
        tensors, meta = self.state.pack(self.folder)
        save_checkpoint(self.folder.checkpoints, self.state.step, tensors, meta, self.config.checkpoint.keep)

    def resume(self) -> bool:
        """Return to the newest checkpoint; False if there is none yet. With several processes, the first one does."""
        found = load_newest(self.folder.checkpoints)
        if found is None:
            return False
        path, tensors, meta = found
        try:
            self.state.unpack(path, tensors, meta, self.folder, len(self.data.image_of_pair))
            if self.state.epoch < self.config.train.epochs:
                self.state.warn_of_another_machine(path, meta)
        except (KeyError, AttributeError, TypeError) as error:
            made = meta.get("versions") if isinstance(meta, dict) else None
            version = made.get("in2r") if isinstance(made, dict) else None
            raise InputError(f"{path}: written by another in2r ({version}), or damaged: {error!r}") from None
        return True
