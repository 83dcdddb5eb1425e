"""The toolkit's side: a run's own parts, called one by one; its two networks in the main phase, their memories full."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from workload import CAPTIONS, Size, embeddings

from in2r.methods import Division, Now
from in2r.models.base import Backbone, Items
from in2r.models.blocks import ranks_of, score_blocks
from in2r.models.build import build_backbone
from in2r.models.encode import encode_images, encode_texts
from in2r.runs.folder import RunFolder
from in2r.runs.settings import load_config
from in2r.seeds import torch_generator
from in2r.training.evaluation import Rows, evaluate_split
from in2r.training.health import Means
from in2r.training.loop import Trainer
from in2r.training.networks import peer_of
from in2r.training.order import Batching, EpochOrder
from in2r.training.setup import open_setup
from in2r.training.step import Batches
from in2r.training.train import Silent

CLEAN, ELITE = 0.4, 0.9
"""shares: of the pairs, clean ones (60 % noise); of these, such that may enter the memory"""
NO_DRAWS = [f"{key}=0" for key in ("model.image_dropout", "model.text_dropout", "method.refiner_dropout")]
NO_DRAWS += ["train.region_drop=0", "train.word_drop=0"]


class Toolkit:
    """IN²R on the data of a folder.

    Args:
        folder: as `make_data` writes it.
        size: its size.
        device: where everything is computed.
        settings: more settings, such as `NO_DRAWS`.
    """

    def __init__(self, folder: Path, size: Size, device: torch.device, *settings: str) -> None:
        config = load_config("in2r", [f"data.path={folder}", *size.settings, "train.precision=float32", *settings])
        self.trainer = Trainer(RunFolder(folder / "run"), open_setup(config, device), Silent())
        self.config, self.data, self.device = config, self.trainer.data, device
        self.nets, self.means = self.trainer.state.nets, Means()
        self.pairs = len(self.data.pairs)
        clean, elite = (torch.rand(self.pairs, generator=torch_generator(0, share)) < share for share in (CLEAN, ELITE))
        self.division = Division((~clean).to(torch.int8), {"elite": elite & clean})
        sets = {"clean": self.data.pairs[clean], "noisy": self.data.pairs[~clean]}
        self.orders = {
            name: EpochOrder(self.trainer.method.sets, sets, Batching(size.batch), 0, name, 0) for name in self.nets
        }
        v, u = embeddings(-(-size.memory // CAPTIONS), size.dim)
        self.entries = v.repeat_interleave(CAPTIONS, 0)[: size.memory].to(device), u[: size.memory].to(device)
        numbers = torch.arange(size.memory, device=device) % self.pairs
        for net in self.nets.values():
            net.own.memory.push(*self.entries, numbers, numbers // CAPTIONS)

    def step(self, index: int, name: str = "A") -> None:
        """One iteration of a network: batches, losses, backward, optimiser, memory, record."""
        nets = self.nets[name], self.nets[peer_of(name)]
        now, where = Now(0, 1, 0, name, index), (name, 0, index)
        optimizers = self.trainer.state.optimizers[name]
        self.trainer.learner.iterate(nets, optimizers, self.orders[name], self.division, now, where, self.means)

    def epoch(self) -> None:
        """Both networks judge all pairs, make the steps of a fixed division at 60 % noise, and are validated."""
        self.trainer.divider.divide(self.nets, Now(0, 1, 0), 0)
        for index in range(len(self.orders["A"])):
            for name in self.nets:
                self.step(index, name)
        self.validate()

    def validate(self) -> Rows:
        """Recalls of both networks and of their ensemble."""
        backbones = {name: net.backbone for name, net in self.nets.items()}
        return evaluate_split(backbones, self.trainer.dev, self.trainer.dev_texts, self.device)[0]

    def gradient(self) -> tuple[dict[str, float], Tensor]:
        """Losses of network A's step 1, and the gradient of `total` as one vector, on the CPU."""
        batches = Batches(self.trainer.learner, self.orders["A"], self.division, ("A", 0, 1))
        steps = self.trainer.method.steps(self.nets["A"], self.nets["B"], batches, Now(0, 1, 0, "A", 1))
        losses = next(steps).losses
        parts = torch.autograd.grad(losses["total"], list(self.nets["A"].parameters()))
        return {name: float(loss.detach()) for name, loss in losses.items()}, flat(parts)

    def search(self, queries: Tensor, items: Tensor, k: int) -> Tensor:
        """Positions (Q, k) of the items (N, D) nearest to the dev captions `queries` (Q,)."""
        texts = encode_texts(self.nets["A"].backbone, self.trainer.dev_texts, self.device, queries)
        return (texts.vector @ items.T).topk(k).indices

    def ranks(self, images: Tensor, captions: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Ranks of a dual encoder's split: images (N, D), captions (N · 5, D)."""
        owner = np.repeat(np.arange(len(images)), CAPTIONS)
        return ranks_of([self.nets["A"].backbone], [Items(images)], [Items(captions)], owner)

    def sgr(self, images: int) -> tuple[Backbone, Items, Items]:
        """An untrained SGR, and the first images of the dev split with their captions, encoded."""
        torch.manual_seed(0)
        backbone = build_backbone(replace(self.config.model, backbone="sgr"), self.trainer.setup.inputs).to(self.device)
        first = torch.arange(images), torch.arange(images * CAPTIONS)
        v = encode_images(backbone, self.trainer.dev.images, self.device, first[0])
        return backbone, v, encode_texts(backbone, self.trainer.dev_texts, self.device, first[1])


def scores(backbone: Backbone, images: Items, texts: Items) -> Tensor:
    """S (n, m) on the CPU, scored in blocks."""
    found = torch.empty(len(images), len(texts))
    for rows, columns, block in score_blocks(backbone, images, texts):
        found[rows, columns] = block.cpu()
    return found


def flat(gradients: Sequence[Tensor]) -> Tensor:
    """Put gradients below each other, on the CPU."""
    return torch.cat([gradient.flatten().float().cpu() for gradient in gradients])
