"""The sections `train` and `evaluate`: steps, optimizer, schedule, validations.

`docs/spec.md` and the published JSON Schema show the field descriptions.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    WrapValidator,
    model_validator,
)

from distrain.jobs.optimizers import OPTIMIZERS, OptimizerKind
from distrain.jobs.spec.fields import (
    FUNCTION,
    LARGEST,
    DecayRate,
    PositiveInt,
    Real,
    Section,
    Whole,
)

LANES = 24
"""The default number of lanes (virtual shards of the data), if the number of ranks divides it."""
MOST_LANES = 65536


def lanes_for(num_ranks: int) -> int:
    """Return the smallest multiple of 24 that is divisible by a number of ranks.

    >>> [lanes_for(ranks) for ranks in (1, 8, 16, 128)]
    [24, 24, 48, 384]
    """
    return math.lcm(LANES, num_ranks)


_NUMBER = ("type", "exclusiveMinimum", "maximum")


def _or_auto(schema: dict[str, Any]) -> None:
    number = {key: schema.pop(key) for key in list(schema) if key in _NUMBER}
    schema.update(anyOf=[number, {"const": "auto"}], default="auto")


def _auto_or_number(value: Any, _: Any) -> Any:
    """Return a valid value; report a wrong one as one mistake, not as one per type of the union."""
    return value if value == "auto" else _POSITIVE.validate_python(value)


_POSITIVE: TypeAdapter[int] = TypeAdapter(PositiveInt)
_PositiveOrAuto = Annotated[PositiveInt | Literal["auto"], WrapValidator(_auto_or_number)]

FEWEST_STEPS = 250
"""The fewest steps per epoch that `auto` aims at: models hardly learn in fewer."""

_BATCHES = 32, 65536


def batch_for(rows: int) -> int:
    """Return the largest power of two from 32 to 65,536 with at least 250 steps per epoch.

    >>> [batch_for(rows) for rows in (1_000, 60_000, 140_110, 10**6, 45_000_000)]
    [32, 128, 512, 2048, 65536]
    """
    fewest, most = _BATCHES
    largest = max(1, rows // FEWEST_STEPS)
    return min(most, max(fewest, 1 << (largest.bit_length() - 1)))


JUDGING_METRICS = {
    "binary": ("auc", "log_loss", "normalised_entropy"),
    "regression": ("rmse", "mae", "r2", "abs_error_p50", "abs_error_p90", "abs_error_p99"),
    "multiclass": ("accuracy", "top_5", "log_loss"),
}
"""The metrics that can decide which validation is the best, by kind of target."""

RETRIEVAL_METRIC = "recall_at_10"
"""The share of validation rows whose item is among the ten best of all rows' items."""

MORE_IS_BETTER = frozenset({"auc", "r2", "accuracy", "top_5", RETRIEVAL_METRIC})


def _known_metric(metric: str) -> str:
    target, _, name = metric.rpartition(".")
    of_main = JUDGING_METRICS["binary"]
    of_any = dict.fromkeys(name for names in JUDGING_METRICS.values() for name in names)
    if name in (of_any if target else of_main) or metric == RETRIEVAL_METRIC:
        return metric
    raise ValueError(
        f"must be {', '.join(of_main)}, which are of the first binary target, {RETRIEVAL_METRIC} "
        f"of retrieval, or TARGET.METRIC with one of {', '.join(of_any)}; not {metric!r}"
    )


ValidationMetric = Annotated[str, AfterValidator(_known_metric)]
"""The metric that decides which validation is the best.

A metric of the first binary target, `recall_at_10`, or `TARGET.METRIC` of any target.
"""


