"""The networks of a run and their optimisers."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch

from in2r.data.text.word_vectors import WordVectors
from in2r.device import resolve_precision
from in2r.errors import MethodError
from in2r.methods import Method, Net
from in2r.models.base import Backbone
from in2r.models.build import build_backbone
from in2r.runs.settings import TrainConfig
from in2r.seeds import derive, torch_generator
from in2r.training.setup import Setup
from in2r.training.state import Optimizers, RunState

NAMES = ("A", "B")


def network_names(method: Method) -> tuple[str, ...]:
    """Return the names of a method's networks."""
    return NAMES[: method.networks]


def peer_of(name: str, names: tuple[str, ...] = NAMES) -> str:
    """Return the name of a network's peer; its own where it is the only one."""
    others = [other for other in names if other != name]
    return others[0] if others else name


def build_networks(
    setup: Setup, method: Method, pairs: int, vectors: WordVectors | None
) -> tuple[dict[str, Net], Optimizers]:
    """Make a method's networks on the run's device, from weights that depend on seed and name only, and optimisers.

    Args:
        setup: the opened data, with the settings.
        method: says how many networks there are, and what each keeps beside its backbone.
        pairs: N, the training pairs as given; an oracle run trains on some of them.
        vectors: initial word vectors.
    """
    train, nets = setup.config.train, {}
    size = train.batch_size * (train.captions_per_image if train.batch_of == "images" else 1)
    with _own_draws(setup.device):
        for name in network_names(method):
            backbone = _backbone(setup, vectors, _weights_of(name, train))
            own = method.own(setup.config.model.dim, pairs, size)
            _require_own_entries(method, own)
            net = Net(backbone, own, setup.processes)
            nets[name] = net.to(setup.device).train()
    return nets, {name: make_optimizers(net, method.optimizers(), train) for name, net in nets.items()}


def _require_own_entries(method: Method, own: torch.nn.Module) -> None:
    """Refuse what could be trained but not read from a checkpoint: a tensor whose entries share memory."""
    for name, tensor in own.state_dict().items():
        if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise MethodError(f"method {method.config.name}: own() returns {name}, an expanded tensor; add .clone()")


def renew(state: RunState, setup: Setup, method: Method, vectors: WordVectors | None) -> None:
    """Give each backbone fresh weights, drawn from seed and name, and a fresh optimiser.

    Args:
        state: networks and optimisers.
        setup: the opened data, with the settings.
        method: says which optimisers there are.
        vectors: initial word vectors.
    """
    train = setup.config.train
    with _own_draws(setup.device):
        for name, net in state.nets.items():
            fresh = _backbone(setup, vectors, _weights_of(name, train), "after the warm-up")
            net.backbone.load_state_dict(fresh.state_dict())
            state.optimizers[name] = make_optimizers(net, method.optimizers(), train)


def _own_draws(device: torch.device) -> AbstractContextManager[None]:
    """Return a context after which the framework's own generators are as before."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _weights_of(name: str, train: TrainConfig) -> str:
    """Return the network whose weights a network starts from."""
    return NAMES[0] if train.initial_weights == "copy" else name


def _backbone(setup: Setup, vectors: WordVectors | None, *weights: str | int) -> Backbone:
    config, seed = setup.config, setup.config.train.seed
    torch.manual_seed(derive(seed, "weights", *weights))
    matrix = None if vectors is None else vectors.matrix(torch_generator(seed, "word vectors", *weights))
    backbone = build_backbone(config.model, setup.inputs, matrix)
    backbone.precision = resolve_precision(config.train.precision, setup.device)
    return backbone


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
    main = [weight for weight in net.parameters() if id(weight) not in taken and weight.requires_grad]
    found = {"net": _optimizer(main, train.learning_rate, train)}
    return found | {
        child: _optimizer(weights, rates[child] * train.learning_rate, train) for child, weights in apart.items()
    }


def _optimizer(weights: list[torch.nn.Parameter], rate: float, train: TrainConfig) -> torch.optim.Optimizer:
    if train.optimizer == "adamw":
        return torch.optim.AdamW(weights, lr=rate, weight_decay=train.weight_decay, fused=True)
    return torch.optim.Adam(weights, lr=rate, fused=True)
