"""IN²R's losses, equation by equation, on networks small enough to reckon beside."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from in2r.errors import InputError
from in2r.layers.refiners import GatRefiner, GcnRefiner, GraphRefiner, MeanRefiner, Top1Refiner
from in2r.losses import prototype_contrast_loss, rectification_loss, sce_loss, soft_target, triplet_loss
from in2r.memory import Neighbors
from in2r.methods import Batch, Net, Now, PartitionConfig, Seen, Step, build_method, in_two
from in2r.methods.in2r import In2r, In2rConfig, In2rOwn
from in2r.methods.judging import PairLosses
from in2r.methods.plain import Sce, SceConfig, Triplet, TripletConfig
from in2r.models.base import Backbone, Items
from in2r.models.build import Inputs, ModelConfig, build_backbone

DIM = 8


def method(**settings: object) -> In2r:
    settings = {"num_neighbors": 3, "memory_size": 12, "refiner_dropout": 0.0, **settings}
    return In2r(In2rConfig(**settings), PartitionConfig())  # type: ignore[arg-type]


def own(made: In2r, pairs: int = 100) -> In2rOwn:
    return made.own(DIM, pairs, 4)


def network(made: In2r, seed: int, dropout: float = 0.0) -> Net:
    torch.manual_seed(seed)
    config = ModelConfig(dim=DIM, image="linear", text="linear", image_dropout=dropout, text_dropout=dropout)
    return Net(build_backbone(config, Inputs(5, "vectors", 6)), own(made))


def embed(net: Net, given: Batch) -> tuple[Tensor, Tensor]:
    [(images, texts)] = net.encode(given)
    return images.vector, texts.vector


def step_of(made: In2r, net: Net, other: Net, clean: Batch, noisy: Batch | None = None) -> Step:
    """Return the one step of an iteration."""
    batches = {"clean": clean} if noisy is None else {"clean": clean, "noisy": noisy}
    [step] = made.steps(net, other, batches, Now(epoch=0, epochs=1, seed=0, name="A"))
    return step


def found(step: Step) -> tuple[Neighbors, Neighbors]:
    """Return the neighbours of images and of texts."""
    assert step.found is not None
    return step.found.near_images, step.found.near_texts


def kept(net: Net, step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Take the step and return what is in the network's memory, which was empty."""
    assert len(net.own.memory) == 0
    step.after()
    return net.own.memory.entries()


