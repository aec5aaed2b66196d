"""Measures training steps on 1, 2, 4, ... and all ranks with short jobs on the cluster."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from distrain.diagnostics.bench.measuring.hosts import workers_by_host
from distrain.diagnostics.bench.measuring.sizes import Sizes
from distrain.diagnostics.bench.results import Scaling, Step
from distrain.jobs.job_view import Record
from distrain.jobs.spec.load import parse_spec, parse_yaml
from distrain.launch.job_handle import JobHandle, raise_for_state

_WINDOWS = 12
_WARM_UP = 3
"""The number of first reports in a job that are warm-up, and not repetitions."""

_JOB = """
name: bench
data: {drop_last: true}
model: {kind: dlrm, embedding_dim: 16, bottom: [128, 64], top: [64, 128, 256]}
train: {epochs: 1_000_000, log_every_s: 0, optimizer: {kind: adagrad, lr: 0.02}}
checkpoint: {every_s: null, at_end: false}
restart: {max_rank_failures: 0, max_worker_losses: 0}
deadlines: {queue_s: 600}  # a worker may have left
"""

_PHASES = ("data_wait", "copy", "forward_backward", "exchange", "optimizer", "other")


def measure_steps(
    client: Any, data: Path, folder: Path, sizes: Sizes, device: str, say: Callable[[str], None]
) -> list[Step]:
    """Measure steps on 1, 2, 4, ... and all ranks, with weak scaling.

    If `sizes.has_strong`, and there are several ranks, also with strong scaling.

    `data` is the folder of prepared rows. The run folders of the jobs are written to `folder`,
    which all workers must see. `say` is called with the name of each measurement at its start.
    Raises `JobError` if a job fails.
    """
    most = sum(map(len, workers_by_host(client).values()))
    steps = []
    for ranks in _numbers(most):
        say(f"steps on {ranks} of {most} ranks")
        steps.append(measure_step(client, data, folder, sizes, device, ranks, "weak"))
    if sizes.has_strong and most > 1:
        for ranks in _numbers(most)[:-1]:
            say(f"steps on {ranks} of {most} ranks, with the rows of all")
            steps.append(measure_step(client, data, folder, sizes, device, ranks, "strong", most))
        last = next(step for step in steps if step.ranks == most)
        steps.append(replace(last, scaling="strong"))  # equal to weak scaling on all ranks
    return steps


def _numbers(most: int) -> list[int]:
    """Return the powers of two up to `most`, and `most`.

    >>> _numbers(6)
    [1, 2, 4, 6]
    """
    powers = [2**power for power in range(most.bit_length())]
    return sorted({n for n in powers if n <= most} | {most})


def measure_step(
    client: Any,
    data: Path,
    folder: Path,
    sizes: Sizes,
    device: str,
    ranks: int,
    scaling: Scaling,
    rows_of: int = 0,
) -> Step:
    """Measure the steps of a job on `ranks` ranks.

    A step has `rows_of` times `sizes.rank_rows` rows (if `rows_of` is 0: `ranks` times), which are
    divided among the ranks.

    Args:
        data: The folder of prepared rows, with `train`.
        folder: Where the run folder is written; all workers must see it.
        scaling: The kind of scaling, for the job's id and the result.

    Raises:
        JobError: The job failed.
    """
    rows = sizes.rank_rows * (rows_of or ranks)
    job = JobHandle(client, f"bench-{scaling}-{ranks}-{uuid4().hex[:8]}")
    entries: list[Any] = []
    spec = job_spec(data, sizes, device, ranks, rows)
    job.submit(spec, folder / job.job_id)
    try:
        view = job.watch(lambda view: entries.extend(view.progress))
    except BaseException:
        job.cancel("`distrain bench` ended")
        raise
    raise_for_state(view)
    records = [e for e in entries if isinstance(e, Record) and e.split == "train" and e.rows_per_s]
    return Step(
        ranks,
        scaling,
        rows,
        tuple(record.rows_per_s for record in records[_WARM_UP:] if record.rows_per_s),
        tuple(
            {p: seconds.get(p, 0.0) / sizes.steps for p in _PHASES} for seconds in view.rank_seconds
        ),
        tuple(place["host"] for place in view.rank_places),
    )


def job_spec(data: Path, sizes: Sizes, device: str, ranks: int, rows: int) -> Any:
    """Return the spec of a job that trains DLRM on the folder `data/train`, without checkpoints.

    `rows` is the number of rows of a step on all ranks together.
    """
    document = parse_yaml(_JOB)
    document["data"]["train"] = str(data / "train")
    document["train"] |= {
        "global_batch_size": rows,
        "max_steps": sizes.steps,
        "log_every_steps": max(1, sizes.steps // _WINDOWS),
    }
    document["resources"] = {"num_ranks": ranks, "device": device}
    return parse_spec(document)
