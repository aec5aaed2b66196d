"""The sections of a job spec, each a frozen model that refuses unknown keys.

Field descriptions are what `docs/spec.md` and the published JSON Schema show.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from distrain.errors import DataError
from distrain.optimizers import OPTIMIZERS, OptimizerKind
from distrain.spec.fields import (
    LARGEST,
    Combiner,
    DecayRate,
    Placement,
    PositiveInt,
    Real,
    Section,
    Whole,
)
from distrain.spec.models import ModelSpec
from distrain.storage import check_url


def _check_url(url: str) -> None:
    try:
        check_url(url)
    except DataError as error:  # pydantic collects ValueErrors
        raise ValueError(f"{error.message} ({error.hint})") from None


RANKS_THAT_SEND_ALL = 8
"""Up to so many ranks send the scheduler each report, unless `train.log_every_s` says more."""

REPORTS_PER_S = 32
"""What the scheduler gets in a second from more ranks, together: some 2 % of a core."""

LANES = 24
"""Lanes of a job whose number of ranks divides it."""
MOST_LANES = 65536


def lanes_for(num_ranks: int) -> int:
    """The smallest multiple of 24 that a number of ranks divides.

    >>> [lanes_for(ranks) for ranks in (1, 8, 16, 128)]
    [24, 24, 48, 384]
    """
    return math.lcm(LANES, num_ranks)


_NUMBER = ("type", "exclusiveMinimum", "maximum")


def _or_auto(schema: dict[str, Any]) -> None:
    number = {key: schema.pop(key) for key in list(schema) if key in _NUMBER}
    schema.update(anyOf=[number, {"const": "auto"}], default="auto")


ValidationMetric = Literal["auc", "log_loss", "normalised_entropy"]
"""What a validation is judged by; of an AUC more is better, of the others less."""


class DataSpec(Section):
    """Where the rows are and how they are read."""

    train: tuple[str, ...] = Field(
        description="Training parquet: paths, folders, globs or URLs.", min_length=1
    )
    valid: tuple[str, ...] = Field((), description="Validation parquet, scored during training.")
    schema_path: str = Field(
        "auto",
        alias="schema",
        description="A schema file or its folder; `auto` looks beside the training data.",
    )
    hive: bool = Field(False, description="Whether folders named `key=value` give columns.")
    reader: Literal["auto", "arrow", "packed", "cudf"] = Field(
        "auto", description="Who reads row groups; `auto` says what it chose and why."
    )
    gpu_memory_fraction: Real = Field(
        0.1, gt=0, lt=1, description="Share of a GPU's memory that the cudf reader may pool."
    )
    cache_dir: str | None = Field(
        None, description="A folder on each host's disk that keeps decoded rows; null does without."
    )
    cache_size: str = Field("100GB", description="What that folder may grow to.")
    fill_null_id: Whole | None = Field(
        None, ge=0, description="What a null id becomes; null refuses them."
    )
    fill_null_value: Real | None = Field(
        None, description="What a null number becomes; null refuses them."
    )
    max_list_length: dict[str, PositiveInt] = Field(
        {},
        description="How many items of a list column's rows are kept, the first ones; the saved "
        "model keeps to it.",
    )
    shuffle: Literal["chunk", "full", "none"] = Field(
        "chunk",
        description="`chunk`: parts permuted, rows permuted inside a chunk; `full`: all rows, "
        "with a rank's whole share of an epoch in memory, or in `shuffle_dir`.",
    )
    shuffle_dir: str | None = Field(
        None,
        description="A folder on each host's disk where `shuffle: full` keeps each rank's share of "
        "an epoch while it lasts; null keeps it in memory.",
    )
    part_size: str | None = Field(
        None,
        description="Row groups of a file up to this size stay together, as one part; null: each "
        "row group is a part.",
    )
    parts_per_chunk: PositiveInt = Field(1, description="Parts that are shuffled together.")
    prefetch_batches: PositiveInt = Field(4, description="Batches prepared ahead of the step.")
    decode_threads: PositiveInt = Field(1, description="Threads that decode parquet, per rank.")
    drop_last: bool = Field(False, description="Leave out the last, smaller global batch.")
    retry_s: Real = Field(
        300.0,
        ge=0,
        description="How long a rank reads again, in seconds, with growing pauses, where the "
        "storage does not answer; then the attempt ends, and the job restarts from its last "
        "checkpoint. Choose less than deadlines.collective_s.",
    )

    @field_validator("train", "valid", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else value

    @field_validator("train", "valid")
    @classmethod
    def _good_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            _check_url(url)
        return value


class OptimizerSpec(Section):
    """The optimizer of dense and embedding parameters alike."""

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

    @model_validator(mode="after")
    def _has_an_effect(self) -> "OptimizerSpec":
        takers = [k for k, facts in OPTIMIZERS.items() if "weight_decay" in facts.dense_options]
        if self.weight_decay is not None and self.kind not in takers:
            raise ValueError(
                f"weight_decay has no effect on {self.kind}; it is an option of {', '.join(takers)}"
            )
        return self


class ScheduleSpec(Section):
    """The learning rate's course: linear warm-up, then decay to a fraction of the peak."""

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