def batch(pairs: list[int], groups: list[int] | None = None, elite: list[bool] | None = None) -> Batch:
    """Pair k has features of its own; image k // 5 unless groups are given."""
    generator = torch.Generator().manual_seed(sum(pairs) + 7)
    return Batch(
        pairs=torch.tensor(pairs),
        groups=torch.tensor(groups if groups is not None else [pair // 5 for pair in pairs]),
        images=torch.randn(len(pairs), 1, 5, generator=generator),
        image_mask=None,
        texts=torch.randn(len(pairs), 1, 6, generator=generator),
        text_mask=None,
        columns={"elite": torch.tensor(elite if elite is not None else [True] * len(pairs))},
    )


def fill(net: Net, ids: list[int], groups: list[int] | None = None, seed: int = 5) -> None:
    generator = torch.Generator().manual_seed(seed)
    images, texts = (functional.normalize(torch.randn(len(ids), DIM, generator=generator), dim=1) for _ in "vu")
    net.own.memory.push(images, texts, torch.tensor(ids), torch.tensor(groups if groups else ids))


CLEAN, NOISY = batch([0, 5, 10, 15]), batch([20, 25, 30])


def ready(**settings: object) -> tuple[In2r, Net, Net]:
    """Return a method, a network, and a peer whose memory holds ten entries."""
    made = method(**settings)
    net, other = network(made, 0), network(made, 1)
    if other.own.memory is not None:
        fill(other, list(range(100, 110)))
    return made, net, other


def rectified(**settings: object) -> tuple[Step, Tensor, Tensor, Net]:
    """Return a step, and the noisy embeddings v, u that it was made from."""
    made, net, other = ready(**settings)
    step = step_of(made, net, other, CLEAN, NOISY)
    v, u = embed(net, NOISY)
    return step, v, u, net


def prototypes(step: Step) -> tuple[Tensor, Tensor]:
    near_images, near_texts = found(step)
    t_hat = functional.normalize(near_images.texts.mean(1), dim=1)
    v_hat = functional.normalize(near_texts.images.mean(1), dim=1)
    return t_hat, v_hat


# --- Eq. 1


def test_warm_up_is_eq_1() -> None:
    made, net, _ = ready(ce_weight=0.7, rce_weight=1.3, warmup_temperature=0.1)
    step = made.warmup()[1].step(net, CLEAN)
    v, u = embed(net, CLEAN)
    s = (v @ u.T / 0.1).double().detach()
    total = 0.0
    for logits in (s, s.T):
        for i in range(4):
            p = [math.exp(float(x)) for x in logits[i]]
            p = [x / sum(p) for x in p]
            forward = -math.log(p[i])
            reverse = -sum(p[j] * math.log((j == i) + 1e-7) for j in range(4))
            total += (0.7 * forward + 1.3 * reverse) / 2 / 4
    assert step.losses["sce"].item() == pytest.approx(total, rel=1e-5)
    assert step.losses["total"] is step.losses["sce"]
    assert len(kept(net, step)[0]) == 0


def test_the_released_warm_up_also_compares_two_views() -> None:
    """Without dropout both views are one: an image, or a caption, and itself as its only match."""
    made, net, _ = ready(warmup_views=True, warmup_temperature=0.1)
    step = made.warmup()[1].step(net, CLEAN)
    v, u = embed(net, CLEAN)
    for name, x in (("sce_images", v), ("sce_texts", u)):
        assert step.losses[name].item() == pytest.approx(sce_loss(x @ x.T, 0.1).item(), rel=1e-4)
    parts = [step.losses[name] for name in ("sce", "sce_images", "sce_texts")]
    assert step.losses["total"].item() == pytest.approx(sum(part.item() for part in parts))
    assert step.losses["sce"].item() == pytest.approx(
        ready(warmup_temperature=0.1)[0].warmup()[1].step(net, CLEAN).losses["sce"].item()
    )


# --- Eqs. 2 to 5 and 12


@pytest.mark.parametrize(("weight", "gamma"), [(0.5, 1.0), (1.0, 0.25), (0.1, 0.0)])
def test_the_total_is_put_together_as_eq_5_and_eq_12_say(weight: float, gamma: float) -> None:
    made, net, other = ready(lambda_intra=weight, gamma=gamma)
    losses = {name: loss.item() for name, loss in step_of(made, net, other, CLEAN, NOISY).losses.items()}
    assert losses.keys() == {"inter", "intra_image", "intra_text", "clean", "rect", "total"}
    clean = losses["inter"] + weight * (losses["intra_image"] + losses["intra_text"])
    assert losses["clean"] == pytest.approx(clean, rel=1e-6)
    assert losses["total"] == pytest.approx(clean + gamma * losses["rect"], rel=1e-6)
    assert losses["rect"] > 0


def test_the_gradient_is_put_together_alike() -> None:
    """Every part teaches, by its weight: the encoders by all of them, the refiner by rectification alone."""
    made, net, other = ready(lambda_intra=0.25, gamma=3.0, intra_margin=0.9)
    losses = step_of(made, net, other, CLEAN, NOISY).losses
    weights = dict(net.named_parameters())

    def gradient(name: str) -> Tensor:
        parts = torch.autograd.grad(losses[name], list(weights.values()), retain_graph=True, allow_unused=True)
        return torch.cat([
            torch.zeros(weight.numel()) if part is None else part.flatten()
            for part, weight in zip(parts, weights.values(), strict=True)
        ])  # fmt: skip

    image, text, rect = (gradient(name) for name in ("intra_image", "intra_text", "rect"))
    assert all(part.norm() > 0.01 for part in (image, text, rect))
    torch.testing.assert_close(gradient("clean"), gradient("inter") + 0.25 * (image + text), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient("total"), gradient("clean") + 3 * rect, rtol=1e-4, atol=1e-5)
    refiner = torch.cat([torch.full((w.numel(),), name.startswith("own")) for name, w in weights.items()])
    assert rect[refiner].norm() > 0.01
    assert not gradient("clean")[refiner].any()


def test_the_parts_of_the_clean_loss() -> None:
    made, net, other = ready(margin=0.3, intra_margin=0.7)
    losses = step_of(made, net, other, CLEAN, NOISY).losses
    v, u = embed(net, CLEAN)
    assert torch.allclose(losses["inter"], triplet_loss(v @ u.T, 0.3))
    # without dropout both views are the same
    assert torch.allclose(losses["intra_image"], triplet_loss(v @ v.T, 0.7))
    assert torch.allclose(losses["intra_text"], triplet_loss(u @ u.T, 0.7))


def test_the_second_view_has_its_own_dropout() -> None:
    made = method(intra_margin=0.0)
    net, other = network(made, 0, dropout=0.5).train(), network(made, 1)
    step = step_of(made, net, other, CLEAN)
    # with margin 0, one view would have every pair at its own maximum: no loss at all
    assert step.losses["intra_image"].item() > 0
    assert step.losses["intra_text"].item() > 0
    net.eval()
    step = step_of(made, net, other, CLEAN)
    assert step.losses["intra_image"].item() == 0
    assert step.losses["intra_text"].item() == 0


def test_without_intra_weight_there_is_no_second_view() -> None:
    made, net, other = ready(lambda_intra=0.0)
    losses = step_of(made, net, other, CLEAN).losses
    assert losses.keys() == {"inter", "clean", "total"}
    assert torch.equal(losses["clean"], losses["inter"])


# --- Eqs. 6 to 11


def test_rectification_by_plain_loops() -> None:
    made, net, other = ready(rectifier="mean", rectification_temperature=0.2, ce_weight=0.5, rce_weight=2.0)
    step = step_of(made, net, other, CLEAN, NOISY)
    keys, values, *_ = other.own.memory.entries()
    v, u = (x.detach().double() for x in embed(net, NOISY))
    keys, values = keys.double(), values.double()

    def prototype(query: Tensor, by: Tensor, take: Tensor) -> Tensor:
        best = sorted(range(len(by)), key=lambda e: -float(query @ by[e]))[:3]  # Eq. 6
        mean = sum(take[e] for e in best) / 3
        return mean / mean.norm()

    def softmax(logits: list[float]) -> list[float]:
        powers = [math.exp(x / 0.2) for x in logits]
        return [x / sum(powers) for x in powers]

    total = 0.0
    for queries, others, by, take in ((v, u, keys, values), (u, v, values, keys)):
        for query in queries:
            hat = prototype(query, by, take)
            q = softmax([float(hat @ other) for other in others])  # Eq. 10
            p = softmax([float(query @ other) for other in others])
            forward = -sum(a * math.log(b) for a, b in zip(q, p, strict=True))
            reverse = -sum(b * math.log(a + 1e-7) for a, b in zip(q, p, strict=True))
            total += (0.5 * forward + 2.0 * reverse) / 2 / 3  # Eq. 11, mean over three pairs
    assert step.losses["rect"].item() == pytest.approx(total, rel=1e-4)


def test_gradients_reach_encoders_and_refiner_and_nothing_of_the_peer() -> None:
    made, net, other = ready()
    before = copy.deepcopy(other.state_dict())
    memory = copy.deepcopy(net.own.memory.state_dict())
    step = step_of(made, net, other, CLEAN, NOISY)
    step.losses["rect"].backward()
    moved = [name for name, weight in net.named_parameters() if weight.grad is not None and weight.grad.any()]
    for part in ("backbone.image", "backbone.text", "own.refiners.i2t.q_proj", "own.refiners.i2t.output_layer"):
        assert any(name.startswith(part) for name in moved), part
    assert all(weight.grad is None for weight in other.parameters())
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())
    assert all(torch.equal(memory[name], value) for name, value in net.own.memory.state_dict().items())


def test_the_candidates_inside_the_target_are_constants() -> None:
    """The encoders' gradient is that of a cross-entropy to a fixed target."""
    made, net, other = ready(rectifier="mean")
    step = step_of(made, net, other, CLEAN, NOISY)
    got = torch.autograd.grad(step.losses["rect"], list(net.backbone.parameters()))
    t_hat, v_hat = prototypes(step)
    v, u = embed(net, NOISY)
    q_i2t = torch.softmax(t_hat @ u.detach().T / 0.05, 1)
    q_t2i = torch.softmax(v_hat @ v.detach().T / 0.05, 1)
    wanted = torch.autograd.grad(rectification_loss(v @ u.T, q_i2t, q_t2i), list(net.backbone.parameters()))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("kind", ["refiner", "mean", "top1"])
def test_each_rectifier_makes_its_own_prototypes(kind: str) -> None:
    made = method(rectifier=kind)
    assert own(made).memory is not None
    assert isinstance(
        own(made).refiners["i2t"], {"refiner": GraphRefiner, "mean": MeanRefiner, "top1": Top1Refiner}[kind]
    )
    values = {other: rectified(rectifier=other)[0].losses["rect"].item() for other in ("refiner", "mean", "top1")}
    assert len({round(value, 5) for value in values.values()}) == 3


def test_each_graph_is_a_refiner_of_its_own() -> None:
    kinds = {"mhsa": GraphRefiner, "gcn": GcnRefiner, "gat": GatRefiner}
    for kind, cls in kinds.items():
        assert isinstance(own(method(refiner=kind)).refiners["i2t"], cls)
    assert len({round(rectified(refiner=kind)[0].losses["rect"].item(), 5) for kind in kinds}) == 3


def test_without_rectifier_there_is_nothing_to_keep() -> None:
    made, net, other = ready(rectifier="none")
    assert made.label == "discard"
    assert method().label == "in2r"
    assert net.own.memory is None
    assert len(net.own.refiners) == 0
    step = step_of(made, net, other, CLEAN)
    step.after()
    assert "rect" not in step.losses
    assert torch.equal(step.losses["total"], step.losses["clean"])
    assert not step.notes


def test_fewer_entries_than_neighbours_or_no_noisy_pairs_are_noted() -> None:
    made = method(num_neighbors=3)
    net, other = network(made, 0), network(made, 1)
    fill(other, [1, 2])
    for noisy in (NOISY, None):
        if noisy is None:
            fill(other, [3, 4])
        step = step_of(made, net, other, CLEAN, noisy)
        assert step.notes == {"unrectified_steps": 1.0, "elite_pairs": 4.0}
        assert step.found is None
        assert "rect" not in step.losses
        assert torch.equal(step.losses["total"], step.losses["clean"])
    rectified = step_of(made, net, other, CLEAN, NOISY)
    assert "rect" in rectified.losses
    assert rectified.notes["unrectified_steps"] == 0


def test_both_batches_as_candidates() -> None:
    step, v, u, net = rectified(rectifier="mean", candidates="both")
    t_hat, v_hat = prototypes(step)
    clean_v, clean_u = embed(net, CLEAN)
    images, texts = torch.cat([v, clean_v]), torch.cat([u, clean_u])
    q_i2t, q_t2i = torch.softmax(t_hat @ texts.T / 0.05, 1), torch.softmax(v_hat @ images.T / 0.05, 1)
    wanted = rectification_loss(v @ texts.T, q_i2t, q_t2i, similarity_t2i=u @ images.T)
    assert torch.allclose(step.losses["rect"], wanted, rtol=1e-4)
    alone = rectified(rectifier="mean")[0].losses["rect"]
    assert not torch.allclose(step.losses["rect"], alone)


def test_prototype_contrast() -> None:
    step, v, u, _ = rectified(rectifier="mean", rectification="prototype-contrast")
    t_hat, v_hat = prototypes(step)
    assert torch.allclose(step.losses["rect"], prototype_contrast_loss(v @ t_hat.T, u @ v_hat.T), rtol=1e-4)


def test_a_refiner_for_each_direction() -> None:
    made, net, other = ready(refiner_sharing="per-direction")
    assert set(net.own.refiners) == {"i2t", "t2i"}
    assert set(network(method(), 0).own.refiners) == {"i2t"}
    step = step_of(made, net, other, CLEAN, NOISY)
    near_images, near_texts = found(step)
    v, u = embed(net, NOISY)
    t_hat, v_hat = net.own.refiners["i2t"](near_images.texts), net.own.refiners["t2i"](near_texts.images)
    wanted = rectification_loss(v @ u.T, torch.softmax(t_hat @ u.T / 0.05, 1), torch.softmax(v_hat @ v.T / 0.05, 1))
    assert torch.allclose(step.losses["rect"], wanted, rtol=1e-4)


# --- neighbours


def own_entries(net: Net, other: Net, noisy: Batch) -> None:
    """Put the noisy pairs themselves, and their images with other captions, into the peer's memory."""
    v, u = (x.detach() for x in embed(net, noisy))
    other.own.memory.push(v, u, noisy.pairs, noisy.groups)
    other.own.memory.push(v, u.roll(1, 0), noisy.pairs + 1000, noisy.groups)


def neighbours(**settings: object) -> tuple[Neighbors, Neighbors]:
    made = method(memory_size=20, **settings)
    net, other = network(made, 0), network(made, 1)
    fill(other, list(range(100, 108)))
    own_entries(net, other, NOISY)
    step = step_of(made, net, other, CLEAN, NOISY)
    return found(step)


def test_a_querys_own_entries_are_its_best_neighbours() -> None:
    images, texts = neighbours()
    assert (images.groups[:, :2] == NOISY.groups[:, None]).all()
    assert ((texts.ids[:, :2] == NOISY.pairs[:, None]).any(1)).all()


def test_exclude_self_leaves_out_the_image_and_the_pair() -> None:
    images, texts = neighbours(memory_exclude_self=True)
    assert not (images.groups == NOISY.groups[:, None]).any()
    assert not (texts.ids == NOISY.pairs[:, None]).any()
    # the same text beside another image is another pair, and stays
    assert (texts.ids[:, 0] >= 1000).all()
    assert torch.isfinite(images.scores).all()


def test_the_memory_that_is_searched_is_the_peers_or_the_own() -> None:
    made = method(memory_source="self")
    net, other = network(made, 0), network(made, 1)
    fill(other, list(range(100, 110)))
    assert "rect" not in step_of(made, net, other, CLEAN, NOISY).losses  # its own is empty
    fill(net, list(range(200, 210)))
    step = step_of(made, net, other, CLEAN, NOISY)
    near_images, near_texts = found(step)
    assert (near_images.ids >= 200).all()
    assert (near_texts.ids >= 200).all()
    assert (found(step_of(method(), net, other, CLEAN, NOISY))[0].ids < 200).all()


def test_what_is_said_of_the_neighbours_by_hand() -> None:
    """The memory holds pair 20 three times; each query's best are two distinct pairs, or one."""
    made = method(memory_size=20)
    net, other = network(made, 0), network(made, 1)
    fill(other, [20, 20, 20, 31, 31])
    step = step_of(made, net, other, CLEAN, NOISY)
    for near, side in zip(found(step), ("i2t", "t2i"), strict=True):
        distinct = sum(len(set(row)) for row in near.ids.tolist()) / 3
        assert float(step.notes[f"distinct_neighbors_{side}"]) == pytest.approx(distinct)
        assert float(step.notes[f"neighbor_score_{side}"]) == pytest.approx(float(near.scores.mean()))
    assert float(step.notes["queries_without_prototype"]) == 0


def test_without_the_elite_filter_every_clean_pair_is_kept() -> None:
    clean = batch([0, 5, 10, 15], elite=[True, False, False, True])
    for elite, wanted in ((True, [0, 15]), (False, [0, 5, 10, 15])):
        made, net, other = ready(memory_elite=elite)
        step = step_of(made, net, other, clean, NOISY)
        assert step.notes["elite_pairs"] == len(wanted)
        assert kept(net, step)[2].tolist() == wanted


def test_what_an_analysis_hides_is_not_found() -> None:
    made = method(memory_size=20)
    net, other = network(made, 0), network(made, 1)
    fill(other, list(range(100, 108)))
    own_entries(net, other, NOISY)
    nothing = torch.full((3, 1), -1)
    hidden = {"image": (NOISY.groups, nothing), "text": (NOISY.groups, torch.tensor([[100], [101], [-1]]))}
    step = step_of(made, net, other, CLEAN, replace(NOISY, hidden=hidden))
    near_images, near_texts = found(step)
    assert not (near_images.groups == NOISY.groups[:, None]).any()
    assert not (near_texts.groups == NOISY.groups[:, None]).any()
    assert 100 not in near_texts.ids[0]
    assert 101 not in near_texts.ids[1]


def test_a_query_without_enough_neighbours_has_no_prototype() -> None:
    made = method(rectifier="mean", memory_exclude_self=True, memory_size=4)
    net, other = network(made, 0), network(made, 1)
    fill(other, [200, 201, 202, 203], [4, 1, 2, 3])  # image 4 is that of noisy pair 20
    few = method(rectifier="mean", memory_exclude_self=True, memory_size=4, num_neighbors=4)
    step = step_of(few, net, other, CLEAN, NOISY)
    assert float(step.notes["queries_without_prototype"]) == pytest.approx(1 / 3)
    assert step.losses["rect"].isfinite()
    t_hat, v_hat = prototypes(step)
    v, u = embed(net, NOISY)
    q_i2t, q_t2i = torch.softmax(t_hat @ u.T / 0.05, 1), torch.softmax(v_hat @ v.T / 0.05, 1)
    each = rectification_loss(v @ u.T, q_i2t, q_t2i, reduction="none")
    assert torch.allclose(step.losses["rect"], each[1:].mean(), rtol=1e-4)


@pytest.mark.parametrize(("ids", "groups"), [([200, 201, 202, 203], [4, 1, 2, 3]), ([20, 201, 202, 203], [9, 1, 2, 3])])
def test_one_side_without_enough_neighbours_is_enough_to_have_no_prototype(ids: list[int], groups: list[int]) -> None:
    """Of noisy pair 20 the memory holds image 4 with another caption, or the pair itself with another image."""
    made = method(memory_exclude_self=True, memory_size=4, num_neighbors=4)
    net, other = network(made, 0), network(made, 1)
    fill(other, ids, groups)
    step = step_of(made, net, other, CLEAN, NOISY)
    left_out = [~near.scores.isfinite().all(1) for near in found(step)]
    assert sorted(int(side.sum()) for side in left_out) == [0, 1]
    assert float(step.notes["queries_without_prototype"]) == pytest.approx(1 / 3)


def test_a_query_without_a_prototype_lends_none_to_the_others() -> None:
    made = method(rectifier="mean", rectification="prototype-contrast", memory_exclude_self=True, num_neighbors=4)
    net, other = network(made, 0), network(made, 1)
    fill(other, [200, 201, 202, 203], [4, 1, 2, 3])  # image 4 is that of noisy pair 20
    step = step_of(made, net, other, CLEAN, NOISY)
    t_hat, v_hat = prototypes(step)
    v, u = embed(net, NOISY)
    alone = prototype_contrast_loss(v[1:] @ t_hat[1:].T, u[1:] @ v_hat[1:].T)
    assert torch.allclose(step.losses["rect"], alone, rtol=1e-4)


def test_with_no_prototype_at_all_the_loss_is_zero() -> None:
    made = method(memory_exclude_self=True)
    net, other = network(made, 0), network(made, 1)
    fill(other, [200, 201, 202], [9, 9, 9])
    step = step_of(made, net, other, CLEAN, batch([45, 46]))
    assert step.losses["rect"].item() == 0
    step.losses["total"].backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in net.parameters())


