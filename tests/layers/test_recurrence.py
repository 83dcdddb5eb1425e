import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from in2r.layers.recurrence import bi_gru, pack


def made(inputs: int = 3, hidden: int = 4, dtype: torch.dtype = torch.float64) -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(inputs, hidden, batch_first=True, bidirectional=True).to(dtype)


def leading(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def ours(gru: nn.GRU, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    packing = pack(mask)
    return bi_gru(gru, values.flatten(0, 1)[packing.first], packing)


def pytorchs(gru: nn.GRU, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's own packing and recurrence; sequences must not be empty."""
    packed = pack_padded_sequence(values, mask.sum(1), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=values.shape[1])
    forth, back = states.chunk(2, dim=2)
    return ((forth + back) / 2)[mask]


def test_packing_by_hand():
    packing = pack(leading([2, 3, 1]))  # places: 0 1 . | 3 4 5 | 6 . .
    assert packing.entries.tolist() == [0, 1, 3, 4, 5, 6]
    assert packing.first.tolist() == [3, 0, 6, 4, 1, 5]  # first entries, longest sequence first, then second ones
    assert packing.sizes.tolist() == [3, 2, 1]
    assert packing.first[packing.order].tolist() == packing.entries.tolist()
    assert packing.first[packing.mirrored].tolist() == [5, 1, 6, 4, 0, 3]


def test_one_step_by_hand():
    gru = nn.GRU(1, 1, bidirectional=True)
    for weight in gru.parameters():
        nn.init.zeros_(weight)
    with torch.no_grad():
        gru.weight_ih_l0[2] = 2.0  # forth: new state tanh(2 x), gates one half
        gru.bias_hh_l0_reverse[2] = 1.0  # back: new state tanh(½ · 1)
    found = ours(gru, torch.tensor([[[0.5]]]), leading([1]))
    expected = 0.25 * (torch.tensor(1.0).tanh() + torch.tensor(0.5).tanh())
    torch.testing.assert_close(found, expected.view(1, 1))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_states_and_gradients_are_pytorchs(lengths):
    gru, mask = made(), leading(lengths)
    values = torch.randn(*mask.shape, 3, dtype=torch.float64, requires_grad=True)
    states = ours(gru, values, mask), pytorchs(gru, values, mask)
    torch.testing.assert_close(*states)
    weight = torch.randn_like(states[0])
    gradients = [torch.autograd.grad((one * weight).sum(), [values, *gru.parameters()]) for one in states]
    torch.testing.assert_close(*gradients)


def test_gradients_by_finite_differences():
    gru, mask = made(2, 2), leading([3, 1, 2])
    values = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given, *weights: ours(gru, given, mask), (values, *gru.parameters()))


def test_float32_stays_within_rounding_and_can_be_asked_twice():
    gru, mask = made(30, 20, torch.float32), leading([9, 4, 7, 7, 1])
    values = torch.randn(5, 9, 30)
    states = ours(gru, values, mask)
    torch.testing.assert_close(states, pytorchs(gru, values, mask), rtol=1e-5, atol=1e-6)
    weights = list(gru.parameters())
    first, second = (torch.autograd.grad(states.square().sum(), weights, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_sequence_does_not_depend_on_the_others():
    gru = made()
    values = torch.randn(3, 5, 3, dtype=torch.float64)
    alone = ours(gru, values[1:2, :4], leading([4]))
    among = ours(gru, values, leading([5, 4, 2]))
    torch.testing.assert_close(among[5:9], alone)


def test_empty_sequences_take_no_place():
    gru = made()
    values = torch.randn(3, 2, 3, dtype=torch.float64)
    mask = torch.tensor([[False, False], [True, True], [False, False]])
    torch.testing.assert_close(ours(gru, values, mask), ours(gru, values[1:2], mask[1:2]))
    nothing = ours(gru, values.requires_grad_(), torch.zeros_like(mask))
    assert nothing.shape == (0, 4)
    assert torch.autograd.grad(nothing.sum(), values)[0].count_nonzero() == 0


def test_autocast_keeps_the_recurrence_in_float32():
    gru, mask = made(dtype=torch.float32), leading([3, 2])
    values = torch.randn(2, 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ours(gru, values, mask)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, ours(gru, values, mask))
