"""The learning rate by hand: epochs, steps, phases and the ramp."""

import math

import pytest

from in2r.runs.settings import TrainConfig
from in2r.training.schedule import rate_factor

STARTS = (0, 2, 4)
"""a warm-up of two epochs, a round of two, a round of four"""


def factor(epoch: int, step: int = 0, **settings: object) -> float:
    return rate_factor(TrainConfig(epochs=8, **settings), STARTS, 2, epoch, step, 10)  # type: ignore[arg-type]


def cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, cosine(5 / 8)),
        ({"schedule_per": "step"}, cosine(5.5 / 8)),
        ({"schedule_from": "main"}, cosine(3 / 6)),
        ({"schedule_from": "main", "schedule_per": "step"}, cosine(3.5 / 6)),
        ({"schedule_from": "phase"}, cosine(1 / 4)),
        ({"schedule_from": "phase", "schedule_per": "step"}, cosine(1.5 / 4)),
        ({"schedule": "step", "step_epochs": 2}, 0.01),
        ({"schedule": "step", "step_epochs": 2, "schedule_from": "phase"}, 1.0),
    ],
)
def test_in_the_middle_of_the_sixth_epoch(settings: dict[str, object], expected: float) -> None:
    assert factor(5, 5, **settings) == pytest.approx(expected)


def test_a_phase_begins_with_a_ramp_and_ends_near_zero() -> None:
    settings = {"schedule_from": "phase", "schedule_per": "step", "ramp_steps": 4}
    for first, epochs in ((0, 2), (2, 2), (4, 4)):
        found = [factor(first, step, **settings) for step in range(5)]
        assert found == pytest.approx([min(1, (s + 1) / 4) * cosine(s / 10 / epochs) for s in range(5)])
        assert factor(first + epochs - 1, 9, **settings) < 0.01
    assert factor(3, 0, **settings) == pytest.approx(cosine(0.5))  # the ramp is over


def test_a_ramp_takes_at_most_a_third_of_its_phase() -> None:
    settings = {"schedule_from": "phase", "schedule_per": "step", "ramp_steps": 50}
    for first, epochs in ((0, 2), (4, 4)):  # 20 and 40 steps
        length = 10 * epochs / 3
        assert factor(first, 2, **settings) == pytest.approx(3 / length * cosine(2 / 10 / epochs))
        assert factor(first, 9, **settings) == pytest.approx(min(1, 10 / length) * cosine(9 / 10 / epochs))
    assert rate_factor(TrainConfig(epochs=1, ramp_steps=50), (0,), 0, 0, 0, 2) == 1.0  # a phase of two steps


def test_a_warm_up_keeps_the_full_rate_where_the_schedule_counts_from_the_main_phase() -> None:
    assert [factor(epoch, 9, schedule_from="main", schedule_per="step") for epoch in (0, 1)] == [1.0, 1.0]
