"""Makes the schema of a job: tags its targets and weights by `model.tasks` and `data.weight`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from distrain.errors import SpecError
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.tasks import TaskSpec
from distrain.schema.column import TARGET_TAGS, ColumnSchema, Tags, TargetKind
from distrain.schema.schema import Schema

_ROLES = (Tags.CATEGORICAL, Tags.CONTINUOUS, Tags.TARGET, Tags.WEIGHT, Tags.TASK_WEIGHT)
_KINDS = (Tags.BINARY, *TARGET_TAGS.values())


def with_targets(schema: Schema, spec: JobSpec) -> Schema:
    """Return the schema with the targets and weights that the job's spec names, and no others.

    The targets are in the order of the spec's tasks. A column that the spec names has no other
    role, regardless of its tags. Columns that the schema lacks are added; the files' footers show
    later whether they exist. Without `model.tasks`, the schema's own targets stay; without
    `data.weight`, its own weights.

    Raises:
        SpecError: A column is a target and a weight, two tasks use one column as different kinds of
            targets, or a task has options that its kind does not use, or an impossible mean.
    """
    tasks: Mapping[str, TaskSpec] = getattr(spec.model, "tasks", {})
    targets: dict[str, ColumnSchema] = {}
    for name, task in tasks.items():
        column = _target(schema, name, task)
        if targets.setdefault(column.name, column) != column:
            raise SpecError(
                f"two tasks take the column {column.name!r} as different kinds of targets",
                where={"model.tasks": name},
                hint="Give both the same kind and number of classes.",
            )
    weights = {} if spec.data.weight is None else {spec.data.weight: Tags.WEIGHT}
    for task in tasks.values():
        if task.weight is not None:
            weights.setdefault(task.weight, Tags.TASK_WEIGHT)
    tagged = set(schema.select_by_tag(Tags.TARGET).names)
    if tagged <= weights.keys():
        targets |= {name: schema[name] for name in tagged if not tasks}  # none would be left
    for column in targets.values():
        if column.known is not None:
            weights.setdefault(column.known, Tags.TASK_WEIGHT)
    both = sorted(targets.keys() & weights.keys())
    if both:
        raise SpecError(
            f"these columns are named as targets and as weights: {', '.join(both)}",
            hint="A weight that is the label would make every loss zero or trivial.",
        )
    replaced = set(targets) | set(weights)
    if tasks:
        replaced |= tagged | {known for name in tagged if (known := schema[name].known)}
    if spec.data.weight is not None:
        replaced |= set(schema.select_by_tag(Tags.WEIGHT).names)
    if not replaced:
        return schema
    kept = [column for column in schema.columns if column.name not in replaced]
    added = [_column(schema, name, (tag,)) for name, tag in weights.items()]
    return Schema((*kept, *targets.values(), *added))


def _target(schema: Schema, name: str, task: TaskSpec) -> ColumnSchema:
    """Return the target column of the task `name`.

    Raises `SpecError` if the task has options that its kind does not use, or an impossible mean.
    """
    column = _column(schema, task.target or name, ())
    cardinality = column.cardinality
    kind = task.kind or _kind_of(schema, column.name)
    wrong = list(_unused_options(kind, task))
    _check_mean(kind, name, task)
    if wrong:
        raise SpecError(
            f"the task {name!r} is {kind}, and does not use: {', '.join(wrong)}",
            where={"model.tasks": name},
            hint="Leave them out, or set the task's kind.",
        )
    classes = (task.classes or cardinality) if kind == "multiclass" else None
    tags = (Tags.TARGET, TARGET_TAGS[kind], *column.tags)
    return replace(column, tags=tags, cardinality=classes)


def _check_mean(kind: TargetKind, name: str, task: TaskSpec) -> None:
    if task.mean is None:
        return
    most = 1.0 if kind == "binary" else math.inf
    if (kind == "binary" or task.loss == "poisson") and not 0 < task.mean < most:
        raise SpecError(
            f"the task {name!r}: mean is {task.mean:g}; must be between 0 and 1 (binary) or "
            "above 0 (poisson)",
            where={"model.tasks": name},
            hint="Leave `mean` out: it is then computed from the training rows.",
        )


def _kind_of(schema: Schema, name: str) -> TargetKind:
    """Return the kind of a target for which the task names none.

    It is the kind in the column's tags. Otherwise a categorical column of more than two values is
    `multiclass`, a continuous column `regression`, and any other column `binary`.
    """
    if name not in schema:
        return "binary"
    found = schema[name]
    if any(found.has_tag(tag) for tag in _KINDS):
        return found.target_kind
    if found.has_tag(Tags.CATEGORICAL) and (found.cardinality or 0) > 2:
        return "multiclass"
    return "regression" if found.has_tag(Tags.CONTINUOUS) else "binary"


def _unused_options(kind: TargetKind, task: TaskSpec) -> Iterator[str]:
    """Yield the names of a task's options that were set, but have no effect on its kind.

    An option with its default counts as not set.
    """
    usual = TaskSpec()  # compared by value: in documents that were read back, all fields are set
    if kind != "multiclass" and task.classes is not None:
        yield "classes"
    if kind != "regression" and task.loss != usual.loss:
        yield "loss"
    if kind == "multiclass" and task.mean is not None:
        yield "mean"
    if (kind != "regression" or task.loss == "poisson") and task.std is not None:
        yield "std"
    if kind == "regression" and task.label_smoothing:
        yield "label_smoothing"
    if (kind != "regression" or task.loss != "huber") and task.delta != usual.delta:
        yield "delta"


def _column(schema: Schema, name: str, tags: tuple[str, ...]) -> ColumnSchema:
    """Return the schema's column `name`, or a new one, with the given tags.

    `tags` replace the column's tags of roles (target, weight) and of a target's kind; other tags
    stay.
    """
    found = schema[name] if name in schema else ColumnSchema(name)
    others = (tag for tag in found.tags if tag not in _ROLES and tag not in _KINDS)
    return replace(found, tags=(*tags, *others))
