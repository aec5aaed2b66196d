"""The learning rate as a pure function of the step."""

import math

from distrain.spec import ScheduleSpec


def decays_within(steps: int, schedule: ScheduleSpec) -> bool:
    """Whether the rate of some of the first steps depends on how many steps the job has.

    >>> course = ScheduleSpec(warmup_steps=2, decay="linear", decay_start_step=10)
    >>> decays_within(11, course), decays_within(12, course)
    (False, True)
    """
    return schedule.decay != "none" and steps - 1 > _decay_start(schedule)


def lr_at(step: int, num_steps: int, peak_lr: float, schedule: ScheduleSpec) -> float:
    """The learning rate of a step.

    It rises linearly over `warmup_steps` (step 0 already trains: it has `1 / warmup_steps` of the
    peak), stays at the peak, and from `decay_start_step` on falls to `final_fraction` of it, which
    the last step has: along a line, or along half a cosine (Loshchilov and Hutter 2017, SGDR,
    without restarts).

    Args:
        step: From 0.

    >>> course = ScheduleSpec(warmup_steps=2, decay="linear")
    >>> [lr_at(step, 5, 1.0, course) for step in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < schedule.warmup_steps:
        return peak_lr * ((step + 1) / schedule.warmup_steps)
    start = _decay_start(schedule)
    if schedule.decay == "none" or step <= start:
        return peak_lr
    progress = min(1.0, (step - start) / max(1, num_steps - 1 - start))
    if schedule.decay == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2
    return peak_lr * ((1 - progress) + progress * schedule.final_fraction)


def _decay_start(schedule: ScheduleSpec) -> int:
    """The last step that has the peak."""
    return max(schedule.decay_start_step or 0, schedule.warmup_steps)
