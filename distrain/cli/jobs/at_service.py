"""Implements the job commands for a service."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.api_jobs import ApiJobs, ChangedLines, job_json, pair
from distrain.cli.jobs.service_connection import server_argument, service_at
from distrain.cli.jobs.status_lines import progress_line, state_line
from distrain.cli.outcome import commands_for
from distrain.cli.output import print_answer, print_remark, print_result
from distrain.client.client import Client
from distrain.client.errors import ServiceUnavailable
from distrain.errors import DistrainError, JobCancelled, JobError
from distrain.jobs.api_answers import Job
from distrain.jobs.reasons import Reason
from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_spec, parse_yaml
from distrain.jobs.spec.paths import with_absolute_paths
from distrain.launch.worker_check import check_on_worker

_EVERY_S = 5.0


class ServiceJobs(ApiJobs):
    """The jobs of the service at an address; connects to it on first use.

    `for_s` is the time for which requests are retried, as in `service_at`.
    """

    def __init__(self, address: str, stack: ExitStack, for_s: float | None):
        self.address = address
        self._stack = stack
        self._for_s = for_s

    @cached_property
    def client(self) -> Client:  # type: ignore[override]  # made when it is first asked for
        return self._stack.enter_context(service_at(self.address, self._for_s))

    def how_to_follow(self, job_id: str) -> str:
        return commands_for(job_id, server_argument(self.address))

    def status(self, word: str) -> tuple[dict[str, Any], list[str]]:
        document, lines = super().status(word)
        return {"server": self.address, **document}, lines

    def wait(self, found: Job, timeout_s: float | None = None) -> Job:
        """Print a job's states until it ends, and return the ended job.

        Raises `WaitTimedOut` if it has not ended within `timeout_s`.
        """
        lines = ChangedLines()

        def look(job: Job) -> None:
            if not job.is_final:  # `print_end` prints the end
                lines.print(state_line(job))

        return self.client.wait(found.id, timeout_s, look)

    def print_end(self, _: Job, end: Job) -> None:
        """Print how a job ended; raise `JobError` or `JobCancelled` unless it succeeded."""
        print_answer(job=job_json(end))
        if end.state == "succeeded":
            print_result(f"job {end.id}: succeeded")
            return
        kind = JobCancelled if end.state == "cancelled" else JobError
        where = server_argument(self.address)
        again = f"resume it: distrain resume {end.id}{where}"
        if end.reason in (Reason.DATA_ERROR, Reason.INVALID_SPEC):
            again = "correct the data or the spec, and submit it again"
        raise kind(
            end.message or f"job {end.id}: {end.state}",
            where={"job": end.id, "attempt": end.attempt, "reason": end.reason or end.state},
            hint=f"Its logs: distrain logs {end.id}{where}; {again}",
        )

    def print_cancelled(self, job: Job, end: Job) -> None:
        """Print how a job ended after `cancel`, and raise as `print_end` does."""
        if end.state == "cancelled":
            print_result(f"job {end.id}: cancelled")
        self.print_end(job, end)

    def follow(self, job: Job, _: Path | None = None) -> None:
        """Print a job's states and progress as they arrive, and how it ended.

        A state is printed once, and progress every five seconds at most.
        """
        lines, next_s = ChangedLines(), 0.0
        for event in self.client.follow(job.id):
            lines.print(state_line(Job.read(event.data)))
            if event.data.get("step") and time.monotonic() >= next_s:
                print_remark(f"  {progress_line(event.data)}")
                next_s = time.monotonic() + _EVERY_S
        self.print_end(job, self.client.wait(job.id))

    def submit(
        self, spec: JobSpec, asked: Mapping[str, Any], *, checks: bool, job_id: str | None
    ) -> tuple[Job, str]:
        """Submit a spec; return the job and a text for `finish`, such as "is submitted".

        Args:
            asked: Further arguments of `Client.submit`: `project`, `cluster`, `priority`, `tags`.
            checks: Whether a worker first checks the data.
            job_id: The new job's id; `None` for one with the job's name and the time.
        """
        document = spec_document(with_absolute_paths(spec))
        if checks:
            self._check_data(document, asked)
        new_id = job_id or new_job_id(spec.name)
        with _repeatable(new_id):
            job = self.client.submit(document, **asked, job_id=new_id)
        if not checks:
            print_remark("its data is not checked yet; with --check, a worker checks it first")
        return job, _submitted(job)

    def resume(self, word: str, overrides: tuple[str, ...], *, waits: bool) -> None:
        """Resume the job that `Client.find` returns for `word`; with `waits`, wait for its end."""
        values, found = parse_overrides(overrides), self.client.find(word)
        status = f"distrain status {found.id}{server_argument(self.address)}"
        if_interrupted(f"see whether job {found.id} was resumed: {status}")
        job = self.client.resume(found.id, values, resumes=found.resumes)
        self.finish(job, "is to be resumed", waits=waits)

    def clone(
        self, word: str, overrides: tuple[str, ...], *, waits: bool, job_id: str | None
    ) -> None:
        """Submit a new job with the spec of job `word`; with `waits`, wait for its end."""
        values, found = parse_overrides(overrides), self.client.find(word)
        new_id = job_id or new_job_id(found.name)
        with _repeatable(new_id):
            job = self.client.clone(found.id, values, new_id=new_id)
        self.finish(job, f"{_submitted(job)}, a clone of {found.id}", waits=waits)

    def finish(self, job: Job, what: str, *, waits: bool, follows: bool = False) -> None:
        """Print that a job is submitted, resumed, ...; with `waits` or `follows`, wait for its end.

        The printed sentence is `job ID WHAT`. With `follows`, the job's progress is printed.
        """
        how = self.how_to_follow(job.id)
        if_interrupted(f"job {job.id} {what} and continues without this command; {how}")
        (print_remark if waits or follows else print_result)(f"job {job.id} {what}")
        if not (follows or waits):
            print_answer(server=self.client.address, job_id=job.id, job=job_json(job))
            print_remark(how)
        if follows:
            self.follow(job)
        elif waits:
            self.print_end(job, self.wait(job))

    def _check_data(self, spec: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Have a worker check a job's data; print its notes, and raise an error for mistakes.

        `asked` has further arguments of `Client.submit`, such as the cluster.
        """
        print_remark(
            "a worker checks the data, which may wait for a free one; nothing has been submitted "
            "yet"
        )
        notes = check_on_worker(
            self.client, spec, project=asked["project"], cluster=asked["cluster"]
        )
        for note in notes:
            print_remark(f"note from a worker: {note}")


