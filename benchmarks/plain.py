"""The same step and the same ranks, written plainly as the field's public code does them; only for comparison.

Per item: captions tokenised and numbered, regions and words dropped in a Python loop, then padded. Per batch: every
padded row goes through the projections, and GPO's weights come from one GRU sequence per sample. Ranks: the whole
similarity matrix, one argsort per row. Losses, refiner and optimiser are the toolkit's own on both sides.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from in2r.data.tokenizer import tokenize
from in2r.data.vocabulary import Vocabulary
from in2r.encoders import MLP, RegionEncoder, WordEncoder
from in2r.memory import Neighbors
from in2r.methods import Batch
from in2r.pooling import GPO


class Loader:
    """Batches made item by item from arrays, strings and a vocabulary."""

    def __init__(
        self, features: np.ndarray, captions: list[str], image_of_caption: np.ndarray, vocabulary: Vocabulary
    ) -> None:
        self.features, self.captions = features, captions
        self.image_of_caption, self.vocabulary = image_of_caption, vocabulary
        self.number = {word: number for number, word in enumerate(vocabulary.words)}

    def batch(self, pairs: Tensor, rng: np.random.Generator, rate: float, elite: Tensor | None) -> Batch:
        """Return the pairs, padded to the longest; `rate` of the regions and words is touched."""
        items = [self._item(pair, rng, rate) for pair in pairs.tolist()]
        regions = [image for image, _ in items]
        words = [torch.tensor(ids) for _, ids in items]
        groups = torch.as_tensor(self.image_of_caption)[pairs]
        texts = pad_sequence(words, batch_first=True)
        chosen = None if elite is None else elite[pairs]
        images = pad_sequence(regions, batch_first=True)
        return Batch(pairs, groups, images, _mask(regions), texts, _mask(words), chosen)

    def _item(self, pair: int, rng: np.random.Generator, rate: float) -> tuple[Tensor, list[int]]:
        image = torch.tensor(self.features[self.image_of_caption[pair]], dtype=torch.float32)
        kept = np.flatnonzero(rng.random(len(image)) >= rate)
        image = image[torch.from_numpy(kept)] if len(kept) else image[:1]
        ids = [Vocabulary.START]
        for word in tokenize(self.captions[pair]):
            number, draw = self.number.get(word, Vocabulary.UNK), rng.random()
            if draw >= rate:
                ids.append(number)
            elif draw < rate * 0.5:
                ids.append(self.vocabulary.mask_id)
            elif draw < rate * 0.6:
                ids.append(int(rng.integers(Vocabulary.UNK + 1, len(self.vocabulary))))
        ids.append(Vocabulary.END)
        return image, ids


def _mask(sets: list[Tensor]) -> Tensor:
    return pad_sequence([torch.ones(len(one), dtype=torch.bool) for one in sets], batch_first=True)


def pool(features: Tensor, lengths: Tensor, gpool: GPO) -> Tensor:
    """GPO (B, K, D) → (B, D): every sample's positions go through the GRU with its true length."""
    batch, size, _ = features.shape
    position = torch.arange(size, dtype=torch.float32)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, gpool.position_dim, 2) / gpool.position_dim)
    code = torch.zeros(size, gpool.position_dim)
    code[:, 0::2], code[:, 1::2] = torch.sin(position * frequency), torch.cos(position * frequency)
    mask = torch.arange(size) < lengths[:, None]
    codes = code.repeat(batch, 1, 1).masked_fill(~mask[..., None], 0)
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


class Encoder(nn.Module):
    """The toolkit's region and word encoder, with the same weights, computed plainly."""

    def __init__(self, image: RegionEncoder, text: WordEncoder) -> None:
        super().__init__()
        self.image, self.text = image, text

    def encode_images(self, values: Tensor, mask: Tensor) -> Tensor:
        own = self.image
        return _project_and_pool(own.dropout(values), mask.sum(1), own.fc, own.mlp, own.gpool)

    def encode_texts(self, ids: Tensor, mask: Tensor) -> Tensor:
        own, lengths = self.text, mask.sum(1)
        words = own.dropout(own.embed(ids))
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(own.cap_rnn(packed)[0], batch_first=True)
        states = (states[..., : own.dim] + states[..., own.dim :]) / 2
        return _project_and_pool(states, lengths, own.fc, own.mlp, own.gpool)


class Memory(nn.Module):
    """A ring of (image, text) pairs: slices are overwritten, all similarities are computed, the best K taken."""

    def __init__(self, images: Tensor, texts: Tensor, ids: Tensor, groups: Tensor) -> None:
        super().__init__()
        self.images, self.texts, self.ids, self.groups = images, texts, ids, groups
        self.pointer = 0

    def __len__(self) -> int:
        return len(self.images)

    @torch.no_grad()
    def push(self, images: Tensor, texts: Tensor, ids: Tensor, groups: Tensor) -> None:
        first = min(len(images), len(self) - self.pointer)
        given = (images, texts, ids, groups)
        for bank, new in zip((self.images, self.texts, self.ids, self.groups), given, strict=True):
            bank[self.pointer : self.pointer + first] = new[:first]
            bank[: len(new) - first] = new[first:]
        self.pointer = (self.pointer + len(images)) % len(self)

    @torch.no_grad()
    def nearest(self, query: Tensor, k: int, by: str, exclude_groups: None, exclude_ids: None) -> Neighbors:
        scores = query @ (self.images if by == "image" else self.texts).T
        best, slots = scores.topk(k)
        return Neighbors(best, self.images[slots], self.texts[slots], self.ids[slots], self.groups[slots])


def ranks(images: np.ndarray, captions: np.ndarray, per_image: int) -> tuple[np.ndarray, np.ndarray]:
    """0-based ranks from (captions, D) images, one row per caption, and (captions, D) captions."""
    similarity = images[::per_image] @ captions.T
    count = len(similarity)
    i2t, t2i = np.zeros(count, dtype=np.int64), np.zeros(count * per_image, dtype=np.int64)
    for image in range(count):
        order = np.argsort(similarity[image])[::-1]
        own = range(image * per_image, (image + 1) * per_image)
        i2t[image] = min(np.where(order == caption)[0][0] for caption in own)
    transposed = similarity.T
    for caption in range(count * per_image):
        order = np.argsort(transposed[caption])[::-1]
        t2i[caption] = np.where(order == caption // per_image)[0][0]
    return i2t, t2i
