"""The head of a named model: tasks from `model.tasks`, or from the schema's targets."""

from collections.abc import Mapping, Sequence

from distrain.errors import ModelError, SpecError
from distrain.jobs.spec.tasks import EsmmSpec, MmoeSpec, PleSpec, SharingSpec, TaskSpec
from distrain.models.blocks.block import Block
from distrain.models.blocks.mixtures import MMoEBlock, PLEBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.heads.multitask import ESMMTask, MultiTask
from distrain.models.heads.tasks import (
    BinaryClassificationTask,
    LabelTask,
    MulticlassTask,
    RegressionTask,
    Task,
)
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.schema import Schema


def named_head(
    schema: Schema, tasks: Mapping[str, TaskSpec], sharing: SharingSpec | None
) -> Task | None:
    """Return the last block of a model: a task, or a `MultiTask` or `ESMMTask` of several.

    A single task with `hidden` layers or a loss weight other than 1 is also in a `MultiTask`.

    Returns `None` if the model's default head, one binary task, suffices: there is no target, or
    one binary target without `hidden` layers and with loss weight 1.

    Args:
        schema: The schema, whose tags give the kinds of targets.
        tasks: The section `model.tasks` by task name; if empty, each target of the schema is a
            task.
        sharing: The section `model.sharing`.

    Raises:
        ModelError: `sharing` is given for fewer than two tasks, its `order` does not name each
            task once, or `esmm` is given for a task that is not binary.
    """
    targets = schema.select_by_tag(Tags.TARGET).columns
    named = dict(tasks) or {column.name: TaskSpec() for column in targets}
    if isinstance(sharing, EsmmSpec) and sharing.order:
        named = _ordered(named, sharing.order)
    leaves = {name: leaf_of(schema, name, task) for name, task in named.items()}
    if sharing is not None and len(leaves) < 2:
        raise ModelError(
            f"model.sharing is {sharing.kind}, but there is only one task",
            where={"tasks": ", ".join(leaves) or "none"},
            hint="Name several tasks in model.tasks, or leave model.sharing out.",
        )
    towers = {name: MLPBlock(task.hidden) for name, task in named.items() if task.hidden}
    weights = {name: task.loss_weight for name, task in named.items()}
    if len(leaves) < 2 and not towers and set(weights.values()) <= {1.0}:
        (only,) = leaves.values() if leaves else (None,)
        return None if isinstance(only, BinaryClassificationTask) else only
    kind = ESMMTask if sharing is not None and sharing.kind == "esmm" else MultiTask
    return kind(leaves, weights, sharing=_sharing(sharing, tuple(leaves)), towers=towers)


def _ordered(tasks: Mapping[str, TaskSpec], order: Sequence[str]) -> dict[str, TaskSpec]:
    if sorted(order) != sorted(tasks):
        raise ModelError(
            f"model.sharing.order is {', '.join(order)}, and the tasks are {', '.join(tasks)}",
            hint="Name each task once.",
        )
    return {name: tasks[name] for name in order}


def leaf_of(schema: Schema, name: str, task: TaskSpec) -> LabelTask:
    """Return the task of one target, as its section of the spec and the schema describe it."""
    column = schema[task.target or name]
    # A weight column of all tasks is in the batch's weights.
    common = schema.select_by_tag(Tags.WEIGHT).names
    leaf = _leaf(column, task, None if task.weight in common else task.weight)
    leaf.known = column.known
    return leaf


def _leaf(column: ColumnSchema, task: TaskSpec, weight: str | None) -> LabelTask:
    match column.target_kind:
        case "regression":
            unit = {"mean": task.mean, "std": task.std}
            return RegressionTask(column.name, task.loss, delta=task.delta, weight=weight, **unit)
        case "multiclass":
            classes, smooth = column.cardinality or 0, task.label_smoothing
            return MulticlassTask(column.name, classes, weight=weight, label_smoothing=smooth)
    return BinaryClassificationTask(
        column.name, weight=weight, mean=task.mean, label_smoothing=task.label_smoothing
    )


def _sharing(sharing: SharingSpec | None, names: tuple[str, ...]) -> Block | None:
    if isinstance(sharing, MmoeSpec):
        return MMoEBlock(names, sharing.experts, sharing.hidden)
    if isinstance(sharing, PleSpec):
        sizes = sharing.layers, sharing.experts, sharing.shared_experts
        return PLEBlock(names, *sizes, sharing.hidden)
    return None


def weigh(task: Task, schema: Schema, class_weight: Mapping[str, Mapping[int, float]]) -> None:
    """Set the factors of a job's `data.class_weight` in the tasks of a model.

    `class_weight` has factors by label, for each name of a task or of a target's column.

    Raises:
        SpecError: The task does not support weights of rows, but there are some; or a name is
            neither a task nor a target.
        ModelError: The target has no such class, or no classes.
    """
    weights = schema.select_by_tag(Tags.WEIGHT, Tags.TASK_WEIGHT).names
    if (weights or class_weight) and not task.takes_weights:
        raise SpecError(
            f"a {type(task).__name__} does not support weights of rows",
            where={"weights": ", ".join(weights) or "data.class_weight"},
            hint="Leave data.weight, data.class_weight and the schema's tag `weight` out.",
        )
    leaves = [one for one in task.modules() if isinstance(one, LabelTask)]
    for name, factors in class_weight.items():
        named = [one for one in leaves if one.name == name]
        targets = schema.select_by_tag(Tags.TARGET).names
        named = named or [one for one in leaves if (one.target or targets[0]) == name]
        if not named:
            raise SpecError(
                f"data.class_weight names {name!r}, which is neither a task nor a target",
                hint=f"There are: {', '.join(one.name for one in leaves)}.",
            )
        for one in named:
            one.weigh_classes(factors)