# --- what is kept, what is ignored


def test_only_elite_pairs_are_kept() -> None:
    made, net, other = ready()
    clean = batch([0, 5, 10, 15], elite=[False, True, False, True])
    step = step_of(made, net, other, clean)
    v, u = embed(net, clean)
    images, texts, pairs, groups = kept(net, step)
    assert pairs.tolist() == [5, 15]
    assert groups.tolist() == [1, 3]
    assert torch.allclose(images, v[[1, 3]])
    assert torch.allclose(texts, u[[1, 3]])
    assert not images.requires_grad
    assert not texts.requires_grad


def test_pairs_of_one_image_are_no_negatives_where_that_is_asked_for() -> None:
    clean = batch([0, 1, 5, 10])  # pairs 0 and 1 share image 0
    ignore = torch.zeros(4, 4, dtype=torch.bool)
    ignore[0, 1] = ignore[1, 0] = True
    for asked, ignored in ((True, ignore), (False, None)):
        made, net, other = ready(mask_same_image=asked)
        losses = step_of(made, net, other, clean).losses
        v, u = embed(net, clean)
        assert torch.allclose(losses["inter"], triplet_loss(v @ u.T, ignore=ignored))
        assert torch.allclose(losses["intra_image"], triplet_loss(v @ v.T, ignore=ignored))
        assert torch.allclose(losses["intra_text"], triplet_loss(u @ u.T, ignore=ignored))
        warm = made.warmup()[1].step(net, clean).losses["sce"]
        assert torch.allclose(warm, sce_loss(v @ u.T, ignore=ignored))


