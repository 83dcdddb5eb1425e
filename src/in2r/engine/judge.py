"""Before a co-training epoch each network judges all training pairs; its peer trains on what it says."""

import logging
from collections.abc import Collection, Mapping

import torch

from in2r.encode import encode_images, encode_texts
from in2r.encoders import DualEncoder
from in2r.engine.health import Truth, partition_truth
from in2r.engine.scoring import (
    Judgement,
    Partition,
    judge_pairs,
    loss_counts,
    score_pairs,
    trust_all,
)
from in2r.engine.settings import PartitionConfig, RunConfig
from in2r.engine.training_data import TrainingData
from in2r.memory import MemoryBank
from in2r.methods import Method
from in2r.seeds import torch_generator

log = logging.getLogger(__name__)


class Judge:
    """Makes the partitions of a run, and fills the memories from the first ones.

    Args:
        data: the training pairs.
        method: names the per-sample losses, and the pairs that fill the memories.
        config: the run's settings.
        truth: of injected noise, for the record alone; None where none was injected.
    """

    def __init__(self, data: TrainingData, method: Method, config: RunConfig, truth: Truth | None) -> None:
        self.data, self.method, self.config, self.truth = data, method, config, truth
        self.seed = config.train.seed
        self._told_of_one_group = False

    def partition(self, name: str, encoder: DualEncoder, epoch: int) -> tuple[Partition, dict[str, float | None]]:
        """Return what a network says of all pairs, and the figures of it for the health record.

        Raises:
            InputError: a loss is not finite.
        """
        pairs, total, config = self.data.pairs, len(self.data.image_of_pair), self.config.partition
        if self.config.noise.oracle:
            judgement = Judgement({}, "", trust_all(pairs, total), {})
        else:
            losses = score_pairs(encoder, self.data, self.method.sample_losses, config, self.seed, name, epoch)
            judgement = judge_pairs(losses, pairs, total, config)
        partition, figures = judgement.partition, judgement.figures()
        if self.truth is not None:
            figures |= partition_truth(judgement.losses, partition.clean, pairs, self.truth)
            if partition.mixture:
                really = judgement.losses[judgement.loss][self.truth.clean[pairs]]
                scale = partition.mixture["low"], partition.mixture["high"]
                partition.mixture["clean_counts"] = loss_counts(really, *scale)
        return partition, figures

    def warn(self, epoch: int, partitions: Mapping[str, Partition]) -> None:
        """Say what is unusual about an epoch's partitions, once for both networks."""
        config = self.config.partition
        whole = {name: partition for name, partition in partitions.items() if not partition.split}
        empty = [name for name, partition in partitions.items() if "clean_set_was_empty" in partition.figures]
        if whole and not self._told_of_one_group:
            log.warning(
                "epoch %d, network %s: the losses do not show a group of mismatched pairs (%s): where that is so, the "
                "other network trains with the warm-up loss on all pairs, as suits clean data or a weak model (said "
                "once)", epoch + 1, " and ".join(whole), _why_one_group(whole.values(), config),
            )  # fmt: skip
            self._told_of_one_group = True
        if empty:
            log.warning(
                "epoch %d, network %s: no two pairs above partition.threshold=%s; the lowest losses count as clean",
                epoch + 1, " and ".join(empty), config.threshold,
            )  # fmt: skip

    def prefill(self, name: str, encoder: DualEncoder, memory: MemoryBank | None, partition: Partition | None) -> None:
        """Fill an empty memory from the partition that the network trains on, where there is one and the method asks.

        Pushed are eval-mode embeddings of the chosen pairs, the newest M of a shuffled order.
        """
        which = self.method.prefill()
        if which is None or memory is None or len(memory) > 0 or partition is None:
            return
        chosen = torch.nonzero(partition.elite if which == "elite" else partition.clean).flatten()
        order = torch.randperm(len(chosen), generator=torch_generator(self.seed, "prefill", name))
        chosen = chosen[order][-memory.capacity :]
        device = self.data.device
        groups = self.data.image_of_pair[chosen].to(device)
        images = encode_images(encoder, self.data.images, device)[groups]
        texts = encode_texts(encoder, self.data.texts, device, chosen)
        memory.push(images, texts, chosen.to(device), groups)


def _why_one_group(partitions: Collection[Partition], config: PartitionConfig) -> str:
    """Say the figures by which partitions were not believed, and what is asked of them."""

    def shown(name: str) -> str:
        values = [partition.figures[name] for partition in partitions]
        return ", ".join("none" if value is None else f"{value:.2f}" for value in values)

    return (
        f"separation {shown('separation')}, partition.minimum_separation asks for {config.minimum_separation}; "
        f"divergence from mismatched pairs {shown('divergence')}, partition.maximum_divergence allows "
        f"{config.maximum_divergence}"
    )
