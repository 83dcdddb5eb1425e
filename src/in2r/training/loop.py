"""The loop: warm-up, partition, two peers, validation; killed at any moment, it goes on bit-identically.

Nothing that is drawn is carried along (see `in2r.seeds`), so the whole state is: both peers (encoders, refiners,
memories), both optimisers, the partitions, the running means, the best validation so far, and the position.
"""

import logging
import math
import time
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from in2r.data.text.word_vectors import WordVectors, load_word_vectors
from in2r.errors import InputError
from in2r.methods import Batch, Peer, Step, build_method
from in2r.runs.checkpoints import checkpoints, load_newest, save_checkpoint
from in2r.runs.folder import RunFolder
from in2r.runs.identity import belonging
from in2r.runs.settings import RunConfig
from in2r.seeds import derive, torch_generator
from in2r.tensors import save_tensors
from in2r.training.evaluation import evaluate_split
from in2r.training.health import Means, Truth, gradient_norms, record_step
from in2r.training.interrupts import Interrupts, deferred_interrupts
from in2r.training.judge import Judge
from in2r.training.networks import NAMES, build_networks, make_optimizer, peer_of
from in2r.training.order import EpochOrder
from in2r.training.residency import settle_features
from in2r.training.scoring import Partition
from in2r.training.setup import Setup
from in2r.training.state import restore, state_of
from in2r.training.tensorboard import TensorBoard
from in2r.training.warmup import adopt_warmup, offer_warmup

log = logging.getLogger(__name__)

CHECK_EVERY = 50
"""Steps between two looks at whether the losses are finite (a look synchronises the device)."""


class Display(Protocol):
    """Who is told how the run goes on."""

    def epoch(self, epoch: int, epochs: int, phase: str, steps: int, done: int) -> None:
        """Hear that an epoch begins, at step `done` of `steps`."""
        ...

    def step(self) -> None:
        """Hear that one step of one network is done."""
        ...

    def record(self, record: dict[str, Any]) -> None:
        """Hear that the epoch's record is written."""
        ...


