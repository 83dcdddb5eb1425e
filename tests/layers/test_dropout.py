import pytest
import torch

from in2r.layers.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.95])
def test_entries_are_left_out_at_the_rate_and_the_rest_is_scaled(rate):
    torch.manual_seed(0)
    found = Dropout(rate)(torch.ones(1001, 333))
    kept = found[found != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)), rtol=1e-3, atol=0)
    assert (found == 0).float().mean().item() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / found.numel()) ** 0.5)
    for lane in range(4):  # four entries share a draw
        assert (found.flatten()[lane::4] == 0).float().mean().item() == pytest.approx(rate, abs=0.01)


def test_neighbours_are_left_out_independently():
    torch.manual_seed(0)
    out = (Dropout(0.5)(torch.ones(400_000)) == 0).double()
    for apart in (1, 2, 3, 4, 5):
        assert torch.corrcoef(torch.stack([out[:-apart], out[apart:]]))[0, 1].abs() < 0.01


def test_the_default_generator_decides():
    values = torch.randn(7, 5)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(Dropout(0.5)(values))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_nothing_happens_in_evaluation_or_at_rate_zero():
    values = torch.randn(7, 5)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)
    assert torch.equal(Dropout(1.0)(values), torch.zeros(7, 5))


def test_the_gradient_is_the_mask():
    torch.manual_seed(0)
    values = torch.randn(50, 3, requires_grad=True)
    found = Dropout(0.4)(values)
    found.sum().backward()
    torch.testing.assert_close(values.grad, (found != 0) * (1 / 0.6), rtol=1e-4, atol=0)
    assert Dropout(0.4)(torch.zeros(0, 3)).shape == (0, 3)