def test_pairs_of_the_same_words_are_no_negatives_either() -> None:
    columns = {"elite": torch.ones(4).bool(), "words": torch.tensor([3, 4, 7, 4])}
    clean = replace(batch([0, 1, 5, 10]), columns=columns)  # pairs 0 and 1: one image; 1 and 3: words
    ignore = torch.zeros(4, 4, dtype=torch.bool)
    ignore[0, 1] = ignore[1, 0] = ignore[1, 3] = ignore[3, 1] = True
    made, net, other = ready(mask_same_image=True)
    v, u = embed(net, clean)
    losses = step_of(made, net, other, clean).losses
    assert torch.allclose(losses["inter"], triplet_loss(v @ u.T, ignore=ignore))


def test_memory_size() -> None:
    def size(pairs: int, **settings: object) -> int:
        memory = own(In2r(In2rConfig(**settings), PartitionConfig()), pairs).memory  # type: ignore[arg-type]
        assert memory is not None
        return memory.capacity

    assert size(1000) == 450
    assert size(11) == 5  # never fewer than K
    assert size(10**6) == 65536
    assert size(1000, memory_size=7) == 7
    assert size(1000, memory_share=2.0, memory_limit=10**6) == 2000


def test_phases() -> None:
    made = method(warmup_epochs=2)
    assert made.warmup()[0] == 2
    assert made.divides()
    assert [walk.name for walk in made.sets] == ["clean", "noisy"]


