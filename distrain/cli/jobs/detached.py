"""Jobs that are given to a bare scheduler, and left there: new ones, resumed ones, clones."""

from pathlib import Path
from typing import TYPE_CHECKING

from distrain.cli.interrupts import if_interrupted
from distrain.cli.outcome import how_to_follow, print_outcome
from distrain.cli.output import json_wanted, print_answer, print_remark, print_result
from distrain.errors import InputError

if TYPE_CHECKING:
    from distrain.jobs import JobStatus
    from distrain.running import RunRequest
    from distrain.spec import JobSpec


def submit_detached(
    spec: "JobSpec",
    scheduler: str,
    run_dir: Path | None,
    *,
    waits: bool = False,
    checks: bool = False,
) -> None:
    """Submit a new job, and print how to follow it; with `waits`, follow it to its end.

    Args:
        checks: Have a worker look at the data first.
    """
    from distrain.run_paths import new_job_id
    from distrain.running import RunRequest

    job_id = new_job_id(spec.name)
    root = run_dir or Path("runs") / job_id
    leave(RunRequest(spec, root, job_id, scheduler, ":0"), waits=waits, checks=checks)


def resume_detached(
    job: "JobStatus", scheduler: str, overrides: tuple[str, ...], *, waits: bool
) -> None:
    """Let the run of a job go on from its newest checkpoint."""
    from distrain.running import RunRequest, find_run

    root = run_dir_of(job)
    job_id, spec, resumed = find_run(root, overrides)
    leave(RunRequest(spec, root, job_id, scheduler, ":0", resumed), waits=waits)


def clone_detached(
    job: "JobStatus", scheduler: str, overrides: tuple[str, ...], *, waits: bool
) -> None:
    """Submit a new job with a job's spec; its run directory lies beside the other."""
    from distrain.run_paths import RunPaths, new_job_id
    from distrain.running import RunRequest
    from distrain.spec import load_spec, with_absolute_paths

    root = run_dir_of(job)
    spec = with_absolute_paths(load_spec(RunPaths(root).spec, overrides, of_run=True))
    job_id = new_job_id(spec.name)
    leave(RunRequest(spec, root.parent / job_id, job_id, scheduler, ":0"), waits=waits)


def run_dir_of(job: "JobStatus") -> Path:
    """A job's run directory on this machine.

    Raises:
        InputError: It is not there.
    """
    root = Path(job.run_dir)
    if not (job.run_dir and root.is_dir()):
        raise InputError(
            f"the run directory of job {job.job_id} is not on this machine",
            where={"run directory": job.run_dir or "unknown"},
            hint="Where it is: distrain train --resume RUN_DIR --detach.",
        )
    return root


def leave(run: "RunRequest", *, waits: bool, checks: bool = False) -> None:
    """Submit a run, and print how to follow it; with `waits`, follow it to its end."""
    from distrain.cli.job_progress import JobProgress
    from distrain.cli.output import progress_console
    from distrain.running import submit

    assert run.scheduler is not None
    if run.spec.resources.backend == "inline":
        raise InputError(
            "a job with `backend: inline` runs in the process of its command",
            hint="Run it with `distrain train`, or set resources.backend.",
        )
    follow = how_to_follow(run.job_id, run.scheduler)
    progress = JobProgress(progress_console())
    submit(
        run,
        progress,
        lambda: if_interrupted(f"job {run.job_id} is submitted; {follow}"),
        checks_on_worker=checks,
    )
    root = run.run_dir.absolute()
    if json_wanted() and not waits:
        print_answer(job_id=run.job_id, run_dir=str(root), scheduler=run.scheduler)
    print_result(f"job {run.job_id} is submitted; its run directory is {root}")
    if waits:
        attach_to(run.job_id, run.scheduler, root)
    else:
        print_remark(follow)


def attach_to(word: str, scheduler: str, run_dir: Path | None) -> None:
    """Follow a job to its end, and print its summary."""
    from distrain.cli.job_progress import JobProgress
    from distrain.cli.jobs.lookup import connected, job_named
    from distrain.cli.output import progress_console
    from distrain.running import attach

    with connected(scheduler) as client:
        found = job_named(client, word)
        follow = how_to_follow(found.job_id, scheduler)
        if_interrupted(f"job {found.job_id} goes on without this command; {follow}")
        root = run_dir or Path(found.run_dir)
        progress = JobProgress(progress_console())
        print_outcome(root, lambda on_summary: attach(client, found, root, progress, on_summary))