class OptimizerSpec(Section):
    """The optimizer of the dense parameters, of the embeddings, or of both."""

    kind: OptimizerKind = Field(
        "adagrad",
        description="For embeddings each has its sparse form (adam, adamw: lazy Adam). "
        "`rowwise_adagrad` keeps one sum per embedding row, a dim-th of Adagrad's state; dense "
        "parameters get Adagrad.",
    )
    lr: Real = Field(0.01, gt=0, description="Peak learning rate.")
    eps: Real | None = Field(
        None, gt=0, description="Added to denominators; null takes torch's default."
    )
    betas: tuple[DecayRate, DecayRate] = Field((0.9, 0.999), description="Adam's decay rates.")
    weight_decay: Real | None = Field(
        None,
        ge=0,
        description="Of `adamw`: each step also takes `lr * weight_decay` of every dense "
        "parameter; rows of tables do not decay. Null takes torch's default, 0.01.",
    )

    initial_accumulator_value: Real | None = Field(
        None,
        ge=0,
        description="What the sums of `adagrad` and `rowwise_adagrad` begin with: more slows the "
        "first steps; null takes torch's default, 0.",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> "OptimizerSpec":
        for option in ("weight_decay", "initial_accumulator_value"):
            takers = [k for k, facts in OPTIMIZERS.items() if option in facts.dense_options]
            if getattr(self, option) is not None and self.kind not in takers:
                raise ValueError(
                    f"{option} has no effect on {self.kind}; it is an option of {', '.join(takers)}"
                )
        return self


class ScheduleSpec(Section):
    """The learning rate schedule: linear warm-up, then decay to a fraction of the peak."""

    warmup_steps: Whole = Field(0, ge=0, le=LARGEST, description="Steps from 0 to the peak rate.")
    decay: Literal["none", "linear", "cosine"] = Field("none", description="Form of the decay.")
    decay_start_step: Whole | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="First decaying step; null: right after the warm-up.",
    )
    final_fraction: Real = Field(
        0.0, ge=0, le=1, description="Rate at the last step, as a fraction of the peak."
    )

    @property
    def last_peak_step(self) -> int:
        """The last step, from 0, at the peak rate, if the rate decays afterwards."""
        return max(self.decay_start_step or 0, self.warmup_steps)


class PlateauSpec(Section):
    """Lowers the learning rate when validations stop improving, as torch's `ReduceLROnPlateau`."""

    factor: Real = Field(0.1, gt=0, lt=1, description="What the rate is multiplied by.")
    patience: Whole = Field(
        10, ge=0, le=LARGEST, description="Validations in a row that may pass without a gain."
    )
    threshold: Real = Field(
        1e-4, ge=0, le=1, description="A gain is more than this share of the best before it."
    )
    min_lr: Real = Field(0.0, ge=0, description="The rate falls no lower for this reason.")


class EarlyStoppingSpec(Section):
    """Ends training before all steps are taken, once validations no longer improve."""

    metric: ValidationMetric = Field(
        "auc",
        description="Of the validation rows: `auc`, `log_loss` or `normalised_entropy` of the "
        "first binary target, `recall_at_10` of retrieval, or `TARGET.METRIC`; the model saved is "
        "that of its best value.",
    )
    patience: PositiveInt = Field(
        3, description="Validations in a row that may pass without an improvement."
    )
    min_delta: float = Field(
        0.0, ge=0, description="An improvement is more than this over the best before it."
    )


