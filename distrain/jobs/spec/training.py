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
"""The number of lanes (equal parts of an epoch's rows) if the number of ranks divides it."""
MOST_LANES = 65536


def lanes_for(num_ranks: int) -> int:
    """Return the smallest multiple of 24 that `num_ranks` divides.

    >>> [lanes_for(ranks) for ranks in (1, 8, 16, 128)]
    [24, 24, 48, 384]
    """
    return math.lcm(LANES, num_ranks)


_NUMBER = ("type", "exclusiveMinimum", "maximum")


def _or_auto(schema: dict[str, Any]) -> None:
    number = {key: schema.pop(key) for key in list(schema) if key in _NUMBER}
    schema.update(anyOf=[number, {"const": "auto"}], default="auto")


def _auto_or_number(value: Any, _: Any) -> Any:
    """Return `value` if it is `auto` or an integer of at least 1; else raise its error.

    pydantic's own validation would report a mistake for each type of the union.
    """
    return value if value == "auto" else _POSITIVE.validate_python(value)


_POSITIVE: TypeAdapter[int] = TypeAdapter(PositiveInt)
_PositiveOrAuto = Annotated[PositiveInt | Literal["auto"], WrapValidator(_auto_or_number)]

FEWEST_STEPS = 250
"""The fewest steps per epoch that `auto` aims at, since models learn little in fewer steps."""

_BATCHES = 32, 65536


def batch_for(rows: int) -> int:
    """Return the batch size for a number of rows.

    It is the largest power of two, up to 65,536, with at least 250 steps per epoch; 32 if that
    would be smaller.

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
"""The metrics that can decide which validation is the best, by kind of target.

In a retrieval job, it is `RETRIEVAL_METRIC`.
"""

RETRIEVAL_METRIC = "recall_at_10"
"""The metric of retrieval.

It is the share of validation rows with label 1 whose item is among the ten best items for the row.
The items of all validation rows are compared.
"""

MORE_IS_BETTER = frozenset({"auc", "r2", "accuracy", "top_5", RETRIEVAL_METRIC})


def _known_metric(metric: str) -> str:
    target, _, name = metric.rpartition(".")
    of_main = JUDGING_METRICS["binary"]
    of_any = dict.fromkeys(name for names in JUDGING_METRICS.values() for name in names)
    if name in (of_any if target else of_main) or metric == RETRIEVAL_METRIC:
        return metric
    raise ValueError(
        f"unknown metric {metric!r}; for the first binary target: {', '.join(of_main)}; for "
        f"retrieval: {RETRIEVAL_METRIC}; for any target TARGET.METRIC, where METRIC is one of "
        f"{', '.join(of_any)}"
    )


ValidationMetric = Annotated[str, AfterValidator(_known_metric)]
"""The name of the metric that decides which validation is the best.

It is a metric of the first binary target, `recall_at_10`, or `TARGET.METRIC` of any target.
"""


class OptimizerSpec(Section):
    """The optimizer of the dense parameters, of the embeddings, or of both."""

    kind: OptimizerKind = Field(
        "adagrad",
        description="The optimizer. Embeddings use its sparse form (`adam` and `adamw`: lazy "
        "Adam). `rowwise_adagrad` keeps one sum per embedding row, 1/dim of Adagrad's state; "
        "dense parameters use Adagrad then.",
    )
    lr: Real = Field(0.01, gt=0, description="The peak learning rate.")
    eps: Real | None = Field(
        None, gt=0, description="The term added to denominators; null: torch's default."
    )
    betas: tuple[DecayRate, DecayRate] = Field(
        (0.9, 0.999), description="The decay rates of Adam's two moments."
    )
    weight_decay: Real | None = Field(
        None,
        ge=0,
        description="Only for `adamw`: the decoupled weight decay of dense parameters; embedding "
        "rows decay by `train.table_weight_decay`. Null: torch's default, 0.01.",
    )

    initial_accumulator_value: Real | None = Field(
        None,
        ge=0,
        description="Only for `adagrad` and `rowwise_adagrad`: the initial sum of squared "
        "gradients. Larger values make the first steps smaller. Null: torch's default, 0.",
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

    warmup_steps: Whole = Field(
        0,
        ge=0,
        le=LARGEST,
        description="The number of steps in which the learning rate rises linearly to the peak. "
        "The first step has 1 / `warmup_steps` of the peak.",
    )
    decay: Literal["none", "linear", "cosine"] = Field(
        "none", description="The shape of the decay after the peak."
    )
    decay_start_step: Whole | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="The first step of the decay; null: directly after the warm-up.",
    )
    final_fraction: Real = Field(
        0.0,
        ge=0,
        le=1,
        description="The learning rate at the last step, as a fraction of the peak.",
    )

    @property
    def last_peak_step(self) -> int:
        """The number, from 0, of the last step at the peak rate, if the schedule has a decay."""
        return max(self.decay_start_step or 0, self.warmup_steps)


class PlateauSpec(Section):
    """Lowers the learning rate when validations stop improving, as torch's `ReduceLROnPlateau`."""

    factor: Real = Field(
        0.1, gt=0, lt=1, description="The factor that the learning rate is multiplied by."
    )
    patience: Whole = Field(
        10,
        ge=0,
        le=LARGEST,
        description="The number of validations in a row without improvement that are tolerated.",
    )
    threshold: Real = Field(
        1e-4,
        ge=0,
        le=1,
        description="The minimum improvement over the best value, as a fraction of it.",
    )
    min_lr: Real = Field(
        0.0, ge=0, description="The minimum learning rate that these reductions lead to."
    )


