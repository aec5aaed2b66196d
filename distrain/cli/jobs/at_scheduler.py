"""Implements the job commands for a scheduler without a service."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.job_progress import JobProgress, submit_detached
from distrain.cli.jobs.api_jobs import ApiJobs, ChangedLines, job_json
from distrain.cli.outcome import how_to_follow, print_outcome
from distrain.cli.output import (
    json_wanted,
    print_answer,
    print_result,
    progress_console,
)
from distrain.client.client import Client
from distrain.client.errors import WaitTimedOut
from distrain.errors import InputError
from distrain.jobs.api_answers import Job
from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import RunPaths, new_job_id
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import load_spec
from distrain.jobs.states import JobState
from distrain.launch.detached import attach
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.launch.resuming import find_run, how_to_resume
from distrain.launch.run import RunRequest
from distrain.launch.scheduler_api import scheduler_api
from distrain.workers.open_cluster import connect

if TYPE_CHECKING:
    from distributed import Client as DaskClient


class SchedulerJobs(ApiJobs):
    """The jobs of a scheduler, given by its address; connects to it on first use."""

    def __init__(self, address: str, stack: ExitStack):
        self.address = address
        self._stack = stack

    @cached_property
    def _dask(self) -> "DaskClient":
        return self._stack.enter_context(connect(self.address))

    @cached_property
    def client(self) -> Client:  # type: ignore[override]  # made on first use
        return scheduler_api(self._dask)

    def how_to_follow(self, job_id: str) -> str:
        return how_to_follow(job_id, self.address)

    def list_jobs(
        self, states: Sequence[str], limit: int, filters: Mapping[str, Any]
    ) -> tuple[list[Job], list[dict[str, Any]], bool]:
        if any(filters.values()):
            raise click.UsageError("--project, --owner and --tag are for a service.")
        if unknown := set(states) - {*JobState}:
            raise click.UsageError(
                f"--state {min(unknown)}: a scheduler's jobs are in one of {', '.join(JobState)}."
            )
        return super().list_jobs(states, limit, filters)

    def wait(self, job: Job, timeout_s: float | None = None) -> JobView:
        """Print a job's states until it ends, and return its last view.

        Raises:
            WaitTimedOut: The job has not ended within `timeout_s`.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        lines = ChangedLines()

        def look(view: JobView) -> None:
            if view.state.is_final:  # `print_end` prints the end
                return
            lines.print(view.state.value)
            if until_s is not None and time.monotonic() >= until_s:
                raise WaitTimedOut(
                    f"job {job.job_id} has not ended within {timeout_s:g} s",
                    where={"scheduler": self.address, "state": view.state.value},
                    hint=f"It continues; {self.how_to_follow(job.job_id)}",
                )

        return JobHandle(self._dask, job.job_id).watch(look)

    def print_end(self, job: Job, end: JobView) -> None:
        """Print how a job ended; raise `JobError` or `JobCancelled` unless it succeeded."""
        if json_wanted():
            ended = {"state": end.state.value, "reason": end.reason}
            print_answer(job={**job_json(job), **ended})
        raise_for_state(end)
        print_result(f"job {job.job_id}: {end.state.value}")

    def print_cancelled(self, job: Job, end: JobView) -> None:
        """Print how a job ended after `cancel`, and raise as `print_end` does.

        `job` is the job before it was cancelled. If it has a checkpoint, the error has the command
        that resumes it.
        """
        state = end.state.value
        print_answer(job_id=job.job_id, asked=not job.is_final, state=state)
        print_result(f"job {job.job_id}{' has ended already' if job.is_final else ''}: {state}")
        saved, hint = end.checkpoints.step, None
        if saved is not None and job.run_dir:
            hint = how_to_resume(Path(job.run_dir), self.address, saved)
        raise_for_state(end, hint=hint)

    def follow(self, job: Job, run_dir: Path | None = None) -> None:
        """Follow a job to its end, and print its summary.

        `run_dir` is the run folder on this machine; `None` for the path given at submission.
        """
        root = run_dir or Path(job.run_dir)
        progress = JobProgress(progress_console())
        print_outcome(root, lambda on_summary: attach(self._dask, job, root, progress, on_summary))

    def submit(
        self,
        spec: JobSpec,
        run_dir: Path | None,
        *,
        waits: bool,
        checks: bool = False,
        job_id: str | None = None,
    ) -> None:
        """Submit a spec as a new job. With `waits`, follow it to its end.

        With `checks`, a worker checks the data first. `run_dir` is `runs/JOB` by default; a
        `job_id` of `None` is made of the job's name and the time.
        """
        job_id = job_id or new_job_id(spec.name)
        root = run_dir or Path("runs") / job_id
        self._leave(RunRequest(spec, root, job_id, self.address), waits=waits, checks=checks)

    def resume(self, word: str, overrides: tuple[str, ...], *, waits: bool) -> None:
        """Resume a job's run from its newest checkpoint; the run folder must be on this machine.

        `word` is the job's id or its beginning or end. With `waits`, follow the job to its end.
        """
        root = self._run_dir(word)
        job_id, spec, resumed = find_run(root, overrides)
        self._leave(RunRequest(spec, root, job_id, self.address, resumed=resumed), waits=waits)

    def clone(
        self, word: str, overrides: tuple[str, ...], *, waits: bool, job_id: str | None
    ) -> None:
        """Submit a new job with the spec of job `word`; its run folder is beside that job's.

        `overrides` change the spec. With `waits`, follow the job to its end.
        """
        root = self._run_dir(word)
        spec = load_spec(RunPaths(root).spec, overrides)
        job_id = job_id or new_job_id(spec.name)
        self._leave(RunRequest(spec, root.parent / job_id, job_id, self.address), waits=waits)

    def _run_dir(self, word: str) -> Path:
        """Return the run folder of a job, given by its id or the id's beginning.

        Raises `InputError` if the folder is not on this machine.
        """
        job = self.find(word)
        root = Path(job.run_dir)
        if not (job.run_dir and root.is_dir()):
            raise InputError(
                f"the run folder of job {job.job_id} is not on this machine",
                where={"run folder": job.run_dir or "unknown"},
                hint="On the machine that has it, run: distrain train --resume RUN_DIR --detach.",
            )
        return root

    def _leave(self, run: RunRequest, *, waits: bool, checks: bool = False) -> None:
        """Submit a run; with `waits`, follow it to its end, otherwise print how to follow it.

        With `checks`, a worker checks the data first. Raises `InputError` for a backend other than
        Dask.
        """
        if (backend := run.spec.resources.backend) != "dask":
            raise InputError(
                f"a job with `backend: {backend}` runs in the process of its command",
                hint="Run it with `distrain train`, or set resources.backend.",
            )
        submit_detached(run, waits=waits, checks=checks)
        if waits:
            follow = self.how_to_follow(run.job_id)
            if_interrupted(f"job {run.job_id} continues without this command; {follow}")
            self.follow(self.find(run.job_id), run.run_dir.absolute())
