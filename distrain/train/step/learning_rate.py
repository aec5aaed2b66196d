"""The learning rate as a pure function of the step."""

import math

from distrain.jobs.spec.training import PlateauSpec, ScheduleSpec


def lr_at(step: int, num_steps: int, peak_lr: float, schedule: ScheduleSpec) -> float:
    """Return the learning rate of a step.

    It rises linearly over `warmup_steps` (step 0 has `1 / warmup_steps` of the peak) and stays at
    the peak. From `decay_start_step` on it falls to `final_fraction` of the peak at the last step:
    linearly, or along half a cosine (Loshchilov and Hutter 2017, SGDR, without restarts).

    Args:
        step: From 0.
        num_steps: The length of the schedule in steps.

    >>> course = ScheduleSpec(warmup_steps=2, decay="linear")
    >>> [lr_at(step, 5, 1.0, course) for step in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < schedule.warmup_steps:
        return peak_lr * ((step + 1) / schedule.warmup_steps)
    start = schedule.last_peak_step
    if schedule.decay == "none" or step <= start:
        return peak_lr
    progress = min(1.0, (step - start) / max(1, num_steps - 1 - start))
    if schedule.decay == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2
    return peak_lr * ((1 - progress) + progress * schedule.final_fraction)


def reduced(lr: float, reduction: float, plateau: PlateauSpec | None) -> float:
    """Return `lr * reduction`, or `lr` if `plateau` is `None`.

    `reduction` is the product of the factors of all plateaus so far. The result is not below
    `plateau.min_lr`, unless `lr` is.

    >>> reduced(0.1, 0.01, PlateauSpec(min_lr=0.002)), reduced(0.001, 0.01, None)
    (0.002, 0.001)
    """
    return lr if plateau is None else max(lr * reduction, min(lr, plateau.min_lr))
