"""The plain baselines: one loss on all pairs, as if every pair belonged together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from in2r.config import key
from in2r.losses import triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Step, Walk, Warmup
from in2r.methods.contrast import no_negatives, trusted_loss
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import COMMON_WARMUP, HingeWarmup, SceWarmup


@dataclass(frozen=True)
class TripletConfig(MethodConfig):
    """Section `method` for name = triplet: the backbone as it is trained on clean data."""

    name: str = key("triplet", "the method")
    warmup_epochs: int = key(1, "first epochs, whose loss has no hardest negative (VSE∞: 1)", low=0)
    warmup: Literal["mean", "sce"] = key(
        "mean",
        "their loss: the hinge averaged over all negatives (VSE∞), or IN²R's warm-up loss, for a fair comparison",
    )
    negatives: Literal["hardest", "mean"] = key(
        "hardest",
        "negatives afterwards: the hardest one (VSE∞), which can collapse on noisy pairs; or the mean over all",
    )
    margin: float = key(0.2, "margin m of Eq. 2", low=0)


class Triplet(Method):
    """Eq. 2 on all pairs, or the softmax of section `loss`, by two networks."""

    Config = TripletConfig
    config: TripletConfig
    networks = 2
    sets = (Walk("all"),)

    def warmup(self) -> tuple[int, Warmup]:
        """Return the first epochs and their loss."""
        c = self.config
        return c.warmup_epochs, COMMON_WARMUP if c.warmup == "sce" else HingeWarmup(c.margin)

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Make one step with the negatives asked for."""
        images, texts = net.encode(batches["all"])[0]
        c, batch = self.config, batches["all"]
        ignore = no_negatives(batch, asked=False)
        if self.loss.kind == "hinge" and c.negatives == "mean":
            loss = triplet_loss(net.score(images, texts), c.margin, negatives="mean", ignore=ignore)
        else:
            loss = trusted_loss(net, batch, images, texts, self.loss, c.margin, ignore)
        yield Step({"inter": loss, "total": loss})


@dataclass(frozen=True)
class SceConfig(MethodConfig):
    """Section `method` for name = sce: IN²R's warm-up loss alone, to the end."""

    name: str = key("sce", "the method")
    warmup_epochs: int = key(5, "first epochs, which methods with the same warm-up share; the loss stays", low=0)
    ce_weight: float = key(1.0, "α of Eq. 1", low=0)
    rce_weight: float = key(1.0, "β of Eq. 1", low=0)
    epsilon: float = key(1e-7, "ε inside the logarithm of reverse cross-entropy", above=0)
    warmup_temperature: float = key(0.05, "τ of the loss", above=0)


class Sce(Method):
    """Eq. 1 on all pairs, by two networks."""

    Config = SceConfig
    config: SceConfig
    networks = 2
    sets = (Walk("all"),)

    def warmup(self) -> tuple[int, Warmup]:
        """Return IN²R's own warm-up."""
        return self.config.warmup_epochs, self._loss

    @property
    def _loss(self) -> SceWarmup:
        c = self.config
        return SceWarmup(c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon)

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """½ [L_sce(y, p_i2t) + L_sce(y, p_t2i)], as in the warm-up."""
        yield self._loss.step(net, batches["all"])
