import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from in2r.layers.pooling import GPO, _sort

REFERENCE = {k: torch.from_numpy(v) for k, v in np.load(Path(__file__).parents[1] / "arrays" / "gpo.npz").items()}


@pytest.fixture(scope="module")
def gpo():
    module = GPO()
    prefix = "gpo.param."
    module.load_state_dict({k[len(prefix) :]: v for k, v in REFERENCE.items() if k.startswith(prefix)})
    return module


def test_equals_the_reference(gpo):
    pooled, weights = gpo(REFERENCE["gpo.in.features"], REFERENCE["gpo.in.lengths"])
    torch.testing.assert_close(pooled, REFERENCE["gpo.out.pooled"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights, REFERENCE["gpo.out.weights"], rtol=1e-5, atol=1e-6)


def test_by_hand(gpo):
    features = torch.tensor([[[1.0, 8.0], [5.0, -4.0], [9.0, 0.0]], [[2.0, -1.0], [7.0, 7.0], [6.0, -5.0]]])
    pooled = gpo.pool(features, torch.tensor([[True, True, True], [True, False, True]]))
    three, two = gpo.set_weights(3)[0], gpo.set_weights(2)[0]
    falling = [torch.tensor([[9.0, 5.0, 1.0], [8.0, 0.0, -4.0]]), torch.tensor([[6.0, 2.0], [-1.0, -5.0]])]
    torch.testing.assert_close(pooled, torch.stack([falling[0] @ three, falling[1] @ two]))


def test_weights_sum_to_one_over_the_valid_positions(gpo):
    mask = torch.arange(9) < torch.tensor([3, 9, 1, 3, 6])[:, None]
    weights = gpo.set_weights(9, mask)
    torch.testing.assert_close(weights.sum(1), torch.ones(5))
    assert torch.equal(weights > 0, mask)


def test_weights_of_a_set_do_not_depend_on_the_others(gpo):
    mask = torch.arange(9) < torch.tensor([3, 9, 1, 3, 6])[:, None]
    weights = gpo.set_weights(9, mask)
    for row, size in zip(weights, mask.sum(1).tolist(), strict=True):
        torch.testing.assert_close(row[:size], gpo.set_weights(size)[0])


def test_weights_are_computed_once_per_size_that_occurs(gpo):
    """Not for each set, nor for all sizes up to 577, whose recurrence alone would take a minute."""
    sizes = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            sizes.extend(
                part.numel()
                for part in (result if isinstance(result, tuple) else (result,))
                if isinstance(part, torch.Tensor)
            )
            return result

    mask = torch.arange(577) < torch.tensor([40, 577, 0, 5]).repeat(150)[:, None]
    with Spy():
        weights = gpo.set_weights(577, mask)
    assert max(sizes) == weights.numel() == 600 * 577  # nothing larger than what is asked for


@given(
    mask=st.lists(st.lists(st.booleans(), min_size=5, max_size=5).filter(any), min_size=1, max_size=6),
    padding=st.sampled_from([0.0, 1e6, -1e6, float("inf"), float("nan")]),
    seed=st.integers(0, 99),
)
def test_any_mask_equals_the_compacted_set(gpo, mask, padding, seed):
    mask = torch.tensor(mask)
    features = torch.randn(len(mask), 5, 3, generator=torch.Generator().manual_seed(seed))
    scale = torch.tensor([1.0, 1e2, 1e5])  # no value may fall below what padding is filled with
    features *= scale
    pooled = gpo.pool(features.masked_fill(~mask[..., None], padding), mask)
    for row, keep, result in zip(features, mask, pooled, strict=True):
        alone, _ = gpo(row[keep][None])
        torch.testing.assert_close(result / scale, alone[0] / scale, rtol=1e-5, atol=1e-6)


FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.lists(FLOATS, min_size=5, max_size=5), min_size=1, max_size=4))
def test_sorting_by_doubles_is_exact(values):
    columns = torch.tensor(values).view(1, -1, 5)
    rising, place = _sort(columns)
    assert torch.equal(rising, columns.sort(dim=-1).values)
    assert torch.equal(columns.gather(-1, place), rising)
    assert torch.equal(place.sort(dim=-1).values, torch.arange(5).expand_as(place))


