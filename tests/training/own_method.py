"""A method of one's own, in a file: one network, a head with an optimiser of its own, two steps in an iteration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.losses import triplet_loss
from in2r.methods import Batch, Division, Method, MethodConfig, Net, Now, Step, TrainingPairs, Walk
from in2r.models.base import Items


@dataclass(frozen=True)
class HeadConfig(MethodConfig):
    """Section `method`."""

    name: str = key("", "the method")
    weight: float = key(1.0, "of the head's loss", above=0)


class Own(nn.Module):
    """A head on images, and how many iterations were made."""

    made: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, 1)
        self.register_buffer("made", torch.zeros((), dtype=torch.int64))


class Head(Method):
    """Even pairs drive an epoch in whole batches; odd ones are passed over once."""

    Config = HeadConfig
    config: HeadConfig
    sets = (Walk("even", whole=True), Walk("odd", again=False))

    def own(self, dim: int, pairs: int, batch_size: int) -> Own:
        return Own(dim)

    def optimizers(self) -> Mapping[str, float]:
        return {"head": 3.0}

    def fixed_columns(self, data: TrainingPairs) -> Mapping[str, Tensor]:
        return {"number": torch.arange(len(data.image_of_pair))}

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        return {"far": 1 - (images.vector * texts.vector).sum(1)}

    def divide(
        self, seen: Mapping[str, Mapping[str, Tensor]], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        total = len(data.image_of_pair)
        far = torch.zeros(total)
        far[data.pairs] = seen["A"]["far"]
        sets = (torch.arange(total) % 2).to(torch.int8)
        return {"A": Division(sets, {"far": far}, judge="A", figures={"mean_far": float(far.mean())})}

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        assert net is peer
        batch = batches["even"]
        assert torch.equal(batch.columns["number"], batch.pairs)
        assert (batch.pairs % 2 == 0).all()
        images, _ = net.encode(batch)[0]
        said = net.own.head(images.vector.detach()).squeeze(1)
        head = self.config.weight * (said - batch.column("far")).square().mean()
        yield Step({"head": head, "total": head}, of="head")
        images, texts = net.encode(batch)[0]
        loss = triplet_loss(net.score(images, texts), negatives="mean")
        step = Step({"inter": loss, "total": loss}, notes={"odd": float("odd" in batches)})
        step.after = lambda: net.own.made.add_(1)  # type: ignore[assignment, return-value]
        yield step

    def end_epoch(self, nets: Mapping[str, Net], now: Now) -> Mapping[str, float]:
        return {"made_A": float(nets["A"].own.made)}