class TrainSpec(Section):
    """How long to train, and what each step does."""

    may_differ = (
        *("early_stopping", "init_from", "init_state", "init_strict", "log_every_steps"),
        *("log_every_s", "route_ahead", "audit", "cuda_graph"),
    )

    global_batch_size: _PositiveOrAuto = Field(
        65536,
        description="Rows of one step over all ranks together. `auto`: the largest power of two "
        "from 32 to 65,536 that leaves an epoch 250 steps, which the run records.",
    )
    epochs: _PositiveOrAuto = Field(
        1,
        description="Passes over the training data. `auto`: 1, but for tables so small that an "
        "automatic `global_batch_size` leaves fewer than 250 steps: as many as make so many; 1 "
        "with `data.windows`.",
    )
    max_steps: PositiveInt | None = Field(None, description="Stop after so many steps in total.")
    early_stopping: EarlyStoppingSpec | None = Field(
        None,
        description="Stops after a validation when `patience` of them in a row were no better than "
        "the best; null: takes all steps.",
    )
    refit: bool = Field(
        False,
        description="Whether a second training follows, from the start, on training and validation "
        "rows together, for as many whole passes as the best validation had seen. Its model is "
        "saved; the figures shown are those of the first training.",
    )
    init_from: str | None = Field(
        None,
        description="A run directory, a saved model or a checkpoint whose weights a new run begins "
        "with; null: initial values drawn from the seed.",
    )
    init_state: Literal["weights", "all"] = Field(
        "weights",
        description="What is taken of `init_from`. `all`: the state of the optimizers, too, from "
        "the newest checkpoint there; the learning rate's course goes on.",
    )
    init_strict: bool = Field(
        True,
        description="Whether all of `init_from` must fit; false: what does not keeps its initial "
        "values, and the run reports which.",
    )
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    table_optimizer: OptimizerSpec | None = Field(
        None, description="The optimizer of embeddings; null: `optimizer`, as of dense parameters."
    )
    table_schedule: ScheduleSpec | None = Field(
        None, description="The course of the learning rate of embeddings; null: `schedule`."
    )
    table_weight_decay: Real = Field(
        0.0,
        ge=0,
        description="A step also takes `lr * table_weight_decay` of every row of the tables, as "
        "`torch.optim.AdamW` does; it costs what the batch touches.",
    )
    reduce_on_plateau: PlateauSpec | None = Field(
        None,
        description="Multiplies the rates of all parameters by `factor` after a validation when "
        "more than `patience` of them in a row brought no gain, by the metric of `early_stopping` "
        "or `checkpoint.keep_best`; null: never.",
    )
    micro_batches: _PositiveOrAuto = Field(
        "auto",
        description="Slices in which a rank's rows of a step go through the dense part, one after "
        "another; the step still exchanges and updates once. More need less memory. `auto`: on a "
        "CPU slices of about 4,096 rows a thread, if there are four or more and the model "
        "computes each row by itself; else 1.",
    )
    clip_grad_norm: Real | None = Field(
        None,
        gt=0,
        description="Largest norm of a step's gradient over all parameters, embeddings included; "
        "null does not clip.",
    )
    clip_groups: Literal["together", "apart"] = Field(
        "together",
        description="`apart`: dense parameters and embeddings are clipped each by a norm of their "
        "own.",
    )
    ema: Real | None = Field(
        None,
        gt=0,
        lt=1,
        description="Decay of an exponential moving average of all weights, such as 0.99: it is "
        "what validations score and what is saved as the model; training goes on from the weights "
        "themselves, which also stand for the average while the initial weights are more than 5 % "
        "of it (298 steps of 0.99). Null: none.",
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32",
        description="Arithmetic of the dense part in training. `bf16`: products under autocast, "
        "parameters and loss in fp32; `tf32`: matrix units of NVIDIA's GPUs, refused elsewhere.",
    )
    compile: bool = Field(
        False, description="Whether torch compiles the dense part, which takes up to a minute."
    )
    cuda_graph: bool | Literal["auto"] = Field(
        "auto",
        description="Whether a GPU's step is recorded once and launched as one; not with "
        "host-cached tables or lists. `auto`: ranks on NVIDIA GPUs record where they can, but not "
        "a model that is a function of your own.",
    )
    route_ahead: Whole = Field(
        1,
        ge=0,
        le=16,
        description="Batches whose routes through the tables (which rows, on which ranks) are made "
        "ahead, in a thread; 0 makes them in the training thread. Results do not depend on it. "
        "Recorded steps ignore it.",
    )
    balance_lengths: bool = Field(
        False,
        description="Whether the ranks send each other rows of a step until their lists are evenly "
        "long, by sums of lengths and of squares where models attend; the step's rows stay.",
    )
    seed: Whole = Field(0, ge=0, lt=2**63, description="Seeds parameters and row order.")
    lanes: Whole = Field(
        LANES,
        gt=0,
        le=MOST_LANES,
        description="Virtual shards of the data; the number of ranks must divide it. `auto`: the "
        "smallest multiple of 24 that `resources.num_ranks` divides, which a job spec holds from "
        "then on.",
        json_schema_extra=_or_auto,
    )
    log_every_steps: PositiveInt = Field(10, description="Steps between two progress reports.")
    log_every_s: Real | None = Field(
        None,
        ge=0,
        le=3600,
        description="Least seconds between two reports of a rank to the scheduler: those that come "
        "sooner are joined, with the same counts and fewer records; 0 sends each. null: 0 up to 8 "
        "ranks, above a 32nd of a second for each rank.",
    )
    audit: bool = Field(
        False,
        description="Whether ranks write down a hash of each row they train, for `distrain audit`.",
    )

    @property
    def of_tables(self) -> OptimizerSpec:
        return self.table_optimizer or self.optimizer

    @property
    def batch_rows(self) -> int:
        """Rows of a step, over all ranks; `for_rows` must have replaced `auto`."""
        assert self.global_batch_size != "auto", "the spec is not made for a table's rows"
        return self.global_batch_size

    @property
    def num_epochs(self) -> int:
        """Passes over the rows; `for_rows` must have replaced `auto`."""
        assert self.epochs != "auto", "the spec is not made for a table's rows"
        return self.epochs

    def for_rows(self, rows: int, *, in_order: bool = False) -> "TrainSpec":
        """Return the section with `auto` replaced by the values for this number of training rows.

        `in_order`: the rows are trained in windows, for which automatic `epochs` are 1.

        >>> TrainSpec(global_batch_size="auto", epochs="auto").for_rows(1_000).num_epochs
        8
        """
        batch, epochs = self.global_batch_size, self.epochs
        is_free = batch == "auto" and self.max_steps is None and self.init_from is None
        is_free = is_free and not in_order
        if batch == "auto":
            batch = batch_for(rows)
        if epochs == "auto":
            epochs = -(-FEWEST_STEPS // max(1, -(-rows // batch))) if is_free else 1
        return self.model_copy(update={"global_batch_size": batch, "epochs": epochs})

    @model_validator(mode="before")
    @classmethod
    def _auto_is_unset(cls, values: Any) -> Any:
        # `JobSpec` chooses unset lanes, since only it has the number of ranks.
        if isinstance(values, Mapping) and values.get("lanes") == "auto":
            return {key: value for key, value in values.items() if key != "lanes"}
        return values


class EvaluateSpec(Section):
    """When the validation rows are scored."""

    every_steps: PositiveInt | None = Field(None, description="Steps between validation passes.")
    at_end: bool = Field(True, description="Whether to validate after the last step.")
    next_window: bool = Field(
        False,
        description="Whether each window of `data.windows` is scored before it is trained for the "
        "first time (progressive validation); the first one only by a run with `train.init_from`.",
    )
    max_auc_bound: Real = Field(
        1e-3,
        ge=0,
        description="The widest bound on the error of the AUC that is counted in bins of the "
        "logit. Where it is wider, as with logits beyond +-16, the rows are scored once more and "
        "ordered by their scores: the AUC is exact for up to 4 million distinct scores a rank.",
    )
    metrics: dict[
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")],
        Annotated[str, StringConstraints(pattern=FUNCTION)],
    ] = Field(
        {},
        description="Metrics of your own, by the names that records have for them: "
        "`package.module:Class` of a `distrain.metrics.Metric`, from a package that the cluster's "
        "operator allows.",
    )
