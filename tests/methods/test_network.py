"""One pass over several batches is what one pass for each would be; a step never waits for the device."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from in2r.methods import Batch, Peer
from in2r.methods.in2r import In2r, In2rConfig
from in2r.models.build import Inputs, ModelConfig, build_encoder
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
        elite=torch.arange(0, size, 2),
    )


def peer(method: In2r, dropout: float = 0.0, vectors: bool = False, center: bool = False) -> Peer:
    torch.manual_seed(0)
    config = ModelConfig(dim=8, word_dim=7, image_dropout=dropout, text_dropout=dropout, center=center)
    inputs = Inputs(5, "vectors", 4) if vectors else Inputs(5, "words", WORDS)
    return Peer(build_encoder(config, inputs), *method.parts(8))


@pytest.mark.parametrize(
    ("vectors", "center", "masked"),
    [(False, False, (True, True)), (False, True, (True, False)), (True, True, (False,) * 2)],
)
def test_one_pass_is_several_passes(vectors: bool, center: bool, masked: tuple[bool, bool]) -> None:
    method = In2r(In2rConfig(memory_size=20), 60)
    exact = torch.float64
    first = batch(6, 1, masked=masked[0], vectors=vectors, dtype=exact)
    second = batch(4, 2, regions=4, masked=masked[1], vectors=vectors, dtype=exact)
    together = peer(method, center=center, vectors=vectors).to(exact)
    apart = copy.deepcopy(together)
    found = together.embed_each(first, first, second)
    wanted = [apart.embed(one) for one in (first, first, second)]
    for (v, u), (v_alone, u_alone) in zip(found, wanted, strict=True):
        torch.testing.assert_close(v, v_alone)
        torch.testing.assert_close(u, u_alone)
    torch.testing.assert_close(together.state_dict(), apart.state_dict())  # the running statistics too
    weight = torch.randn(8, dtype=exact)
    gradients = []
    for embedded, net in ((found, together), (wanted, apart)):
        loss = torch.stack([(v @ weight).sum() + (u @ weight).square().sum() for v, u in embedded]).sum()
        gradients.append(torch.autograd.grad(loss, list(net.encoder.parameters()), allow_unused=True))
    torch.testing.assert_close(*gradients)


def test_the_two_views_of_a_batch_differ_by_dropout_alone() -> None:
    method = In2r(In2rConfig(memory_size=20), 60)
    given = batch(6, 1)
    (v, u), (v_drop, u_drop) = peer(method, dropout=0.5).embed_each(given, given)
    assert (v - v_drop).abs().max() > 0.01
    assert (u - u_drop).abs().max() > 0.01
    (v, u), (v_drop, u_drop) = peer(method).embed_each(given, given)
    torch.testing.assert_close((v, u), (v_drop, u_drop))


def on_meta(given: Batch) -> Batch:
    """Put the values where nothing can be read: whoever asks for a number there fails."""
    values = {name: getattr(given, name).to("meta") for name in ("pairs", "groups", "images", "texts", "elite")}
    return replace(given, **values)


@pytest.mark.parametrize("settings", [{}, {"memory_exclude_self": True}, {"refiner": "gcn"}, {"rectifier": "none"}])
def test_a_step_never_waits_for_the_device(settings: dict[str, object]) -> None:
    method = In2r(In2rConfig(memory_size=20, **settings), 60)  # type: ignore[arg-type]
    net = peer(method)
    if net.memory is not None:
        entries = torch.nn.functional.normalize(torch.randn(12, 8))
        net.memory.push(entries, entries, torch.arange(12), torch.arange(12))
    net = net.to("meta")
    clean, noisy = on_meta(batch(6, 1)), on_meta(batch(6, 2))
    step = method.partition_step(net, net, clean, noisy)
    step.losses["total"].backward()  # type: ignore[no-untyped-call]
    record_step(Means(), "A", step, noisy, None)
    assert step.losses["total"].device.type == "meta"
    assert ("rect" in step.losses) == (net.memory is not None)
    if step.keep is not None and net.memory is not None:
        net.memory.push(*step.keep)
        assert len(net.memory) == 15
    with pytest.raises((RuntimeError, NotImplementedError)):  # so a look at a value is a failure here
        bool(step.losses["total"] > 0)


def test_a_warm_up_step_never_waits_either() -> None:
    method = In2r(In2rConfig(memory_size=20), 60)
    step = method.all_pairs_step(peer(method).to("meta"), on_meta(batch(6, 1)), 0)
    step.losses["total"].backward()  # type: ignore[no-untyped-call]
    assert isinstance(step.losses["sce"], Tensor)


def test_bf16_products_leave_embeddings_and_losses_in_float32() -> None:
    method = In2r(In2rConfig(memory_size=20), 60)
    net, exact = peer(method, dropout=0.3), peer(method, dropout=0.3)
    for one in (net, exact):
        entries = torch.nn.functional.normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(5)))
        one.memory.push(entries, entries, torch.arange(12), torch.arange(12))  # type: ignore[union-attr]
    net.encoder.precision = torch.bfloat16
    steps = []
    for one in (net, exact):
        torch.manual_seed(3)
        step = method.partition_step(one, one, batch(12, 1), batch(12, 2))
        step.losses["total"].backward()  # type: ignore[no-untyped-call]
        steps.append(step)
    low, high = (step.losses for step in steps)
    assert all(loss.dtype == torch.float32 for loss in low.values())
    assert all(a.dtype == torch.float32 for a in net.embed(batch(6, 1)))
    torch.testing.assert_close(low, high, rtol=0.05, atol=0.05)
    assert not torch.equal(low["total"], high["total"])
    assert all(p.grad is None or (p.grad.dtype == torch.float32 and p.grad.isfinite().all()) for p in net.parameters())
    (v, u), (v_drop, u_drop) = net.embed_each(batch(6, 1), batch(6, 1))
    assert min((v - v_drop).abs().max(), (u - u_drop).abs().max()) > 0.01
