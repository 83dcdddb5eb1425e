"""GSC: a pair is right as far as it stands alike to the other pairs of its batch in images and in captions.

"Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning", Zhao et al., CVPR 2024. Read top to
bottom: settings, state, division, losses, end of an epoch. S is the similarity of a batch (B, B), rows are images; U
and V (B, B) say how alike its images and its captions are; y in [0, 1] is a pair's soft correspondence. Equation
numbers are those of docs/methods/gsc.md, which maps each to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from in2r.config import key
from in2r.layers.pooling import LOWEST
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import Division, PartitionConfig, fit_gaussians, whole
from in2r.methods.network import Batch, Net
from in2r.models.base import Items

CORRESPONDENCE = "correspondence"
"""the column of y, and what the record calls 1 - y. It orders the pairs; it is no calibrated probability"""
PLACE = "place"
"""the column that says where a pair stands among those that are trained on"""


@dataclass(frozen=True)
class GscConfig(MethodConfig):
    """Section `method` for name = gsc."""

    name: str = key("gsc", "the method")
    temperature: float = key(0.07, "τ of the softmax of S (released code)", low=1e-3)
    structure_temperature: float = key(1.0, "τ of the softmax of T (released code)", low=1e-3)
    structure_weight: float = key(
        0.01, "γ of L_IM (scripts: 0.01 on Flickr30K and CC152K; 0.05 on COCO with two networks)", low=0
    )
    update_rate: float = key(0.7, "β, the weight of the newest epoch in the averages (scripts)", above=0, high=1)
    text_relation: Literal["attention", "place"] = key(
        "attention",
        "how two captions are compared by a backbone that has words: each word with what it attends to in the other "
        "caption, or word by word in their order with padding (released code for two networks)",
    )


@dataclass(frozen=True)
class GscPlusConfig(GscConfig):
    """Section `method` for name = gscplus."""

    name: str = key("gscplus", "the method: GSC with two networks, each trained with the correspondences of its peer")


class GscOwn(nn.Module):
    """What one network keeps of the n pairs that are trained on; all begin at 1.

    Attributes:
        y: (n,) soft correspondence, the smaller of both averages.
        average_cross: (n,) the average of `cross` over the epochs.
        average_intra: (n,) the average of the probability that `intra` is that of a right pair.
        cross: (n,) confidence of the last step that saw the pair.
        intra: (n,) consistency of structure, likewise.
    """

    y: Tensor
    average_cross: Tensor
    average_intra: Tensor
    cross: Tensor
    intra: Tensor

    def __init__(self, pairs: int) -> None:
        super().__init__()
        for name in ("y", "average_cross", "average_intra", "cross", "intra"):
            self.register_buffer(name, torch.ones(pairs))

    def keep(self, place: Tensor, cross: Tensor, intra: Tensor) -> None:
        """Keep the two signals (B,) of the pairs at `place` (B,) int64."""
        self.cross.index_copy_(0, place, cross)
        self.intra.index_copy_(0, place, intra)

    def update(self, rate: float, partition: PartitionConfig) -> None:
        """Average both signals over the epochs; the smaller average is y (Eq. 6)."""
        fit = fit_gaussians(1 - self.intra, partition)
        right = torch.as_tensor(fit.clean_probability, dtype=torch.float32, device=self.intra.device)
        self.average_intra.lerp_(right, rate)
        self.average_cross.lerp_(self.cross, rate)
        self.y.copy_(torch.minimum(self.average_cross, self.average_intra))


class Gsc(Method):
    """One network; every pair is trained on, weighted by its correspondence."""

    Config = GscConfig
    config: GscConfig
    networks = 1
    sets = (Walk("all"),)
    one_sided = "L_IM looks for the caption's profile among captions, not for the image's among images (released code)"

    @property
    def reads_parts(self) -> tuple[str, ...]:
        """Name what makes it compare captions word by word."""
        return ("method.text_relation=place",) if self.config.text_relation == "place" else ()

    def own(self, dim: int, pairs: int, batch_size: int) -> GscOwn:
        """Make the state of all pairs."""
        return GscOwn(pairs)

    def fixed_columns(self, data: TrainingPairs) -> Mapping[str, Tensor]:
        """Add where each pair stands in the state, among the pairs that are trained on."""
        place = torch.zeros(len(data.image_of_pair), dtype=torch.int64)
        place[data.pairs] = torch.arange(len(data.pairs))
        return {**super().fixed_columns(data), PLACE: place}

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Return the division with y = 1 of all pairs."""
        return replace(whole(pairs, total), columns={CORRESPONDENCE: torch.ones(total)}, figures={})

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network all pairs, with the correspondences y by its peer: by itself where there is one."""
        total, divisions = len(data.image_of_pair), {}
        for name, judge in zip(nets, reversed(list(nets)), strict=True):
            y = _own(nets[judge]).y.cpu()
            column = torch.zeros(total)
            column[data.pairs] = y
            divisions[name] = replace(
                self.trust(data.pairs, total),
                columns={CORRESPONDENCE: column},
                losses={CORRESPONDENCE: 1 - y},
                judge=judge,
            )
        return divisions

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Make one step: L = L_CM + γ L_IM (Eq. 5); afterwards the signals of its pairs are kept."""
        c, batch = self.config, batches["all"]
        y, place, ignore = batch.column(CORRESPONDENCE), batch.column(PLACE), no_negatives(batch, asked=False)
        images, texts = net.encode(batch)[0]
        similarity = net.score(images, texts)
        i2t = log_confidence(similarity, c.temperature, ignore)
        t2i = log_confidence(similarity.T, c.temperature, ignore)
        cross = -(y * (i2t + t2i) / 2).mean()
        u, v = self._profiles(net, images, texts, y)
        intra = -(y * log_confidence(u @ v.T, c.structure_temperature, ignore)).mean()
        confidence = ((i2t.exp() + t2i.exp()) / 2).detach()
        consistency = functional.cosine_similarity(u.detach(), v.detach(), dim=1)
        yield Step(
            {"cross": cross, "intra": intra, "total": cross + c.structure_weight * intra},
            after=lambda: _own(net).keep(place, confidence, consistency),
            notes={"weight": y.mean(), "confidence": confidence.mean(), "consistency": consistency.mean()},
        )

    def _profiles(self, net: Net, images: Items, texts: Items, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return U and V (B, B): how alike a pair's image and its caption are to those of each pair, times its y."""
        backbone = net.backbone
        by_images = backbone.relate_by_place(images)
        by_place = self.config.text_relation == "place"
        by_texts = backbone.relate_by_place(texts) if by_place else backbone.relate_by_attention(texts)
        net.count_scored(2 * len(y) ** 2)  # each costs what a similarity does
        if backbone.bounded:
            by_images, by_texts = by_images.sigmoid(), by_texts.sigmoid()
        return by_images * y, by_texts * y

    def end_epoch(self, nets: Mapping[str, Net], now: Now) -> Mapping[str, float]:
        """Update each network's correspondences by its own signals (Eq. 6)."""
        for net in nets.values():
            _own(net).update(self.config.update_rate, self.partition)
        return {f"correspondence_{name}": float(_own(net).y.mean()) for name, net in nets.items()}


class GscPlus(Gsc):
    """GSC+: two networks, each trained with the correspondences by its peer."""

    Config = GscPlusConfig
    networks = 2


def log_confidence(matrix: Tensor, temperature: float, ignore: Tensor | None = None) -> Tensor:
    """Return log softmax_j(M_ij / τ) at j = i: the log of conf, and minus the contrast ℓ (Eqs. 1 and 2).

    Args:
        matrix: (B, B) M.
        temperature: τ > 0.
        ignore: (B, B) bool; entries off the diagonal that are left out.

    Returns:
        (B,), at most 0. By log-softmax: an entry of T reaches B, whose exponential float32 does not hold.
    """
    logits = matrix / temperature
    if ignore is not None:
        own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(ignore & ~own, LOWEST)
    return logits.log_softmax(dim=1).diagonal()


def _own(net: Net) -> GscOwn:
    return cast(GscOwn, net.own)
