"""The same computations, written plainly as the field's public code does: for comparison, and as an oracle.

Per item: captions tokenised and numbered, regions and words dropped in a Python loop, padded on the host. Per batch:
float32, every padded row goes through the projections, GPO's weights come from one GRU sequence per sample, each view
is a pass of its own. Division and evaluation encode an image once per caption; ranks and search sort whole rows. Loss
functions and refiner are the toolkit's own on both sides.
"""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from toolkit import Toolkit, flat
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from workload import CAPTIONS

from in2r.data.pairs import PairSet
from in2r.data.text.tokenizer import tokenize
from in2r.data.text.vocabulary import Vocabulary
from in2r.layers.mlp import MLP
from in2r.layers.pooling import GPO
from in2r.losses import rectification_loss, sce_loss, soft_target, triplet_loss
from in2r.methods import Net
from in2r.metrics import recalls_from_ranks
from in2r.models.base import Backbone, Items
from in2r.models.encode import evaluating
from in2r.partition import fit_two_gaussians
from in2r.seeds import numpy_generator, torch_generator
from in2r.training.networks import peer_of


class Batch(NamedTuple):
    """Padded pairs on the device; lengths on the host."""

    pairs: Tensor
    images: Tensor
    regions: Tensor
    texts: Tensor
    tokens: Tensor


class Loader:
    """Batches made item by item from arrays, strings and a vocabulary."""

    def __init__(self, split: PairSet, side: Toolkit) -> None:
        self.split, self.device, self.vocabulary = split, side.device, side.trainer.setup.vocabulary
        self.region_drop, self.word_drop = side.config.train.region_drop, side.config.train.word_drop
        if self.vocabulary is not None:
            self.number = {word: number for number, word in enumerate(self.vocabulary.words)}

    def batch(self, pairs: Tensor, rng: np.random.Generator | None = None) -> Batch:
        """Return the pairs, padded to the longest; with a generator, regions and words are touched."""
        items = [(self._image(pair, rng), self._text(pair, rng)) for pair in pairs.tolist()]
        padded = []
        for side in zip(*items, strict=True):
            padded += [pad_sequence(side, batch_first=True).to(self.device), torch.tensor([len(one) for one in side])]
        return Batch(pairs, *padded)

    def _image(self, pair: int, rng: np.random.Generator | None) -> Tensor:
        image = torch.tensor(self.split.images.array[self.split.image_of_caption[pair]], dtype=torch.float32)
        if rng is None:
            return image
        kept = np.flatnonzero(rng.random(len(image)) >= self.region_drop)
        return image[torch.from_numpy(kept)] if len(kept) else image[:1]

    def _text(self, pair: int, rng: np.random.Generator | None) -> Tensor:
        if self.vocabulary is None:
            return torch.tensor(self.split.caption_vectors.array[pair])
        ids, rate = [Vocabulary.START], self.word_drop
        for word in tokenize(self.split.captions[pair]):
            number, draw = self.number.get(word, Vocabulary.UNK), 1.0 if rng is None else rng.random()
            if draw >= rate:
                ids.append(number)
            elif draw < rate * 0.5:
                ids.append(self.vocabulary.mask_id)
            elif draw < rate * 0.6:
                ids.append(int(rng.integers(Vocabulary.UNK + 1, len(self.vocabulary))))
        return torch.tensor([*ids, Vocabulary.END])


