"""Both versions of everything that is timed, under the same names: `Ours` calls the toolkit, `Plain` plain.py."""

from collections.abc import Iterator

import numpy as np
import plain
import torch
from in2r.training.scoring import judge_pairs, score_pairs
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from workload import CAPTIONS, DROP, Workload

from in2r.device import resolve_precision
from in2r.methods import Batch, Peer
from in2r.methods.in2r import In2r
from in2r.metrics import recalls_from_ranks
from in2r.partition import fit_two_gaussians
from in2r.runs.settings import PartitionConfig
from in2r.seeds import numpy_generator, torch_generator
from in2r.training.evaluation import evaluate_split
from in2r.training.health import Means, record_step
from in2r.training.order import EpochOrder

RATE = 5e-4
CLIP = 2.0
PARTITION = PartitionConfig()
Rows = dict[str, dict[str, float]]


def draw(work: Workload, number: int) -> tuple[Tensor, Tensor]:
    """Clean and noisy pairs of a step."""
    drawn = torch.randperm(work.pairs, generator=torch_generator(0, "pairs", number))
    return drawn[: work.size.batch], drawn[-work.size.batch :]


def different_images(work: Workload, batch: int) -> tuple[Tensor, ...]:
    """Clean and noisy pairs of which no two have an image in common: equal images would tie."""
    count = min(batch, work.size.images // 2)
    return torch.arange(0, 2 * count * CAPTIONS, CAPTIONS).chunk(2)


def sequence(work: Workload) -> Iterator[tuple[str, int, Tensor, Tensor]]:
    """The interleaved steps of an epoch at 60 % noise: network, number, clean and noisy pairs."""
    pairs = torch.arange(work.pairs)
    parts = pairs[work.clean], pairs[~work.clean]
    orders = {name: EpochOrder(*parts, work.size.batch, 0, name, 0) for name in "AB"}
    for index in range(len(orders["A"])):
        for name, order in orders.items():
            yield name, index, order.clean(index), order.noisy(index)


class Side:
    """The order of things in a step and in an epoch, the same in both versions."""

    work: Workload

    def step(self, number: int) -> None:
        self.update("A", *self.load(*draw(self.work, number), number))

    def epoch(self) -> None:
        for name in self.nets:
            self.fit(self.partition(name=name))
        for name, index, clean, noisy in sequence(self.work):
            self.update(name, *self.load(clean, noisy, name, index))
        self.validate()


class Ours(Side):
    """The toolkit."""

    def __init__(self, work: Workload) -> None:
        self.work, self.data = work, work.training_data()
        self.method = In2r(work.method, work.pairs)
        self.nets = {name: self._network() for name in "AB"}
        self.optimizers = {net: torch.optim.Adam(net.parameters(), lr=RATE, fused=True) for net in self.nets.values()}
        self.means = Means()

    def _network(self) -> Peer:
        encoder = self.work.encoder()
        encoder.precision = resolve_precision(self.work.precision, self.work.device)
        refiners, memory = self.method.parts(self.work.size.dim)
        net = Peer(encoder, refiners, memory).to(self.work.device)
        memory.push(*self.work.memory())
        return net

    def load(self, clean: Tensor, noisy: Tensor, *names: str | int) -> tuple[Batch, Batch]:
        generator = torch_generator(0, "augmentation", *names)
        return self.data.batch(clean, generator, self.work.elite), self.data.batch(noisy, generator)

    def update(self, name: str, clean: Batch, noisy: Batch) -> None:
        """Losses, backward, clip, optimiser, push, record: what the engine does in a step."""
        net, optimizer = self.nets[name], self.optimizers[self.nets[name]]
        done = self.method.partition_step(net, self.nets["B" if name == "A" else "A"], clean, noisy)
        optimizer.zero_grad(set_to_none=True)
        done.losses["total"].backward()
        clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        net.memory.push(*done.keep)
        record_step(self.means, name, done, noisy, None)

    def losses(self, clean: Tensor, noisy: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Losses of un-augmented pairs, and the parameters they depend on."""
        net = self.nets["A"]
        batches = self.data.batch(clean, None, self.work.elite), self.data.batch(noisy)
        return self.method.partition_step(net, net, *batches).losses, trained(net)

    def partition(self, images: int | None = None, name: str = "A") -> dict[str, Tensor]:
        """Per-sample losses of the pairs of the first images, by default of all."""
        data = self.data if images is None else self.work.training_data(images)
        return score_pairs(self.nets[name].encoder, data, self.method.sample_losses, PARTITION, 0)

    @staticmethod
    def fit(losses: dict[str, Tensor]) -> None:
        """Mixtures of an epoch's losses, as the engine fits them."""
        count = len(losses["sce"])
        judge_pairs(losses, torch.arange(count), count, PARTITION)

    def validate(self) -> Rows:
        split, texts = self.work.dev()
        encoders = {name: net.encoder for name, net in self.nets.items()}
        return evaluate_split(encoders, split, texts, self.work.device)[0]


class Plain(Side):
    """The straightforward version, from the same weights."""

    def __init__(self, work: Workload) -> None:
        self.work, self.loader = work, plain.Loader(work)
        self.config = work.method
        self.nets = {name: self._network() for name in "AB"}
        self.optimizers = {net: torch.optim.Adam(net.parameters(), lr=RATE) for net in self.nets.values()}

    def _network(self) -> plain.Network:
        encoder = self.work.encoder()
        refiner = In2r(self.config, self.work.pairs).parts(self.work.size.dim)[0]["i2t"]
        images, texts, *_ = self.work.memory()
        return plain.Network(encoder, refiner.to(self.work.device), plain.Memory(images, texts))

    def load(self, clean: Tensor, noisy: Tensor, *names: str | int) -> tuple[plain.Batch, plain.Batch]:
        rng = numpy_generator(0, "augmentation", *names)
        return self.loader.batch(clean, rng, DROP), self.loader.batch(noisy, rng, DROP)

    def update(self, name: str, clean: plain.Batch, noisy: plain.Batch) -> None:
        net, optimizer = self.nets[name], self.optimizers[self.nets[name]]
        loss, v, u = plain.total_loss(net, self.nets["B" if name == "A" else "A"], clean, noisy, self.config)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        elite = self.work.elite[clean.pairs.cpu()].to(v.device)
        net.memory.push(v[elite], u[elite])
        loss.item()  # the field's scripts log the loss of every step

    def losses(self, clean: Tensor, noisy: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
        net = self.nets["A"]
        batches = self.loader.batch(clean), self.loader.batch(noisy)
        return {"total": plain.total_loss(net, net, *batches, self.config)[0]}, trained(net)

    def adopt(self, ours: Ours) -> None:
        """Take over the toolkit's encoders, so that both versions must find the same."""
        for name, net in self.nets.items():
            net.image.load_state_dict(ours.nets[name].encoder.image.state_dict())
            net.text.load_state_dict(ours.nets[name].encoder.text.state_dict())

    def partition(self, images: int | None = None, name: str = "A") -> dict[str, Tensor]:
        """Losses in the toolkit's fixed shuffled order of the pairs, its last batch filled up from the first pairs."""
        count = self.work.pairs if images is None else images * CAPTIONS
        size = min(PARTITION.batch_size, count)
        order = torch.randperm(count, generator=torch_generator(0, "scoring order"))
        found: dict[str, list[Tensor]] = {}
        for pairs in torch.cat([order, order[: -count % size]]).split(size):
            v, u = self._encode(self.nets[name], pairs)
            for loss, values in plain.pair_losses(v @ u.T, self.config).items():
                found.setdefault(loss, []).append(values.cpu())
        result = {loss: torch.empty(count) for loss in found}
        for loss, parts in found.items():
            result[loss][order] = torch.cat(parts)[:count]
        return result

    @torch.no_grad()
    def _encode(self, net: plain.Network, pairs: Tensor) -> tuple[Tensor, Tensor]:
        net.eval()
        embedded = net.embed(self.loader.batch(pairs))
        net.train()
        return embedded

    @staticmethod
    def fit(losses: dict[str, Tensor]) -> None:
        fit_two_gaussians(losses["sce"].numpy(), PARTITION.max_iter, PARTITION.tol, PARTITION.reg_covar)

    def encode(self, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings of the first `count` captions and of their images, one row per caption."""
        parts = [self._encode(self.nets[name], pairs) for pairs in torch.arange(count).split(self.work.size.batch)]
        v, u = (torch.cat(side).cpu().numpy() for side in zip(*parts, strict=True))
        return v, u

    def validate(self) -> Rows:
        count = min(self.work.size.dev, self.work.size.images) * CAPTIONS
        embedded = {name: self.encode(name, count) for name in self.nets}
        similarities = {name: v[::CAPTIONS] @ u.T for name, (v, u) in embedded.items()}
        similarities["ensemble"] = (similarities["A"] + similarities["B"]) / 2
        return {name: recalls_from_ranks(*plain.ranks(values)) for name, values in similarities.items()}


def trained(net: torch.nn.Module) -> list[Tensor]:
    return [weight for weight in net.parameters() if weight.requires_grad]


def search(queries: Tensor, items: Tensor, k: int) -> Tensor:
    """Positions (Q, k) of the items most similar to each query, as a user of the toolkit's vectors finds them."""
    return (queries @ items.T).topk(k).indices
