"""One rank in the calling process: no cluster, no subprocess, the same records."""

from collections.abc import Callable
from pathlib import Path

from distrain.coordinator.collector import Collector, stall_pct
from distrain.coordinator.states import JobState
from distrain.coordinator.view import JobView
from distrain.events import Event, RankFailed
from distrain.spec import JobSpec
from distrain.train.assignment import Assignment
from distrain.world import World


def run_inline(
    spec: JobSpec, run_dir: Path, job_id: str, on_view: Callable[[JobView], None]
) -> JobView:
    """Train one rank here and now.

    Args:
        spec: The job; its `resources.num_ranks` is 1.
        run_dir: Where the model goes.
        job_id: The job's name in views.
        on_view: Gets a view after each of the rank's events.

    Returns:
        The final view; a failure is told in it, not raised.
    """
    from distrain.train.rank import run_rank

    collector = Collector(num_ranks=1)
    shown = 0

    def view(state: JobState, failure: RankFailed | None = None) -> JobView:
        nonlocal shown
        fresh, shown = tuple(collector.records[shown:]), len(collector.records)
        seconds = collector.rank_seconds
        parts = [failure.message, failure.traceback or ""] if failure else []
        return JobView(
            job_id=job_id,
            name=spec.name,
            state=state,
            attempt=1,
            num_ranks=1,
            reason=failure.reason if failure else None,
            message="\n".join(part for part in parts if part) or None,
            num_steps=collector.num_steps,
            total_rows=collector.total_rows,
            parameters=collector.parameters,
            reader=collector.reader,
            records=fresh,
            next_record=shown,
            model_path=collector.model_path,
            rank_stall_pct=tuple(stall_pct(of_rank) for of_rank in seconds),
            rank_seconds=seconds,
            rank_setup_s=collector.rank_setup_s,
            rank_loader=collector.rank_loader,
            rank_exchange=collector.rank_exchange,
            rank_device_seconds=collector.rank_device_seconds,
            rank_peak_memory=collector.rank_peak_memory,
        )

    def report(event: Event) -> None:
        collector.add(event)
        on_view(view(JobState.RUNNING))

    document = spec.model_dump(mode="json")
    failure = run_rank(Assignment(job_id, 1, World(), document, str(run_dir.absolute())), report)
    final = view(JobState.FAILED if failure else JobState.SUCCEEDED, failure)
    on_view(final)
    return final
