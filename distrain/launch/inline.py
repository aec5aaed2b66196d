"""Trains a rank in the calling process, without cluster or subprocess, and writes its records."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import RLock

from distrain.errors import lost_interrupts_sent_again
from distrain.jobs.assignment import Assignment, World
from distrain.jobs.events import Event, RankFailed
from distrain.jobs.job_view import JobView, Notice, entry_to_json
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState
from distrain.launch.external_ranks import Gang
from distrain.runs.attempt_file import StatusLines
from distrain.runs.finish_run import begin_attempt
from distrain.runs.records.collector import Collector

# Training sets torch's thread count and random generators, which all threads of a process share.
# The lock is reentrant because a callback may train, too.
_one_run_at_a_time = RLock()


def run_inline(
    spec: JobSpec,
    run_dir: Path,
    job_id: str,
    on_view: Callable[[JobView], None],
    attempt: int = 1,
    gang: Gang | None = None,
) -> JobView:
    """Train one rank in this process, without restarts, and return the job's last view.

    A failure of the training is not raised: the view has its reason and message. If another thread
    of this process trains inline, this call waits for its end.

    Args:
        on_view: Called with each new view, also in the thread that writes checkpoints.
        gang: All ranks of a launcher, if this process is their rank 0; the records are then those
            of all ranks. `None` for a job of one rank.

    Raises:
        OutputError: The file of records cannot be created, or all writes have failed for a while
            (`AttemptFile.append`); a failed write before that becomes a notice in the view.
    """
    from distrain.train.control.control import Control
    from distrain.train.control.rank_setup import process_as_it_was
    from distrain.train.rank.process import run_rank

    collector, status = Collector(), StatusLines()
    world = World() if gang is None else gang.launch.world
    collector.begin_attempt(attempt, world.num_ranks)
    num_shown = 0

    def view(state: JobState, failure: RankFailed | None = None) -> JobView:
        nonlocal num_shown
        new_entries, num_shown = tuple(collector.entries.since(num_shown)), len(collector.entries)
        parts = [failure.message, failure.traceback or ""] if failure else []
        return JobView(
            job_id=job_id,
            name=spec.name,
            state=state,
            attempt=attempt,
            num_ranks=world.num_ranks,
            reason=failure.reason if failure else None,
            message="\n".join(part for part in parts if part) or None,
            progress=new_entries,
            **collector.shown(),
        )

    one_at_a_time = RLock()  # checkpoints are reported by the thread that writes them

    def show(now: JobView) -> None:
        lines = [*status.new(now), *map(entry_to_json, now.progress)]
        if lines and (trouble := file.append(lines)):
            collector.entries.append(Notice(trouble))
        on_view(now)

    def report(event: Event) -> None:
        with one_at_a_time:
            collector.add(event)
            show(view(JobState.RUNNING))

    document = spec.model_dump(mode="json")
    root = str(run_dir.absolute())
    meeting = None if gang is None else gang.launch.meeting
    run = Assignment(job_id, attempt, world, document, root, meeting, first_attempt=attempt)
    file = begin_attempt(run)
    with closing(file), _one_run_at_a_time, process_as_it_was(), lost_interrupts_sent_again():
        if gang is None:
            failure = run_rank(run, report, Control.alone())
        else:
            with gang.training(spec, run, report) as reporting:
                failure = run_rank(run, *reporting)
            failure = gang.culprit
        final = view(JobState.FAILED if failure else JobState.SUCCEEDED, failure)
        show(final)
    return final
