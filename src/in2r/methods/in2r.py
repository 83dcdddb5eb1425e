"""IN²R: rectify mismatched pairs by the neighbours that their image, or their text, has among trusted pairs.

"Intra-Modal Neighbors Never Lie", ICML 2026. Read top to bottom: settings, warm-up (Eq. 1), total (Eq. 12),
clean loss (Eqs. 2-5), rectification (Eqs. 6-11). Letters as in the paper: v, u are unit-norm image and text
embeddings (B, D); t_hat, v_hat the prototypes; q a soft target.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.errors import InputError
from in2r.layers.refiners import GatRefiner, GcnRefiner, GraphRefiner, MeanRefiner, Top1Refiner
from in2r.losses import prototype_contrast_loss, rectification_loss, sce_loss, soft_target, triplet_loss
from in2r.memory import MemoryBank, Neighbors
from in2r.methods.base import Batch, Peer, Step


@dataclass(frozen=True)
class In2rConfig:
    """Section `method` for name = in2r."""

    name: Literal["in2r"] = key("in2r", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (paper)", low=0)
    ce_weight: float = key(1.0, "α of Eq. 1: weight of cross-entropy (paper)", low=0)
    rce_weight: float = key(1.0, "β of Eq. 1: weight of reverse cross-entropy (paper)", low=0)
    epsilon: float = key(1e-7, "ε inside the logarithm of reverse cross-entropy (released code)", above=0)
    warmup_temperature: float = key(0.05, "τ of the warm-up loss (paper)", above=0)
    margin: float = key(0.2, "margin m of Eq. 3 (paper)", low=0)
    intra_margin: float = key(0.2, "margin of Eq. 4 (paper; released code: 0.3)", low=0)
    lambda_intra: float = key(
        0.5, "λ_intra of Eq. 5 (the paper's headline row; its settings say 0.1, its code 1.0)", low=0
    )
    gamma: float = key(1.0, "γ of Eq. 12: weight of rectification (paper)", low=0)
    num_neighbors: int = key(5, "K of Eq. 6 (paper)", low=1)
    rectifier: Literal["refiner", "mean", "top1", "none"] = key(
        "refiner", "how the K neighbours become a prototype; none discards noisy pairs"
    )
    refiner: Literal["mhsa", "gcn", "gat"] = key(
        "mhsa", "the graph refiner: self-attention (paper), graph convolution or graph attention (its Table 5)"
    )
    refiner_heads: int = key(4, "attention heads of the refiner (paper; gcn has none)", low=1)
    refiner_dropout: float = key(0.1, "dropout of Eq. 7-8", low=0, high=0.95)
    refiner_sharing: Literal["shared", "per-direction"] = key(
        "shared", "one refiner for both directions (paper), or one each (released code)"
    )
    rectification: Literal["soft-target", "prototype-contrast"] = key(
        "soft-target", "Eq. 10-11, or the prototype as the positive of a contrastive loss (released code)"
    )
    rectification_temperature: float = key(0.05, "τ of Eq. 10-11 (paper)", above=0)
    candidates: Literal["noisy", "both"] = key(
        "noisy", "the 'current batch' of Eq. 10: the noisy batch, or clean and noisy together"
    )
    memory_source: Literal["peer", "self"] = key(
        "peer", "whose memory is searched: the other network's (paper) or the network's own"
    )
    memory_elite: bool = key(True, "only clean pairs above τ_dyn enter the memory (paper); false: every clean pair")
    memory_size: int | None = key(None, "M; null = memory_share × training pairs, at most memory_limit", low=1)
    memory_share: float = key(0.45, "share of the training pairs that M covers (the paper's 65,536 / 145,000)", above=0)
    memory_limit: int = key(65536, "largest M chosen from memory_share (the paper's M on Flickr30K)", low=1)
    memory_unique: bool = key(
        False, "a pair's newest memory entry replaces its older one; on a GPU each step then waits for the device"
    )
    memory_prefill: bool = key(
        True,
        "fill both memories from the first partition: the first epoch rectifies (released code: false)",
    )
    memory_exclude_self: bool = key(
        False, "leave the query's own image (image queries) and own pair (text queries) out of its neighbours"
    )
    mask_same_image: bool = key(
        False, "pairs of one image, or of the same words, are no negatives of each other in warm-up and clean loss"
    )


class In2r:
    """The method; stateless but for its settings and the memory's size."""

    def __init__(self, config: In2rConfig, pairs: int) -> None:
        self.config, self.pairs = config, pairs
        self.name = "discard" if config.rectifier == "none" else "in2r"
        share = min(int(config.memory_share * pairs), config.memory_limit)
        self.memory_size = None
        if config.rectifier != "none":
            self.memory_size = config.memory_size or max(share, config.num_neighbors)

    def parts(self, dim: int) -> tuple[nn.ModuleDict, MemoryBank | None]:
        """Make one network's refiner(s) and memory.

        Raises:
            InputError: the memory can never hold K pairs, so that nothing would ever be rectified.
        """
        c = self.config
        if self.memory_size is None:
            return nn.ModuleDict(), None
        if min(self.memory_size, self.pairs) < c.num_neighbors:
            raise InputError(
                f"configuration: `method.num_neighbors` ({c.num_neighbors}) must be at most `method.memory_size` "
                f"({self.memory_size}) and the number of training pairs ({self.pairs})"
            )
        names = ["i2t"] if c.refiner_sharing == "shared" else ["i2t", "t2i"]
        refiners = nn.ModuleDict({name: self._refiner(dim) for name in names})
        return refiners, MemoryBank(self.memory_size, dim, c.memory_unique)

    def _refiner(self, dim: int) -> nn.Module:
        c = self.config
        if c.rectifier != "refiner":
            return MeanRefiner() if c.rectifier == "mean" else Top1Refiner()
        if c.refiner == "gcn":
            return GcnRefiner(dim, c.refiner_dropout)
        kind = GraphRefiner if c.refiner == "mhsa" else GatRefiner
        return kind(dim, c.refiner_heads, c.refiner_dropout)

    def needs_partition(self, epoch: int) -> bool:
        """Phase 2 begins after the warm-up."""
        return epoch >= self.config.warmup_epochs

    def warmup(self) -> tuple[int, dict[str, Any]]:
        """Return Eq. 1's settings."""
        c = self.config
        return c.warmup_epochs, {
            "loss": "sce",
            "temperature": c.warmup_temperature,
            "weights": [c.ce_weight, c.rce_weight, c.epsilon],
            "mask_same_image": c.mask_same_image,
        }

    def prefill(self) -> Literal["elite", "clean"] | None:
        """Say which pairs of the first partition fill the memories."""
        if not self.config.memory_prefill or self.config.rectifier == "none":
            return None
        return "elite" if self.config.memory_elite else "clean"

    def sample_losses(self, similarity: Tensor) -> dict[str, Tensor]:
        """Both candidates for the partition: the warm-up loss, and the hinge averaged over all negatives."""
        c = self.config
        return {
            "sce": sce_loss(similarity, c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon, reduction="none"),
            "triplet-mean": triplet_loss(similarity, c.margin, negatives="mean", reduction="none"),
        }

    def all_pairs_step(self, net: Peer, batch: Batch, epoch: int) -> Step:
        """Phase 1: L_robust = ½ [L_sce(y, p_i2t) + L_sce(y, p_t2i)] over all pairs (Eq. 1)."""
        c = self.config
        v, u = net.embed(batch)
        robust = sce_loss(
            v @ u.T, c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon, ignore=self._ignored(batch)
        )
        return Step({"sce": robust, "total": robust})

    def partition_step(self, net: Peer, peer: Peer, clean: Batch, noisy: Batch | None) -> Step:
        """Phase 2: L_total = L_clean + γ L_rect (Eq. 12); the peer is only read."""
        c = self.config
        views = [clean] if c.lambda_intra == 0 else [clean, clean]  # the same batch under two dropout masks
        memory = peer.memory if c.memory_source == "peer" else net.memory
        if memory is None or len(memory) < c.num_neighbors:
            noisy = None
        embedded = net.embed_each(*views, *([] if noisy is None else [noisy]))
        v, u = embedded[0]
        step = Step(self._clean_loss(embedded[: len(views)], self._ignored(clean)))
        losses = step.losses
        losses["total"] = losses["clean"]
        if net.memory is not None:
            assert clean.elite is not None
            chosen = clean.elite if c.memory_elite else torch.arange(len(v), device=v.device)
            step.keep = (v.detach()[chosen], u.detach()[chosen], clean.pairs[chosen], clean.groups[chosen])
            step.notes["unrectified_steps"] = float(noisy is None)
        if noisy is not None and memory is not None:
            losses["rect"] = self._rectify(net, memory, noisy, embedded[-1], (v, u), step)
            losses["total"] = losses["clean"] + c.gamma * losses["rect"]  # Eq. 12
        return step

    def _clean_loss(self, views: list[tuple[Tensor, Tensor]], ignore: Tensor | None) -> dict[str, Tensor]:
        c = self.config
        v, u = views[0]
        inter = triplet_loss(v @ u.T, c.margin, ignore=ignore)  # Eq. 3
        if len(views) == 1:
            return {"inter": inter, "clean": inter}
        v_drop, u_drop = views[1]
        image = triplet_loss(v @ v_drop.T, c.intra_margin, ignore=ignore)  # Eq. 4
        text = triplet_loss(u @ u_drop.T, c.intra_margin, ignore=ignore)
        return {
            "inter": inter,
            "intra_image": image,
            "intra_text": text,
            "clean": inter + c.lambda_intra * (image + text),  # Eq. 5
        }

    def _rectify(
        self,
        net: Peer,
        memory: MemoryBank,
        noisy: Batch,
        embedded: tuple[Tensor, Tensor],
        clean: tuple[Tensor, Tensor],
        step: Step,
    ) -> Tensor:
        """Return L_rect of the noisy batch; what was found goes into the step."""
        v, u = embedded
        step.near_images = self._neighbors(memory, v, noisy, "image")  # Eq. 6
        step.near_texts = self._neighbors(memory, u, noisy, "text")
        found = torch.isfinite(step.near_images.scores[:, -1]) & torch.isfinite(step.near_texts.scores[:, -1])
        t_hat, v_hat = self._prototypes(net, step.near_images.texts, step.near_texts.images)  # Eqs. 7-9
        # a query whose exclusions leave fewer than K neighbours has no prototype
        rect = self._rectification(v, u, t_hat, v_hat, clean, ~found)
        step.notes["queries_without_prototype"] = 1 - found.float().mean()
        return (rect * found).sum() / found.sum().clamp(min=1)

    def _neighbors(self, memory: MemoryBank, query: Tensor, batch: Batch, by: Literal["image", "text"]) -> Neighbors:
        c = self.config
        groups = batch.groups if c.memory_exclude_self and by == "image" else None
        pairs = batch.pairs if c.memory_exclude_self and by == "text" else None
        if batch.hidden is not None:  # an analysis that uses the truth; what it hides includes the query's own
            groups, pairs = batch.hidden[by]
        return memory.nearest(query.detach(), c.num_neighbors, by=by, exclude_groups=groups, exclude_ids=pairs)

    def _prototypes(self, net: Peer, texts: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Fuse neighbours (B, K, D) of each direction into a prototype (B, D)."""
        if "t2i" in net.refiners:
            return net.refiners["i2t"](texts), net.refiners["t2i"](images)
        t_hat, v_hat = net.refiners["i2t"](torch.cat([texts, images])).chunk(2)
        return t_hat, v_hat

    def _rectification(
        self, v: Tensor, u: Tensor, t_hat: Tensor, v_hat: Tensor, clean: tuple[Tensor, Tensor], absent: Tensor
    ) -> Tensor:
        """Return the per-sample rectification loss (B,); rows without a prototype (`absent`) are not to be used."""
        c = self.config
        weights = (c.ce_weight, c.rce_weight, c.epsilon)
        if c.rectification == "prototype-contrast":
            return prototype_contrast_loss(
                v @ t_hat.T, u @ v_hat.T, c.rectification_temperature, *weights, reduction="none", ignore=absent
            )
        texts, images = u, v
        if c.candidates == "both":
            images, texts = torch.cat([v, clean[0]]), torch.cat([u, clean[1]])
        q_i2t = soft_target(t_hat, texts, c.rectification_temperature)  # Eq. 10
        q_t2i = soft_target(v_hat, images, c.rectification_temperature)
        return rectification_loss(  # Eq. 11
            v @ texts.T,
            q_i2t,
            q_t2i,
            c.rectification_temperature,
            *weights,
            reduction="none",
            similarity_t2i=u @ images.T,
        )

    def _ignored(self, batch: Batch) -> Tensor | None:
        if not self.config.mask_same_image:
            return None
        alike = batch.groups[:, None] == batch.groups[None, :]
        return alike if batch.words is None else alike | (batch.words[:, None] == batch.words[None, :])
