"""SPS: surely clean pairs make a stable space, in which a noisy image finds the caption of its nearest clean image.

"Seeking Proxy Point via Stable Feature Space for Noisy Correspondence Learning", Xie et al., IJCAI 2025. Read top to
bottom: settings, formulas, warm-up, division into three sets, labels, steps. S is the similarity of a batch (B, B),
rows images; ℓ_i the loss of a pair, p_i its clean probability by the peer, q_i what the network itself says of it. The
paper's equations have no numbers in the specification; docs/methods/sps.md maps each formula to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from in2r.config import key
from in2r.losses import sce_loss, triplet_loss
from in2r.losses.checks import check_square
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import CLEAN, NOISY, Belief, Division, divide_by_mixture, exchange, fit_gaussians
from in2r.methods.judging import HINGE
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import SceWarmup
from in2r.models.base import Items
from in2r.models.encode import evaluating
from in2r.transfer import at_least_float32

INFO = "info-nce"
"""the per-sample loss ℓ"""
STRICT, PARTLY, DOUBTED = 0, 1, 2
"""the sets: strictly clean, clean, noisy"""
LEAST_NORMS = 1e-8
"""the least product of two norms in a cosine (released code)"""


@dataclass(frozen=True)
class SpsConfig(MethodConfig):
    """Section `method` for name = sps."""

    name: str = key("sps", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (released code)", low=0)
    temperature: float = key(0.07, "t of the softmaxes (released code)", low=1e-3)
    strict_threshold: float = key(
        0.6,
        "strictly clean = clean probability above this; clean = above partition.threshold (released code)",
        low=0,
        high=1,
    )
    cross_weight: float = key(25.0, "weight of the mean (S_ij - S_ji)² of strictly clean pairs (released code)", low=0)
    intra_weight: float = key(
        25.0, "weight of the mean squared difference of their image-image and text-text cosines (released code)", low=0
    )
    clean_from: float = key(
        0.25,
        "share of the main phase after which clean pairs are trained on too (released code: epoch 10 of 40)",
        low=0,
        high=1,
    )
    noisy_from: float = key(
        0.375,
        "share after which noisy images are, with proxies (released code: epoch 15 of 40; on COCO 10 of 20)",
        low=0,
        high=1,
    )
    least_label: float = key(0.5, "a proxy whose label is below this is not trained on (released code)", low=0, high=1)
    mask_duplicates: bool = key(
        False, "noisy images that have one proxy are no negatives of each other (released code: they are)"
    )


# --- formulas


def info_nce(similarity: Tensor, temperature: float = 0.07, ignore: Tensor | None = None) -> Tensor:
    """Return ℓ_i = -log softmax_j(S_ij / t)_i - log softmax_k(S_ki / t)_i.

    Args:
        similarity: (B, B), the diagonal is the given pair.
        temperature: t > 0.
        ignore: (B, B) bool; off-diagonal entries that leave both softmaxes.

    Returns:
        (B,) at least 0, in at least float32.

    Raises:
        ValueError: as `sce_loss`, whose cross-entropy is half of it.
    """
    return 2 * sce_loss(similarity, temperature, ce_weight=1.0, rce_weight=0.0, reduction="none", ignore=ignore)


def own_probability(similarity: Tensor, temperature: float = 0.07, ignore: Tensor | None = None) -> Tensor:
    """Return q_i = ½ [softmax_j(S_ij / t)_i + softmax_k(S_ki / t)_i], (B,) in (0, 1]; arguments as of `info_nce`."""
    check_square(similarity, ignore)
    logits = at_least_float32(similarity) / temperature
    if ignore is not None:
        own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(ignore & ~own, float("-inf"))
    return (logits.softmax(dim=1).diagonal() + logits.softmax(dim=0).diagonal()) / 2


def mean_vectors(items: Items) -> Tensor:
    """Return g (n, D): the mean of an item's real parts, not normalised; a dual encoder's vector as it is."""
    if items.parts is None:
        return items.vector
    if items.mask is None:
        return items.parts.mean(dim=1)
    real = items.mask[..., None].to(items.parts.dtype)
    return (items.parts * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def cosines(one: Tensor, other: Tensor) -> Tensor:
    """Return the cosines (n, m) of vectors (n, D) and (m, D), the product of their norms at least 1e-8."""
    norms: Tensor = one.norm(dim=1)[:, None] * other.norm(dim=1)
    return one @ other.T / norms.clamp(min=LEAST_NORMS)


def cross_consistency(similarity: Tensor) -> Tensor:
    """Return mean_ij (S_ij - S_ji)², a scalar, of S (B, B): image i is as near to text j as image j to text i."""
    check_square(similarity, None)
    return (similarity - similarity.T).square().mean()


def intra_consistency(images: Tensor, texts: Tensor) -> Tensor:
    """Return mean_ij (cos(g_i, g_j) of images - that of texts)², a scalar, of vectors (B, D) of both sides."""
    return (cosines(images, images) - cosines(texts, texts)).square().mean()


# --- the method


@dataclass(frozen=True)
class Proxies:
    """What n noisy images are trained with in place of their captions."""

    captions: Tensor
    """(n,) int64, which caption of the strictly clean batch"""
    labels: Tensor
    """(n,) in [0, 1], y"""


class Sps(Method):
    """Two networks; each divides the pairs for the other into three sets."""

    Config = SpsConfig
    config: SpsConfig
    networks = 2
    sets = (Walk("strict"), Walk("clean", again=False), Walk("noisy"))

    def fault(self, dim: int) -> str:
        """Refuse a bound of strictly clean pairs below that of clean ones."""
        strict, clean = self.config.strict_threshold, self.partition.threshold
        if strict >= clean:
            return ""
        return f"`method.strict_threshold` ({strict:g}) must be at least `partition.threshold` ({clean:g})"

    def warmup(self) -> tuple[int, SceWarmup]:
        """Return the warm-up: the mean of ℓ on all pairs; Eq. 1 of IN²R with α = 2 and β = 0."""
        return self.config.warmup_epochs, SceWarmup(self.config.temperature, 2.0, 0.0, epsilon=1e-7)

    # --- division: two Gaussians on ℓ; a network trains on its peer's

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return ℓ_i, and the hinge averaged over all negatives, which says whether there are mismatched pairs."""
        similarity = net.score(images, texts)
        return {
            INFO: info_nce(similarity, self.config.temperature),
            HINGE: triplet_loss(similarity, negatives="mean", reduction="none"),
        }

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network its peer's three sets and clean probabilities p."""
        p, verdicts = self.partition, {}
        for name, own in seen.items():
            fit, hinge = (fit_gaussians(own[loss], p) for loss in (INFO, HINGE))
            belief = Belief.of(hinge, own.mismatched[HINGE], p)  # the bound was measured on this loss
            in_two = divide_by_mixture(INFO, own[INFO], fit, belief, data.pairs, len(data.image_of_pair), p, name)
            verdicts[name] = self._in_three(in_two, len(data.pairs))
        return exchange(verdicts)

    def _in_three(self, division: Division, pairs: int) -> Division:
        """Part the clean set at p = `strict_threshold`; where fewer than two pairs are above, all is strict."""
        clean = division.sets == CLEAN
        strict = clean & (division.columns["clean_prob"] > self.config.strict_threshold)
        if not division.split or strict.sum() < 2:
            strict = clean
        sets = division.sets.masked_fill(division.sets == NOISY, DOUBTED)
        sets = sets.masked_fill(clean, PARTLY).masked_fill(strict, STRICT)
        return replace(
            division, sets=sets, figures={**division.figures, "strict_fraction": float(strict.sum()) / pairs}
        )

    # --- steps: labels first, in eval mode; then one step each of strictly clean, clean and noisy pairs

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a strictly clean batch, later on a clean and a noisy one too."""
        c, strict = self.config, batches["strict"]
        clean = batches.get("clean") if now.epoch >= c.clean_from * now.epochs else None
        noisy = batches.get("noisy") if now.epoch >= c.noisy_from * now.epochs else None
        with evaluating(net):
            labels = None if clean is None else self._labels(net, clean)
            proxies = None if noisy is None else self._proxies(net, noisy, strict)
        yield self._strict_step(net, strict)
        if clean is not None and labels is not None:
            yield self._clean_step(net, clean, labels)
        if noisy is not None and proxies is not None:
            yield self._noisy_step(net, noisy, strict, proxies)

    def _labels(self, net: Net, clean: Batch) -> Tensor:
        """Return y_i = p_i + (1 - p_i) q_i (B,) of clean pairs, p by the peer, q by the network itself."""
        similarity = net.score(*net.encode(clean)[0])
        p = clean.column("clean_prob")
        return p + (1 - p) * own_probability(similarity, self.config.temperature, no_negatives(clean, asked=False))

    def _proxies(self, net: Net, noisy: Batch, strict: Batch) -> Proxies:
        """Give each noisy image n the caption of c* = argmax_c cos(g_n, g_c), and the label y_n = q_n cos(g_n, g_c*).

        q_n is that of the noisy images with these captions; y_n is 0 if below `least_label`.
        """
        (images, _), (near_images, near_texts) = net.encode(noisy, strict)
        nearness, captions = cosines(mean_vectors(images), mean_vectors(near_images)).max(dim=1)
        similarity = net.score(images, near_texts[captions])
        labels = nearness * own_probability(similarity, self.config.temperature, self._ignored(noisy, captions))
        return Proxies(captions, labels.masked_fill(labels < self.config.least_label, 0))

    def _strict_step(self, net: Net, strict: Batch) -> Step:
        """L_SC = mean_i ℓ_i + 25 mean_ij (S_ij - S_ji)² + 25 mean_ij (M^I_ij - M^T_ij)²."""
        c = self.config
        images, texts = net.encode(strict)[0]
        similarity = net.score(images, texts)
        contrast = info_nce(similarity, c.temperature, no_negatives(strict, asked=False)).mean()
        cross, intra = cross_consistency(similarity), intra_consistency(mean_vectors(images), mean_vectors(texts))
        total = contrast + c.cross_weight * cross + c.intra_weight * intra
        return Step({"strict": contrast, "cross": cross, "intra": intra, "total": total})

    def _clean_step(self, net: Net, clean: Batch, labels: Tensor) -> Step:
        """L_C = mean_i y_i ℓ_i."""
        similarity = net.score(*net.encode(clean)[0])
        losses = info_nce(similarity, self.config.temperature, no_negatives(clean, asked=False))
        loss = (labels * losses).mean()
        return Step({"clean": loss, "total": loss}, notes={"label_clean": labels.mean()})

    def _noisy_step(self, net: Net, noisy: Batch, strict: Batch, proxies: Proxies) -> Step:
        """L_N = mean_n y_n ℓ_n of the noisy images with their proxies; each strictly clean caption is encoded once."""
        both = replace(
            strict,
            images=noisy.images,
            image_mask=noisy.image_mask,
            image_rows=noisy.image_rows,
            owner=noisy.owner,
            first=noisy.first,
        )
        images, texts = net.encode(both)[0]
        similarity = net.score(images, texts[proxies.captions])
        losses = info_nce(similarity, self.config.temperature, self._ignored(noisy, proxies.captions))
        loss = (proxies.labels * losses).mean()
        used = (proxies.labels > 0).float().mean()
        return Step({"noisy": loss, "total": loss}, notes={"label_noisy": proxies.labels.mean(), "proxies_used": used})

    def _ignored(self, noisy: Batch, captions: Tensor) -> Tensor | None:
        """Return (n, n) bool: noisy images that are no negatives of each other, None where all are."""
        ignore = no_negatives(noisy, asked=False)
        if not self.config.mask_duplicates:
            return ignore
        same = captions[:, None] == captions
        return same if ignore is None else same | ignore
