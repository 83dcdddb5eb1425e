"""L2RM by hand: planted pairs train the cost network alone; a noisy batch follows its transport plan."""

from dataclasses import replace

import pytest
import torch

from given import Given, Pairs, S, batch
from in2r.losses import symmetric_kl_loss, triplet_loss
from in2r.methods import Net, Now, PartitionConfig, Seen, Step
from in2r.methods.l2rm import L2rm, L2rmConfig, L2rmOwn
from in2r.partition import fit_two_betas, partial_transport
from in2r.runs.settings import TrainConfig
from in2r.training.networks import make_optimizers
from in2r.training.step import descend

NOW = Now(epoch=0, epochs=4, seed=0, name="A")


def net() -> Net:
    return Net(Given(S), L2rmOwn(4)).train()


def method(**settings: object) -> L2rm:
    return L2rm(replace(L2rmConfig(), regularisation=0.07, **settings), PartitionConfig())  # type: ignore[arg-type]


def test_the_main_step_adds_the_hinge_of_clean_and_the_divergence_of_noisy_pairs() -> None:
    one = net()
    *_, step = method().steps(one, one, {"clean": batch(), "noisy": batch()}, NOW)
    plan = partial_transport(1 - S, 0.1, 0.07, torch.eye(4, dtype=torch.bool))
    assert float(step.losses["rematch"].detach()) == pytest.approx(7.816793, abs=1e-4)  # the specification's number
    assert float(step.losses["rematch"].detach()) == pytest.approx(float(symmetric_kl_loss(S, plan)), abs=1e-5)
    assert float(step.losses["total"].detach()) == pytest.approx(float(triplet_loss(S)) + 7.816793, abs=1e-4)


def test_the_plan_is_a_constant_and_the_cost_network_learns_from_planted_pairs_alone() -> None:
    one = net()
    cost, main = method().steps(one, one, {"clean": batch(), "noisy": batch()}, NOW)
    main.losses["total"].backward()
    assert one.own.cost.linear.weight.grad is None
    assert one.backbone.matrix.grad is not None
    assert (cost.of, main.of) == ("cost", "net")
    one.zero_grad(set_to_none=True)
    cost.losses["total"].backward()
    assert one.own.cost.linear.weight.grad is not None
    assert one.backbone.matrix.grad is None


@pytest.mark.parametrize("step", range(12))
def test_the_cost_of_a_planted_pair_is_that_of_the_clean_pair(step: int) -> None:
    """On four pairs one image is planted: its cost is 1 - S of its own caption, whichever slot it came to."""
    one = net()
    first = next(iter(method().steps(one, one, {"clean": batch(), "noisy": batch()}, replace(NOW, step=step))))
    own = [1 - float(value) for value in S.diagonal()]
    assert min(abs(float(first.losses["cost"].detach()) - cost) for cost in own) < 1e-5


def test_the_cost_network_has_an_optimiser_of_its_own_and_no_clipping() -> None:
    one, train = net(), TrainConfig(learning_rate=0.1)
    optimizers = make_optimizers(one, method().optimizers(), train)
    assert set(optimizers) == {"net", "cost"}
    assert optimizers["cost"].param_groups[0]["lr"] == pytest.approx(0.001)
    held = {which: {id(w) for g in o.param_groups for w in g["params"]} for which, o in optimizers.items()}
    assert held["cost"] == {id(w) for w in one.own.cost.parameters()}
    assert not held["net"] & held["cost"]
    weight = one.own.cost.linear.weight
    before, matrix = weight.detach().clone(), one.backbone.matrix.detach().clone()
    step = Step({"total": 1000 * weight.sum()}, of="cost")
    assert descend(one, optimizers["cost"], step, clip=1e-6) is None
    torch.testing.assert_close(weight.detach(), before - 0.001, atol=1e-6, rtol=0)  # Adam's first step
    assert torch.equal(one.backbone.matrix.detach(), matrix)


def test_a_smaller_clean_batch_trains_without_planted_pairs_and_no_noisy_batch_without_rematching() -> None:
    one = net()
    (step,) = method().steps(one, one, {"clean": batch()}, NOW)
    assert set(step.losses) == {"clean", "total"}
    assert step.notes["rematched_steps"] == 0


def test_planted_pairs_differ_between_steps_and_not_between_runs() -> None:
    def planted(step: int) -> float:
        one = net()
        now = replace(NOW, step=step)
        first = next(iter(method().steps(one, one, {"clean": batch(), "noisy": batch()}, now)))
        return round(float(first.losses["cost"].detach()), 6)

    drawn = [planted(step) for step in range(12)]
    assert drawn == [planted(step) for step in range(12)]
    assert len(set(drawn)) > 1


def test_without_the_mask_a_pair_may_be_matched_to_itself() -> None:
    one = net()
    *_, masked = method().steps(one, one, {"clean": batch(), "noisy": batch()}, NOW)
    *_, free = method(mask_given=False).steps(one, one, {"clean": batch(), "noisy": batch()}, NOW)
    assert float(free.losses["rematch"].detach()) < float(masked.losses["rematch"].detach()) - 1


def test_the_division_is_that_of_two_betas() -> None:
    losses = torch.cat([torch.linspace(0.0, 0.2, 30), torch.linspace(0.7, 1.0, 30)])
    seen = {"A": Seen({"triplet-mean": losses}, {"triplet-mean": losses[30:]})}
    found = method().divide(seen, {"A": net()}, Pairs(60), NOW)  # type: ignore[arg-type]
    assert found["A"].sets.tolist() == [0] * 30 + [1] * 30
    wanted = torch.as_tensor(fit_two_betas(losses).clean_probability).float()
    torch.testing.assert_close(found["A"].columns["clean_prob"], wanted)