def test_zeros_keep_their_places_where_subnormal_numbers_are_flushed():
    able = torch.set_flush_denormal(True)
    try:
        rising, place = _sort(torch.tensor([0.0, -0.0, 1.0, 0.0, -1.0, 0.0]).repeat(1, 40, 6))
    finally:
        torch.set_flush_denormal(False)
    assert able or sys.platform == "darwin"
    assert torch.equal(place.sort(dim=-1).values, torch.arange(36).expand_as(place))
    assert rising[0, 0].tolist() == [-1.0] * 6 + [0.0] * 24 + [1.0] * 6


def test_autocast_reaches_no_pooling(gpo):
    features = REFERENCE["gpo.in.features"]
    wanted = gpo.pool(features)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(gpo.pool(features), wanted)
        with torch.no_grad():
            torch.testing.assert_close(gpo.pool(features), wanted, rtol=1e-6, atol=1e-6)


def test_gradients_are_those_of_double_precision(gpo):
    features = torch.randn(4, 9, 6, generator=torch.Generator().manual_seed(2)).sub_(0.5)
    mask = torch.arange(9) < torch.tensor([9, 5, 1, 7])[:, None]
    double = copy.deepcopy(gpo).double()
    gradients = []
    for module, values in ((gpo, features.clone()), (double, features.double())):
        values.requires_grad_()
        found = module.pool(values, mask).square().sum()
        gradients.append([g.float() for g in torch.autograd.grad(found, [values, module.linear.weight])])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@given(
    mask=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_without_gradients_it_pools_the_same(gpo, mask, seed):
    mask = torch.tensor(mask)
    features = torch.randn(len(mask), 7, 3, generator=torch.Generator().manual_seed(seed)).round(decimals=1)  # ties
    with torch.no_grad():
        found = gpo.pool(features, mask)
    assert not found.requires_grad
    torch.testing.assert_close(found, gpo.pool(features, mask), rtol=1e-5, atol=1e-6)


def test_order_of_the_set_is_irrelevant(gpo):
    features = REFERENCE["gpo.in.features"]
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    assert torch.equal(gpo.pool(features[:, order]), gpo.pool(features))


def test_one_entry_pools_to_itself(gpo):
    features = REFERENCE["gpo.in.features"][:, :1]
    assert torch.equal(gpo.pool(features), features[:, 0])
    torch.testing.assert_close(gpo(features)[0], features[:, 0])
    masked = gpo.pool(features, torch.tensor([[True], [False], [True], [True], [True]]))
    assert torch.equal(masked[0], features[0, 0])
    assert masked[1].eq(0).all()


def test_an_empty_set_pools_to_zero(gpo):
    pooled = gpo.pool(REFERENCE["gpo.in.features"][:2], torch.tensor([[False] * 9, [True] * 9]))
    assert pooled[0].eq(0).all()
    assert pooled[1].ne(0).all()


def test_gradients_are_finite_and_do_not_reach_padding(gpo):
    features = REFERENCE["gpo.in.features"].clone().requires_grad_()
    mask = torch.arange(9) < REFERENCE["gpo.in.lengths"][:, None]
    gpo.zero_grad()
    gpo.pool(features, mask).square().sum().backward()
    assert torch.equal(features.grad.ne(0).any(-1), mask)
    assert all(p.grad.isfinite().all() and p.grad.ne(0).any() for p in gpo.parameters())


def test_gradient_against_finite_differences():
    torch.manual_seed(0)
    module = GPO(position_dim=4, hidden_dim=3).double()
    features = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, True, True], [False, True, True, False]])

    def pool(x, *parameters):
        return module.pool(x, mask)

    assert torch.autograd.gradcheck(pool, (features, *module.parameters()))


def test_half_precision_is_pooled_in_float32(gpo):
    features = REFERENCE["gpo.in.features"].half()
    pooled = gpo.pool(features)
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, gpo.pool(features.float()))


def test_half_precision_is_raised_before_anything_stands_in_for_what_is_missing(gpo):
    features = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).half()
    mask = torch.tensor([[True, False, True], [True, True, True]])
    torch.testing.assert_close(gpo.pool(features, mask), gpo.pool(features.float(), mask))


def test_float64_features_are_pooled_in_float64():
    pool, features = GPO(), torch.randn(2, 3, 4, dtype=torch.float64)
    pooled, weights = pool(features)
    expected = (features.sort(dim=1, descending=True).values * weights.double()[..., None]).sum(1)
    torch.testing.assert_close(pooled, expected)


@pytest.mark.parametrize("settings", [{"position_dim": 5}, {"temperature": 0.0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match="position_dim must be even, temperature > 0"):
        GPO(**settings)
