"""CREAM: what a doubtful pair loses of its label goes to the other images and captions of its batch that fit.

"Cross-modal Retrieval with Noisy Correspondence via Consistency Refining and Mining", Ma et al., IEEE Transactions on
Image Processing 2024. Read top to bottom: settings, warm-up, division into three sets, labels, filters, steps, loss. S
is the similarity of a batch (B, B), rows images; P^r and P^c are softmaxes of S / τ over rows and over columns; y in
[0, 1] the label of a pair; w^A and w^B its clean probabilities. The paper's equations have no numbers in the
specification; docs/methods/cream.md maps each formula to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from in2r.config import key
from in2r.losses import sce_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import (
    CLEAN,
    Belief,
    Division,
    PartitionConfig,
    divide_by_mixture,
    exchange,
    fit_gaussians,
    whole,
)
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import SceWarmup
from in2r.models.base import Items
from in2r.models.encode import evaluating

INFONCE = "infonce"
"""the per-sample loss: cross-entropy to the given pair, the sum of both directions"""
BOTH_SIDES = 2.0
"""CREAM adds both directions; `sce_loss` and `SceWarmup` take half of their sum"""
SMALLEST_SUM = 1e-6
"""added to the sum of a row's similarities before it divides (released code)"""
HARD, NOISY = 1, 2
"""the sets after the clean one"""


