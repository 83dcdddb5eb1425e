"""Networks with the module names of released code, as plainly as the papers' equations, and checkpoints of them.

A second, slow implementation: captions one by one without padding, nothing shared with the package.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from in2r.data.text.vocabulary import PackedTokens

IMAGE_DIM, WORD_DIM, DIM, SIM_DIM, REGIONS, STEPS = 8, 5, 6, 4, 3, 2


def attention(dim: int, *norms: int) -> nn.Module:
    """Return what makes a global vector: of images with two norms, of texts without."""
    module = nn.Module()
    for name, norm in zip(("local", "global"), norms or (0, 0), strict=True):
        layers = [nn.Linear(dim, dim), *([nn.BatchNorm1d(norm)] if norm else []), nn.Tanh()]
        setattr(module, f"embedding_{name}", nn.Sequential(*layers))
    module.embedding_common = nn.Sequential(nn.Linear(dim, 1))
    return module


def attended(module: Any, parts: Tensor) -> Tensor:
    """Return the global vectors (n, D) of parts (n, K, D)."""
    gate = module.embedding_local(parts) * module.embedding_global(parts.mean(1))[:, None]
    weights = module.embedding_common(gate).squeeze(-1).softmax(1)
    return normalize((weights[..., None] * parts).sum(1), dim=-1)


class Words(nn.Module):
    """Embedding and GRU, by the name that the repository gives it."""

    def __init__(self, words: int, rnn: str, both_ways: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, WORD_DIM)
        self.name = rnn
        self.add_module(rnn, nn.GRU(WORD_DIM, DIM, batch_first=True, bidirectional=both_ways))

    def states(self, ids: Tensor) -> Tensor:
        """Return the states (L, D) of one caption (L,)."""
        out: Tensor = getattr(self, self.name)(self.embed(ids)[None])[0][0]
        return out if out.shape[1] == DIM else (out[:, :DIM] + out[:, DIM:]) / 2


class Network(nn.Module):
    """A network whose modules are img_enc, txt_enc and, if it has one, sim_enc."""

    def similarities(self, images: Tensor, tokens: PackedTokens) -> Tensor:
        """Return S (images, captions)."""
        captions = torch.from_numpy(tokens.ids.astype("int64")).split(
            (tokens.offsets[1:] - tokens.offsets[:-1]).tolist()
        )
        with torch.no_grad():
            return torch.stack([self.column(images, ids) for ids in captions], dim=1)

    def column(self, images: Tensor, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def parts(self) -> list[dict[str, Tensor]]:
        """Return the weights as a list, module by module."""
        return [module.state_dict() for module in self.children()]


class SgrNetwork(Network):
    """SGR as in SGRAF (Diao et al., AAAI 2021)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.img_enc = nn.Module()
        self.img_enc.fc = nn.Linear(IMAGE_DIM, DIM)
        self.txt_enc = Words(words, "cap_rnn", both_ways=True)
        sim: Any = nn.Module()
        sim.v_global_w, sim.t_global_w = attention(DIM, REGIONS, DIM), attention(DIM)
        sim.sim_tranloc_w, sim.sim_tranglo_w = nn.Linear(DIM, SIM_DIM), nn.Linear(DIM, SIM_DIM)
        sim.sim_eval_w = nn.Linear(SIM_DIM, 1)
        sim.SGR_module = nn.ModuleList()
        for _ in range(STEPS):
            step = nn.Module()
            for name in ("graph_query_w", "graph_key_w", "sim_graph_w"):
                step.add_module(name, nn.Linear(SIM_DIM, SIM_DIM))
            sim.SGR_module.append(step)
            step.sim_graph_w.bias.data.fill_(0.4)  # so that few nodes are zero
        self.sim_enc = sim
        for module in self.modules():  # statistics that are not those of a new network
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean, module.running_var = (
                    torch.randn(module.num_features),
                    torch.rand(module.num_features) + 0.5,
                )

    def column(self, images: Tensor, ids: Tensor) -> Tensor:
        sim = self.sim_enc
        regions = normalize(self.img_enc.fc(images), dim=-1)  # type: ignore[operator]
        words = normalize(self.txt_enc.states(ids), dim=-1)
        seen = normalize(leaky_relu(regions @ words.T, 0.1), dim=2)
        context = normalize((9 * seen).softmax(1).transpose(1, 2) @ regions, dim=-1)
        whole = attended(sim.v_global_w, regions) - attended(sim.t_global_w, words[None])
        nodes = [sim.sim_tranglo_w(whole.square())[:, None], sim.sim_tranloc_w((context - words).square())]
        state = torch.cat([normalize(node, dim=-1) for node in nodes], 1)
        column: Tensor = sim.sim_eval_w(self.reasoned(state)).sigmoid().squeeze(1)
        return column

    def reasoned(self, state: Tensor) -> Tensor:
        for step in self.sim_enc.SGR_module:
            edges = (step.graph_query_w(state) @ step.graph_key_w(state).transpose(1, 2)).softmax(-1)
            state = step.sim_graph_w(edges @ state).relu()
        return state[:, 0]


