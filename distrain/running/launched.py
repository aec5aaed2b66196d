"""A command that a launcher started once for each rank, and starts again when one has died."""

import sys
from collections.abc import Callable
from pathlib import Path

from distrain.errors import InputError
from distrain.run_paths import RunPaths
from distrain.running.resuming import Resumption, find_run
from distrain.runs import untrained
from distrain.spec import JobSpec, flat, with_absolute_paths
from distrain.submission import Gang, Launch, follow


def lead_or_follow(spec: JobSpec, run_dir: Path | None) -> Gang:
    """The ranks of a job, for rank 0; the process of any other trains its rank here, and ends."""
    launch = Launch.of_environment()
    if launch.world.rank > 0:
        sys.exit(follow(launch))
    if run_dir is None:
        raise InputError(
            "resources.backend is env, and no run directory is named",
            hint="Name one with --run-dir: a launcher that starts the ranks again goes on there.",
        )
    if spec.resources.device != "cpu":
        launch.take_own_gpu()
    return Gang(launch)


def go_on(
    root: Path, gang: Gang, job_with: Callable[[str], tuple[str, JobSpec, Resumption | None]]
) -> tuple[str, JobSpec, Resumption | None]:
    """The job of all ranks, which goes on where an earlier start of the same command was left.

    Args:
        job_with: The job that the command names, with fields of its spec set.
    """
    word = f"resources.num_ranks={gang.launch.world.num_ranks}"
    job_id, spec, resumed = job_with(word)
    paths = RunPaths(root)
    if resumed is not None or not paths.run.exists() or untrained(paths) is not None:
        return job_id, spec, resumed
    job_id, begun, resumed = find_run(root, [word], without_checkpoint=True)
    given, there = (flat(one.model_dump(mode="json")) for one in (with_absolute_paths(spec), begun))
    # What a run's spec holds in place of `auto` and null follows from the data.
    other = [key for key in given if given[key] not in (there.get(key), "auto", None)]
    if other:
        raise InputError(
            "the run directory holds the run of another job",
            where={"path": str(root), "differs": ", ".join(other)},
            hint="Choose another --run-dir, or go on with that one: --resume.",
        )
    return job_id, begun, resumed
