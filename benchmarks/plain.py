"""The same method, written plainly as the field's public code does it: for comparison, and as an oracle for equality.

Per item: captions tokenised and numbered, regions and words dropped in a Python loop, padded on the host. Per batch:
float32, every padded row goes through the projections, GPO's weights come from one GRU sequence per sample, each view
is a pass of its own. Partition and evaluation encode an image once per caption; ranks and search sort whole rows. Loss
functions and refiner are the toolkit's own on both sides.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from workload import Workload

from in2r.data.text.tokenizer import tokenize
from in2r.data.text.vocabulary import Vocabulary
from in2r.layers.mlp import MLP
from in2r.layers.pooling import GPO
from in2r.losses import rectification_loss, sce_loss, soft_target, triplet_loss
from in2r.methods.in2r import In2rConfig
from in2r.models.dual import DualEncoder

CAPTIONS_PER_IMAGE = 5


class Batch(NamedTuple):
    """Padded pairs on the device; lengths on the host."""

    pairs: Tensor
    groups: Tensor
    images: Tensor
    regions: Tensor
    texts: Tensor
    tokens: Tensor


class Loader:
    """Batches made item by item from arrays, strings and a vocabulary."""

    def __init__(self, work: Workload) -> None:
        self.work, self.vocabulary = work, work.vocabulary
        if work.vocabulary is not None:
            self.number = {word: number for number, word in enumerate(work.vocabulary.words)}

    def batch(self, pairs: Tensor, rng: np.random.Generator | None = None, rate: float = 0.0) -> Batch:
        """Return the pairs, padded to the longest; `rate` of the regions and words is touched."""
        items = [(self._image(pair, rng, rate), self._text(pair, rng, rate)) for pair in pairs.tolist()]
        images, texts = zip(*items, strict=True)
        groups = torch.as_tensor(self.work.owner)[pairs]
        device = self.work.device
        return Batch(
            pairs.to(device),
            groups.to(device),
            pad_sequence(images, batch_first=True).to(device),
            torch.tensor([len(one) for one in images]),
            pad_sequence(texts, batch_first=True).to(device),
            torch.tensor([len(one) for one in texts]),
        )

    def _image(self, pair: int, rng: np.random.Generator | None, rate: float) -> Tensor:
        image = torch.tensor(self.work.features[self.work.owner[pair]], dtype=torch.float32)
        if rng is None:
            return image
        kept = np.flatnonzero(rng.random(len(image)) >= rate)
        return image[torch.from_numpy(kept)] if len(kept) else image[:1]

    def _text(self, pair: int, rng: np.random.Generator | None, rate: float) -> Tensor:
        if self.vocabulary is None:
            return torch.tensor(self.work.vectors[pair])
        ids = [Vocabulary.START]
        for word in tokenize(self.work.captions[pair]):
            number, draw = self.number.get(word, Vocabulary.UNK), 1.0 if rng is None else rng.random()
            if draw >= rate:
                ids.append(number)
            elif draw < rate * 0.5:
                ids.append(self.vocabulary.mask_id)
            elif draw < rate * 0.6:
                ids.append(int(rng.integers(Vocabulary.UNK + 1, len(self.vocabulary))))
        ids.append(Vocabulary.END)
        return torch.tensor(ids)


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


class Memory:
    """A ring of (image, text) pairs: slices are overwritten, all similarities are computed, the best K taken."""

    def __init__(self, images: Tensor, texts: Tensor) -> None:
        self.images, self.texts = images, texts
        self.pointer = 0

    def push(self, images: Tensor, texts: Tensor) -> None:
        first = min(len(images), len(self.images) - self.pointer)
        for bank, new in ((self.images, images), (self.texts, texts)):
            bank[self.pointer : self.pointer + first] = new[:first]
            bank[: len(new) - first] = new[first:]
        self.pointer = (self.pointer + len(images)) % len(self.images)

    def texts_of(self, images: Tensor, k: int) -> Tensor:
        """Texts (B, K, D) of the entries whose images are nearest."""
        return self.texts[(images @ self.images.T).topk(k).indices]

    def images_of(self, texts: Tensor, k: int) -> Tensor:
        return self.images[(texts @ self.texts.T).topk(k).indices]


class Network(nn.Module):
    """One of the two networks: the toolkit's weights, computed plainly."""

    def __init__(self, encoder: DualEncoder, refiner: nn.Module, memory: Memory) -> None:
        super().__init__()
        self.image, self.text, self.refiner = encoder.image, encoder.text, refiner
        self.memory = memory

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
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


def total_loss(net: Network, peer: Network, clean: Batch, noisy: Batch, c: In2rConfig) -> tuple[Tensor, Tensor, Tensor]:
    """L_total of one step (Eq. 12), and the clean batch's detached embeddings."""
    v, u = net.embed(clean)
    loss = triplet_loss(v @ u.T, c.margin)
    v_drop, u_drop = net.embed(clean)
    intra = triplet_loss(v @ v_drop.T, c.intra_margin) + triplet_loss(u @ u_drop.T, c.intra_margin)
    loss = loss + c.lambda_intra * intra
    x, y = net.embed(noisy)
    with torch.no_grad():
        texts, images = peer.memory.texts_of(x, c.num_neighbors), peer.memory.images_of(y, c.num_neighbors)
    t_hat, v_hat = net.refiner(texts), net.refiner(images)
    tau = c.rectification_temperature
    q_i2t, q_t2i = soft_target(t_hat, y, tau), soft_target(v_hat, x, tau)
    rect = rectification_loss(x @ y.T, q_i2t, q_t2i, tau, c.ce_weight, c.rce_weight, c.epsilon)
    return loss + c.gamma * rect, v.detach(), u.detach()


def pair_losses(similarity: Tensor, c: In2rConfig) -> dict[str, Tensor]:
    """Both candidates for the partition, of one batch."""
    sce = sce_loss(similarity, c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon, reduction="none")
    return {"sce": sce, "triplet-mean": triplet_loss(similarity, c.margin, negatives="mean", reduction="none")}


def ranks(similarity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """0-based ranks from a similarity matrix, images × captions, five captions per image; rows are sorted."""
    images, captions = similarity.shape
    i2t, t2i = np.zeros(images, dtype=np.int64), np.zeros(captions, dtype=np.int64)
    for image in range(images):
        order = np.argsort(similarity[image])[::-1]
        own = range(image * CAPTIONS_PER_IMAGE, (image + 1) * CAPTIONS_PER_IMAGE)
        i2t[image] = min(np.where(order == caption)[0][0] for caption in own)
    transposed = similarity.T
    for caption in range(captions):
        order = np.argsort(transposed[caption])[::-1]
        t2i[caption] = np.where(order == caption // CAPTIONS_PER_IMAGE)[0][0]
    return i2t, t2i


def search(queries: Tensor, items: Tensor, k: int) -> Tensor:
    """Positions (Q, k) of the items most similar to each query: every row is sorted."""
    return (queries @ items.T).argsort(dim=1, descending=True)[:, :k]
