from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from in2r.errors import InputError
from in2r.layers.refiners import GatRefiner, GcnRefiner, GraphRefiner, MeanRefiner, Top1Refiner

REFERENCE = {k: torch.from_numpy(v) for k, v in np.load(Path(__file__).parents[1] / "arrays" / "refiner.npz").items()}
NEIGHBORS = REFERENCE["refiner.in.neighbours"]


@pytest.fixture
def refiner():
    module = GraphRefiner(32)
    prefix = "refiner.param."
    module.load_state_dict({k[len(prefix) :]: v for k, v in REFERENCE.items() if k.startswith(prefix)})
    return module.eval()


def test_equals_the_reference(refiner):
    torch.testing.assert_close(refiner(NEIGHBORS), REFERENCE["refiner.out.prototype_unit_norm"], rtol=1e-5, atol=1e-6)


def test_attention_equals_pytorch(refiner):
    attention = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    projections = (refiner.q_proj, refiner.k_proj, refiner.v_proj)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        attention.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    attention.out_proj = refiner.output_layer
    attended, _ = attention(NEIGHBORS, NEIGHBORS, NEIGHBORS, need_weights=False)
    prototype = refiner.layer_norm(NEIGHBORS + attended).mean(1)
    torch.testing.assert_close(
        refiner(NEIGHBORS), prototype / prototype.norm(dim=1, keepdim=True), rtol=1e-5, atol=1e-6
    )


def test_order_of_the_neighbors_is_irrelevant(refiner):
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(refiner(NEIGHBORS[:, order]), refiner(NEIGHBORS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda: GraphRefiner(32), lambda: GcnRefiner(32), lambda: GatRefiner(32), MeanRefiner, Top1Refiner]
)
@pytest.mark.parametrize("count", [1, 5])
def test_every_refiner_gives_one_unit_vector_per_sample(make, count):
    prototypes = make()(NEIGHBORS[:, :count])
    assert prototypes.shape == (6, 32)
    torch.testing.assert_close(prototypes.norm(dim=1), torch.ones(6))


def test_gradient_reaches_every_parameter_and_the_neighbors(refiner):
    neighbors = NEIGHBORS.clone().requires_grad_()
    (refiner(neighbors) * torch.arange(32.0)).sum().backward()
    assert neighbors.grad.isfinite().all()
    assert neighbors.grad.ne(0).any()
    for name, parameter in refiner.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # softmax is blind to a bias that shifts all keys alike
        assert name == "k_proj.bias" or parameter.grad.ne(0).any(), name


def test_dropout_acts_in_training_only(refiner):
    assert torch.equal(refiner(NEIGHBORS), refiner(NEIGHBORS))
    refiner.train()
    assert not torch.equal(refiner(NEIGHBORS), refiner(NEIGHBORS))


def test_mean_and_top1_by_hand():
    neighbors = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    torch.testing.assert_close(MeanRefiner()(neighbors), torch.tensor([[1.0, 2.0]]) / 5**0.5)
    torch.testing.assert_close(Top1Refiner()(3 * neighbors), torch.tensor([[0.0, 1.0]]))


@pytest.mark.parametrize("heads", [0, 5, 64])
def test_heads_that_do_not_divide_the_width_are_refused(heads):
    with pytest.raises(ValueError, match=f"dim 32 cannot be split into {heads} heads"):
        GraphRefiner(32, heads=heads)


def test_graph_convolution_by_hand():
    """Two neighbours at 60 degrees, one behind both: A = [[1, ½, 0], [½, 1, 0], [0, 0, 1]], degrees 3/2, 3/2, 1."""
    module = GcnRefiner(2).eval()
    with torch.no_grad():
        module.weight.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, -1.0]]))  # the second feature is cut off by ReLU
    high = 3**0.5 / 2
    neighbors = torch.tensor([[[1.0, 0.0], [0.5, high], [-high, -0.5]]])
    message = torch.tensor([[2 * (1 + 0.25) / 1.5, 0.0], [2 * (0.5 + 0.5) / 1.5, 0.0], [0.0, 0.5]])
    refined = nn.functional.layer_norm(neighbors[0] + message, (2,))
    torch.testing.assert_close(module(neighbors)[0], nn.functional.normalize(refined.mean(0), dim=0))


@torch.no_grad()
def test_graph_attention_equals_loops():
    torch.manual_seed(3)
    module = GatRefiner(8, heads=2).double().eval()
    neighbors = torch.randn(2, 3, 8, dtype=torch.float64)
    prototypes = []
    for sample in neighbors:
        rows = []
        for i in range(3):
            message = []
            for head in range(2):
                nodes = module.weight(sample)[:, 4 * head : 4 * head + 4]
                scores = [float(module.receiver[head] @ nodes[i] + module.sender[head] @ nodes[j]) for j in range(3)]
                leaky = torch.tensor([score if score > 0 else 0.2 * score for score in scores], dtype=torch.float64)
                heard = sum(share * node for share, node in zip(leaky.softmax(0), nodes, strict=True))
                message.append(nn.functional.elu(heard))
            rows.append(module.layer_norm(sample[i] + torch.cat(message)))
        mean = torch.stack(rows).mean(0)
        prototypes.append(mean / mean.norm())
    torch.testing.assert_close(module(neighbors), torch.stack(prototypes))


@pytest.mark.parametrize("make", [GcnRefiner, GatRefiner])
def test_the_other_graphs_have_no_order_and_learn(make):
    torch.manual_seed(0)
    module = make(32).eval()
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(module(NEIGHBORS[:, order]), module(NEIGHBORS), rtol=1e-5, atol=1e-6)
    (module(NEIGHBORS) @ torch.randn(32)).sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in module.parameters())
    assert module(torch.zeros(1, 5, 32)).isfinite().all()


def test_attention_heads_must_divide_the_width():
    with pytest.raises(InputError, match="dim 30 cannot be split into 4 heads"):
        GatRefiner(30)
