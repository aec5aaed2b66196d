"""The fields of a spec that must not change when a job continues from a checkpoint. Pure."""

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
"""Fields of the spec, and whole sections, on which neither rows nor arithmetic depend; another
number of ranks, and a recorded step, adds the same numbers in another order."""

MAY_DIFFER_WITHOUT_DECAY = ("train.epochs", "train.max_steps")
"""How long to train: a decaying learning rate depends on it in every step."""


def decays_within(steps: int, schedule: ScheduleSpec) -> bool:
    """Whether the rate of some of the first steps depends on how many steps the job has.

    >>> course = ScheduleSpec(warmup_steps=2, decay="linear", decay_start_step=10)
    >>> decays_within(11, course), decays_within(12, course)
    (False, True)
    """
    return schedule.decay != "none" and steps - 1 > schedule.last_peak_step


def decaying_course(spec: JobSpec, steps: int = LARGEST) -> tuple[str, str] | None:
    """The field and the form of a decay on which the rate of some of the first steps depends."""
    train = spec.train
    for field, course in (("schedule", train.schedule), ("table_schedule", train.table_schedule)):
        if course is not None and decays_within(steps, course):
            return f"train.{field}.decay", course.decay
    return None


def different_fields(
    saved: Mapping[str, Any], spec: JobSpec, steps_done: int | None = None
) -> list[str]:
    """The fields that must be the same and are not, each with both values."""
    # Parsed, so that fields which are newer than the checkpoint have their defaults in it.
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
    # Tasks are numbered in the files' columns and in the model.
    order = {"the order of model.tasks": list(getattr(spec.model, "tasks", ()))}
    return flat(spec.model_dump(mode="json")) | order


def _text(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        return "not there"
    return repr(fields[name])
