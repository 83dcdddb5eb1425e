"""IN²R: rectify mismatched pairs by the neighbours that their image, or their text, has among trusted pairs.

"Intra-Modal Neighbors Never Lie", ICML 2026. Read top to bottom: settings, warm-up (Eq. 1), total (Eq. 12),
clean loss (Eqs. 2-5), rectification (Eqs. 6-11). Letters as in the paper: v, u are unit-norm image and text
embeddings (B, D); t_hat, v_hat the prototypes; q a soft target.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.errors import InputError
from in2r.layers.refiners import GatRefiner, GcnRefiner, GraphRefiner, MeanRefiner, Top1Refiner
from in2r.losses import prototype_contrast_loss, rectification_loss, soft_target, triplet_loss
from in2r.memory import MemoryBank, Neighbors
from in2r.methods.base import LookUp, Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives, trusted_loss
from in2r.methods.division import Division, exchange, whole
from in2r.methods.judging import PairLosses, judge_pairs
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import SceWarmup
from in2r.models.base import Items


@dataclass(frozen=True)
class In2rConfig(MethodConfig):
    """Section `method` for name = in2r."""

    name: str = key("in2r", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (paper)", low=0)
    ce_weight: float = key(1.0, "α of Eq. 1: weight of cross-entropy (paper)", low=0)
    rce_weight: float = key(1.0, "β of Eq. 1: weight of reverse cross-entropy (paper)", low=0)
    epsilon: float = key(1e-7, "ε inside the logarithm of reverse cross-entropy (released code)", above=0)
    warmup_temperature: float = key(0.05, "τ of the warm-up loss (paper)", above=0)
    warmup_views: bool = key(
        False,
        "the warm-up also takes Eq. 1 between two dropout views of the images and of the captions, weight 1 each "
        "(released code); a step then takes twice the forward passes",
    )
    partition_loss: Literal["sce", "triplet-mean", "auto"] = key(
        "sce",
        "per-sample loss that divides the pairs; both are recorded. auto: sce if it calls many pairs noisy (sce_from), "
        "else triplet-mean; sce calls about 40 % of clean pairs noisy",
    )
    sce_from: float = key(
        0.6,
        "partition_loss auto: the sce loss is used if it calls at least this share noisy (it says 0.51 at 40 % noise, "
        "0.66 at 60 %; up to 40 % triplet-mean is within 0.02 of the truth: docs/results.md)",
        low=0,
        high=1,
    )
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
    memory_precision: Literal["float32", "float16"] = key(
        "float32",
        "what a memory keeps embeddings in; float16 takes half the memory (M = 10^6 at D = 512: 2 GB a network, not 4) "
        "and moves a score by at most 5e-4, by 1e-5 as a rule",
    )
    memory_unique: bool = key(
        False, "a pair's newest memory entry replaces its older one; on a GPU each step then waits for the device"
    )
    memory_prefill: bool = key(
        True,
        "fill both memories from the first partition, so that the first epoch rectifies (released code: false)",
    )
    memory_exclude_self: bool = key(
        False, "leave the query's own image (image queries) and own pair (text queries) out of its neighbours"
    )
    mask_same_image: bool = key(
        False, "pairs of one image, or of the same words, are no negatives of each other in warm-up and clean loss"
    )


class In2rOwn(nn.Module):
    """What one network keeps beside its backbone: refiner(s) and memory; neither where noisy pairs are discarded."""

    def __init__(self, refiners: nn.ModuleDict, memory: MemoryBank | None) -> None:
        super().__init__()
        self.refiners, self.memory = refiners, memory


class In2r(Method):
    """Two networks; each divides the pairs for the other and keeps the memory that the other searches."""

    Config = In2rConfig
    config: In2rConfig
    networks = 2
    sets = (Walk("clean"), Walk("noisy"))
    looks_up = True

    @property
    def label(self) -> str:
        """Without a rectifier noisy pairs are discarded: a baseline of its own name."""
        return "discard" if self.config.rectifier == "none" else self.config.name

    def fault(self, dim: int) -> str:
        """Check heads against D, and K against M."""
        c = self.config
        if c.rectifier == "refiner" and c.refiner != "gcn" and dim % c.refiner_heads:
            return f"`model.dim` ({dim}) must be a multiple of `method.refiner_heads` ({c.refiner_heads})"
        if c.memory_size is not None and c.memory_size < c.num_neighbors:
            return f"`method.memory_size` ({c.memory_size}) must be at least `method.num_neighbors` ({c.num_neighbors})"
        return ""

    @property
    def reads_vectors(self) -> tuple[str, ...]:
        """Name what compares global vectors: Eqs. 6 and 10, Eq. 4, and views in the warm-up."""
        c = self.config
        rectifies, views = c.rectifier != "none", c.warmup_views and c.warmup_epochs > 0
        named = [f"method.rectifier={c.rectifier}"] * rectifies
        named += [f"method.lambda_intra={c.lambda_intra:g}"] * (c.lambda_intra > 0) + [
            "method.warmup_views=true"
        ] * views
        return tuple(named)

    # --- what a network keeps

    def own(self, dim: int, pairs: int, batch_size: int) -> In2rOwn:
        """Make one network's refiner(s) and memory.

        Raises:
            InputError: the memory can never hold K pairs, so that nothing would ever be rectified.
        """
        c = self.config
        if c.rectifier == "none":
            return In2rOwn(nn.ModuleDict(), None)
        size = c.memory_size or max(min(int(c.memory_share * pairs), c.memory_limit), c.num_neighbors)
        if min(size, pairs) < c.num_neighbors:
            raise InputError(
                f"configuration: `method.num_neighbors` ({c.num_neighbors}) must be at most `method.memory_size` "
                f"({size}) and the number of training pairs ({pairs})"
            )
        names = ["i2t"] if c.refiner_sharing == "shared" else ["i2t", "t2i"]
        refiners = nn.ModuleDict({name: self._refiner(dim) for name in names})
        return In2rOwn(refiners, MemoryBank(size, dim, c.memory_unique, getattr(torch, c.memory_precision)))

    def _refiner(self, dim: int) -> nn.Module:
        c = self.config
        if c.rectifier != "refiner":
            return MeanRefiner() if c.rectifier == "mean" else Top1Refiner()
        if c.refiner == "gcn":
            return GcnRefiner(dim, c.refiner_dropout)
        kind = GraphRefiner if c.refiner == "mhsa" else GatRefiner
        return kind(dim, c.refiner_heads, c.refiner_dropout)

    def fixed_columns(self, data: TrainingPairs) -> Mapping[str, Tensor]:
        """Return `words` too, equal for captions of the same words, where these are no negatives of each other."""
        words = data.same_words() if self.config.mask_same_image else None
        return {**super().fixed_columns(data), **({} if words is None else {"words": words})}

    # --- phase 1: warm-up on all pairs (Eq. 1)

    def warmup(self) -> tuple[int, SceWarmup]:
        """Return the warm-up's epochs and Eq. 1's numbers."""
        c = self.config
        start = SceWarmup(c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon, c.mask_same_image, c.warmup_views)
        return c.warmup_epochs, start

    # --- phase 2: each network divides all pairs; its peer trains on the division

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return both candidates for the division: the warm-up loss, and the hinge averaged over all negatives."""
        c = self.config
        losses = PairLosses(c.margin, c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon)
        return losses(net.logits(images, texts), net.backbone.bounded)

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Each network trains on its peer's verdict; the first verdict also fills the memories."""
        c, total = self.config, len(data.image_of_pair)
        verdicts = {
            name: judge_pairs(own, c.partition_loss, c.sce_from, self.partition).divide(
                data.pairs, total, self.partition, name
            )
            for name, own in seen.items()
        }
        divisions = exchange(verdicts)
        for name, net in nets.items():
            self.prefill(net, divisions[name], data, now.generator("prefill", name))
        return divisions

    def prefill(self, net: Net, division: Division, data: TrainingPairs, draws: torch.Generator) -> None:
        """Fill an empty memory with eval-mode embeddings of the trusted pairs, the newest M of a shuffled order."""
        memory = _own(net).memory
        if not self.config.memory_prefill or memory is None or len(memory) > 0 or not division.split:
            return
        trusted = division.columns["elite"] if self.config.memory_elite else division.sets == 0
        chosen = torch.nonzero(trusted).flatten()
        chosen = chosen[torch.randperm(len(chosen), generator=draws)][-memory.capacity :]
        images, texts = data.encode(net, chosen)
        groups = data.image_of_pair[chosen].to(data.device)
        memory.push(images.vector, texts.vector, chosen.to(data.device), groups)

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Count every pair as clean and elite."""
        return whole(pairs, total)

    # --- one step: L_total = L_clean + γ L_rect (Eq. 12); the peer is only read

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Make the step of one clean and one noisy batch."""
        c, own = self.config, _own(net)
        clean = batches["clean"]
        views = [clean] if c.lambda_intra == 0 else [clean, clean]  # the same batch under two dropout masks
        memory = _own(peer).memory if c.memory_source == "peer" else own.memory
        searchable = memory is not None and len(memory) >= c.num_neighbors
        noisy = batches.get("noisy") if searchable else None
        encoded = net.encode(*views, *([] if noisy is None else [noisy]))
        losses = self._clean_loss(net, encoded[: len(views)], clean)
        step = Step({**losses, "total": losses["clean"]})
        if noisy is not None and memory is not None:
            step.losses["rect"] = self._rectify(net, memory, noisy, encoded[-1], encoded[0], step)
            step.losses["total"] = losses["clean"] + c.gamma * step.losses["rect"]  # Eq. 12
        if own.memory is not None:
            step.notes["unrectified_steps"] = float(noisy is None)
            self._remember(own.memory, clean, encoded[0], step)
        yield step

    def _clean_loss(self, net: Net, views: list[tuple[Items, Items]], batch: Batch) -> dict[str, Tensor]:
        c = self.config
        ignore = no_negatives(batch, c.mask_same_image)
        images, texts = views[0]
        inter = trusted_loss(net, batch, images, texts, self.loss, c.margin, ignore)  # Eq. 3, or a softmax
        if len(views) == 1:
            return {"inter": inter, "clean": inter}
        v, u = images.vector, texts.vector
        v_drop, u_drop = (items.vector for items in views[1])
        part = self.loss.beside(len(batch))
        image = part * triplet_loss(v @ v_drop.T, c.intra_margin, ignore=ignore)  # Eq. 4
        text = part * triplet_loss(u @ u_drop.T, c.intra_margin, ignore=ignore)
        return {
            "inter": inter,
            "intra_image": image,
            "intra_text": text,
            "clean": inter + c.lambda_intra * (image + text),  # Eq. 5
        }

    def _remember(self, memory: MemoryBank, clean: Batch, encoded: tuple[Items, Items], step: Step) -> None:
        """Push the elite pairs, detached, when the step is taken (in2r.md, Phase 2, step 3)."""
        v, u = (items.vector.detach() for items in encoded)
        chosen = clean.rows("elite") if self.config.memory_elite else torch.arange(len(v), device=v.device)
        entries = v[chosen], u[chosen], clean.pairs[chosen], clean.groups[chosen]
        step.after = lambda: memory.push(*entries)
        step.notes["elite_pairs"] = float(len(chosen))

    def _rectify(
        self,
        net: Net,
        memory: MemoryBank,
        noisy: Batch,
        encoded: tuple[Items, Items],
        clean: tuple[Items, Items],
        step: Step,
    ) -> Tensor:
        """Return L_rect of the noisy batch; what was found goes into the step."""
        images, texts = encoded
        near_images = self._neighbors(memory, images.vector, noisy, "image")  # Eq. 6
        near_texts = self._neighbors(memory, texts.vector, noisy, "text")
        found = torch.isfinite(near_images.scores[:, -1]) & torch.isfinite(near_texts.scores[:, -1])
        t_hat, v_hat = self._prototypes(net, near_images.texts, near_texts.images)  # Eqs. 7-9
        # a query whose exclusions leave fewer than K neighbours has no prototype
        rect = self._rectification(net, encoded, t_hat, v_hat, clean, ~found)
        step.found = LookUp(noisy, near_images, near_texts)
        step.notes |= {
            "queries_without_prototype": 1 - found.float().mean(),
            "distinct_neighbors_i2t": near_images.distinct(),
            "distinct_neighbors_t2i": near_texts.distinct(),
            "neighbor_score_i2t": near_images.scores.clamp(min=-1).mean(),
            "neighbor_score_t2i": near_texts.scores.clamp(min=-1).mean(),
        }
        return (rect * found).sum() / found.sum().clamp(min=1)

    def _neighbors(self, memory: MemoryBank, query: Tensor, batch: Batch, by: Literal["image", "text"]) -> Neighbors:
        c = self.config
        groups = batch.groups if c.memory_exclude_self and by == "image" else None
        pairs = batch.pairs if c.memory_exclude_self and by == "text" else None
        if batch.hidden is not None:  # an analysis that uses the truth; what it hides includes the query's own
            groups, pairs = batch.hidden[by]
        return memory.nearest(query.detach(), c.num_neighbors, by=by, exclude_groups=groups, exclude_ids=pairs)

    def _prototypes(self, net: Net, texts: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Fuse neighbours (B, K, D) of each direction into a prototype (B, D)."""
        refiners = _own(net).refiners
        if "t2i" in refiners:
            return refiners["i2t"](texts), refiners["t2i"](images)
        t_hat, v_hat = refiners["i2t"](torch.cat([texts, images])).chunk(2)
        return t_hat, v_hat

    def _rectification(
        self,
        net: Net,
        encoded: tuple[Items, Items],
        t_hat: Tensor,
        v_hat: Tensor,
        clean: tuple[Items, Items],
        absent: Tensor,
    ) -> Tensor:
        """Return the per-sample rectification loss (B,); rows without a prototype (`absent`) are not to be used."""
        c = self.config
        weights = (c.ce_weight, c.rce_weight, c.epsilon)
        images, texts = encoded
        if c.rectification == "prototype-contrast":
            v, u = images.vector, texts.vector
            return prototype_contrast_loss(
                v @ t_hat.T, u @ v_hat.T, c.rectification_temperature, *weights, reduction="none", ignore=absent
            )
        all_images, all_texts = images, texts  # the candidates of Eq. 10
        if c.candidates == "both":
            all_images, all_texts = Items.cat([images, clean[0]]), Items.cat([texts, clean[1]])
        q_i2t = soft_target(t_hat, all_texts.vector, c.rectification_temperature)  # Eq. 10
        q_t2i = soft_target(v_hat, all_images.vector, c.rectification_temperature)
        return rectification_loss(  # Eq. 11
            net.logits(images, all_texts),
            q_i2t,
            q_t2i,
            c.rectification_temperature,
            *weights,
            reduction="none",
            similarity_t2i=net.logits(all_images, texts).T,
        )

    def end_epoch(self, nets: Mapping[str, Net], now: Now) -> Mapping[str, float]:
        """Say how full the memories are."""
        memories = {name: _own(net).memory for name, net in nets.items()}
        return {f"memory_fill_{name}": len(m) / m.capacity for name, m in memories.items() if m is not None}


def _own(net: Net) -> In2rOwn:
    return cast(In2rOwn, net.own)
