"""The plain baselines: one loss on all pairs, as if every pair belonged together."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from in2r.config import key
from in2r.losses import triplet_loss
from in2r.memory import MemoryBank
from in2r.methods.base import ENDLESS, Batch, Peer, Step
from in2r.methods.in2r import In2r, In2rConfig


@dataclass(frozen=True)
class TripletConfig:
    """Section `method` for name = triplet: the backbone as it is trained on clean data."""

    name: Literal["triplet"] = key("triplet", "the method")
    warmup_epochs: int = key(
        1, "first epochs with another loss, which no hardest negative leads astray (VSE∞: 1)", low=0
    )
    warmup: Literal["mean", "sce"] = key(
        "mean",
        "their loss: the hinge averaged over all negatives (VSE∞), or IN²R's warm-up loss, for a like comparison",
    )
    negatives: Literal["hardest", "mean"] = key(
        "hardest", "negatives after these: the hardest one (VSE∞), which can collapse on noisy pairs; or their mean"
    )
    margin: float = key(0.2, "margin m of Eq. 2", low=0)


@dataclass(frozen=True)
class SceConfig:
    """Section `method` for name = sce: IN²R's warm-up loss alone, to the end."""

    name: Literal["sce"] = key("sce", "the method")
    ce_weight: float = key(1.0, "α of Eq. 1", low=0)
    rce_weight: float = key(1.0, "β of Eq. 1", low=0)
    epsilon: float = key(1e-7, "ε inside the logarithm of reverse cross-entropy", above=0)
    warmup_temperature: float = key(0.05, "τ of the loss", above=0)


class _Plain:
    """All pairs in every epoch: no partition, no memory, no refiner."""

    in2r: In2r
    """IN²R with this method's values of the settings that both have, and its own defaults of all others"""

    def parts(self, dim: int) -> tuple[nn.ModuleDict, MemoryBank | None]:
        """Nothing is kept beside the encoders."""
        return nn.ModuleDict(), None

    def needs_partition(self, epoch: int) -> bool:
        """Every pair counts alike."""
        return False

    def prefill(self) -> None:
        """There is no memory."""

    def sample_losses(self, similarity: Tensor) -> dict[str, Tensor]:
        """Score pairs by the same two losses as IN²R, so that any trained model can be asked."""
        return self.in2r.sample_losses(similarity)

    def partition_step(self, net: Peer, peer: Peer, clean: Batch, noisy: Batch | None) -> Step:
        """Never asked for."""
        raise NotImplementedError


class Triplet(_Plain):
    """Eq. 2 on all pairs."""

    name = "triplet"

    def __init__(self, config: TripletConfig, pairs: int) -> None:
        self.config = config
        self.in2r = In2r(In2rConfig(margin=config.margin), pairs)

    def warmup(self) -> tuple[int, dict[str, Any]]:
        """Say which loss the first epochs have."""
        c = self.config
        if c.warmup == "sce":
            return c.warmup_epochs, self.in2r.warmup()[1]
        return c.warmup_epochs, {"loss": "triplet-mean", "margin": c.margin}

    def all_pairs_step(self, net: Peer, batch: Batch, epoch: int) -> Step:
        """Use the warm-up's loss in the first epochs, then the negatives asked for."""
        c = self.config
        if epoch < c.warmup_epochs and c.warmup == "sce":
            return self.in2r.all_pairs_step(net, batch, epoch)
        v, u = net.embed(batch)
        negatives = "mean" if epoch < c.warmup_epochs else c.negatives
        loss = triplet_loss(v @ u.T, c.margin, negatives=negatives)
        return Step({"inter": loss, "total": loss})


class Sce(_Plain):
    """Eq. 1 on all pairs."""

    name = "sce"

    def __init__(self, config: SceConfig, pairs: int) -> None:
        self.in2r = In2r(
            In2rConfig(
                ce_weight=config.ce_weight,
                rce_weight=config.rce_weight,
                epsilon=config.epsilon,
                warmup_temperature=config.warmup_temperature,
            ),
            pairs,
        )

    def warmup(self) -> tuple[int, dict[str, Any]]:
        """Begin like IN²R, and never stop."""
        return ENDLESS, self.in2r.warmup()[1]

    def all_pairs_step(self, net: Peer, batch: Batch, epoch: int) -> Step:
        """½ [L_sce(y, p_i2t) + L_sce(y, p_t2i)], IN²R's own warm-up step."""
        return self.in2r.all_pairs_step(net, batch, epoch)
