"""A GRU over sequences of several lengths: bidirectional with its two directions averaged, or forward only.

On CUDA the bidirectional one is `nn.GRU`, that is cuDNN. On the CPU `nn.GRU` computes and adds up weight gradients once
per time step; here those of all steps are one product.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from in2r.transfer import full_precision, send


class Packing(NamedTuple):
    """Where the n valid entries of (B, L) sequences stand when all first entries come first, longest sequence first."""

    entries: Tensor  # (n,) int64: b * L + t of each valid entry, batch-major (ascending)
    first: Tensor  # (n,) int64: the same in packed order, time-major
    sizes: Tensor  # (steps,) int64 on the CPU, how many sequences are longer than t; never rising
    order: Tensor  # (n,) int64: packed place of each entry of `entries`
    mirrored: Tensor  # (n,) int64: packed place of the entry as far from the sequence's end; its own inverse


def pack(mask: Tensor) -> Packing:
    """Plan the recurrence over sequences whose valid entries lead.

    Args:
        mask: (B, L) bool on the CPU, True = valid.
    """
    lengths = mask.sum(1)
    longest_first = lengths.argsort(descending=True, stable=True)
    time, rank = mask[longest_first].T.nonzero(as_tuple=True)
    first = longest_first[rank] * mask.shape[1] + time
    sizes = mask.sum(0)
    sizes = sizes[sizes > 0]
    begin = sizes.cumsum(0) - sizes
    entries, order = first.sort()
    mirrored = begin[lengths[longest_first][rank] - 1 - time] + rank
    return Packing(entries, first, sizes, order, mirrored)


def bi_gru(gru: nn.GRU, values: Tensor, packing: Packing) -> Tensor:
    """Run a bidirectional GRU of one layer.

    Args:
        gru: its weights.
        values: (n, in), the valid entries in the order of `packing.first`.
        packing: the plan.

    Returns:
        (n, H), the mean of both directions' states, in the order of `packing.entries`.
    """
    if not len(values):
        return values.sum() * values.new_zeros(0, gru.hidden_size)  # with a gradient, if of nothing
    if values.device.type != "cpu":
        with full_precision(values.device):  # autocast would take float16 here, whatever it was asked for
            states = gru(PackedSequence(values.to(next(gru.parameters()).dtype), packing.sizes))[0].data
        return torch.stack(states.chunk(2, dim=1)).mean(0).index_select(0, send(packing.order, values.device))
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = [getattr(gru, name + direction) for direction in ("", "_reverse") for name in names]
    averaged: Tensor = _BiGru.apply(values, packing.sizes.tolist(), packing.order, packing.mirrored, *weights)  # type: ignore[no-untyped-call]
    return averaged


def forward_gru(gru: nn.GRU, values: Tensor, packing: Packing) -> Tensor:
    """Run a GRU of one layer and one direction; arguments and order as in `bi_gru` → states (n, H)."""
    with full_precision(values.device):
        states: Tensor = gru(PackedSequence(values.to(next(gru.parameters()).dtype), packing.sizes))[0].data
    return states.index_select(0, send(packing.order, values.device))


class _BiGru(torch.autograd.Function):
    """h_t = (1 - z) n + z h_{t-1} with r, z = σ(x W + h U), n = tanh(x W + r (h U)); biases left out."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any, values: Tensor, sizes: list[int], order: Tensor, mirrored: Tensor, *weights: Tensor
    ) -> Tensor:
        forth = _run(values, sizes, weights[:4])
        back = _run(values.index_select(0, mirrored), sizes, weights[4:])
        ctx.sizes = sizes
        ctx.save_for_backward(values, order, mirrored, *weights, *forth, *back)
        mean = forth[0].index_select(0, order)
        return mean.add_(back[0].index_select(0, mirrored[order])).mul_(0.5)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, order, mirrored, *rest = ctx.saved_tensors
        weights, states = rest[:8], rest[8:]
        packed = torch.empty_like(grad).index_copy_(0, order, grad * 0.5)
        into, *forth = _run_back(packed, values, ctx.sizes, weights[:4], states[:3])
        packed, turned = packed.index_select(0, mirrored), values.index_select(0, mirrored)
        from_back, *back = _run_back(packed, turned, ctx.sizes, weights[4:], states[3:])
        return into.add_(from_back.index_select(0, mirrored)), None, None, None, *forth, *back


def _run(values: Tensor, sizes: list[int], weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (n, H); gates reset, update, new (n, 3H); and what the reset gate lets through, h U (n, H)."""
    w_ih, w_hh, b_ih, b_hh = weights
    hidden = w_hh.shape[1]
    gates = torch.addmm(b_ih, values, w_ih.T)
    states, gated = (gates.new_empty(len(values), hidden) for _ in range(2))
    previous = gates.new_zeros(sizes[0] if sizes else 0, hidden)
    for now in _steps(sizes):
        previous = previous[: now.stop - now.start]
        # the first state is zero: nothing to multiply
        recurrent = torch.addmm(b_hh, previous, w_hh.T) if now.start else b_hh.expand(len(previous), -1)
        both, new = gates[now, : 2 * hidden], gates[now, 2 * hidden :]
        reset, update = both.add_(recurrent[:, : 2 * hidden]).sigmoid_().chunk(2, dim=1)
        new.addcmul_(reset, gated[now].copy_(recurrent[:, 2 * hidden :])).tanh_()
        previous = torch.lerp(new, previous, update, out=states[now])
    return states, gates, gated


def _run_back(
    grad: Tensor, values: Tensor, sizes: list[int], weights: Sequence[Tensor], saved: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of `values` and of the four weights, given the states' own gradient (n, H)."""
    w_ih, w_hh = weights[:2]
    states, gates, gated = saved
    hidden = states.shape[1]
    reset, update, new = torch.split(gates, hidden, dim=1)
    steps = _steps(sizes)
    # the state one step earlier; none of the first step's
    earlier = [states[last.start : last.start + now.stop - now.start] for last, now in pairwise(steps)]
    before = torch.cat([torch.zeros_like(states[steps[0]]), *earlier])
    kept = 1 - update
    to_new = new.square().neg_().add_(1).mul_(kept)
    recurrent = gates.new_empty(len(gates), 3, hidden)  # at h U: first its slopes, then times the states' gradients
    to_reset, to_update, through = recurrent.unbind(1)
    torch.mul(to_new, reset, out=through)
    torch.mul(through, gated, out=to_reset).mul_(1 - reset)
    torch.sub(before, new, out=to_update).mul_(update).mul_(kept)
    total = grad.clone()  # of each state, once the later steps have added theirs
    later: slice | None = None
    for now in reversed(steps):
        if later is not None:
            reached = total[now][: later.stop - later.start]
            reached.addcmul_(total[later], update[later]).addmm_(recurrent[later].flatten(1), w_hh)
        recurrent[now].mul_(total[now, None])
        later = now
    at = recurrent.flatten(1)
    rest = slice(steps[0].stop, None)
    to_w_hh, to_b_hh = at[rest].T @ before[rest], at.sum(0)
    at[:, 2 * hidden :] = total * to_new  # at x W: the reset gate is behind it
    return at @ w_ih, at.T @ values, to_w_hh, at.sum(0), to_b_hh


def _steps(sizes: list[int]) -> list[slice]:
    """Return where each time step lies."""
    return [slice(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True)]
