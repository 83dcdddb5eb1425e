"""The learning rate: a factor that follows from the settings, the phases of a run and the position in it."""

import math
from collections.abc import Sequence

from in2r.runs.settings import TrainConfig

LONGEST_RAMP = 1 / 3
"""share of a phase: on few pairs, `train.ramp_steps` may be more steps than the phase has"""


def rate_factor(train: TrainConfig, starts: Sequence[int], main: int, epoch: int, step: int, steps: int) -> float:
    """Return what the learning rate is multiplied by.

    Args:
        train: the settings.
        starts: the first epochs of all phases, rising, the first of them 0.
        main: the first epoch after the warm-up.
        epoch: of the run, from 0.
        step: of the network in the epoch, from 0.
        steps: of the network in the epoch.
    """
    first = max(start for start in starts if start <= epoch)
    end = min([start for start in starts if start > epoch], default=train.epochs)
    begins, length = {
        "start": (0, train.epochs),
        "main": (main, max(1, train.epochs - main)),
        "phase": (first, end - first),
    }[train.schedule_from]
    done = max(0.0, epoch - begins + (step / steps if train.schedule_per == "step" and epoch >= begins else 0.0))
    ramp_steps = min(float(train.ramp_steps), max(1.0, LONGEST_RAMP * (end - first) * steps))
    ramp = min(1.0, ((epoch - first) * steps + step + 1) / ramp_steps) if ramp_steps else 1.0
    if train.schedule == "step":
        return float(ramp * train.step_factor ** (done // train.step_epochs))
    return ramp * 0.5 * (1 + math.cos(math.pi * done / length))
