"""One pass over several batches is what one pass for each would be; a step never waits for the device."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from in2r.methods import Batch, Net, Now, PartitionConfig, Step
from in2r.methods.in2r import In2r, In2rConfig
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.training.health import Means, record_step

WORDS = 30


def batch(
    size: int,
    seed: int,
    regions: int = 6,
    masked: bool = True,
    vectors: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 9, (size,), generator=draw)
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    kept = torch.rand(size, regions, generator=draw) < 0.7
    kept[:, 0] = True
    ids = torch.randint(1, WORDS, mask.shape, generator=draw) * mask
    return Batch(
        pairs=torch.arange(size),
        groups=torch.arange(size),
        images=torch.randn(size, regions, 5, generator=draw, dtype=dtype),
        image_mask=kept if masked else None,
        texts=torch.randn(size, 1, 4, generator=draw, dtype=dtype) if vectors else ids,
        text_mask=None if vectors else mask,
        columns={"elite": torch.arange(size) % 2 == 0},
    )


def network(method: In2r, dropout: float = 0.0, vectors: bool = False, center: bool = False) -> Net:
    torch.manual_seed(0)
    config = ModelConfig(dim=8, word_dim=7, image_dropout=dropout, text_dropout=dropout, center=center)
    inputs = Inputs(5, "vectors", 4) if vectors else Inputs(5, "words", WORDS)
    return Net(build_backbone(config, inputs), method.own(8, 60, 6))


def embed(net: Net, *batches: Batch) -> list[tuple[Tensor, Tensor]]:
    return [(images.vector, texts.vector) for images, texts in net.encode(*batches)]


def in2r(**settings: object) -> In2r:
    return In2r(In2rConfig(memory_size=20, **settings), PartitionConfig())  # type: ignore[arg-type]


def step_of(method: In2r, net: Net, clean: Batch, noisy: Batch) -> Step:
    [step] = method.steps(net, net, {"clean": clean, "noisy": noisy}, Now(epoch=0, epochs=1, seed=0, name="A"))
    return step


@pytest.mark.parametrize(
    ("vectors", "center", "masked"),
    [(False, False, (True, True)), (False, True, (True, False)), (True, True, (False,) * 2)],
)
def test_one_pass_is_several_passes(vectors: bool, center: bool, masked: tuple[bool, bool]) -> None:
    method = in2r()
    exact = torch.float64
    first = batch(6, 1, masked=masked[0], vectors=vectors, dtype=exact)
    second = batch(4, 2, regions=4, masked=masked[1], vectors=vectors, dtype=exact)
    together = network(method, center=center, vectors=vectors).to(exact)
    apart = copy.deepcopy(together)
    found = embed(together, first, first, second)
    wanted = [embed(apart, one)[0] for one in (first, first, second)]
    for (v, u), (v_alone, u_alone) in zip(found, wanted, strict=True):
        torch.testing.assert_close(v, v_alone)
        torch.testing.assert_close(u, u_alone)
    torch.testing.assert_close(together.state_dict(), apart.state_dict())  # the running statistics too
    weight = torch.randn(8, dtype=exact)
    gradients = []
    for embedded, net in ((found, together), (wanted, apart)):
        loss = torch.stack([(v @ weight).sum() + (u @ weight).square().sum() for v, u in embedded]).sum()
        gradients.append(torch.autograd.grad(loss, list(net.backbone.parameters()), allow_unused=True))
    torch.testing.assert_close(*gradients)


def test_the_two_views_of_a_batch_differ_by_dropout_alone() -> None:
    method = in2r()
    given = batch(6, 1)
    (v, u), (v_drop, u_drop) = embed(network(method, dropout=0.5), given, given)
    assert (v - v_drop).abs().max() > 0.01
    assert (u - u_drop).abs().max() > 0.01
    (v, u), (v_drop, u_drop) = embed(network(method), given, given)
    torch.testing.assert_close((v, u), (v_drop, u_drop))


def on_meta(given: Batch) -> Batch:
    """Put the values, not masks and columns, where nothing can be read: whoever asks for a number there fails."""
    values = {name: getattr(given, name).to("meta") for name in ("pairs", "groups", "images", "texts")}
    return replace(given, **values)


@pytest.mark.parametrize("settings", [{}, {"memory_exclude_self": True}, {"refiner": "gcn"}, {"rectifier": "none"}])
def test_a_step_never_waits_for_the_device(settings: dict[str, object]) -> None:
    method = in2r(**settings)
    net = network(method)
    memory = net.own.memory
    if memory is not None:
        entries = torch.nn.functional.normalize(torch.randn(12, 8))
        memory.push(entries, entries, torch.arange(12), torch.arange(12))
    net = net.to("meta")
    clean, noisy = on_meta(batch(6, 1)), on_meta(batch(6, 2))
    step = step_of(method, net, clean, noisy)
    step.losses["total"].backward()  # type: ignore[no-untyped-call]
    record_step(Means(), "A", step, None)
    assert step.losses["total"].device.type == "meta"
    assert ("rect" in step.losses) == (memory is not None)
    step.after()
    if memory is not None:
        assert len(memory) == 15
    with pytest.raises((RuntimeError, NotImplementedError)):  # so a look at a value is a failure here
        bool(step.losses["total"] > 0)


def test_a_warm_up_step_never_waits_either() -> None:
    method = in2r()
    step = method.warmup()[1].step(network(method).to("meta"), on_meta(batch(6, 1)))
    step.losses["total"].backward()  # type: ignore[no-untyped-call]
    assert isinstance(step.losses["sce"], Tensor)


def test_bf16_products_leave_embeddings_and_losses_in_float32() -> None:
    method = in2r()
    net, exact = network(method, dropout=0.3), network(method, dropout=0.3)
    for one in (net, exact):
        entries = torch.nn.functional.normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(5)))
        one.own.memory.push(entries, entries, torch.arange(12), torch.arange(12))
    net.backbone.precision = torch.bfloat16
    steps = []
    for one in (net, exact):
        torch.manual_seed(3)
        step = step_of(method, one, batch(12, 1), batch(12, 2))
        step.losses["total"].backward()  # type: ignore[no-untyped-call]
        steps.append(step)
    low, high = (step.losses for step in steps)
    assert all(loss.dtype == torch.float32 for loss in low.values())
    assert all(a.dtype == torch.float32 for a in embed(net, batch(6, 1))[0])
    torch.testing.assert_close(low, high, rtol=0.05, atol=0.05)
    assert not torch.equal(low["total"], high["total"])
    assert all(p.grad is None or (p.grad.dtype == torch.float32 and p.grad.isfinite().all()) for p in net.parameters())
    (v, u), (v_drop, u_drop) = embed(net, batch(6, 1), batch(6, 1))
    assert min((v - v_drop).abs().max(), (u - u_drop).abs().max()) > 0.01


def test_what_a_network_encodes_and_scores_is_counted() -> None:
    """Two views of 6 pairs and 4 others: 16 images and 16 texts; 6 x 4 similarities."""
    net = network(in2r())
    first, _, second = net.encode(batch(6, 1), batch(6, 1), batch(4, 2))
    net.score(first[0], second[1])
    with torch.no_grad():
        [(images, texts)] = net.encode(batch(4, 2))
        net.score(images, texts)
    assert net.cost.record() == {
        "encoded": 32, "encoded_without_gradient": 8, "scored": 24, "scored_without_gradient": 16,
        "steps": 0, "passes": 0,
    }  # fmt: skip
