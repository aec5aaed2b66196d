"""The sections `model.tasks` and `model.sharing`: the targets of a model, and what tasks share.

`docs/spec.md` and the published JSON Schema show the field descriptions.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from distrain.jobs.spec.fields import Depth, PositiveInt, Real, Section, Widths

RegressionLoss = Literal["mse", "mae", "huber", "poisson"]
TASK_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$"
INPUT_NAMES = ("categorical", "continuous")
"""The inputs of exported models, which no output may have as its name."""


class TaskSpec(Section):
    """One task of a model: a column of labels, and how the model learns it."""

    target: str | None = Field(None, description="The column of labels; null: the task's name.")
    kind: Literal["binary", "regression", "multiclass"] | None = Field(
        None,
        description="`binary`: labels 0 and 1; `regression`: numbers; `multiclass`: whole numbers "
        "below `classes`; null: what the schema's tags say, or its ids, else `binary`.",
    )
    loss: RegressionLoss = Field(
        "mse", description="Of a regression: squared or absolute error, Huber's, or Poisson's."
    )
    delta: Real = Field(1.0, gt=0, description="The error from which Huber's loss is linear.")
    classes: PositiveInt | None = Field(
        None, ge=2, description="Number of classes; null: the column's cardinality."
    )
    mean: Real | None = Field(
        None,
        description="The target's mean, of a binary one the share of ones, which predictions begin "
        "at: it is added to the network's number, as log odds or, of poisson, as a logarithm.",
    )
    std: Real | None = Field(
        None,
        gt=0,
        description="The unit in which a regression's network and loss count, such as the target's "
        "standard deviation; predictions stay on the target's scale.",
    )
    label_smoothing: Real = Field(
        0.0,
        ge=0,
        lt=1,
        description="The share of each label that training gives to all classes alike "
        "(Szegedy et al. 2016); metrics take labels as they are.",
    )
    loss_weight: Real = Field(1.0, ge=0, description="The factor on the task's mean loss.")
    hidden: Widths = Field((), description="Layer widths of the task's own tower.")
    weight: str | None = Field(
        None, description="A column of weights for this task alone, in place of `data.weight`."
    )


class SharedBottomSpec(Section):
    """All tasks read the same output of the model's body."""

    kind: Literal["shared_bottom"] = Field("shared_bottom", description="How tasks share.")


class MmoeSpec(Section):
    """Multi-gate mixture of experts: each task weighs shared experts by its own gate."""

    kind: Literal["mmoe"] = Field("mmoe", description="How tasks share.")
    experts: PositiveInt = Field(8, description="Experts over the body's output.")
    hidden: Widths = Field((64,), description="Layer widths of each expert.", min_length=1)


class PleSpec(Section):
    """Progressive layered extraction: layers of shared experts and of experts for single tasks."""

    kind: Literal["ple"] = Field("ple", description="How tasks share.")
    layers: Depth = Field(2, description="Layers of experts.")
    experts: PositiveInt = Field(2, description="Experts of each task in each layer.")
    shared_experts: PositiveInt = Field(2, description="Shared experts of each layer.")
    hidden: Widths = Field((64,), description="Layer widths of each expert.", min_length=1)


class EsmmSpec(Section):
    """Entire-space modelling: each task's probability is a factor of the next task's."""

    kind: Literal["esmm"] = Field("esmm", description="How tasks share.")
    order: tuple[str, ...] = Field(
        (), description="All tasks, each before what follows only it; empty: as in `model.tasks`."
    )


def _kind_alone(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


TaskName = Annotated[str, Field(pattern=TASK_NAME)]
Tasks = Annotated[
    dict[TaskName, TaskSpec],
    Field(description="Tasks by name; without any, the targets of the schema."),
]
SharingSpec = Annotated[
    SharedBottomSpec | MmoeSpec | PleSpec | EsmmSpec, Field(discriminator="kind")
]
Sharing = Annotated[
    SharingSpec | None,
    BeforeValidator(_kind_alone),
    Field(description="What several tasks have in common; null: `shared_bottom`."),
]
