"""The two networks of a run and their optimisers."""

import torch

from in2r.data.text.word_vectors import WordVectors
from in2r.device import resolve_precision
from in2r.methods import Method, Peer
from in2r.models.build import build_encoder
from in2r.runs.settings import TrainConfig
from in2r.seeds import derive, torch_generator
from in2r.training.setup import Setup

NAMES = ("A", "B")


def peer_of(name: str) -> str:
    """Return the name of a network's peer."""
    return "B" if name == "A" else "A"


def build_networks(setup: Setup, method: Method, vectors: WordVectors | None) -> dict[str, Peer]:
    """Make both networks on the run's device, from weights that depend on seed and name only."""
    device, copied = setup.device, setup.config.train.initial_weights == "copy"
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        nets = {name: _network("A" if copied else name, setup, method, vectors) for name in NAMES}
    return {name: net.to(device).train() for name, net in nets.items()}


def _network(weights: str, setup: Setup, method: Method, vectors: WordVectors | None) -> Peer:
    config, seed = setup.config, setup.config.train.seed
    torch.manual_seed(derive(seed, "weights", weights))
    matrix = None if vectors is None else vectors.matrix(torch_generator(seed, "word vectors", weights))
    encoder = build_encoder(config.model, setup.inputs, matrix)
    encoder.precision = resolve_precision(config.train.precision, setup.device)
    return Peer(encoder, *method.parts(config.model.dim))


def make_optimizer(net: Peer, train: TrainConfig) -> torch.optim.Optimizer:
    """Make the optimiser of a network."""
    if train.optimizer == "adamw":
        decay = train.weight_decay
        return torch.optim.AdamW(net.parameters(), lr=train.learning_rate, weight_decay=decay, fused=True)
    return torch.optim.Adam(net.parameters(), lr=train.learning_rate, fused=True)