class SafNetwork(SgrNetwork):
    """SAF as in SGRAF."""

    def __init__(self, words: int) -> None:
        super().__init__(words)
        del self.sim_enc.SGR_module
        self.sim_enc.SAF_module = nn.Module()
        self.sim_enc.SAF_module.attn_sim_w, bn = nn.Linear(SIM_DIM, 1), nn.BatchNorm1d(1)
        bn.running_mean, bn.running_var = torch.tensor([0.3]), torch.tensor([1.7])
        self.sim_enc.SAF_module.bn = bn

    def reasoned(self, state: Tensor) -> Tensor:
        saf = self.sim_enc.SAF_module
        gate = saf.bn(saf.attn_sim_w(state).transpose(1, 2)).sigmoid()
        return normalize((gate / gate.sum(-1, keepdim=True) @ state).squeeze(1), dim=-1)


class ScanNetwork(Network):
    """SCAN t2i, LogSumExp (Lee et al., ECCV 2018)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.img_enc, self.txt_enc = nn.Module(), Words(words, "rnn", both_ways=True)
        self.img_enc.fc = nn.Linear(IMAGE_DIM, DIM)

    def column(self, images: Tensor, ids: Tensor) -> Tensor:
        regions = normalize(self.img_enc.fc(images), dim=-1)  # type: ignore[operator]
        words = normalize(self.txt_enc.states(ids), dim=-1)
        seen = normalize(leaky_relu(regions @ words.T, 0.1), dim=2)
        context = (9 * seen).softmax(1).transpose(1, 2) @ regions
        fits = (normalize(context, dim=-1) * words).sum(-1)
        return (6 * fits).logsumexp(1) / 6


def gpo() -> nn.Module:
    module = nn.Module()
    module.gru = nn.GRU(8, 4, batch_first=True, bidirectional=True)
    module.linear = nn.Linear(4, 1, bias=False)
    return module


def pooled(module: Any, rows: Tensor) -> Tensor:
    """Return the pooled sets (n, D) of (n, K, D), all of K."""
    places = torch.arange(rows.shape[1])[:, None]
    angles = places * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    code = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    out = module.gru(code[None])[0][0]
    weights = (module.linear((out[:, :4] + out[:, 4:]) / 2) / 0.1).softmax(0)
    pooled: Tensor = (rows.sort(1, descending=True).values * weights).sum(1)
    return pooled


def mlp(width: int) -> nn.Module:
    module = nn.Module()
    module.layers = nn.ModuleList([nn.Linear(width, DIM // 2), nn.Linear(DIM // 2, DIM)])
    module.bns = nn.ModuleList([nn.BatchNorm1d(DIM // 2), nn.BatchNorm1d(DIM)])  # the second is never applied
    return module


def projected(module: Any, rows: Tensor) -> Tensor:
    """Return fc(x) + mlp(x) of rows (..., d)."""
    flat = rows.flatten(0, -2)
    hidden = module.mlp.bns[0](module.mlp.layers[0](flat)).relu()
    found: Tensor = (module.fc(flat) + module.mlp.layers[1](hidden)).view(*rows.shape[:-1], DIM)
    return found


class GpoNetwork(Network):
    """The network of IN²R's authors, before the mean is subtracted."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.img_enc, self.txt_enc = nn.Module(), Words(words, "cap_rnn", both_ways=True)
        for module, width in ((self.img_enc, IMAGE_DIM), (self.txt_enc, DIM)):
            module.fc, module.mlp, module.gpool = nn.Linear(width, DIM), mlp(width), gpo()

    def vectors(self, images: Tensor, tokens: PackedTokens) -> tuple[Tensor, Tensor]:
        """Return unit vectors of images and captions."""
        captions = torch.from_numpy(tokens.ids.astype("int64")).split(
            (tokens.offsets[1:] - tokens.offsets[:-1]).tolist()
        )
        with torch.no_grad():
            v = pooled(self.img_enc.gpool, projected(self.img_enc, images))
            u = [
                pooled(self.txt_enc.gpool, projected(self.txt_enc, self.txt_enc.states(ids)[None])) for ids in captions
            ]
        return normalize(v, dim=-1), normalize(torch.cat(u), dim=-1)


class VsePlusPlus(Network):
    """VSE++ on ready-made features; of several regions the mean."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.img_enc, self.txt_enc = nn.Module(), Words(words, "rnn", both_ways=False)
        self.img_enc.fc = nn.Linear(IMAGE_DIM, DIM)

    def column(self, images: Tensor, ids: Tensor) -> Tensor:
        v = normalize(self.img_enc.fc(images.mean(1)), dim=-1)  # type: ignore[operator]
        return v @ normalize(self.txt_enc.states(ids)[-1], dim=0)


def networks(kind: type[Network], words: int, count: int = 2) -> list[Any]:
    """Return networks in eval mode with weights large enough to tell pairs apart."""
    torch.manual_seed(7)
    made = [kind(words) for _ in range(count)]
    for network in made:
        for weight in network.parameters():
            weight.data.mul_(3.0)
        network.eval()
    return made


def save(file: Path, **content: Any) -> Path:
    """Write a checkpoint as released code does."""
    torch.save(
        {"epoch": 11, "best_rsum": 123.4, "opt": Namespace(learning_rate=2e-4, no_imgnorm=False), **content}, file
    )
    return file
