"""DECL: similarities are evidence for matches; a pair that is not its batch's best match becomes a negative one.

"Deep Evidential Learning with Noisy Correspondence for Cross-Modal Retrieval", Qin et al., ACM Multimedia 2022. Read
top to bottom: settings, evidence, losses, division, steps. h is the bounded similarity of a batch (B, B), rows images;
e the evidence, l_i in {0, 1} the label of a pair, y_i its target. The paper's equations have no numbers in the
specification; docs/methods/decl.md maps each formula to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.losses.checks import check_square
from in2r.losses.triplet import hinges
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import Division, whole
from in2r.methods.network import Batch, Net
from in2r.models.base import Items
from in2r.transfer import at_least_float32

GAP, UNCERTAINTY = "evidence-gap", "uncertainty"
"""what is observed of a pair: how far its own match is below the best other one, and how little evidence there is"""
LEAST_TEMPERATURE = 0.02
"""of the evidence: below it, sums of exp(h / τ) near the largest float32"""
WHOLE_STEP = 1e-3
"""the largest rounding of B - η step in float32, so that whole numbers are not rounded down"""


@dataclass(frozen=True)
class DeclConfig(MethodConfig):
    """Section `method` for name = decl."""

    name: str = key("decl", "the method")
    warmup_epochs: int = key(
        5, "epochs in which all pairs count as clean (paper: 5 on Flickr30K and CC152K, 2 on COCO)", low=0
    )
    temperature: float = key(0.1, "τ of the evidence exp(h / τ) (paper)", low=LEAST_TEMPERATURE)
    kl_weight: float = key(0.1, "λ2, weight of the divergence in the evidential loss (paper)", low=0)
    hinge_weight: float = key(0.8, "λ1, weight of the summed hinge beside the mean evidential loss (paper)", low=0)
    margin: float = key(0.2, "margin of the hinge (paper)", low=0)
    negatives_decay: float = key(
        0.025,
        "η, by how much the number of the hinge's negatives falls per step, from train.batch_size on (paper)",
        low=0,
    )
    fewest_negatives: int = key(5, "μ, the number at which it stays (paper)", low=1)


# --- evidence: from a bounded similarity h in [-1, 1]


def bounded_similarity(similarity: Tensor, of_sigmoid: bool) -> Tensor:
    """Return h in [-1, 1]: tanh(s) of a backbone's logit s, or the cosine as it is.

    Args:
        similarity: (B, B), of any shape; S = sigmoid(s), or a cosine.
        of_sigmoid: which of both it is. tanh(s) = (2 S - 1) / (1 - 2 S (1 - S)).

    Returns:
        The same shape, in at least float32.
    """
    sims = at_least_float32(similarity)
    return (2 * sims - 1) / (1 - 2 * sims * (1 - sims)) if of_sigmoid else sims


def match_gap(evidence: Tensor) -> Tensor:
    """Return max_{j != i} c_ij - c_ii, c_ij = (e_ij + e_ji) / Σ_k (e_ik + e_ki): at most 0 where c_ii is the largest.

    Args:
        evidence: (B, B) e > 0, rows images.

    Returns:
        (B,) in (-1, 1); a tie with another match gives 0. -1 for a batch of one, which has no other match.
    """
    check_square(evidence, None)
    both = evidence + evidence.T
    matches = both / both.sum(dim=1, keepdim=True)
    own = torch.eye(len(matches), dtype=torch.bool, device=matches.device)
    return matches.masked_fill(own, 0).amax(dim=1) - matches.diagonal()


def uncertainty(evidence: Tensor) -> Tensor:
    """Return u_i = B / Σ_j (e_ij + 1) + B / Σ_j (e_ji + 1), (B,) in (0, 2); large where there is little evidence."""
    alpha = evidence + 1
    return len(alpha) / alpha.sum(dim=1) + len(alpha) / alpha.sum(dim=0)


# --- losses


def evidential_loss(evidence: Tensor, labels: Tensor, kl_weight: float = 0.1, ignore: Tensor | None = None) -> Tensor:
    """Return L_e of each row's query: the expected squared error of a Dirichlet, and its divergence from the flat one.

    alpha = e + 1, L = Σ_j alpha_j, p = alpha / L, L_m = Σ_j (y_j - p_j)² + Σ_j p_j (1 - p_j) / (L + 1);
    a = y + (1 - y) alpha, A = Σ_j a_j, L_kl = lnΓ(A) - lnΓ(B) - Σ_j lnΓ(a_j) + Σ_j (a_j - 1) (ψ(a_j) - ψ(A));
    L_e = L_m + λ2 L_kl. The target y is l_i at i and 0 elsewhere: a noisy pair's query has no match. It is computed in
    float64: A reaches millions, where lnΓ(A) - Σ lnΓ(a) loses all digits of a float32.

    Args:
        evidence: (B, B) e > 0, rows are queries, the diagonal is the given pair.
        labels: (B,) l in {0, 1}.
        kl_weight: λ2 >= 0.
        ignore: (B, B) bool; off-diagonal entries that are no candidates. B in L_kl then is what is left of a row.

    Returns:
        (B,) in at least float32.

    Raises:
        ValueError: if `evidence` is not square, or the shape of `labels` or `ignore` does not fit.
    """
    check_square(evidence, ignore)
    if labels.shape != evidence.shape[:1]:
        raise ValueError(f"labels must have shape ({len(evidence)},), got {tuple(labels.shape)}")
    own = torch.eye(len(evidence), dtype=torch.bool, device=evidence.device)
    here = own | (torch.ones_like(own) if ignore is None else ~ignore)
    e = evidence.double().masked_fill(~here, 0)
    y = torch.diag(labels.to(e.dtype))
    alpha = (e + 1) * here
    strength = alpha.sum(dim=1, keepdim=True)
    p = alpha / strength
    squared = ((y - p).square() + p * (1 - p) / (strength + 1)).sum(dim=1)
    a = 1 + (1 - y) * e  # y + (1 - y) alpha; 1 where there is no candidate, which adds nothing below but to A
    total, candidates = (a * here).sum(dim=1, keepdim=True), here.sum(dim=1).to(e.dtype)
    digammas = torch.digamma(a) - torch.digamma(total)
    divergence = torch.lgamma(total[:, 0]) - torch.lgamma(candidates) - torch.lgamma(a).sum(dim=1)
    loss = squared + kl_weight * (divergence + ((a - 1) * digammas).sum(dim=1))
    return loss.to(at_least_float32(evidence).dtype)


def dynamic_hinge(
    similarity: Tensor, negatives: Tensor | int, margin: float = 0.2, ignore: Tensor | None = None
) -> Tensor:
    """Return L_h,i = 1/n (Σ of the n largest of row i of H^r + Σ of the n largest of column i of H^c).

    H^r_ij = [m + h_ij - h_ii]_+, H^c_ij = [m + h_ij - h_jj]_+, both with zero diagonals.

    Args:
        similarity: (B, B) h, the diagonal is the given pair.
        negatives: n >= 1, a whole number; a tensor of one keeps the host from waiting. At most B - 1 are taken.
        margin: m.
        ignore: (B, B) bool; off-diagonal entries that are no negatives.

    Returns:
        (B,) in at least float32; 0 for a batch of one.

    Raises:
        ValueError: if `similarity` is not square, or `ignore` of another shape.
    """
    check_square(similarity, ignore)
    rows, columns = hinges(similarity, margin, margin, ignore)
    hardest = rows.sort(dim=1, descending=True).values + columns.sort(dim=0, descending=True).values.T
    n = torch.as_tensor(negatives, device=hardest.device).clamp(max=max(1, len(similarity) - 1))
    taken = torch.arange(len(similarity), device=hardest.device) < n
    return (hardest * taken).sum(dim=1) / n


# --- the method


class DeclOwn(nn.Module):
    """What the network keeps beside its backbone: how many steps it has made, and how many negatives it began with."""

    steps: Tensor

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def negatives(self, decay: float, fewest: int) -> Tensor:
        """Return n = max(⌊B - η step⌋, μ) of the step that is made now; step counts it, from the warm-up's first on."""
        exact = self.batch_size - decay * (self.steps + 1)
        return (exact + WHOLE_STEP).floor().clamp(min=fewest)

    def count(self) -> None:
        """Count a step."""
        self.steps += 1


