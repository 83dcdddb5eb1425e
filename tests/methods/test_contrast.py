"""The loss of trusted pairs, and batches in which an image has several captions."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.given import Given, S
from tests.given import batch as four_pairs
from tests.tiny_engine import settings
from torch import Tensor, nn

from in2r.losses import group_sce_loss, sce_loss, soft_contrast_loss, triplet_loss
from in2r.methods import Batch, LossConfig, Net, SceWarmup
from in2r.methods.contrast import no_negatives, soft_owners, trusted_loss
from in2r.models.base import Items
from in2r.models.encode import evaluating
from in2r.runs.folder import RunFolder
from in2r.training.loop import Trainer
from in2r.training.order import Batching
from in2r.training.setup import open_setup
from in2r.training.train import Silent

IMAGES = ("train.batch_of=images", "train.captions_per_image=3", "train.batch_size=6")


def trainer(data: Path, folder: Path, *more: str, words: bool = False) -> Trainer:
    config = settings(data, "triplet", *IMAGES, *more, words=words)
    return Trainer(RunFolder(folder), open_setup(config, torch.device("cpu")), Silent())


def drawn(of: Trainer) -> Batch:
    """Return a batch of six images, shuffled."""
    batching = Batching(6, of.data.image_of_pair, 3)
    pairs = batching.draw(of.data.pairs, torch.Generator().manual_seed(0)).part(0, 6)
    return of.data.batch(pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(1))])


@pytest.mark.parametrize("words", [False, True])
def test_a_batch_of_images_holds_each_image_once_and_encodes_like_one_of_pairs(
    words: bool, data: Path, tmp_path: Path
) -> None:
    of = trainer(data, tmp_path, words=words)
    batch = drawn(of)
    assert (len(batch), len(batch.images)) == (18, 6)
    first, owner = batch.alike()
    assert torch.equal(batch.groups, batch.groups[first][owner])
    assert len(batch.groups[first].unique()) == 6
    pairwise = replace(of.data, by_image=False).batch(batch.pairs)
    assert pairwise.owner is None
    assert torch.equal(batch.images[owner], pairwise.images)
    net = of.state.nets["A"]
    with evaluating(net):
        one, other = net.encode(batch, pairwise)
        for mine, its in zip(one, other, strict=True):
            torch.testing.assert_close(mine.vector, its.vector)
        assert net.cost.encoded_without_gradient == 6 + 18 + 18 + 18


def test_alike_without_owners_names_the_first_pair_of_each_image() -> None:
    batch = replace(four_pairs(), groups=torch.tensor([7, 3, 7, 3]))
    first, owner = batch.alike()
    assert first.tolist() == [1, 0]  # of images 3 and 7
    assert owner.tolist() == [1, 0, 1, 0]


def scored() -> tuple[Net, Batch, Items, Items]:
    batch, net = four_pairs(), Net(Given(S), nn.Module())
    return net, batch, *net.encode(batch)[0]


def test_the_hinge_is_the_triplet_loss() -> None:
    net, batch, images, texts = scored()
    ignore = torch.zeros(4, 4, dtype=torch.bool)
    ignore[0, 2] = True
    found = trusted_loss(net, batch, images, texts, LossConfig(), 0.3, ignore)
    torch.testing.assert_close(found, triplet_loss(S, 0.3, ignore=ignore))


def test_the_softmax_counts_all_captions_of_an_image_as_right() -> None:
    net, batch, images, texts = scored()
    alone = trusted_loss(net, batch, images, texts, LossConfig(kind="softmax"), 0.3, None)
    torch.testing.assert_close(alone, sce_loss(S, 0.05, rce_weight=0))
    batch = replace(batch, groups=torch.tensor([5, 6, 5, 8]))
    both = trusted_loss(net, batch, images, texts, LossConfig(kind="softmax", temperature=0.1), 0.3, None)
    logits = S[[0, 1, 3]] / 0.1
    by_caption = -torch.log_softmax(logits, 0)[[0, 1, 0, 2], [0, 1, 2, 3]].mean()
    rows = torch.log_softmax(logits, 1)
    by_image = -((rows[0, 0] + rows[0, 2]) / 2 + rows[1, 1] + rows[2, 3]) / 3
    torch.testing.assert_close(both, (by_caption + by_image) / 2)


@pytest.mark.parametrize("words", [False, True])
def test_captions_that_are_alike_share_their_images(words: bool, data: Path, tmp_path: Path) -> None:
    of = trainer(data, tmp_path, "loss.kind=softmax", "loss.text_softness=0.4", words=words)
    columns = of.method.fixed_columns(of.data)
    assert bool(columns) == words  # vectors are in the batch already
    batch = of.data.batch(torch.arange(10), columns=columns)
    _, owner = batch.alike()
    target = soft_owners(batch, owner, 2, of.method.loss)
    torch.testing.assert_close(target.sum(1), torch.ones(10))
    assert float(target.max()) < 1
    assert torch.equal(target.argmax(1), owner)


def test_the_warm_up_has_several_positives_in_batches_of_images(data: Path, tmp_path: Path) -> None:
    of = trainer(data, tmp_path)
    batch, net, numbers = drawn(of), of.state.nets["A"], (0.05, 1.0, 1.0, 1e-7)
    with evaluating(net):
        images, texts = net.encode(batch)[0]
        first, owner = batch.alike()
        expected = group_sce_loss(net.score(images[first], texts), owner, *numbers)
        torch.testing.assert_close(SceWarmup(*numbers).step(net, batch).losses["total"], expected)


def test_captions_of_an_image_are_no_negatives_in_batches_of_images(data: Path, tmp_path: Path) -> None:
    of = trainer(data, tmp_path)
    batch = drawn(of)
    ignore = no_negatives(batch, asked=False)
    assert ignore is not None
    assert torch.equal(ignore, batch.groups[:, None] == batch.groups)
    assert no_negatives(four_pairs(), asked=False) is None
    assert no_negatives(four_pairs(), asked=True) is not None


def test_the_softmax_sees_no_gradient_through_its_targets() -> None:
    similarity = S.clone().requires_grad_()
    target: Tensor = torch.eye(4).requires_grad_()
    soft_contrast_loss(similarity, target, target).backward()  # type: ignore[no-untyped-call]
    assert target.grad is None
    assert similarity.grad is not None