def pool(features: Tensor, lengths: Tensor, gpool: GPO) -> Tensor:
    """GPO (B, K, D) → (B, D): every sample's positions go through the GRU with its true length."""
    batch, size, _ = features.shape
    position = torch.arange(size, dtype=torch.float32)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, gpool.position_dim, 2) / gpool.position_dim)
    code = torch.zeros(size, gpool.position_dim)
    code[:, 0::2], code[:, 1::2] = torch.sin(position * frequency), torch.cos(position * frequency)
    mask = (torch.arange(size) < lengths[:, None]).to(features.device)
    codes = code.to(features.device).repeat(batch, 1, 1).masked_fill(~mask[..., None], 0)
    packed = pack_padded_sequence(codes, lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(gpool.gru(packed)[0], batch_first=True)
    half = states.shape[-1] // 2
    scores = gpool.linear((states[..., :half] + states[..., half:]) / 2)
    weights = torch.softmax(scores.masked_fill(~mask[..., None], -10000) / gpool.temperature, dim=1)
    ordered = features.masked_fill(~mask[..., None], -10000).sort(dim=1, descending=True).values
    return (ordered.masked_fill(~mask[..., None], 0) * weights).sum(1)


def _project_and_pool(values: Tensor, lengths: Tensor, fc: nn.Linear, mlp: MLP, gpool: GPO) -> Tensor:
    rows = values.reshape(-1, values.shape[-1])
    projected = (fc(rows) + mlp(rows)).view(*values.shape[:2], -1)
    return functional.normalize(pool(projected, lengths, gpool), dim=-1)


class Network(nn.Module):
    """One of the two networks: the toolkit's weights, and a memory that is a ring of pairs."""

    def __init__(self, net: Net, entries: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        own = deepcopy(net)
        self.image, self.text, self.refiner = own.backbone.image, own.backbone.text, own.own.refiners["i2t"]
        self.memory_images, self.memory_texts = (entry.clone() for entry in entries)
        self.pointer = 0

    def push(self, images: Tensor, texts: Tensor) -> None:
        """Overwrite the oldest pairs."""
        first = min(len(images), len(self.memory_images) - self.pointer)
        for bank, new in ((self.memory_images, images), (self.memory_texts, texts)):
            bank[self.pointer : self.pointer + first] = new[:first]
            bank[: len(new) - first] = new[first:]
        self.pointer = (self.pointer + len(images)) % len(self.memory_images)

    @torch.no_grad()
    def near(self, images: Tensor, texts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Texts (B, K, D) stored with the images nearest to `images`; images stored with the nearest texts."""
        by_image, by_text = images @ self.memory_images.T, texts @ self.memory_texts.T
        return self.memory_texts[by_image.topk(k).indices], self.memory_images[by_text.topk(k).indices]

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return v, u (B, D)."""
        own = self.image
        v = _project_and_pool(own.dropout(batch.images), batch.regions, own.fc, own.mlp, own.gpool)
        return v, self._embed_texts(batch.texts, batch.tokens)

    def _embed_texts(self, texts: Tensor, lengths: Tensor) -> Tensor:
        own = self.text
        if texts.is_floating_point():
            return functional.normalize(own.projection(own.dropout(texts[:, 0])), dim=-1)
        words = own.dropout(own.embed(texts))
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(own.cap_rnn(packed)[0], batch_first=True)
        states = (states[..., : own.dim] + states[..., own.dim :]) / 2
        return _project_and_pool(states, lengths, own.fc, own.mlp, own.gpool)


class Plain:
    """The toolkit's two networks as they are now, with the methods of `Toolkit`."""

    def __init__(self, side: Toolkit) -> None:
        self.config, self.orders, self.pairs = side.config, side.orders, side.pairs
        self.elite = side.division.columns["elite"]
        self.loader, self.dev = Loader(side.trainer.setup.train, side), Loader(side.trainer.dev, side)
        self.nets = {name: Network(net, side.entries) for name, net in side.nets.items()}
        rate = self.config.train.learning_rate
        self.optimizers = {name: torch.optim.Adam(net.parameters(), lr=rate) for name, net in self.nets.items()}

    def step(self, index: int, name: str = "A") -> None:
        net, optimizer = self.nets[name], self.optimizers[name]
        loss, clean, v, u = self._loss(index, name)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), self.config.train.gradient_clip)
        optimizer.step()
        elite = self.elite[clean.pairs].to(v.device)
        net.push(v[elite], u[elite])
        loss.item()  # the field's scripts log the loss of every step

    def _loss(self, index: int, name: str) -> tuple[Tensor, Batch, Tensor, Tensor]:
        """L_total of a step (Eq. 12), its clean batch, and that batch's detached embeddings."""
        net, peer, order, c = self.nets[name], self.nets[peer_of(name)], self.orders[name], self.config.method
        rng = numpy_generator(0, "augmentation", name, index)
        clean, noisy = (self.loader.batch(order.batch(which, index), rng) for which in ("clean", "noisy"))
        v, u = net.embed(clean)
        loss = triplet_loss(v @ u.T, c.margin)
        v_drop, u_drop = net.embed(clean)
        intra = triplet_loss(v @ v_drop.T, c.intra_margin) + triplet_loss(u @ u_drop.T, c.intra_margin)
        loss = loss + c.lambda_intra * intra
        x, y = net.embed(noisy)
        texts, images = peer.near(x, y, c.num_neighbors)
        tau = c.rectification_temperature
        q_i2t, q_t2i = soft_target(net.refiner(texts), y, tau), soft_target(net.refiner(images), x, tau)
        rect = rectification_loss(x @ y.T, q_i2t, q_t2i, tau, c.ce_weight, c.rce_weight, c.epsilon)
        return loss + c.gamma * rect, clean, v.detach(), u.detach()

    def gradient(self) -> tuple[dict[str, float], Tensor]:
        """Loss of network A's step 1, and its gradient as one vector, on the CPU."""
        loss = self._loss(1, "A")[0]
        return {"total": float(loss.detach())}, flat(torch.autograd.grad(loss, list(self.nets["A"].parameters())))

    def epoch(self) -> None:
        for name in self.nets:
            fit_two_gaussians(self.losses(name)["sce"].numpy())
        for index in range(len(self.orders["A"])):
            for name in self.nets:
                self.step(index, name)
        self.validate()

    def losses(self, name: str) -> dict[str, Tensor]:
        """Both losses of all pairs, in the toolkit's fixed order; its last batch is filled up from the first pairs."""
        c, count = self.config.method, self.pairs
        size = min(self.config.partition.batch_size, count)
        order = torch.randperm(count, generator=torch_generator(0, "scoring order"))
        found: dict[str, list[Tensor]] = {"sce": [], "triplet-mean": []}
        for pairs in torch.cat([order, order[: -count % size]]).split(size):
            v, u = self.encode(name, self.loader, pairs)
            weights = c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon
            found["sce"].append(sce_loss(v @ u.T, *weights, reduction="none").cpu())
            found["triplet-mean"].append(triplet_loss(v @ u.T, c.margin, negatives="mean", reduction="none").cpu())
        back = order.argsort()
        return {loss: torch.cat(parts)[:count][back] for loss, parts in found.items()}

    def encode(self, name: str, loader: Loader, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of pairs, one row per caption."""
        with evaluating(self.nets[name]):
            parts = [self.nets[name].embed(loader.batch(some)) for some in pairs.split(self.config.train.batch_size)]
        return torch.cat([v for v, _ in parts]), torch.cat([u for _, u in parts])

    def validate(self) -> dict[str, dict[str, float]]:
        similarities = {}
        for name in self.nets:
            v, u = self.encode(name, self.dev, torch.arange(len(self.dev.split.image_of_caption)))
            similarities[name] = (v[::CAPTIONS] @ u.T).cpu().numpy()
        similarities["ensemble"] = (similarities["A"] + similarities["B"]) / 2
        return {name: recalls_from_ranks(*ranks(values)) for name, values in similarities.items()}

    def search(self, queries: Tensor, items: Tensor, k: int) -> Tensor:
        """Positions (Q, k) of the nearest items (N, D): every row is sorted."""
        return (self.encode("A", self.dev, queries)[1] @ items.T).argsort(dim=1, descending=True)[:, :k]

    def ranks(self, images: Tensor, captions: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Ranks from the whole similarity matrix."""
        return ranks((images @ captions.T).cpu().numpy())


def ranks(similarity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """0-based ranks from a similarity matrix, images × captions, five captions per image; rows are sorted."""
    images, captions = similarity.shape
    i2t, t2i = np.zeros(images, dtype=np.int64), np.zeros(captions, dtype=np.int64)
    for image in range(images):
        order = np.argsort(similarity[image])[::-1]
        own = range(image * CAPTIONS, (image + 1) * CAPTIONS)
        i2t[image] = min(np.where(order == caption)[0][0] for caption in own)
    transposed = similarity.T
    for caption in range(captions):
        order = np.argsort(transposed[caption])[::-1]
        t2i[caption] = np.where(order == caption // CAPTIONS)[0][0]
    return i2t, t2i


def scores(sgr: Backbone, images: Items, texts: Items) -> Tensor:
    """S (n, m) of an interaction backbone: caption after caption, cut to its length, with all images."""
    with evaluating(sgr):
        columns = []
        for row in range(len(texts)):
            text = texts[row : row + 1]
            length = int(text.mask.sum())
            alone = Items(text.vector, text.parts[:, :length], text.mask[:, :length])
            columns.append(sgr.score(images, alone))
        return torch.cat(columns, dim=1).cpu()
