"""The sections `resources`, `checkpoint`, `restart`, `queue` and `deadlines` of a job spec.

`docs/spec.md` and the published JSON Schema show the field descriptions.
"""

from typing import Literal

from pydantic import Field, field_validator

from distrain.jobs.spec.fields import LARGEST, PositiveInt, Real, Section, Whole, check_url_of
from distrain.jobs.spec.training import ValidationMetric


class ResourcesSpec(Section):
    """The job's number of ranks, and their devices, threads and memory."""

    backend: Literal["dask", "inline", "env"] = Field(
        "dask",
        description="What starts the ranks. `dask`: the workers of a Dask cluster. `inline`: one "
        "rank trains in the calling process, for debugging. `env`: torchrun, srun or a JobSet has "
        "started the ranks; `num_ranks` must be their number.",
    )
    num_ranks: PositiveInt = Field(1, description="The number of training processes.")
    threads_per_rank: PositiveInt = Field(
        1, description="The number of torch's CPU threads per rank."
    )
    min_ranks: PositiveInt | None = Field(
        None,
        description="The fewest ranks to train with while workers are missing. A restart uses the "
        "workers that are available, and the job grows again when workers return. Null: always "
        "`num_ranks`.",
    )
    memory_per_rank_gib: Real | None = Field(
        None,
        gt=0,
        description="The limit of a rank's host memory, in GiB. A rank above the limit is killed, "
        "and the job fails with the reason OutOfMemory. Null: no limit.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Where ranks compute. `auto`: on a GPU if the worker has one, otherwise "
        "on the CPU.",
    )


class CheckpointSpec(Section):
    """When and where checkpoints are written, and how many are kept.

    A checkpoint is also written when a job is asked to stop. Any number of ranks can load it.
    """

    dir: str | None = Field(
        None,
        description="The folder or URL of the checkpoints, which all workers must be able to "
        "access. `{run_id}` is replaced by the job's id. Null: `checkpoints` in the run folder.",
    )
    every_steps: PositiveInt | None = Field(
        None, description="Write a checkpoint after this many steps; null: never for this reason."
    )
    every_s: Real | None = Field(
        600.0,
        gt=0,
        description="Write a checkpoint after this many seconds; null: never for this reason.",
    )
    at_end: bool = Field(True, description="Whether to write a checkpoint after the last step.")
    window_models: bool = Field(
        False,
        description="Whether to save a model at the end of each window of `data.windows`, in "
        "`models/` of the run folder. A checkpoint is always written at the end of a window.",
    )
    keep: PositiveInt = Field(3, description="The number of newest checkpoints to keep.")
    keep_best: ValidationMetric | None = Field(
        None,
        description="The metric of the validation rows that selects the best checkpoint; values "
        "as in `train.early_stopping.metric`. A checkpoint is written at each validation, the "
        "best one is kept in addition to the newest, and the final model is the best one. Null: "
        "the final model has the last weights. `train.early_stopping` sets it.",
    )
    asynchronous: bool = Field(
        True,
        description="Whether training continues while a checkpoint is written from a copy in host "
        "memory.",
    )

    @field_validator("dir")
    @classmethod
    def _good_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_url_of(value.replace("{run_id}", "run-id"))
        return value


class RestartSpec(Section):
    """The limits of restarts from the last checkpoint, after which a job fails."""

    max_rank_failures: Whole = Field(
        3,
        ge=0,
        le=LARGEST,
        description="The maximum number of restarts after a rank died, failed or hung.",
    )
    max_worker_losses: Whole = Field(
        10,
        ge=0,
        le=LARGEST,
        description="The maximum number of restarts after a Dask worker left the cluster.",
    )
    max_preemptions: Whole | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="The maximum number of restarts after a machine's termination notice or a "
        "preemption by a job of higher priority; null: no limit.",
    )
    backoff_s: Real = Field(
        1.0,
        ge=0,
        description="The pause before a restart, in seconds. It doubles, up to 60 s, with each "
        "failure in a row without a new step, and with each loss of a worker within ten minutes.",
    )


class QueueSpec(Section):
    """Which jobs start first when workers are scarce."""

    priority: Whole = Field(
        0,
        ge=-LARGEST,
        le=LARGEST,
        description="Jobs of higher priority start first. They may preempt jobs of lower "
        "priority, which save a checkpoint, stop and queue again.",
    )


class DeadlinesSpec(Section):
    """Time limits for waiting, starting, running and stopping, in seconds."""

    queue_s: Real | None = Field(
        None,
        gt=0,
        description="The maximum time in seconds from submission until the job first gets "
        "workers; null: no limit.",
    )
    start_s: Real = Field(
        900.0,
        gt=0,
        description="The maximum time in seconds, for each attempt, from getting workers until "
        "all ranks train. A restart waits this long for workers.",
    )
    total_s: Real | None = Field(
        None,
        gt=0,
        description="The maximum time in seconds from submission to the end of the job; null: no "
        "limit.",
    )
    collective_s: Real = Field(
        600.0,
        gt=0,
        description="The maximum time in seconds that a rank waits for other ranks in one "
        "collective operation.",
    )
    progress_s: Real | None = Field(
        300.0,
        gt=0,
        description="The maximum time in seconds without progress of any rank. Then the blocking "
        "rank is identified and the job restarts. Null: no limit.",
    )
    stop_grace_s: Real = Field(
        20.0,
        ge=0,
        description="The time in seconds that ranks have to save a checkpoint when the job is "
        "stopped; at most 3 after `distrain cancel` or a missed deadline.",
    )
