"""L2RM: mismatched images and captions are matched again inside the batch, by partial optimal transport.

"Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval", Han et al., CVPR 2024. Read top to bottom:
settings, warm-up, division, cost network, steps. S is the similarity of a batch (B, B), rows images; C the cost of
matching, π the transport plan. docs/methods/l2rm.md maps each formula to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.layers.cost import CostNetwork
from in2r.losses import symmetric_kl_loss, triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.division import Belief, Division, divide_by_mixture, fit_gaussians
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import SceWarmup
from in2r.models.base import Items
from in2r.models.encode import evaluating
from in2r.partition import fit_two_betas, partial_transport
from in2r.transfer import send

HINGE = "triplet-mean"
"""the per-sample loss: the hinge averaged over all negatives"""


@dataclass(frozen=True)
class L2rmConfig(MethodConfig):
    """Section `method` for name = l2rm."""

    name: str = key("l2rm", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (paper: 5 on Flickr30K, 10 on COCO and CC152K)", low=0)
    warmup_temperature: float = key(0.05, "τ of the warm-up loss (released code)", above=0)
    epsilon: float = key(1e-7, "ε inside the logarithm of reverse cross-entropy (released code)", above=0)
    clean_component: Literal["lower_mean", "lowest_loss"] = key(
        "lower_mean",
        "which Beta component is clean: the one of the lower mean, or the likelier one at the lowest loss (released "
        "code; with few noisy pairs a wide noisy component wins there, and nearly all pairs are called noisy)",
    )
    margin: float = key(0.2, "margin of the hinge (paper)", low=0)
    temperature: float = key(0.05, "τ of p in L_SKL (released code)", above=0)
    mass: float = key(0.1, "ρ, the share of a noisy batch that is matched again (released code)", above=0, high=1)
    regularisation: float = key(
        0.01, "entropic regularisation of the transport (released code: 0.01 on Flickr30K, 0.07 elsewhere)", above=0
    )
    cost_rate: float = key(0.01, "learning rate of the cost network over the network's (released code)", above=0)
    planted_share: float = key(
        0.1, "largest share of a noisy batch that clean images replace to train the cost network", above=0, high=1
    )
    mask_given: bool = key(
        True, "a noisy pair may not be matched to itself (released code; for CC152K, whose noise is unknown, false)"
    )


class L2rmOwn(nn.Module):
    """What the network keeps beside its backbone: the cost network."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.cost = CostNetwork(size)


class L2rm(Method):
    """One network, and a cost network with an optimiser of its own."""

    Config = L2rmConfig
    config: L2rmConfig
    networks = 1
    needs_bounded = True
    sets = (Walk("clean", whole=True), Walk("noisy", whole=True))
    waits = "the transport plan is iterated until it converges"

    def own(self, dim: int, pairs: int, batch_size: int) -> L2rmOwn:
        """Make the cost network, whose weights act on the captions of a full batch."""
        return L2rmOwn(batch_size)

    def optimizers(self) -> Mapping[str, float]:
        """Return the cost network's learning rate over the network's."""
        return {"cost": self.config.cost_rate}

    def warmup(self) -> tuple[int, SceWarmup]:
        """Return the warm-up: symmetric cross-entropy on all pairs, as Eq. 1 of IN²R with α = β = 1."""
        c = self.config
        return c.warmup_epochs, SceWarmup(c.warmup_temperature, 1.0, 1.0, c.epsilon)

    # --- division: two Beta components on the per-sample losses

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return l_i = 1/B Σ_j [m + S_ij - S_ii]_+ + 1/B Σ_k [m + S_ki - S_ii]_+."""
        similarity = net.score(images, texts)
        return {HINGE: triplet_loss(similarity, self.config.margin, negatives="mean", reduction="none")}

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give the network its own verdict."""
        p, divisions = self.partition, {}
        for name, own in seen.items():
            fit = fit_two_betas(
                own[HINGE],
                p.max_iter,
                minimum_separation=0,
                clean=self.config.clean_component,
                histogram_from=p.histogram_from,
            )
            # no bound on the separation of two Betas tells one group from two: two Gaussians say whether there are two
            gaussians = fit_gaussians(own[HINGE], p)
            belief = Belief.of(gaussians, own.mismatched[HINGE], p)
            divisions[name] = divide_by_mixture(
                HINGE, own[HINGE], fit, belief, data.pairs, len(data.image_of_pair), p, name
            )
        return divisions

    # --- steps: the cost network on planted pairs, then the network on a clean and a rematched noisy batch

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step the cost network, then the network: L = L_tri(clean) + L_SKL(noisy)."""
        clean, noisy = batches["clean"], batches.get("noisy")
        if noisy is not None and len(clean) == len(noisy):
            yield self._cost_step(net, clean, noisy, now)
        encoded = net.encode(*[batch for batch in (clean, noisy) if batch is not None])
        hinge = triplet_loss(net.score(*encoded[0]), self.config.margin)
        step = Step({"clean": hinge, "total": hinge}, notes={"rematched_steps": float(noisy is not None)})
        if noisy is not None:
            rematch = self._rematch(net, *encoded[1])
            step.losses |= {"rematch": rematch, "total": hinge + rematch}
        yield step

    def _cost_step(self, net: Net, clean: Batch, noisy: Batch, now: Now) -> Step:
        """L_cost = Σ of the costs of k clean pairs whose images were planted among the noisy ones."""
        draws = now.generator("planted pairs", now.name, now.epoch, now.step)
        size = len(noisy)
        count = int(torch.randint(1, max(1, int(self.config.planted_share * size)) + 1, (1,), generator=draws))
        chosen = send(torch.randperm(size, generator=draws)[:count], noisy.pairs.device)
        slots = send(torch.randperm(size, generator=draws)[:count], noisy.pairs.device)
        with evaluating(net):
            (clean_images, clean_texts), (noisy_images, _) = net.encode(clean, noisy)
            similarity = net.score(noisy_images.put(slots, clean_images[chosen]), clean_texts)
        loss = _cost_network(net)(similarity)[slots, chosen].sum()
        return Step({"cost": loss, "total": loss}, of="cost")

    def _rematch(self, net: Net, images: Items, texts: Items) -> Tensor:
        """L_SKL: symmetric divergence between p and the plan π of the noisy batch; the gradient flows through p."""
        c = self.config
        similarity = net.score(images, texts)
        with torch.no_grad():
            cost = _cost_network(net)(similarity).clamp(min=1e-10)
            given = torch.eye(len(cost), dtype=torch.bool, device=cost.device) if c.mask_given else None
            plan = partial_transport(cost, c.mass, c.regularisation, given)
        return symmetric_kl_loss(similarity, plan, c.temperature)


def _cost_network(net: Net) -> CostNetwork:
    return cast(L2rmOwn, net.own).cost
