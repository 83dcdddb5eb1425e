"""The plain baselines: which loss in which epoch."""

import torch
from torch import Tensor, nn

from in2r.losses import sce_loss, triplet_loss
from in2r.methods import Batch, Peer
from in2r.methods.in2r import In2r, In2rConfig
from in2r.methods.plain import Sce, SceConfig, Triplet, TripletConfig


class Given:
    """An encoder that gives back what it is fed, as unit vectors."""

    def encode_images(self, values: Tensor, mask: Tensor | None, parts: list[int]) -> Tensor:
        return nn.functional.normalize(values[:, 0], dim=1)

    encode_texts = encode_images


class Net(Peer):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.encoder = Given()  # type: ignore[assignment]


def batch() -> tuple[Batch, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(6, 1, 4, generator=generator) for _ in range(2))
    pairs = torch.arange(6)
    v, u = (nn.functional.normalize(values[:, 0], dim=1) for values in (images, texts))
    return Batch(pairs, pairs, images, None, texts, None), v @ u.T


def test_the_hinge_takes_all_negatives_first_then_the_hardest() -> None:
    given, similarity = batch()
    method = Triplet(TripletConfig(margin=0.3), 6)
    first, second = (method.all_pairs_step(Net(), given, epoch).losses for epoch in (0, 1))
    torch.testing.assert_close(first["total"], triplet_loss(similarity, 0.3, negatives="mean"))
    torch.testing.assert_close(second["total"], triplet_loss(similarity, 0.3))
    assert first["total"] < second["total"]


def test_the_hinge_may_keep_to_the_mean() -> None:
    given, similarity = batch()
    late = Triplet(TripletConfig(negatives="mean"), 6).all_pairs_step(Net(), given, 5)
    torch.testing.assert_close(late.losses["total"], triplet_loss(similarity, negatives="mean"))


def test_the_hinge_may_share_the_warm_up_of_in2r() -> None:
    given, similarity = batch()
    method = Triplet(TripletConfig(warmup="sce", warmup_epochs=2), 6)
    torch.testing.assert_close(method.all_pairs_step(Net(), given, 1).losses["total"], sce_loss(similarity))
    torch.testing.assert_close(method.all_pairs_step(Net(), given, 2).losses["total"], triplet_loss(similarity))


def test_the_warm_up_loss_alone_is_sce_in_every_epoch() -> None:
    given, similarity = batch()
    method = Sce(SceConfig(warmup_temperature=0.1, rce_weight=0.5), 6)
    for epoch in (0, 9):
        loss = method.all_pairs_step(Net(), given, epoch).losses["total"]
        torch.testing.assert_close(loss, sce_loss(similarity, 0.1, 1.0, 0.5))
    assert not method.needs_partition(9)


def test_pairs_are_scored_by_the_losses_that_the_run_was_trained_with() -> None:
    _, similarity = batch()
    sce = Sce(SceConfig(warmup_temperature=0.1, ce_weight=2.0, rce_weight=0.5, epsilon=1e-3), 6)
    scored = sce.sample_losses(similarity)
    torch.testing.assert_close(scored["sce"], sce_loss(similarity, 0.1, 2.0, 0.5, 1e-3, reduction="none"))
    scored = Triplet(TripletConfig(margin=0.4), 6).sample_losses(similarity)
    torch.testing.assert_close(
        scored["triplet-mean"], triplet_loss(similarity, 0.4, negatives="mean", reduction="none")
    )


def test_what_a_plain_method_has_no_setting_for_is_scored_as_by_in2r() -> None:
    _, similarity = batch()
    usual = In2r(In2rConfig(), 6).sample_losses(similarity)
    sce, hinge = Sce(SceConfig(ce_weight=3.0), 6), Triplet(TripletConfig(margin=0.9), 6)
    torch.testing.assert_close(sce.sample_losses(similarity)["triplet-mean"], usual["triplet-mean"])
    torch.testing.assert_close(hinge.sample_losses(similarity)["sce"], usual["sce"])