class Decl(Method):
    """One network, trained on all pairs; those judged as noisy are negatives."""

    Config = DeclConfig
    config: DeclConfig
    networks = 1
    needs_bounded = True
    sets = (Walk("all"),)

    def own(self, dim: int, pairs: int, batch_size: int) -> DeclOwn:
        """Make the counter of the steps."""
        return DeclOwn(batch_size)

    def warmup(self) -> tuple[int, None]:
        """Return the warm-up: the method's own steps, in which all pairs count as clean."""
        return self.config.warmup_epochs, None

    # --- division: a pair is clean if its own match is the best of its batch

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return how far c_ii is below the largest other c_ij, and the uncertainty u_i."""
        evidence = (self._bounded(net, images, texts) / self.config.temperature).exp()
        return {GAP: match_gap(evidence), UNCERTAINTY: uncertainty(evidence)}

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Label each pair, l_i = 1 if c_ii is the largest of c_i; all stay in one set."""
        divisions, total = {}, len(data.image_of_pair)
        for name, own in seen.items():
            labels = torch.zeros(total)
            labels[data.pairs] = (own[GAP] <= 0).float()
            figures = {
                "clean_fraction": float(labels[data.pairs].mean()),
                "mean_uncertainty": float(own[UNCERTAINTY].mean()),
            }
            sets = whole(data.pairs, total).sets
            divisions[name] = Division(sets, {"clean_prob": labels}, figures=figures, judge=name)
        return divisions

    # --- steps

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """L = mean_i (L_e,i of image i + L_e,i of text i) + λ1 Σ_i l_i L_h,i; in the warm-up l = 1."""
        c, batch, own = self.config, batches["all"], cast(DeclOwn, net.own)
        h = self._bounded(net, *net.encode(batch)[0])
        ignore = no_negatives(batch, asked=False)
        labels = torch.ones_like(h.diagonal()) if now.epoch < 0 else batch.column("clean_prob")
        evidence = (h / c.temperature).exp()
        of_images = evidential_loss(evidence, labels, c.kl_weight, ignore)
        of_texts = evidential_loss(evidence.T, labels, c.kl_weight, ignore)
        evidential = (of_images + of_texts).mean()
        n = own.negatives(c.negatives_decay, c.fewest_negatives)
        hinge = (labels * dynamic_hinge(h, n, c.margin, ignore)).sum()
        losses = {"evidential": evidential, "hinge": hinge, "total": evidential + c.hinge_weight * hinge}
        yield Step(losses, after=own.count, notes={"negatives": n, "clean_in_batch": labels.mean()})

    @staticmethod
    def _bounded(net: Net, images: Items, texts: Items) -> Tensor:
        return bounded_similarity(net.score(images, texts), of_sigmoid=net.backbone.bounded)
