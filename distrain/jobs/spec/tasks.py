"""The sections `model.tasks` and `model.sharing`: the targets of a model, and what tasks share.

`docs/spec.md` and the published JSON Schema show the field descriptions.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from distrain.jobs.spec.fields import Depth, PositiveInt, Real, Section, Widths

RegressionLoss = Literal["mse", "mae", "huber", "poisson"]
TASK_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$"
INPUT_NAMES = ("categorical", "continuous")
"""The names of exported models' inputs; no task, which names an output, may have one of them."""


class TaskSpec(Section):
    """One task of a model: a column of labels, and how the model learns it."""

    target: str | None = Field(
        None, description="The column of labels; null: the column with the task's name."
    )
    kind: Literal["binary", "regression", "multiclass"] | None = Field(
        None,
        description="`binary`: labels 0 and 1. `regression`: numbers. `multiclass`: integers "
        "from 0, less than `classes`. Null: as the schema says, otherwise `binary`.",
    )
    loss: RegressionLoss = Field(
        "mse",
        description="The loss of a regression: squared error, absolute error, Huber's or "
        "Poisson's loss.",
    )
    delta: Real = Field(1.0, gt=0, description="The error above which Huber's loss is linear.")
    classes: PositiveInt | None = Field(
        None, ge=2, description="The number of classes; null: the column's cardinality."
    )
    mean: Real | None = Field(
        None,
        description="The initial prediction, such as the target's mean; for a binary target, the "
        "share of ones. The log odds of the share, or the logarithm of a Poisson mean, are added "
        "to the network's output. Null: nothing is added.",
    )
    std: Real | None = Field(
        None,
        gt=0,
        description="The unit of a regression's output and loss, such as the target's standard "
        "deviation. Predictions have the target's scale. Null: 1.",
    )
    label_smoothing: Real = Field(
        0.0,
        ge=0,
        lt=1,
        description="The share of each label that training distributes evenly over all classes "
        "(Szegedy et al. 2016). Metrics use the unchanged labels.",
    )
    loss_weight: Real = Field(
        1.0, ge=0, description="The factor of the task's mean loss in the sum over tasks."
    )
    hidden: Widths = Field(
        (), description="The layer widths of the task's own tower; []: no tower."
    )
    weight: str | None = Field(
        None, description="The column of row weights of this task only, instead of `data.weight`."
    )


class SharedBottomSpec(Section):
    """All tasks read the same output of the model's body."""

    kind: Literal["shared_bottom"] = Field("shared_bottom", description="How tasks share.")


class MmoeSpec(Section):
    """Multi-gate mixture of experts: each task weighs shared experts by its own gate."""

    kind: Literal["mmoe"] = Field("mmoe", description="How tasks share.")
    experts: PositiveInt = Field(
        8, description="The number of experts, which take the output of the model's body."
    )
    hidden: Widths = Field((64,), description="The layer widths of each expert.", min_length=1)


class PleSpec(Section):
    """Progressive layered extraction: layers of shared experts and of experts for single tasks."""

    kind: Literal["ple"] = Field("ple", description="How tasks share.")
    layers: Depth = Field(2, description="The number of layers of experts.")
    experts: PositiveInt = Field(2, description="The number of experts of each task in each layer.")
    shared_experts: PositiveInt = Field(
        2, description="The number of shared experts in each layer."
    )
    hidden: Widths = Field((64,), description="The layer widths of each expert.", min_length=1)


class EsmmSpec(Section):
    """Entire-space modelling: each task's probability is a factor of the next task's."""

    kind: Literal["esmm"] = Field("esmm", description="How tasks share.")
    order: tuple[str, ...] = Field(
        (),
        description="All tasks in the order of their events, such as click before purchase: "
        "each is possible only after the task before it. Empty: the order of `model.tasks`.",
    )


def _kind_alone(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


TaskName = Annotated[str, Field(pattern=TASK_NAME)]
Tasks = Annotated[
    dict[TaskName, TaskSpec],
    Field(description="Tasks by name; if empty, each target of the schema is a task."),
]
SharingSpec = Annotated[
    SharedBottomSpec | MmoeSpec | PleSpec | EsmmSpec, Field(discriminator="kind")
]
Sharing = Annotated[
    SharingSpec | None,
    BeforeValidator(_kind_alone),
    Field(description="What several tasks share; null: `shared_bottom`."),
]