class EarlyStoppingSpec(Section):
    """When to stop before all steps are taken: validations no longer get better."""

    metric: ValidationMetric = Field(
        "auc", description="Of the validation rows; the model saved is that of its best value."
    )
    patience: PositiveInt = Field(
        3, description="Validations in a row that may pass without an improvement."
    )
    min_delta: float = Field(
        0.0, ge=0, description="An improvement is more than this over the best before it."
    )


class TrainSpec(Section):
    """How long and with what steps to train."""

    global_batch_size: PositiveInt = Field(
        65536, description="Rows of one step over all ranks together."
    )
    epochs: PositiveInt = Field(1, description="Passes over the training data.")
    max_steps: PositiveInt | None = Field(None, description="Stop after so many steps in total.")
    early_stopping: EarlyStoppingSpec | None = Field(
        None,
        description="Stops after a validation when `patience` of them in a row were no better than "
        "the best; null: takes all steps.",
    )
    init_from: str | None = Field(
        None,
        description="A run directory, a saved model or a checkpoint whose weights a new run begins "
        "with; null: initial values drawn from the seed.",
    )
    init_strict: bool = Field(
        True,
        description="Whether all of `init_from` must fit; false: what does not keeps its initial "
        "values, and the run reports which.",
    )
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    micro_batches: PositiveInt = Field(
        1,
        description="Slices in which a rank's rows of a step go through the dense part, one after "
        "another; the step still exchanges and updates once. More need less memory.",
    )
    clip_grad_norm: Real | None = Field(
        None,
        gt=0,
        description="Largest norm of a step's gradient over all parameters, embeddings included; "
        "null does not clip.",
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32",
        description="Arithmetic of the dense part in training. `bf16`: products under autocast, "
        "parameters and loss in fp32; `tf32`: matrix units of NVIDIA's GPUs, refused elsewhere.",
    )
    compile: bool = Field(
        False, description="Whether torch compiles the dense part, which takes up to a minute."
    )
    dense_sync: Literal["flat", "ddp"] = Field(
        "flat",
        description="How ranks add up dense gradients: `flat`: in buckets, beside backward and the "
        "embeddings' exchange; `ddp`: torch's DistributedDataParallel.",
    )
    cuda_graph: bool = Field(
        False,
        description="Whether a GPU's step is recorded once and launched as one; not with "
        "host-cached tables or lists.",
    )
    route_ahead: Whole = Field(
        1,
        ge=0,
        le=16,
        description="Batches whose routes through the tables (which rows, on which ranks) are made "
        "ahead, in a thread; 0 makes them in the training thread. Results do not depend on it.",
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

    @model_validator(mode="before")
    @classmethod
    def _auto_is_unset(cls, values: Any) -> Any:
        # What is not set is chosen by the job spec, which knows the number of ranks.
        if isinstance(values, Mapping) and values.get("lanes") == "auto":
            return {key: value for key, value in values.items() if key != "lanes"}
        return values


class EvaluateSpec(Section):
    """When the validation rows are scored."""

    every_steps: PositiveInt | None = Field(None, description="Steps between validation passes.")
    at_end: bool = Field(True, description="Whether to validate after the last step.")
    max_auc_bound: Real = Field(
        1e-3,
        ge=0,
        description="The widest bound on the error of the AUC that is counted in bins of the "
        "logit. Where it is wider, as with logits beyond +-16, the rows are scored once more and "
        "ordered by their scores: the AUC is exact for up to 4 million distinct scores a rank.",
    )


class EmbeddingsSpec(Section):
    """Where embedding rows live, in what form, and how much memory they may take."""

    placement: Literal["auto", "replicated", "row_wise", "host_cached", "two_level"] = Field(
        "auto",
        description="`replicated`: every rank holds all rows; `row_wise`: a rank owns every "
        "num_ranks-th row; `host_cached`: rows lie in the host's memory, hot ones on the device; "
        "`two_level`: a rank owns every group_size-th row, each group of ranks has all; "
        "`auto` chooses among all but `host_cached`, as `distrain plan` shows.",
    )
    group_size: PositiveInt | None = Field(
        None,
        description="How many neighbouring ranks share a copy of `two_level` tables; it divides "
        "resources.num_ranks. Null: the ranks of a node. Where a restart has a number of ranks "
        "that it does not divide, or nodes with unlike numbers, all ranks share one copy.",
    )
    tables: dict[str, Placement] = Field(
        {}, description="Placements of single tables by column, which outrank `placement`."
    )
    combiner: Combiner = Field(
        "mean",
        description="How the embeddings of a row's n ids become one, in columns of lists: their "
        "sum, `mean` (sum / n) or `sqrtn` (sum / sqrt(n)); a row without ids gets zeros.",
    )
    combiners: dict[str, Combiner] = Field(
        {}, description="The same for single columns of lists, which outranks `combiner`."
    )
    storage: Literal["fp32", "bf16"] = Field("fp32", description="The form of stored weights.")
    memory_gib: Real | None = Field(
        None,
        gt=0,
        description="What a rank's tables and their optimizer state may take, in GiB; null: three "
        "quarters of the GPU's memory, or of a rank's share of the host's available memory.",
    )
    cache_gib: Real = Field(
        1.0,
        gt=0,
        description="Device memory for the weights of hot rows of host-cached tables, in GiB; the "
        "optimizer's state for them comes on top.",
    )


class ResourcesSpec(Section):
    """What the job needs to run."""

    backend: Literal["dask", "inline"] = Field(
        "dask", description="`inline` trains one rank in the calling process, for debugging."
    )
    num_ranks: PositiveInt = Field(1, description="Replicas that train together.")
    threads_per_rank: PositiveInt = Field(1, description="torch's CPU threads per rank.")
    min_ranks: PositiveInt | None = Field(
        None,
        description="Fewest replicas to train with while workers are missing: a restart takes what "
        "is there, and the job grows again when workers return; null: always num_ranks.",
    )
    memory_per_rank_gib: Real | None = Field(
        None,
        gt=0,
        description="Host memory a rank's process may hold, in GiB; one that holds more is ended, "
        "with reason OutOfMemory. Null: no limit.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="`auto` takes a GPU where the worker has one."
    )


class CheckpointSpec(Section):
    """When the training's state is saved, where, and how much of it is kept.

    It is also saved when a job is asked to stop. What is saved fits any number of ranks.
    """

    dir: str | None = Field(
        None,
        description="A folder or URL that all workers see; `{run_id}` stands for the job's id. "
        "Null: `checkpoints` in the run directory.",
    )
    every_steps: PositiveInt | None = Field(None, description="Steps between two checkpoints.")
    every_s: Real | None = Field(600.0, gt=0, description="Seconds between two; null: none.")
    at_end: bool = Field(True, description="Whether to write one after the last step.")
    keep: PositiveInt = Field(3, description="How many of the newest are kept.")
    keep_best: ValidationMetric | None = Field(
        None,
        description="A metric of the validation rows: one is written at each validation, the best "
        "is kept besides, and the model at the end is that one's. `train.early_stopping` implies "
        "it.",
    )
    asynchronous: bool = Field(
        True,
        description="Whether training goes on while one is written, from a copy in host memory.",
    )

    @field_validator("dir")
    @classmethod
    def _good_url(cls, value: str | None) -> str | None:
        if value is not None:
            _check_url(value.replace("{run_id}", "run-id"))
        return value


class RestartSpec(Section):
    """How often a job is started anew, from its last checkpoint, before it is given up."""

    max_rank_failures: Whole = Field(
        3, ge=0, le=LARGEST, description="Restarts after a rank died, failed or hung."
    )
    max_worker_losses: Whole = Field(
        10, ge=0, le=LARGEST, description="Restarts after a Dask worker left the cluster."
    )
    max_preemptions: Whole | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="Restarts after a notice to leave, or for a job of higher priority; null: any "
        "number.",
    )
    backoff_s: Real = Field(
        1.0,
        ge=0,
        description="Wait before a restart, in seconds; doubled, up to a minute, for each failure "
        "in a row that got no further than the one before.",
    )


