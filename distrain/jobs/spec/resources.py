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
        description="`inline` trains one rank in the calling process, for debugging; `env`: ranks "
        "are the processes that torchrun, srun or a JobSet started, and `num_ranks` is their "
        "number.",
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
    """When and where checkpoints are written, and how many are kept.

    A checkpoint is also written when a job is asked to stop. It fits any number of ranks.
    """

    dir: str | None = Field(
        None,
        description="A folder or URL that all workers see; `{run_id}` stands for the job's id. "
        "Null: `checkpoints` in the run directory.",
    )
    every_steps: PositiveInt | None = Field(None, description="Steps between two checkpoints.")
    every_s: Real | None = Field(600.0, gt=0, description="Seconds between two; null: none.")
    at_end: bool = Field(True, description="Whether to write one after the last step.")
    window_models: bool = Field(
        False,
        description="Whether a model is saved at the end of each window of `data.windows`, in "
        "`models/` of the run directory, besides the checkpoint there.",
    )
    keep: PositiveInt = Field(3, description="How many of the newest are kept.")
    keep_best: ValidationMetric | None = Field(
        None,
        description="A metric of the validation rows, as `train.early_stopping.metric`: one is "
        "written at each validation, the best is kept besides, and the model at the end is that "
        "one's. `train.early_stopping` implies it.",
    )
    asynchronous: bool = Field(
        True,
        description="Whether training goes on while one is written, from a copy in host memory.",
    )

    @field_validator("dir")
    @classmethod
    def _good_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_url_of(value.replace("{run_id}", "run-id"))
        return value


class RestartSpec(Section):
    """How often a job restarts from its last checkpoint before it fails."""

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
        "in a row that got no further than the one before, and for each loss of a worker in ten "
        "minutes.",
    )


class QueueSpec(Section):
    """Which jobs start first when workers are scarce."""

    priority: Whole = Field(
        0,
        ge=-LARGEST,
        le=LARGEST,
        description="Jobs of higher priority start first, and may preempt lower ones, which save "
        "a checkpoint, stop, and wait for their turn.",
    )


class DeadlinesSpec(Section):
    """Time limits for waiting, starting, running and stopping, in seconds."""

    queue_s: Real | None = Field(
        None,
        gt=0,
        description="From submission until the job is placed for the first time; null: no limit.",
    )
    start_s: Real = Field(
        900.0,
        gt=0,
        description="From placement until all ranks train, for each attempt; also the longest "
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