class Trainer:
    """One run from its settings to its best model.

    Args:
        folder: the run folder, locked by the caller.
        setup: the opened data.
        display: who is told how it goes on.
    """

    def __init__(self, folder: RunFolder, setup: Setup, display: Display) -> None:
        self.folder, self.setup, self.display = folder, setup, display
        self.config: RunConfig = setup.config
        self.seed = self.config.train.seed
        self.device = setup.device
        self.truth = None
        if setup.noise is not None:
            original = torch.as_tensor(setup.train.image_of_caption)
            self.truth = Truth(setup.noise, original, self.device)
        self.word_coverage: dict[str, Any] | None = None
        train, dev = setup.training_data(), setup.split("dev")
        self.method = build_method(self.config.method, len(train.pairs))
        self.nets = build_networks(setup, self.method, self._word_vectors())
        self.optimizers = {name: make_optimizer(net, self.config.train) for name, net in self.nets.items()}
        settled = settle_features(self.config, self.nets.values(), train, dev, setup.texts(dev))
        self.residency, self.data = settled.residency, settled.train
        self.dev, self.dev_texts = settled.dev, settled.dev_texts
        self.judge = Judge(self.data, self.method, self.config, self.truth)
        self.partitions: dict[str, Partition] = {}
        self.means = Means()
        self.epoch = self.position = self.step = self.lines = 0
        self.begun = False
        self.began_as: str | None = None
        self.best: dict[str, Any] = {"rsum": -1.0, "epoch": None}
        self._unchecked: list[tuple[str, int, Tensor]] = []
        self.tensorboard: TensorBoard | None = None

    def _word_vectors(self) -> WordVectors | None:
        """Read the word vectors, unless a checkpoint holds what became of them."""
        file = self.config.data.word_vectors
        if file is None or self.setup.vocabulary is None or checkpoints(self.folder.checkpoints):
            return None
        vectors = load_word_vectors(file, self.setup.vocabulary, self.config.model.word_dim)
        self.word_coverage = vectors.coverage.record()
        return vectors

    # --- the run

    def run(self) -> None:
        """Train from the present position to the last epoch, or until an interrupt: then a checkpoint is written first.

        Raises:
            KeyboardInterrupt: after ^C, with the step that was under way done and saved.
        """
        self.folder.cut_records(self.lines)
        if self.config.record.tensorboard:
            self.tensorboard = TensorBoard(self.folder.path / "tensorboard", self.epoch)
        adopt_warmup(self)
        cuda = [self.device] if self.device.type == "cuda" else []
        with deferred_interrupts() as interrupts, torch.random.fork_rng(devices=cuda):
            while self.epoch < self.config.train.epochs and interrupts.asked is None:
                self._run_epoch(interrupts)
            if interrupts.asked is not None:
                log.warning("interrupted by %s; step %d is done and saved", interrupts.asked.name, self.step)

    def _run_epoch(self, interrupts: Interrupts) -> None:
        started = time.monotonic()
        self._set_learning_rate()
        if not self.begun:
            self.means = Means()
            if self.method.needs_partition(self.epoch):
                self._repartition()
            self.begun = True
        orders = {name: self._order(name) for name in NAMES}
        sequence = self._sequence({name: len(order) for name, order in orders.items()})
        if not sequence:
            raise InputError(f"epoch {self.epoch + 1}: fewer than two pairs to train on")
        phase = "co-training" if self.method.needs_partition(self.epoch) else "all pairs"
        self.display.epoch(self.epoch, self.config.train.epochs, phase, len(sequence), self.position)
        while self.position < len(sequence):
            name, index = sequence[self.position]
            self._train_step(name, index, orders[name])
            self.position += 1
            self.step += 1
            self.display.step()
            due = self.step % self.config.checkpoint.every_steps == 0 and self.position < len(sequence)
            if due or interrupts.asked is not None:
                self.save()
            if interrupts.asked is not None:
                return
        self._check_finite()
        self._finish_epoch(phase, orders, started)

    def _judgement(self, name: str) -> Partition | None:
        """Return the partition that a network trains on in this epoch; None = on all pairs alike."""
        if not self.method.needs_partition(self.epoch):
            return None
        partition = self.partitions[peer_of(name)]
        return partition if partition.split else None

    def _order(self, name: str) -> EpochOrder:
        clean, noisy = self.data.pairs, self.data.pairs[:0]
        partition = self._judgement(name)
        if partition is not None:
            is_clean = partition.clean[self.data.pairs]
            clean, noisy = self.data.pairs[is_clean], self.data.pairs[~is_clean]
        return EpochOrder(clean, noisy, self.config.train.batch_size, self.seed, name, self.epoch)

    def _sequence(self, steps: dict[str, int]) -> list[tuple[str, int]]:
        if self.config.train.order == "alternating":
            return [(name, index) for name in NAMES for index in range(steps[name])]
        return [(name, index) for index in range(max(steps.values())) for name in NAMES if index < steps[name]]

    def _train_step(self, name: str, index: int, order: EpochOrder) -> None:
        """One optimiser step of one network; its peer is only read."""
        net, optimizer = self.nets[name], self.optimizers[name]
        try:
            step, noisy = self._losses(name, index, order)
        except InputError as error:
            raise self._diverged(name, index, str(error)) from None
        if index == 0:  # once an epoch: which loss steers the encoders cannot be told from the losses' sizes
            for loss, part_norm in gradient_norms(net.encoder, step).items():
                self.means.add(f"gradient_norm_{loss}_{name}", part_norm)
        norm = self.descend(net, optimizer, step)
        self.means.add(f"gradient_norm_{name}", norm)
        record_step(self.means, name, step, noisy, self.truth)
        # 0 * norm: a gradient that is not finite is found by the same look
        self._unchecked.append((name, index, step.losses["total"].detach() + 0 * norm))
        if self.device.type == "cpu" or len(self._unchecked) >= CHECK_EVERY:
            self._check_finite()

    def descend(self, net: Peer, optimizer: torch.optim.Optimizer, step: Step) -> Tensor:
        """Take one step down the total loss, then fill the memory; return the gradient's norm before clipping."""
        optimizer.zero_grad(set_to_none=True)
        step.losses["total"].backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), self.config.train.gradient_clip)
        optimizer.step()
        if step.keep is not None and net.memory is not None:
            net.memory.push(*step.keep)
        return norm

    def _losses(self, name: str, index: int, order: EpochOrder) -> tuple[Step, Batch | None]:
        """Make the losses of one step, and return its noisy batch where there is one."""
        net, peer = self.nets[name], self.nets[peer_of(name)]
        where = (name, self.epoch, index)
        torch.manual_seed(derive(self.seed, "dropout", *where))
        generator = torch_generator(self.seed, "augmentation", *where)
        partition = self._judgement(name)
        if partition is None:
            batch = self.data.batch(order.clean(index), generator)
            return self.method.all_pairs_step(net, batch, self.epoch), None
        clean = self.data.batch(order.clean(index), generator, partition.elite)
        noisy_pairs = order.noisy(index) if net.memory is not None else None
        noisy = None if noisy_pairs is None else self.data.batch(noisy_pairs, generator)
        if noisy is not None and self.config.noise.hide_original:
            assert self.truth is not None
            noisy = replace(noisy, hidden=self.truth.hidden(noisy))
        return self.method.partition_step(net, peer, clean, noisy), noisy

    def _check_finite(self) -> None:
        """Stop at the first loss that is not finite, with its step and pairs; nothing of it was saved."""
        unchecked, self._unchecked = self._unchecked, []
        if not unchecked or bool(torch.stack([loss for *_, loss in unchecked]).isfinite().all()):
            return
        name, index, _ = next(entry for entry in unchecked if not bool(entry[2].isfinite()))
        raise self._diverged(name, index, "the loss or its gradient is not finite")

    def _diverged(self, name: str, index: int, fault: str) -> InputError:
        pairs = self._order(name).clean(index).tolist()
        listed = ", ".join(map(str, pairs[:8])) + (", ..." if len(pairs) > 8 else "")
        return self._stopped(f"step {index + 1} of network {name} (pairs {listed}): {fault}")

    def _stopped(self, fault: str) -> InputError:
        return InputError(
            f"{self.folder.path}: epoch {self.epoch + 1}, {fault}; the last checkpoint stays; try a lower "
            "train.learning_rate"
        )

    def _set_learning_rate(self) -> None:
        train = self.config.train
        if train.schedule == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * self.epoch / train.epochs))
        else:
            factor = train.step_factor ** (self.epoch // train.step_epochs)
        self.learning_rate = train.learning_rate * factor
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate

    def _repartition(self) -> None:
        """Each network judges all pairs; the first time, both memories are filled from it."""
        for name, net in self.nets.items():
            try:
                self.partitions[name], figures = self.judge.partition(name, net.encoder, self.epoch)
            except InputError as error:
                raise self._stopped(f"partition by network {name}: {error}") from None
            for key, value in figures.items():
                self.means.add(f"{key}_{name}", value)
        self.judge.warn(self.epoch, self.partitions)
        for name, net in self.nets.items():
            self.judge.prefill(name, net.encoder, net.memory, self._judgement(name))

    # --- end of an epoch, checkpoints

    def _finish_epoch(self, phase: str, orders: dict[str, EpochOrder], started: float) -> None:
        encoders = {name: net.encoder for name, net in self.nets.items()}
        try:
            rows, health = evaluate_split(encoders, self.dev, self.dev_texts, self.device)
        except InputError as error:
            raise self._stopped(f"validation: {error}") from None
        record: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "phase": phase,
            "learning_rate": self.learning_rate,
            "steps": {name: len(order) for name, order in orders.items()},
            "left_out": {name: order.left_out for name, order in orders.items()},
            "dev": rows,
            **health,
            **self.means.read(),
        }
        record |= self.memory_record()
        if self.method.needs_partition(self.epoch) and not self.config.noise.oracle:
            record["mixture"] = {name: partition.mixture for name, partition in self.partitions.items()}
        record["seconds"] = round(time.monotonic() - started, 2)
        if rows["ensemble"]["rsum"] > self.best["rsum"]:
            self.best = {"rsum": rows["ensemble"]["rsum"], "epoch": self.epoch + 1}
            tensors = {f"{name}.{key}": value for name in NAMES for key, value in encoders[name].state_dict().items()}
            save_tensors(self.folder.best_file, tensors, {**self.best, "dev": rows, **belonging(self.folder)})
        # after the best weights: whoever reads the last record finds the selection made
        self.write_record(record)
        self.lines += 1
        self.epoch += 1
        self.position, self.begun = 0, False
        self.save()
        offer_warmup(self)
        self.display.record(record)

    def write_record(self, record: dict[str, Any]) -> None:
        """Write an epoch's record."""
        self.folder.append(record)
        if self.tensorboard is not None:
            self.tensorboard.write(record)

    def memory_record(self) -> dict[str, float]:
        """Return what an epoch's record says of the memories, in any phase."""
        found: dict[str, float] = {}
        for name, net in self.nets.items():
            if net.memory is not None:
                found[f"memory_fill_{name}"] = len(net.memory) / net.memory.capacity
                found[f"unrectified_steps_{name}"] = round(self.means.sum(f"unrectified_steps_{name}"))
        return found

    def save(self) -> None:
        """Write a checkpoint of the present position."""
        self._check_finite()
        tensors, meta = state_of(self)
        keep = self.config.checkpoint.keep
        save_checkpoint(self.folder.checkpoints, self.step, tensors, meta, keep)

    def resume(self) -> bool:
        """Go back to the newest checkpoint; False when there is none yet and the run begins anew."""
        found = load_newest(self.folder.checkpoints)
        if found is None:
            return False
        path, tensors, meta = found
        try:
            restore(self, path, tensors, meta)
        except (KeyError, AttributeError, TypeError) as error:
            made = meta.get("versions") if isinstance(meta, dict) else None
            version = made.get("in2r") if isinstance(made, dict) else None
            raise InputError(f"{path}: written by another in2r ({version}), or damaged: {error!r}") from None
        return True
