"""The contract between a method and the engine.

A method makes losses out of batches and divides the training pairs into sets. It never reads files, steps an optimiser,
or knows which pairs are truly mismatched. The engine knows this contract and no method's name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.memory import Neighbors
from in2r.methods.contrast import TEXT_VECTORS, LossConfig
from in2r.methods.division import Division, PartitionConfig, whole
from in2r.methods.network import Batch, Net
from in2r.models.base import Items
from in2r.seeds import torch_generator


@dataclass(frozen=True)
class Walk:
    """How an epoch passes over one set; the first set drives the epoch: it is passed over once."""

    name: str
    again: bool = True
    """a set beside the first one is cycled; False: passed over once, then absent"""
    whole: bool = False
    """only batches of the full size; False: a last smaller batch too, unless it has a single pair"""


@dataclass(frozen=True)
class Seen:
    """What one network observed of the training pairs; `seen[name]` is a column."""

    columns: Mapping[str, Tensor]
    """name → (n,) on the CPU, in the order of `TrainingPairs.pairs`"""
    mismatched: Mapping[str, Tensor]
    """name → (M,), the same of images and captions that were put together at random: what a mismatch looks like"""

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]


@dataclass(frozen=True)
class LookUp:
    """What a step looked up for the pairs of a batch, for the record alone."""

    batch: Batch
    near_images: Neighbors
    """entries found for the images"""
    near_texts: Neighbors
    """entries found for the texts"""


def _nothing() -> None:
    """Do nothing."""


@dataclass
class Step:
    """One optimiser step."""

    losses: dict[str, Tensor]
    """named scalars; `total` is the one to minimise"""
    of: str = "net"
    """which optimiser steps: "net" (backbone and `own`, gradient clipped), or one of `Method.optimizers`"""
    after: Callable[[], None] = _nothing
    """is called when the step is taken, such as to fill a memory"""
    notes: dict[str, float | Tensor] = field(default_factory=dict)
    """scalars whose mean over the epoch is recorded"""
    found: LookUp | None = None


@dataclass(frozen=True)
class Now:
    """Where in the main phase a method is asked."""

    epoch: int
    """of the main phase, from 0"""
    epochs: int
    """of the main phase"""
    seed: int
    name: str = ""
    """the network that is trained; empty in `divide` and `end_epoch`"""
    step: int = 0
    """of the epoch, from 0"""

    def generator(self, *names: str | int) -> torch.Generator:
        """Return a generator on the CPU whose draws depend on the run's seed and on these names alone.

        Where draws must differ between networks, epochs or steps, these must be among the names.
        """
        return torch_generator(self.seed, *names)


class TrainingPairs(Protocol):
    """What a method may ask of the training pairs."""

    @property
    def pairs(self) -> Tensor:
        """The pairs that are trained on, (n,) int64 on the CPU."""
        ...

    @property
    def image_of_pair(self) -> Tensor:
        """The image of each of the N pairs as given, (N,) int64 on the CPU."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        ...

    def encode(self, net: Net, pairs: Tensor) -> tuple[Items, Items]:
        """Return images and texts of pairs (k,) int64, encoded in eval mode without gradient."""
        ...

    @property
    def in_words(self) -> bool:
        """Whether captions are words; else they are vectors."""
        ...

    def same_words(self) -> Tensor | None:
        """Return (N,) int64, equal for captions of the same words; None where captions are vectors."""
        ...

    def image_vectors(self) -> Tensor:
        """Return the images as given, (images, d) float32 on the CPU: the mean of each one's regions."""
        ...

    def text_vectors(self, dim: int) -> Tensor:
        """Return the captions as given, (N, d) float32 on the CPU; of words TF-IDF, reduced to at most `dim`."""
        ...

    def embed(self, net: Net, before: bool = False) -> tuple[Tensor, Tensor]:
        """Return the embeddings of all images and of all captions by a network, in eval mode without gradient.

        Args:
            net: a network with one vector per item.
            before: by what it was when the present round began.

        Returns:
            (images, D) and (N, D) unit norm, on the device.
        """
        ...


