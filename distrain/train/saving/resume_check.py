"""Whether a training may go on from a checkpoint: what must be as it was, and what need not."""

from collections.abc import Iterator, Mapping
from typing import Any

from distrain.errors import DataError, SpecError
from distrain.spec import LARGEST, JobSpec, parse_spec
from distrain.train.data import Inputs
from distrain.train.step import decays_within

MAY_DIFFER = (
    "name",
    "tags",
    "resources",
    "deadlines",
    "restart",
    "queue",
    "checkpoint",
    "evaluate",
    "train.early_stopping",
    "train.init_from",
    "train.init_strict",
    "train.log_every_steps",
    "train.log_every_s",
    "train.route_ahead",
    "train.audit",
    "embeddings.placement",
    "embeddings.tables",
    "embeddings.group_size",
    "embeddings.memory_gib",
    "embeddings.cache_gib",
    "data.prefetch_batches",
    "data.decode_threads",
    "data.reader",
    "data.gpu_memory_fraction",
    "data.cache_dir",
    "data.cache_size",
    "data.shuffle_dir",
    "data.retry_s",
    # The files' fingerprints must be the same, wherever they lie; columns are checked with tables.
    "data.train",
    "data.valid",
    "data.schema",
)
"""Fields of the spec, and whole sections, on which neither rows nor arithmetic depend; another
number of ranks, and two-level tables, add the same numbers in another order."""

MAY_DIFFER_WITHOUT_DECAY = ("train.epochs", "train.max_steps")
"""How long to train: a decaying learning rate depends on it in every step."""


def progress_values(spec: JobSpec, inputs: Inputs) -> dict[str, Any]:
    """What a checkpoint keeps so that `check_resumable` can judge it later."""
    return {"spec": spec.model_dump(mode="json"), "fingerprints": _fingerprints(inputs)}


def check_resumable(
    values: Mapping[str, Any], spec: JobSpec, inputs: Inputs, checkpoint: str
) -> None:
    """Refuse a checkpoint of another training.

    Raises:
        SpecError: Fields differ on which the training depends; all are named, with both values.
        DataError: The data is not the data that it was trained on.
    """
    if "spec" not in values or "fingerprints" not in values:
        raise SpecError(
            "not a checkpoint of a training job: it does not say of which spec and data",
            where={"checkpoint": checkpoint},
        )
    problems = different_fields(values["spec"], spec, values.get("step"))
    if problems:
        raise SpecError(
            "the job is not the one that the checkpoint is of:\n  " + "\n  ".join(problems),
            where={"checkpoint": checkpoint},
            hint=f"Set these fields back, or begin a new run.{_why_no_longer(problems, spec)}",
        )
    now = _fingerprints(inputs)
    for split, saved in values["fingerprints"].items():
        if saved is not None and now[split] is not None and saved != now[split]:
            raise DataError(
                f"the files of data.{split} are not those that the checkpoint was trained with",
                where={"checkpoint": checkpoint, "then": saved, "now": now[split]},
                hint="Files may move, but neither change nor come or go.",
            )


def different_fields(
    saved: Mapping[str, Any], spec: JobSpec, steps_done: int | None = None
) -> list[str]:
    """The fields that must be the same and are not, each with both values."""
    # Parsed, so that fields which are newer than the checkpoint have their defaults in it.
    before, now = (
        dict(_leaves(parse_spec(document).model_dump(mode="json")))
        for document in (dict(saved), spec.model_dump(mode="json"))
    )
    free: tuple[str, ...] = MAY_DIFFER
    steps = LARGEST if steps_done is None else steps_done
    if not decays_within(steps, spec.train.schedule):
        free += MAY_DIFFER_WITHOUT_DECAY
    return [
        f"{field} was {_text(before, field)} and is {_text(now, field)}"
        for field in sorted(before.keys() | now.keys())
        if not any(field == name or field.startswith(f"{name}.") for name in free)
        and _text(before, field) != _text(now, field)
    ]


def _why_no_longer(problems: list[str], spec: JobSpec) -> str:
    if not any(problem.startswith(MAY_DIFFER_WITHOUT_DECAY) for problem in problems):
        return ""
    return (
        f" The job's length cannot change: its learning rate falls until the last step "
        f"(train.schedule.decay is {spec.train.schedule.decay}), so steps that were taken would "
        "have had other rates. A new run may begin with its weights: train.init_from."
    )


def _leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(fields: Mapping[str, Any], name: str) -> str:
    if name not in fields:
        return "not there"
    return repr(fields[name])


def _fingerprints(inputs: Inputs) -> dict[str, str | None]:
    valid = None if inputs.valid is None else inputs.valid.fingerprint
    return {"train": inputs.train.fingerprint, "valid": valid}