# --- the first division fills the memories


class Pairs:
    """Twenty training pairs of unit vectors, as a method sees them: pair k belongs to image k // 5."""

    device = torch.device("cpu")
    pairs = torch.arange(20)
    image_of_pair = torch.arange(20) // 5

    def __init__(self) -> None:
        draws = torch.Generator().manual_seed(1)
        self.vectors = [functional.normalize(torch.randn(20, DIM, generator=draws), dim=1) for _ in "vu"]

    def encode(self, net: Net, pairs: Tensor) -> tuple[Items, Items]:
        return Items(self.vectors[0][pairs]), Items(self.vectors[1][pairs])

    def same_words(self) -> None:
        return None


def filled(clean: int, **settings: object) -> list[int]:
    """Return the pairs in a memory, oldest first, that a first division with so many clean pairs has filled."""
    made = method(**settings)
    net, data = network(made, 0), Pairs()
    prob = torch.linspace(1, 0.5, 20)  # of the clean ones the first half is elite
    made.prefill(net, in_two(prob, torch.arange(20) < clean, data.pairs, 20), data, torch.Generator().manual_seed(0))
    images, texts, pairs, groups = net.own.memory.entries()
    assert torch.equal(images, data.vectors[0][pairs])
    assert torch.equal(texts, data.vectors[1][pairs])
    assert torch.equal(groups, pairs // 5)
    return [int(pair) for pair in pairs]


def test_the_first_division_fills_the_memory_with_elite_pairs() -> None:
    pairs = filled(16)
    assert sorted(pairs) == list(range(8))
    assert pairs != sorted(pairs)  # in a shuffled order
    assert sorted(filled(16, memory_elite=False, memory_size=20)) == list(range(16))
    assert filled(16, memory_size=4) == pairs[-4:]  # the newest of them
    assert filled(16, memory_prefill=False) == []


def test_only_an_empty_memory_is_filled_and_only_from_two_groups() -> None:
    made = method()
    net, data = network(made, 0), Pairs()
    one_group = in_two(torch.ones(20), torch.ones(20).bool(), data.pairs, 20, split=False)
    made.prefill(net, one_group, data, torch.Generator())
    assert len(net.own.memory) == 0
    fill(net, [50])
    made.prefill(net, made.trust(data.pairs, 20), data, torch.Generator())
    assert net.own.memory.entries()[2].tolist() == [50]


def test_each_network_trains_on_its_peers_verdict_and_fills_its_memory_from_it() -> None:
    made = method(memory_size=20)
    nets, data = {"A": network(made, 0), "B": network(made, 1)}, Pairs()
    low, high = torch.linspace(0, 0.1, 20), torch.linspace(5, 5.1, 20)
    first_half = torch.where(torch.arange(20) < 10, low, high)
    mismatched = dict.fromkeys(("sce", "triplet-mean"), high)
    seen = {"A": Seen(dict.fromkeys(mismatched, first_half), mismatched)}
    seen["B"] = Seen(dict.fromkeys(mismatched, first_half.flip(0)), mismatched)
    found = made.divide(seen, nets, data, Now(epoch=0, epochs=1, seed=0))
    assert (found["A"].judge, found["B"].judge) == ("B", "A")
    assert torch.nonzero(found["B"].sets == 0).flatten().tolist() == list(range(10))
    assert torch.nonzero(found["A"].sets == 0).flatten().tolist() == list(range(10, 20))
    for name, net in nets.items():
        elite = torch.nonzero(found[name].columns["elite"]).flatten().tolist()
        assert sorted(net.own.memory.entries()[2].tolist()) == elite


def test_equal_verdicts_fill_the_memories_in_different_orders() -> None:
    made = method(memory_size=20)
    nets, data = {"A": network(made, 0), "B": network(made, 1)}, Pairs()
    losses = dict.fromkeys(("sce", "triplet-mean"), torch.cat([torch.linspace(0, 0.1, 10), torch.linspace(5, 5.1, 10)]))
    seen = Seen(losses, {name: values[10:] for name, values in losses.items()})
    made.divide({"A": seen, "B": seen}, nets, data, Now(epoch=0, epochs=1, seed=0))
    first, second = (net.own.memory.entries()[2].tolist() for net in nets.values())
    assert first != second
    assert sorted(first) == sorted(second)


# --- per-sample losses, and the plain baselines


def test_per_sample_losses() -> None:
    torch.manual_seed(0)
    similarity = torch.rand(5, 5)
    losses = PairLosses(margin=0.3)(similarity)
    assert losses.keys() == {"sce", "triplet-mean"}
    assert float(losses["sce"].mean()) == pytest.approx(float(sce_loss(similarity)))
    row, column = (
        (0.3 + similarity[2] - similarity[2, 2]).clamp(0),
        (0.3 + similarity[:, 2] - similarity[2, 2]).clamp(0),
    )
    assert float(losses["triplet-mean"][2]) == pytest.approx(float((row.sum() + column.sum() - 0.6) / 5))


class Bounded(Backbone):
    """The given backbone's encoders; a pair's logit is four times its cosine, and S the sigmoid of it."""

    bounded = True

    def __init__(self, inner: Backbone) -> None:
        super().__init__()
        self.inner, self.dim = inner, inner.dim

    def encode_images(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return self.inner.encode_images(values, mask)

    def encode_texts(self, values: Tensor, mask: Tensor | None = None, batches: object = None) -> Items:
        return self.inner.encode_texts(values, mask)

    def logits(self, images: Items, texts: Items) -> Tensor:
        return 4 * images.vector @ texts.vector.T


def test_a_temperature_divides_the_value_before_the_sigmoid_and_a_hinge_compares_what_comes_after_it() -> None:
    made, net, other = ready(lambda_intra=0.0)
    net.backbone = Bounded(net.backbone)
    v, u = embed(net, CLEAN)
    logits = 4 * v @ u.T
    assert made.warmup()[1].step(net, CLEAN).losses["sce"].item() == pytest.approx(sce_loss(logits, 0.05).item())
    [(images, texts)] = net.encode(CLEAN)
    seen = made.observe(net, images, texts, CLEAN.pairs)
    torch.testing.assert_close(seen["sce"], sce_loss(logits, 0.05, reduction="none"))
    wanted = triplet_loss(logits.sigmoid(), 0.2, negatives="mean", reduction="none")
    torch.testing.assert_close(seen["triplet-mean"], wanted)
    step = step_of(made, net, other, CLEAN, NOISY)
    assert step.losses["inter"].item() == pytest.approx(triplet_loss(logits.sigmoid(), 0.2).item())
    v, u = embed(net, NOISY)
    near_images, near_texts = found(step)
    t_hat, v_hat = made._prototypes(net, near_images.texts, near_texts.images)
    q_i2t, q_t2i = soft_target(t_hat, u, 0.05), soft_target(v_hat, v, 0.05)
    wanted = rectification_loss(4 * v @ u.T, q_i2t, q_t2i, 0.05)
    assert step.losses["rect"].item() == pytest.approx(wanted.item())


def test_pairs_are_observed_by_the_losses_that_the_run_is_trained_with() -> None:
    numbers = {"ce_weight": 0.7, "rce_weight": 1.3, "epsilon": 1e-3}
    made = method(margin=0.3, warmup_temperature=0.1, **numbers)
    net = network(made, 0)
    [(images, texts)] = net.encode(CLEAN)
    seen = made.observe(net, images, texts, CLEAN.pairs)
    similarity = images.vector @ texts.vector.T
    torch.testing.assert_close(seen["sce"], sce_loss(similarity, 0.1, 0.7, 1.3, 1e-3, reduction="none"))
    wanted = triplet_loss(similarity, 0.3, negatives="mean", reduction="none")
    torch.testing.assert_close(seen["triplet-mean"], wanted)


def test_the_two_losses_have_in2rs_numbers_where_none_are_given() -> None:
    net = network(method(), 0)
    [(images, texts)] = net.encode(CLEAN)
    usual = In2r(In2rConfig(), PartitionConfig()).observe(net, images, texts, CLEAN.pairs)
    torch.testing.assert_close(PairLosses()(images.vector @ texts.vector.T), dict(usual))


def test_plain_triplet_begins_with_the_mean_over_all_negatives() -> None:
    made = build_method(TripletConfig(warmup_epochs=2, margin=0.4), PartitionConfig())
    assert isinstance(made, Triplet)
    net = network(method(rectifier="none"), 0)
    v, u = embed(net, CLEAN)
    epochs, first = made.warmup()
    assert epochs == 2
    [later] = made.steps(net, net, {"all": CLEAN}, Now(0, 1, 0, "A"))
    for step, negatives in ((first.step(net, CLEAN), "mean"), (later, "hardest")):
        assert torch.allclose(step.losses["total"], triplet_loss(v @ u.T, 0.4, negatives))  # type: ignore[arg-type]
    assert not made.divides()


def test_plain_sce_is_the_warm_up_loss() -> None:
    made = build_method(SceConfig(), PartitionConfig())
    assert isinstance(made, Sce)
    warm, net, _ = ready()
    [step] = made.steps(net, net, {"all": CLEAN}, Now(7, 9, 0, "A"))
    loss = step.losses["total"]
    assert torch.equal(loss, warm.warmup()[1].step(net, CLEAN).losses["total"])
    assert not made.divides()


@pytest.mark.parametrize(("size", "pairs"), [(4, 100), (None, 4), (8, 4)])
def test_more_neighbors_than_the_memory_can_ever_hold_are_refused(size: int | None, pairs: int) -> None:
    said = rf"`method\.num_neighbors` \(5\) must be at most `method\.memory_size` .* training pairs \({pairs}\)"
    with pytest.raises(InputError, match=said):
        own(method(num_neighbors=5, memory_size=size), pairs)
    own(method(num_neighbors=5, memory_size=size, rectifier="none"), pairs)
    own(method(num_neighbors=4, memory_size=size), pairs)