class Warmup(Protocol):
    """The loss of the first epochs, on all pairs; a frozen dataclass of its numbers.

    Runs whose warm-ups are equal, and all else that decides them, share one.
    """

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the losses of one batch."""
        ...


@dataclass(frozen=True)
class MethodConfig:
    """Section `method`: the settings that every method has."""

    name: str = key("", "the method")
    common_warmup: int | None = key(
        None,
        "epochs of IN²R's warm-up loss with its defaults in place of the method's own warm-up, so that different "
        "methods start from the same weights; null = the method's own",
        low=1,
    )


class Method(ABC):
    """A method: override what it needs; all else does nothing.

    Args:
        config: section `method` of the settings, an instance of the class's `Config`.
        partition: section `partition`: how pairs are scored and divided.
        loss: section `loss`: what is asked of trusted pairs; its defaults where it is not given.
    """

    Config: ClassVar[type[Any]] = MethodConfig
    """a frozen dataclass of settings, derived from `MethodConfig`"""
    networks: ClassVar[int] = 1
    """1, or 2 that train side by side; S of the ensemble is the mean of theirs"""
    sets: ClassVar[tuple[Walk, ...]] = (Walk("all"),)
    looks_up: ClassVar[bool] = False
    """True: it looks pairs up in a memory, and does not find what `Batch.hidden` names"""
    compares_vectors: ClassVar[bool] = False
    """True: it asks for one vector per image and per caption, so that a backbone which has none is refused"""
    needs_bounded: ClassVar[bool] = False
    """True: it takes S for a number in [-1, 1], so that SCAN's log-sum-exp, which exceeds 1, is refused"""
    waits: ClassVar[str] = ""
    """why a step of it waits for the device; empty where none does"""
    one_sided: ClassVar[str] = ""
    """why its loss changes if images and captions are exchanged; empty where it does not"""

    def __init__(self, config: Any, partition: PartitionConfig, loss: LossConfig | None = None) -> None:
        self.config, self.partition, self.loss = config, partition, loss or LossConfig()

    @property
    def label(self) -> str:
        """What tables call a run of it: its name; of "file.py:Class" the class."""
        return str(self.config.name).rpartition(":")[2]

    @classmethod
    def divides(cls) -> bool:
        """Say whether the method divides the pairs."""
        return cls.divide is not Method.divide

    def fault(self, dim: int) -> str:
        """Say which settings contradict each other, or an embedding of D = `dim`; an empty string where none do."""
        return ""

    @property
    def reads_vectors(self) -> tuple[str, ...]:
        """Which of its settings make it compare or classify `Items.vector`: SCAN has none that is learnt.

        Each is a key with its value, such as "method.lambda_intra=0.5".
        """
        return ()

    @property
    def reads_parts(self) -> tuple[str, ...]:
        """Which of its settings make it read `Items.parts`, which a dual encoder has not; each a key with its value."""
        return ()

    def warmup(self) -> tuple[int, Warmup | None]:
        """Return the number of warm-up epochs and their loss; None: the method's own steps, on all pairs."""
        return 0, None

    def own(self, dim: int, pairs: int, batch_size: int) -> nn.Module:
        """Make what one network keeps beside its backbone.

        Args:
            dim: D.
            pairs: N, the training pairs as given; an oracle run trains on some of them, by their own numbers.
            batch_size: pairs in a full batch.

        Raises:
            InputError: the settings do not fit so many pairs.
        """
        return nn.Module()

    def optimizers(self) -> Mapping[str, float]:
        """Name the children of `own` that have an optimiser of their own, and its learning rate over the network's."""
        return {}

    def fixed_columns(self, data: TrainingPairs) -> Mapping[str, Tensor]:
        """Return columns (N, ...) that do not change in a run; every batch has its pairs' rows."""
        wanted = self.loss.compares_texts and data.in_words
        return {TEXT_VECTORS: data.text_vectors(self.loss.text_dim)} if wanted else {}

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor] | None:
        """Score the pairs of one batch before each epoch of the main phase; eval mode, no gradient.

        A pair's batch mates are the same in every epoch and for both networks.

        Args:
            net: the network.
            images: B images, encoded.
            texts: their captions.
            pairs: (B,) int64 on the CPU, which training pairs these are.

        Returns:
            name → (B,), such as per-sample losses; larger = less likely to belong together, which the record's AUROC
            relies on. None: nothing is observed, and no pass over the pairs is made.
        """
        return None

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Say what each network trains on in this epoch.

        Args:
            seen: network → what was observed; empty where nothing is.
            nets: the networks.
            data: the training pairs.
            now: the epoch.
        """
        return dict.fromkeys(nets, self.trust(data.pairs, len(data.image_of_pair)))

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Return the division in which all of `pairs` count as clean: an oracle run trains on it."""
        return whole(pairs, total)

    @property
    def fresh_weights(self) -> bool:
        """Say whether the first round starts from fresh weights, of a method that has rounds."""
        return True

    def rounds(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs of the main phase, of `epochs` in all, before which a round begins.

        Before each of them the method divides the pairs, and between them the division stays. Then each network keeps
        its backbone as `Net.before`. With `fresh_weights`, it gets fresh weights for the first round, drawn from the
        seed, and a fresh optimiser: the warm-up has learnt from all pairs. Later rounds go on from the weights that
        they find. What a network keeps as `own` stays. None: one round, with a division in each epoch.
        """
        return ()

    def begin_epoch(self, nets: Mapping[str, Net], data: TrainingPairs, now: Now) -> None:
        """Prepare for the steps of an epoch of the main phase; asked once more where a run resumes inside it.

        What it makes must follow from its arguments: it is not saved.
        """
        return

    @abstractmethod
    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Yield the optimiser steps of one iteration; each is taken before the next one is asked for.

        Args:
            net: the network that is trained.
            peer: the other network, or `net` itself where there is one; only read.
            batches: set → batch, made when it is asked for; a set is absent where it has no batch, or of one pair.
            now: epoch, step, network.
        """

    def end_epoch(self, nets: Mapping[str, Net], now: Now) -> Mapping[str, float]:
        """Do what is due when an epoch of the main phase has ended; return figures for its record."""
        return {}