def _submitted(job: Job) -> str:
    return "was submitted already" if job.replayed else "is submitted"


@contextmanager
def _repeatable(job_id: str) -> Iterator[None]:
    """Context manager of the request that creates a job: prints the job's id before it.

    If the command is interrupted, or the service does not answer, the message says how to repeat
    the command with this id, so that nothing is submitted twice.
    """
    again = f"Repeat the command with --id {job_id}: it submits nothing twice."
    print_remark(f"submitting job {job_id}")
    if_interrupted(f"it is unknown whether job {job_id} was submitted. {again}")
    try:
        yield
    except ServiceUnavailable as error:
        error.hint = again
        raise


def spec_document(spec: JobSpec) -> dict[str, Any]:
    """Return the document of a spec to send to a service, as JSON values.

    It has only the fields that were set, so that a service of another version uses its own defaults
    for the other fields. If the set fields alone are not valid, or give another spec, it has all
    fields.
    """
    short: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    with suppress(DistrainError):
        if parse_spec(short) == spec:
            return short
    whole: dict[str, Any] = spec.model_dump(mode="json")
    return whole


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """Parse words `SECTION.FIELD=VALUE` of `--set`; return the values by `SECTION.FIELD`.

    Raises `click.UsageError` for words of another form.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, text = pair(word, "--set", "SECTION.FIELD=VALUE")
        try:
            values[name] = parse_yaml(text)
        except ValueError as error:
            raise click.UsageError(f"--set {word}: {error}") from None
    return values
