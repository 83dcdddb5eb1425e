"""The plain baselines: which loss in which phase."""

import torch
from torch import Tensor, nn

from in2r.losses import sce_loss, triplet_loss
from in2r.methods import Batch, Net, Now, PartitionConfig, Step
from in2r.methods.in2r import In2r, In2rConfig
from in2r.methods.plain import Sce, SceConfig, Triplet, TripletConfig
from in2r.models.base import Backbone, Items


class Given(Backbone):
    """A backbone that gives back what it is fed, as unit vectors."""

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return Items(nn.functional.normalize(values[:, 0], dim=1))

    encode_texts = encode_images

    def logits(self, images: Items, texts: Items) -> Tensor:
        return images.vector @ texts.vector.T


NET = Net(Given(), nn.Module())


def warm(method: Triplet | Sce, given: Batch) -> Step:
    return method.warmup()[1].step(NET, given)


def main(method: Triplet | Sce, given: Batch) -> Step:
    [step] = method.steps(NET, NET, {"all": given}, Now(epoch=0, epochs=9, seed=0, name="A"))
    return step


def batch() -> tuple[Batch, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(6, 1, 4, generator=generator) for _ in range(2))
    pairs = torch.arange(6)
    v, u = (nn.functional.normalize(values[:, 0], dim=1) for values in (images, texts))
    return Batch(pairs, pairs, images, None, texts, None), v @ u.T


def test_the_hinge_takes_all_negatives_first_then_the_hardest() -> None:
    given, similarity = batch()
    method = Triplet(TripletConfig(margin=0.3), PartitionConfig())
    first, second = warm(method, given).losses, main(method, given).losses
    assert method.warmup()[0] == 1
    torch.testing.assert_close(first["total"], triplet_loss(similarity, 0.3, negatives="mean"))
    torch.testing.assert_close(second["total"], triplet_loss(similarity, 0.3))
    assert first["total"] < second["total"]


def test_the_hinge_may_keep_to_the_mean() -> None:
    given, similarity = batch()
    late = main(Triplet(TripletConfig(negatives="mean"), PartitionConfig()), given)
    torch.testing.assert_close(late.losses["total"], triplet_loss(similarity, negatives="mean"))


def test_the_hinge_may_share_the_warm_up_of_in2r() -> None:
    given, similarity = batch()
    method = Triplet(TripletConfig(warmup="sce", warmup_epochs=2), PartitionConfig())
    assert method.warmup() == (2, In2r(In2rConfig(), PartitionConfig()).warmup()[1])
    torch.testing.assert_close(warm(method, given).losses["total"], sce_loss(similarity))
    torch.testing.assert_close(main(method, given).losses["total"], triplet_loss(similarity))


def test_the_warm_up_loss_alone_is_sce_in_every_epoch() -> None:
    given, similarity = batch()
    method = Sce(SceConfig(warmup_temperature=0.1, rce_weight=0.5), PartitionConfig())
    for step in (warm(method, given), main(method, given)):
        torch.testing.assert_close(step.losses["total"], sce_loss(similarity, 0.1, 1.0, 0.5))


def test_plain_methods_observe_and_divide_nothing() -> None:
    given, _ = batch()
    [(images, texts)] = NET.encode(given)
    for method in (Triplet(TripletConfig(), PartitionConfig()), Sce(SceConfig(), PartitionConfig())):
        assert not method.divides()
        assert method.observe(NET, images, texts, given.pairs) is None
