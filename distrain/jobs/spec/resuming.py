"""The fields of a spec that must not change when a job continues from a checkpoint; no I/O."""

from collections.abc import Mapping
from typing import Any

from distrain.jobs.spec.data import DataSpec
from distrain.jobs.spec.fields import LARGEST
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import flat, parse_spec
from distrain.jobs.spec.models.kinds import EmbeddingsSpec
from distrain.jobs.spec.training import ScheduleSpec, TrainSpec

MAY_DIFFER = (
    *("name", "tags", "resources", "deadlines", "restart", "queue", "checkpoint", "evaluate"),
    *(
        f"{name}.{field}"
        for name, section in (
            ("data", DataSpec),
            ("train", TrainSpec),
            ("embeddings", EmbeddingsSpec),
        )
        for field in section.may_differ
    ),
)
"""Fields and sections of the spec on which neither rows nor arithmetic depend.

Exceptions: with another number of ranks, or if steps are recorded as a CUDA graph, the same numbers
are added in another order.
"""

MAY_DIFFER_WITHOUT_DECAY = ("train.epochs", "train.max_steps")
"""The fields of the training's length, which may differ only if no learning rate has decayed yet.

A decaying rate depends on the length.
"""


def decays_within(steps: int, schedule: ScheduleSpec) -> bool:
    """Return True if a learning rate in the first `steps` steps depends on the job's length.

    It does from the first step after the peak on, if the schedule has a decay.

    >>> course = ScheduleSpec(warmup_steps=2, decay="linear", decay_start_step=10)
    >>> decays_within(11, course), decays_within(12, course)
    (False, True)
    """
    return schedule.decay != "none" and steps - 1 > schedule.last_peak_step


def decaying_course(spec: JobSpec, steps: int = LARGEST) -> tuple[str, str] | None:
    """Return the field and the value of a decay of the learning rate.

    They are, for example, `train.schedule.decay` and `linear`. `None` if no learning rate of the
    first `steps` steps depends on the job's length.
    """
    train = spec.train
    for field, course in (("schedule", train.schedule), ("table_schedule", train.table_schedule)):
        if course is not None and decays_within(steps, course):
            return f"train.{field}.decay", course.decay
    return None


def different_fields(
    saved: Mapping[str, Any], spec: JobSpec, steps_done: int | None = None
) -> list[str]:
    """Return a text on each field that differs from the checkpoint's spec, but must not.

    Each text has the field's two values. The list is empty if the job may continue.

    Args:
        saved: The spec in the checkpoint, as plain values.
        spec: The spec with which the job is to continue.
        steps_done: The checkpoint's number of training steps; `None` if unknown.
    """
    # Parsed, so that fields which did not exist when it was saved get their defaults.
    before, now = (
        _fields(parse_spec(document)) for document in (dict(saved), spec.model_dump(mode="json"))
    )
    free: tuple[str, ...] = MAY_DIFFER
    steps = LARGEST if steps_done is None else steps_done
    if decaying_course(spec, steps) is None:
        free += MAY_DIFFER_WITHOUT_DECAY
    return [
        f"{field} was {_text(before, field)} and is {_text(now, field)}"
        for field in sorted(before.keys() | now.keys())
        if not any(field == name or field.startswith(f"{name}.") for name in free)
        and _text(before, field) != _text(now, field)
    ]


def _fields(spec: JobSpec) -> dict[str, Any]:
    # The order counts: files' columns and the model number the tasks.
    order = {"the order of model.tasks": list(getattr(spec.model, "tasks", ()))}
    return flat(spec.model_dump(mode="json")) | order


def _text(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        return "not there"
    return repr(fields[name])
