"""Begins an attempt's records, and writes the summary of a job that has ended.

While a job has a scheduler, its coordinator has the summary written by a task on a worker. If the
job no longer has a scheduler, the command or the service writes it. So it may be written twice.

A *submission* is one submission of a job to a scheduler, or one call that trains in its process.
Each resumption of a run is a further submission, whose attempts have higher numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from distrain.errors import OutputError
from distrain.jobs.assignment import Assignment
from distrain.jobs.job_view import AttemptStarted, Checkpoints, JobView
from distrain.jobs.reasons import Reason
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.load import parse_spec
from distrain.runs.attempt_file import STATUS, AttemptFile
from distrain.runs.attempts import (
    AttemptRead,
    numbers_of,
    read_attempt,
    read_attempts,
    records_of,
    whole_lines,
)
from distrain.runs.run_file import begin_run, check_job, find_run_file, is_success, read_summary
from distrain.runs.stored.folder import OpenRunFolder, open_own_run
from distrain.runs.summary import Summary, all_checkpoints, restarts_before, summarise
from distrain.runs.validation import json_of, write_json

_HEAD_BYTES = 2**16

# the fields of a summary, or the result of `totals` or `earlier_totals`
SummaryFields = Mapping[str, Any]


def begin_attempt(assignment: Assignment) -> AttemptFile:
    """Create and return the records' file of the attempt in `assignment`.

    Its first line has the backend, and the result of `earlier_totals` for the attempt's submission.
    Begins the run folder if there is none. Raises `OutputError` if a file cannot be written, or if
    the folder holds the run of another job.
    """
    paths, first = assignment.paths, assignment.first_attempt
    run = find_run_file(paths)
    if run is None:  # the folder is not prepared
        begin_run(paths, parse_spec(assignment.spec), assignment.job_id)
    else:
        check_job(run, assignment.job_id, paths)
    with open_own_run(paths) as folder:
        earlier = _earlier(folder, read_summary(paths), first)
    file = AttemptFile(paths, assignment.attempt)
    backend = assignment.spec.get("resources", {}).get("backend")
    facts = {"first_attempt": first, "backend": backend, "earlier": earlier}
    file.append([{"entry": STATUS, **facts}])
    return file


def _earlier(
    folder: OpenRunFolder, summary: SummaryFields | None, first_attempt: int
) -> SummaryFields:
    """Return the `earlier_totals` of a submission; reads only the attempts that it needs."""
    numbers = numbers_of(folder)
    own = next((number for number in numbers if number >= first_attempt), None)
    if own is not None and (line := next(whole_lines(folder, own, _HEAD_BYTES), None)):
        earlier: SummaryFields = json_of(line.decode()).get("earlier") or {}
        return earlier
    before = [number for number in numbers if 0 < number < first_attempt]
    attempts = [read_attempt(folder, number) for number in before[-1:]]
    return earlier_totals(attempts, summary, first_attempt)


def finish_run(paths: RunPaths, view: JobView, first_attempt: int) -> Summary:
    """Write and return the summary of a submission that has ended, from its attempts' records.

    If an earlier submission succeeded, and this one failed or was cancelled before it trained, the
    earlier summary remains in the folder. Raises `OutputError` if the summary cannot be written, or
    if the folder is gone.
    """
    if find_run_file(paths) is None:
        raise OutputError(
            "the run folder is gone",
            where={"path": paths.place},
            hint="Was it removed while its job ran?",
        )
    with open_own_run(paths) as folder:
        attempts = read_attempts(folder)
    before = read_summary(paths)
    own = [attempt for attempt in attempts if attempt.number >= first_attempt]
    recorded = next((a.status["earlier"] for a in own if "earlier" in a.status), None)
    earlier = recorded or earlier_totals(attempts, before, first_attempt)
    summary = summarise(view, records_of(attempts), earlier)
    if not (view.reason and is_success(before) and not _trained(own)):
        write_json(paths.place_of(paths.summary), summary.to_json())
    return summary


def earlier_totals(
    attempts: Sequence[AttemptRead], summary: SummaryFields | None, first_attempt: int
) -> dict[str, Any]:
    """Return `restarts`, `checkpoints` and `warm_start` of the submissions before `first_attempt`.

    They are taken from `summary`; or, if the last attempt before `first_attempt` is newer than the
    summary, from the records of that attempt.
    """
    before = [attempt for attempt in attempts if 0 < attempt.number < first_attempt]
    left: SummaryFields = summary or {}
    if before and before[-1].number > (left.get("attempts") or 0):
        left = _left_off(before[-1])
    return {
        "restarts": restarts_before(left),
        "checkpoints": all_checkpoints(left, Checkpoints()),
        "warm_start": left.get("warm_start"),
    }


def totals(attempt: AttemptRead) -> dict[str, Any]:
    """Return an attempt's facts for the summary, by the names of `Summary`'s fields.

    They come from the attempt's status lines; restarts and checkpoints include those of earlier
    submissions.
    """
    status = attempt.status
    earlier = status.get("earlier") or {}
    now = Checkpoints(**status.get("checkpoints") or asdict(Checkpoints()))
    return {
        **{name: status.get(name) for name in ("parameters", "reader")},
        "places": status.get("places") or (),
        "refit": status.get("refit"),
        "warm_start": status.get("warm_start") or earlier.get("warm_start"),
        "restarts": [*earlier.get("restarts", ()), *status.get("restarts", ())],
        "checkpoints": all_checkpoints(earlier, now),
        "attempts": attempt.number,
    }


def current_summary(
    attempts: Sequence[AttemptRead], summary: SummaryFields | None
) -> SummaryFields:
    """Return the run's summary.

    If the last attempt is newer, the facts of that attempt's file instead. The facts are those of
    `totals`. An empty mapping if there is neither a summary nor an attempt.
    """
    summary = summary or {}
    last = attempts[-1] if attempts else AttemptRead(0)
    return totals(last) if last.number > (summary.get("attempts") or 0) else summary


def _left_off(last: AttemptRead) -> dict[str, Any]:
    """Return fields of a summary for a submission whose process ended before it wrote one.

    Its command ended, if it trained in its own process; otherwise the scheduler was lost. `last` is
    the submission's last attempt.
    """
    without_scheduler = last.status.get("backend") in ("inline", "env")
    return {
        **totals(last),
        "reason": Reason.COORDINATOR_LOST,
        "message": "the command that trained in its own process ended or was killed"
        if without_scheduler
        else "the scheduler ended or was lost; a local one ends with its command",
        "steps": last.last_step,
    }


def _trained(attempts: Sequence[AttemptRead]) -> bool:
    return any(isinstance(one, AttemptStarted) for a in attempts for one in a.entries)
