"""The networks of a run and their optimisers."""

from collections.abc import Mapping

import torch

from in2r.data.text.word_vectors import WordVectors
from in2r.device import resolve_precision
from in2r.errors import MethodError
from in2r.methods import Method, Net
from in2r.models.build import build_backbone
from in2r.runs.settings import TrainConfig
from in2r.seeds import derive, torch_generator
from in2r.training.setup import Setup

NAMES = ("A", "B")


def network_names(method: Method) -> tuple[str, ...]:
    """Return the names of a method's networks."""
    return NAMES[: method.networks]


def peer_of(name: str, names: tuple[str, ...] = NAMES) -> str:
    """Return the name of a network's peer; its own where it is the only one."""
    others = [other for other in names if other != name]
    return others[0] if others else name


def build_networks(setup: Setup, method: Method, pairs: int, vectors: WordVectors | None) -> dict[str, Net]:
    """Make a method's networks on the run's device, from weights that depend on seed and name only.

    Args:
        setup: the opened data, with the settings.
        method: says how many networks there are, and what each keeps beside its backbone.
        pairs: training pairs.
        vectors: initial word vectors.
    """
    device, copied = setup.device, setup.config.train.initial_weights == "copy"
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        nets = {
            name: _network("A" if copied else name, setup, method, pairs, vectors) for name in network_names(method)
        }
    return {name: net.to(device).train() for name, net in nets.items()}


def _network(weights: str, setup: Setup, method: Method, pairs: int, vectors: WordVectors | None) -> Net:
    config, seed = setup.config, setup.config.train.seed
    torch.manual_seed(derive(seed, "weights", weights))
    matrix = None if vectors is None else vectors.matrix(torch_generator(seed, "word vectors", weights))
    backbone = build_backbone(config.model, setup.inputs, matrix)
    backbone.precision = resolve_precision(config.train.precision, setup.device)
    return Net(backbone, method.own(config.model.dim, pairs, config.train.batch_size))


def make_optimizers(net: Net, rates: Mapping[str, float], train: TrainConfig) -> dict[str, torch.optim.Optimizer]:
    """Make a network's optimisers: `net`, and one for each child of `own` that has its own.

    Args:
        net: the network.
        rates: child of `own` → its learning rate over the network's.
        train: the settings.
    """
    for child in rates:
        if child not in dict(net.own.named_children()):
            raise MethodError(f"optimizers() names {child!r}, which is no child of what the method's own() returns")
    apart = {child: list(net.own.get_submodule(child).parameters()) for child in rates}
    taken = {id(weight) for weights in apart.values() for weight in weights}
    main = [weight for weight in net.parameters() if id(weight) not in taken]
    found = {"net": _optimizer(main, train.learning_rate, train)}
    return found | {
        child: _optimizer(weights, rates[child] * train.learning_rate, train) for child, weights in apart.items()
    }


def _optimizer(weights: list[torch.nn.Parameter], rate: float, train: TrainConfig) -> torch.optim.Optimizer:
    if train.optimizer == "adamw":
        return torch.optim.AdamW(weights, lr=rate, weight_decay=train.weight_decay, fused=True)
    return torch.optim.Adam(weights, lr=rate, fused=True)