@dataclass(frozen=True)
class CreamConfig(MethodConfig):
    """Section `method` for name = cream."""

    name: str = key("cream", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (released code)", low=0)
    temperature: float = key(0.07, "τ of all softmaxes (released code)", low=1e-3)
    hard_from: float = key(
        0.25,
        "share of the main phase after which hard pairs are trained on, and clean ones are mined (released code: epoch "
        "10 of 40; of 20 on COCO)",
        low=0,
        high=1,
    )
    noisy_from: float = key(
        0.375,
        "share of the main phase after which noisy pairs are trained on (released code: epoch 15 of 40; of 20 on COCO)",
        low=0,
        high=1,
    )
    mostly_clean: float = key(
        0.85,
        "where more than this share of the pairs is clean, clean and hard pairs are mined without a filter, from the "
        "start (released code)",
        low=0,
        high=1,
    )
    detach_weights: bool = key(
        False, "the weights of mined pairs are constants; false: the gradient flows through them too (released code)"
    )


class Cream(Method):
    """Two networks that divide the pairs together: both call a pair clean, both call it noisy, or they disagree."""

    Config = CreamConfig
    config: CreamConfig
    networks = 2
    sets = (Walk("clean"), Walk("hard", again=False), Walk("noisy"))

    def warmup(self) -> tuple[int, SceWarmup]:
        """Return the warm-up: L = 1/B Σ_i [-log P^r_ii - log P^c_ii] on all pairs."""
        return self.config.warmup_epochs, SceWarmup(self.config.temperature, BOTH_SIDES, 0.0, epsilon=1.0)

    # --- division: two Gaussians on the losses of each network; where their verdicts differ, a pair is hard

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return l_i = -log P^r_ii - log P^c_ii."""
        similarity = net.score(images, texts)
        loss = sce_loss(similarity, self.config.temperature, BOTH_SIDES, 0.0, epsilon=1.0, reduction="none")
        return {INFONCE: loss}

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give both networks the same three sets, and each its peer's clean probabilities too."""
        p, verdicts = self.partition, {}
        for name, own in seen.items():
            fit = fit_gaussians(own[INFONCE], p)
            belief = Belief.of(fit, own.mismatched[INFONCE], p)
            verdicts[name] = divide_by_mixture(
                INFONCE, own[INFONCE], fit, belief, data.pairs, len(data.image_of_pair), p, name
            )
        losses = torch.stack([own[INFONCE] for own in seen.values()]).sum(0)
        return divide_in_three(verdicts, losses, data.pairs, p)

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Return the division in which all of `pairs` are clean, for certain."""
        every = whole(pairs, total)
        prob = every.columns["clean_prob"]
        return replace(every, columns={"clean_prob": prob, "peer_prob": prob, "share": prob})

    # --- steps: labels and filters first; then a step of clean pairs and, later in training, of hard and noisy ones

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a clean batch; later on a hard one as well, while there is one, and later still on a noisy one."""
        hard_start, noisy_start = (int(share * now.epochs) for share in (self.config.hard_from, self.config.noisy_from))
        labelled = {"clean": batches["clean"]}
        if now.epoch >= min(hard_start, noisy_start):  # all of them count in the filter, those that wait too
            labelled |= {name: batches[name] for name in ("hard", "noisy") if name in batches}
        labels = self._labels(net, peer, labelled)
        filters = self._filters(labelled, labels, hard_start - now.epoch)
        starts = {"clean": 0, "hard": hard_start, "noisy": noisy_start}
        for name, batch in labelled.items():
            if now.epoch >= starts[name]:
                yield self._step(net, batch, labels[name], filters[name], name)

    def _labels(self, net: Net, peer: Net, batches: Mapping[str, Batch]) -> dict[str, Tensor]:
        """Return the labels y (B,) of each batch; p is a network's own prediction.

        clean: y = w' + (1 - w') p with w' by the peer. hard: y = w + (1 - w) p with w = (w^A + w^B) / 2. noisy:
        y = (p^A + p^B) / 2.
        """
        labels: dict[str, Tensor] = {}
        with evaluating(net, peer):
            for (name, batch), encoded in zip(batches.items(), net.encode(*batches.values()), strict=True):
                p = self._predicted(net, batch, encoded)
                if name == "noisy":
                    labels[name] = (p + self._predicted(peer, batch, peer.encode(batch)[0])) / 2
                else:
                    w = batch.column("peer_prob" if name == "clean" else "clean_prob")
                    labels[name] = w + (1 - w) * p
        return labels

    def _predicted(self, net: Net, batch: Batch, encoded: tuple[Items, Items]) -> Tensor:
        """Return p_i = (P^r_ii + P^c_ii) / 2, (B,)."""
        rows, columns = log_softmaxes(net.score(*encoded), self.config.temperature, no_negatives(batch, asked=False))
        return (rows.diagonal().exp() + columns.diagonal().exp()) / 2

    def _filters(
        self, batches: Mapping[str, Batch], labels: Mapping[str, Tensor], epochs_to_hard: int
    ) -> dict[str, Tensor | float]:
        """Return the smallest weight that a mined pair of each set may have; from 1 on nothing is mined.

        f = Σ_s N_s mean(y_s) / Σ_s N_s over the batches that are there, N_s the pairs of a set. Clean and hard pairs
        have 0 where most pairs are clean; else clean pairs max(hard_start - epoch, f), and hard ones f. Noisy ones
        have f.
        """
        shares = {name: float(batch.columns["share"][0]) for name, batch in batches.items()}
        f = torch.stack([shares[name] * y.mean() for name, y in labels.items()]).sum() / sum(shares.values())
        if shares["clean"] > self.config.mostly_clean:
            return {"clean": 0.0, "hard": 0.0, "noisy": f}
        return {"clean": float(epochs_to_hard) if epochs_to_hard > 0 else f, "hard": f, "noisy": f}

    def _step(self, net: Net, batch: Batch, labels: Tensor, smallest: Tensor | float, name: str) -> Step:
        """Make the loss of one batch."""
        c, ignore = self.config, no_negatives(batch, asked=False)
        similarity = net.score(*net.encode(batch)[0])
        loss = mined_contrast_loss(similarity, labels, smallest, c.temperature, c.detach_weights, ignore)
        notes = {f"label_{name}": labels.mean(), f"filter_{name}": smallest}
        return Step({name: loss, "total": loss}, notes=notes)


# --- pure functions: the three sets, and the loss


def divide_in_three(
    verdicts: Mapping[str, Division], losses: Tensor, pairs: Tensor, config: PartitionConfig
) -> dict[str, Division]:
    """Divide the pairs by two networks' verdicts: clean by both, hard where they differ, noisy by both.

    Where one of the networks sees a single group, nothing is divided: a noisy pair takes both.

    Args:
        verdicts: network → its own division into two.
        losses: (n,) of `pairs`, over both networks. Where no two pairs are clean by both, the lowest count as clean.
        pairs: (n,) int64.
        config: how many those are.

    Returns:
        network → division with the columns `clean_prob` (w^A + w^B) / 2, `peer_prob`, and `share`, of all pairs, of
        the set that a pair is in. Its figures and mixture are those of the network's own losses.
    """
    one, other = verdicts.values()
    peers, split, remark = exchange(verdicts), one.split and other.split, ""
    votes = torch.stack([verdict.sets[pairs] == CLEAN for verdict in (one, other)]).sum(0)
    sets = torch.full_like(one.sets, -1)
    sets[pairs] = (NOISY - votes if split else torch.zeros_like(votes)).to(torch.int8)
    if int((sets == CLEAN).sum()) < 2:
        lowest = torch.argsort(losses, stable=True)[: max(2, int(config.minimum_clean_share * len(losses)))]
        sets[pairs[lowest]] = CLEAN
        remark = "no two pairs are clean by both networks; the lowest losses count as clean"
    shares = torch.bincount(sets[pairs].long(), minlength=3) / len(pairs)
    share, mean = torch.zeros(len(sets)), (one.columns["clean_prob"] + other.columns["clean_prob"]) / 2
    share[pairs] = shares[sets[pairs].long()]
    figures = {"clean_fraction": float(shares[CLEAN]), "hard_fraction": float(shares[HARD])}
    return {
        name: Division(
            sets,
            {"clean_prob": mean, "peer_prob": peers[name].columns["clean_prob"], "share": share},
            split=split,
            judge=name,
            figures={key: value for key, value in verdict.figures.items() if key != "tau"} | figures,
            mixture=verdict.mixture,
            remark=verdict.remark or remark,
        )
        for name, verdict in verdicts.items()
    }


def log_softmaxes(similarity: Tensor, temperature: float, ignore: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return log P^r and log P^c (B, B), softmaxes of S / τ over rows and over columns.

    Args:
        similarity: S (B, B).
        temperature: τ.
        ignore: (B, B) bool; off-diagonal entries that leave the softmaxes. They are 0 in the result.
    """
    logits = similarity / temperature
    if ignore is None:
        return logits.log_softmax(1), logits.log_softmax(0)
    left_out = ignore & ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(left_out, float("-inf"))
    return logits.log_softmax(1).masked_fill(left_out, 0), logits.log_softmax(0).masked_fill(left_out, 0)


def mined_contrast_loss(
    similarity: Tensor,
    labels: Tensor,
    smallest: Tensor | float,
    temperature: float = 0.07,
    detach_weights: bool = False,
    ignore: Tensor | None = None,
) -> Tensor:
    """InfoNCE in which the rest of a pair's label, 1 - y, goes to the batch's other pairs by their similarity.

    L = 1/B Σ_ij [U_ij (-log P^r_ij) + V_ij (-log P^c_ij)], U_ii = V_ii = y_i, and off the diagonal
    U_ij = (1 - y_i) S_ij / (Σ_{k != i} S_ik + 1e-6), V_ij = (1 - y_j) S_ij / (Σ_{k != j} S_kj + 1e-6); those below
    `smallest` become 0. S is clamped at 0 in U and V, where a negative cosine would be a negative weight.

    Args:
        similarity: S (B, B), float32, the diagonal is the given pair.
        labels: y (B,) in [0, 1]; no gradient flows to them.
        smallest: f, a number or a scalar, at least 0; above 1 only the given pairs are left.
        temperature: τ.
        detach_weights: no gradient flows through U and V.
        ignore: (B, B) bool; off-diagonal entries that are no negatives, such as other captions of one image.

    Returns:
        A scalar >= 0.
    """
    y, size = labels.detach(), len(similarity)
    rows, columns = log_softmaxes(similarity, temperature, ignore)
    left_out = torch.eye(size, dtype=torch.bool, device=similarity.device)
    if ignore is not None:
        left_out = left_out | ignore
    others = similarity.clamp(min=0).masked_fill(left_out, 0)
    u = (1 - y)[:, None] * others / (others.sum(1, keepdim=True) + SMALLEST_SUM)
    v = (1 - y)[None, :] * others / (others.sum(0, keepdim=True) + SMALLEST_SUM)
    u, v = (weights.masked_fill(weights < smallest, 0) + torch.diag(y) for weights in (u, v))
    if detach_weights:
        u, v = u.detach(), v.detach()
    return -(u * rows + v * columns).sum() / size