class EarlyStoppingSpec(Section):
    """Ends training before all steps are taken, once validations no longer improve."""

    metric: ValidationMetric = Field(
        "auc",
        description="The metric of the validation rows that is compared: `auc`, `log_loss` or "
        "`normalised_entropy` of the first binary target, `recall_at_10` for retrieval, or "
        "`TARGET.METRIC`. The saved model is the one with the best value.",
    )
    patience: PositiveInt = Field(
        3,
        description="The number of validations in a row without improvement after which "
        "training stops.",
    )
    min_delta: float = Field(0.0, ge=0, description="The minimum improvement over the best value.")


class TrainSpec(Section):
    """The length of the training, and the work of each step."""

    may_differ = (
        *("early_stopping", "init_from", "init_state", "init_strict", "log_every_steps"),
        *("log_every_s", "audit", "cuda_graph"),
    )

    global_batch_size: _PositiveOrAuto = Field(
        65536,
        description="Rows per step, over all ranks. `auto`: the largest power of two from 32 to "
        "65,536 with at least 250 steps per epoch, 32 for fewer than 8,000 rows; the run records "
        "the chosen value.",
    )
    epochs: _PositiveOrAuto = Field(
        1,
        description="Passes over the training rows. `auto`: if `global_batch_size` is `auto`, as "
        "many as are needed for 250 steps; otherwise, and with `data.windows`, `max_steps` or "
        "`init_from`, 1.",
    )
    max_steps: PositiveInt | None = Field(
        None, description="The maximum number of steps, over all epochs; null: no limit."
    )
    early_stopping: EarlyStoppingSpec | None = Field(
        None,
        description="Stop after `patience` validations in a row without improvement; null: take "
        "all steps.",
    )
    refit: bool = Field(
        False,
        description="Whether to train a second time, starting again from the initial weights, on "
        "training and validation rows together, for as many epochs as led to the best "
        "validation, rounded. The model of the second training is saved; the reported metrics are "
        "those of the first.",
    )
    init_from: str | None = Field(
        None,
        description="The run folder, saved model or checkpoint whose weights a new run starts "
        "with (warm start); null: random initial weights from the seed.",
    )
    init_state: Literal["weights", "all"] = Field(
        "weights",
        description="What is read from `init_from`. `all`: weights and optimizer state, from the "
        "newest checkpoint; the learning rate schedule continues.",
    )
    init_strict: bool = Field(
        True,
        description="Whether all weights of `init_from` must match the model. False: weights that "
        "do not match keep their initial values, and the run reports them.",
    )
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    table_optimizer: OptimizerSpec | None = Field(
        None, description="The optimizer of the embeddings; null: `optimizer`."
    )
    table_schedule: ScheduleSpec | None = Field(
        None, description="The learning rate schedule of the embeddings; null: `schedule`."
    )
    table_weight_decay: Real = Field(
        0.0,
        ge=0,
        description="The decoupled weight decay of all embedding rows, as in `torch.optim.AdamW`. "
        "Only rows of the batch cost time, because the decay of other rows is applied lazily.",
    )
    reduce_on_plateau: PlateauSpec | None = Field(
        None,
        description="Multiply all learning rates by `factor` after more than `patience` "
        "validations in a row without improvement of the metric of `early_stopping` or "
        "`checkpoint.keep_best`; null: never.",
    )
    micro_batches: _PositiveOrAuto = Field(
        "auto",
        description="The number of slices into which a rank's rows of a step are cut for forward "
        "and backward passes of the dense layers; the weights are updated once. More slices need "
        "less memory. `auto`: on a CPU, slices of about 4,096 rows per thread if that gives at "
        "least four slices and the model computes each row independently; otherwise 1.",
    )
    clip_grad_norm: Real | None = Field(
        None,
        gt=0,
        description="The maximum norm of a step's gradient, over all parameters and embeddings; "
        "null: no clipping.",
    )
    clip_groups: Literal["together", "apart"] = Field(
        "together",
        description="Which norm is clipped. `together`: one norm of all gradients. `apart`: one "
        "norm of the dense parameters and one of the embeddings.",
    )
    ema: Real | None = Field(
        None,
        gt=0,
        lt=1,
        description="The decay of an exponential moving average of all weights, such as 0.99. "
        "Validations score the average, and it is saved as the model; training continues with the "
        "plain weights. While the initial weights are more than 5 % of the average (298 steps for "
        "0.99), the plain weights are used. Null: no average.",
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32",
        description="The arithmetic of the dense layers in training. `bf16`: autocast, with "
        "parameters and loss in fp32. `tf32`: TF32 tensor cores; an error on other devices than "
        "NVIDIA GPUs.",
    )
    cuda_graph: bool | Literal["auto"] = Field(
        "auto",
        description="Whether a step on a GPU is recorded once as a CUDA graph and then replayed. "
        "Host-cached tables and list columns prevent it. `auto`: record if nothing prevents it "
        "and the model is not your own function.",
    )
    seed: Whole = Field(
        0, ge=0, lt=2**63, description="The seed of the initial weights and of the row order."
    )
    lanes: Whole = Field(
        LANES,
        gt=0,
        le=MOST_LANES,
        description="The number of equal parts (lanes) into which an epoch's sequence of rows is "
        "cut; the number of ranks must divide it. `auto`: the smallest multiple of 24 that "
        "`resources.num_ranks` divides. The job keeps the number if its number of ranks changes "
        "later.",
        json_schema_extra=_or_auto,
    )
    log_every_steps: PositiveInt = Field(
        10, description="The number of steps between two progress reports."
    )
    log_every_s: Real | None = Field(
        None,
        ge=0,
        le=3600,
        description="The minimum time in seconds between two reports of a rank to the scheduler. "
        "Earlier reports are merged: the counts are the same, with fewer records. 0: send each "
        "report. Null: 0 for up to 8 ranks, otherwise the number of ranks / 32.",
    )
    audit: bool = Field(
        False,
        description="Whether ranks write a hash of each training row, for `distrain audit`.",
    )

    @property
    def of_tables(self) -> OptimizerSpec:
        """The optimizer of the embedding tables."""
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

        Automatic `epochs` give the job at least `FEWEST_STEPS` steps if `global_batch_size` is
        `auto` too, `max_steps` and `init_from` are unset, and the rows are not trained in windows
        (`in_order`). Otherwise they are 1.

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
    def _without_unset(cls, values: Any) -> Any:
        # `JobSpec` chooses unset lanes, since only it has the number of ranks. Specs of version
        # 0.2.0 have the options `compile` and `route_ahead`, which are ignored.
        if isinstance(values, Mapping):
            unset = {"compile", "route_ahead"} | (
                {"lanes"} if values.get("lanes") == "auto" else set()
            )
            return {key: it for key, it in values.items() if key not in unset}
        return values


class EvaluateSpec(Section):
    """When the validation rows are scored."""

    every_steps: PositiveInt | None = Field(
        None, description="The number of steps between validations; null: none during training."
    )
    at_end: bool = Field(True, description="Whether to validate after the last step.")
    next_window: bool = Field(
        False,
        description="Whether to score each window of `data.windows` before the first training on "
        "it (progressive validation). The first window is scored only with `train.init_from`.",
    )
    max_auc_bound: Real = Field(
        1e-3,
        ge=0,
        description="The maximum error of an AUC that is computed from binned logits. If the "
        "error may be larger, for example with logits beyond +-16, the rows are scored again and "
        "sorted by score: the AUC is exact for up to 4 million distinct scores per rank.",
    )
    metrics: dict[
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")],
        Annotated[str, StringConstraints(pattern=FUNCTION)],
    ] = Field(
        {},
        description="Your own metrics, by the names that they get in records: "
        "`package.module:Class`, a subclass of `distrain.metrics.Metric`. The cluster's operator "
        "must allow the package.",
    )
