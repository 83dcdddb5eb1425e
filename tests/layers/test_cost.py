import pytest
import torch

from in2r.layers.cost import CostNetwork


def test_starts_as_the_distance_and_draws_nothing():
    state = torch.get_rng_state()
    network = CostNetwork(3)
    assert torch.equal(torch.get_rng_state(), state)
    sims = torch.tensor([[0.2, -0.5, 1.0], [0.9, 0.0, -1.0]])  # two images, three texts
    torch.testing.assert_close(network(sims), torch.tensor([[0.8, 1.5, 0.0], [0.1, 1.0, 2.0]]))


def test_weights_act_on_the_texts_of_an_image_by_hand():
    network = CostNetwork(2)
    with torch.no_grad():
        network.linear.weight.copy_(torch.tensor([[-1.0, 0.5], [0.0, -2.0]]))
        network.linear.bias.copy_(torch.tensor([1.0, 0.5]))
    # row .4, .2: [1 - .4 + .5 · .2, .5 - 2 · .2]; row 1, .8: [1 - 1 + .4, .5 - 1.6 < 0]
    torch.testing.assert_close(network(torch.tensor([[0.4, 0.2], [1.0, 0.8]])), torch.tensor([[0.7, 0.1], [0.4, 0.0]]))


def test_gradients_by_hand():
    network = CostNetwork(2)
    sims = torch.tensor([[0.4, 0.2], [1.5, 0.8]])
    network(sims)[[0, 1], [1, 0]].sum().backward()  # cost_01 = .8 has a gradient, cost_10 = ReLU(-.5) has none
    torch.testing.assert_close(network.linear.weight.grad, torch.tensor([[0.0, 0.0], [0.4, 0.2]]))
    torch.testing.assert_close(network.linear.bias.grad, torch.tensor([0.0, 1.0]))


def test_permuting_the_images_permutes_the_costs():
    network, sims = CostNetwork(5), torch.linspace(-1, 1, 20).reshape(4, 5)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(network(sims[order]), network(sims)[order])


def test_costs_are_float32_under_autocast_and_for_half_inputs():
    network, sims = CostNetwork(4), torch.linspace(0.9, 1.0, 16).reshape(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = network(sims)
    torch.testing.assert_close(inside, network(sims), rtol=0, atol=0)
    assert network(sims.half()).dtype == torch.float32


@pytest.mark.parametrize("shape", [(4, 3), (5,)])
def test_another_number_of_texts_is_named(shape):
    message = rf"similarity must be \(Q, 4\) for a cost network of 4 texts, got shape \({shape[0]},"
    with pytest.raises(ValueError, match=message):
        CostNetwork(4)(torch.zeros(shape))