class QueueSpec(Section):
    """Who goes first when workers are scarce."""

    priority: Whole = Field(
        0,
        ge=-LARGEST,
        le=LARGEST,
        description="Jobs of higher priority start first, and may preempt lower ones, which save "
        "a checkpoint, stop, and wait for their turn.",
    )


class DeadlinesSpec(Section):
    """How long things may take."""

    queue_s: Real | None = Field(
        None,
        gt=0,
        description="From submission until the job is placed for the first time; null: no limit.",
    )
    start_s: Real = Field(
        900.0,
        gt=0,
        description="From placement until all ranks train, for each attempt anew; also the longest "
        "that a restart waits for workers.",
    )
    total_s: Real | None = Field(None, gt=0, description="From submission to the end.")
    collective_s: Real = Field(
        600.0, gt=0, description="Longest wait for a peer in one collective operation."
    )
    progress_s: Real | None = Field(
        300.0,
        gt=0,
        description="Longest time without any progress of a rank that trains, after which the "
        "culprit is looked for and the job restarted; null: no limit.",
    )
    stop_grace_s: Real = Field(
        20.0, ge=0, description="What ranks get to save a checkpoint when asked to stop."
    )


class JobSpec(Section):
    """One training job."""

    version: Literal[1] = Field(1, description="Version of this document's format.")
    name: str = Field(
        "distrain", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="A short name."
    )
    tags: dict[str, str] = Field({}, description="Labels for your own bookkeeping.")
    data: DataSpec
    model: ModelSpec
    train: TrainSpec = TrainSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    embeddings: EmbeddingsSpec = EmbeddingsSpec()
    resources: ResourcesSpec = ResourcesSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    restart: RestartSpec = RestartSpec()
    deadlines: DeadlinesSpec = DeadlinesSpec()
    queue: QueueSpec = QueueSpec()

    @property
    def best_metric(self) -> ValidationMetric | None:
        """What the best validation is judged by; `None` if nobody asks for the best."""
        stopping = self.train.early_stopping
        return self.checkpoint.keep_best if stopping is None else stopping.metric

    @property
    def log_every_s(self) -> float:
        """Least seconds between two reports of a rank to the scheduler; 0: each is sent.

        What the scheduler reads does not grow with the ranks: above 8 of them, 32 reports a second.
        """
        said, ranks = self.train.log_every_s, self.resources.num_ranks
        if said is not None:
            return said
        return ranks / REPORTS_PER_S if ranks > RANKS_THAT_SEND_ALL else 0.0

    @property
    def allowed_ranks(self) -> tuple[int, ...]:
        """The numbers of ranks that the job may train with, the largest first."""
        most, fewest = self.resources.num_ranks, self.resources.min_ranks
        numbers = range(most, (most if fewest is None else fewest) - 1, -1)
        return tuple(n for n in numbers if self.train.lanes % n == 0)

    @model_validator(mode="after")
    def _lanes_chosen(self) -> "JobSpec":
        """Write down the lanes that `auto` stands for: a later number of ranks keeps them."""
        ranks = self.resources.num_ranks
        lanes = lanes_for(ranks)
        if "lanes" in self.train.model_fields_set or lanes == LANES:
            return self
        if lanes > MOST_LANES:
            fits = MOST_LANES // ranks * ranks
            raise ValueError(
                f"resources.num_ranks {ranks} needs {lanes} lanes, but {MOST_LANES} are the most"
                + (f"; set train.lanes to {fits}" if fits else "")
            )
        # A validator of a frozen model; what is unset stays out of short documents, but not this.
        self.__dict__["train"] = self.train.model_copy(update={"lanes": lanes})
        self.__pydantic_fields_set__.add("train")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "JobSpec":
        ranks, lanes = self.resources.num_ranks, self.train.lanes
        if lanes % ranks:
            allowed = [n for n in range(1, lanes + 1) if lanes % n == 0]
            needed = lanes_for(ranks)
            raise ValueError(
                f"resources.num_ranks {ranks} does not divide train.lanes {lanes}; "
                f"with {lanes} lanes it may be {', '.join(map(str, allowed))}"
                + (f"; a new run with {ranks} ranks takes train.lanes {needed} (or auto)")
                * (needed <= MOST_LANES)
            )
        fewest = self.resources.min_ranks
        if fewest is not None and fewest > ranks:
            raise ValueError(
                f"resources.min_ranks {fewest} is more than resources.num_ranks {ranks}"
            )
        size = self.embeddings.group_size
        if size is not None and ranks % size:
            fits = [n for n in range(1, ranks + 1) if ranks % n == 0]
            raise ValueError(
                f"embeddings.group_size {size} does not divide resources.num_ranks {ranks}; "
                f"with {ranks} ranks it may be {', '.join(map(str, fits))}"
            )
        stopping, best = self.train.early_stopping, self.checkpoint.keep_best
        if stopping is not None and best not in (None, stopping.metric):
            raise ValueError(
                f"train.early_stopping.metric is {stopping.metric}, but checkpoint.keep_best is "
                f"{best}; a run has one best model: name the same metric, or leave keep_best out"
            )
        if stopping is not None and not (self.data.valid and self.evaluate.every_steps):
            raise ValueError(
                "train.early_stopping needs validations: set data.valid and evaluate.every_steps"
            )
        if self.train.precision == "tf32" and self.resources.device == "cpu":
            raise ValueError(
                "train.precision tf32 needs NVIDIA's GPUs, but resources.device is cpu; "
                "fp32 and bf16 run on both"
            )
        if self.resources.backend == "inline" and ranks != 1:
            raise ValueError(
                f"resources.backend inline trains one rank, but resources.num_ranks is {ranks}"
            )
        return self
