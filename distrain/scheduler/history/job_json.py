"""Makes the JSON documents of jobs, the only input of pages and terminals; no I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from distrain.jobs.api_answers import Job, utc
from distrain.jobs.assignment import Slot
from distrain.jobs.job_view import JobView, steps_of_refit
from distrain.jobs.states import JobState
from distrain.jobs.status import finite, gpus_in, targets_in
from distrain.runs.summary import rows_per_s_of, wall_s_of
from distrain.scheduler.history.job_history import JobHistory, Moment
from distrain.scheduler.history.ranks import RankState, shown_ranks
from distrain.scheduler.lifecycle.job import Job as LifecycleJob

_KEPT_RESTARTS = 100  # restarts on the time line
_RESTART_CHARACTERS = 300  # of the message, which is a part of each event about progress


@dataclass(frozen=True)
class Gpu:
    """The state of a worker's GPU as NVML reports it; unknown values are `None`."""

    utilisation_pct: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None


@dataclass(frozen=True)
class Watched:
    """A job, its history and its workers' GPUs at one time, from which its documents are made.

    `now_s` is that time, in unix time.
    """

    view: JobView  # without progress
    job: LifecycleJob
    history: JobHistory
    now_s: float
    gpus: Mapping[str, Gpu] = field(default_factory=dict)  # GPUs by the worker's address

    @property
    def places(self) -> dict[int, Slot]:
        """The workers of the current attempt, by rank."""
        return {rank: status.placement.slot for rank, status in self.job.ranks.items()}

    @cached_property
    def document(self) -> Job:
        """The job as in the API's answers, with its progress from its history."""
        view, history, request = self.view, self.history, self.job.request
        train, valid = history.last_train, history.valid_of(view.model_step)
        tail, valid_tail = history.train.tail(), history.valid.tail()
        return Job(
            id=view.job_id,
            name=view.name,
            state=view.state.value,
            reason=view.reason,
            message=view.message,
            why_pending=view.why_pending,
            attempt=view.attempt,
            first_attempt=request.first_attempt,
            num_ranks=len(view.pids) or view.num_ranks,
            priority=request.priority,
            tags=dict(request.spec.tags),
            run_dir=request.run_dir,
            service=history.service,
            rev=history.revision,
            created_at=utc(history.submitted_s) or "",
            finished_at=utc(history.state_since_s) if view.state.is_final else None,
            recorded=view.recorded or bool(view.record_error),
            restarts=len(view.restarts),
            last_restart=last_restart(view),
            step=history.step,
            num_steps=view.num_steps,
            rows_per_s=self._rows_per_s,
            loss=train.loss if train else tail.get("loss"),
            auc=train.auc if train else tail.get("auc"),
            valid_loss=valid.loss if valid else valid_tail.get("loss"),
            valid_auc=valid.auc if valid else valid_tail.get("auc"),
            model_step=view.model_step,
            refit_steps=steps_of_refit(view.refit),
            stopped_early_step=(view.stopped_early or {}).get("step"),
            eta_s=time_left_s(self),
            checkpoints=view.checkpoints.count,
            gpus=gpus_in(view.rank_places) if view.rank_places else None,
            targets=targets_in(train and train.targets),
            valid_targets=targets_in(valid and valid.targets),
        )

    @property
    def _rows_per_s(self) -> float | None:
        """The rate of the last record; of a job that has ended, the same mean as in its summary."""
        view, history = self.view, self.history
        if not view.state.is_final:
            return history.rows_per_s
        rows = history.last_train.rows_total if history.last_train else 0
        return rows_per_s_of(view, rows) or history.mean_rows_per_s


def last_restart(view: JobView) -> dict[str, Any] | None:
    """Return the last restart as in the API's answers, with the first line of its message."""
    if not view.restarts:
        return None
    last = view.restarts[-1]
    message = last.message.partition("\n")[0][:_RESTART_CHARACTERS]
    return {"attempt": last.attempt, "reason": last.reason, "message": message, "step": last.step}


def job_summary(job: Watched) -> dict[str, Any]:
    """Return the job's API answer with further numbers, for lists, pages and `distrain top`."""
    view, history = job.view, job.history
    train, valid = history.last_train, history.valid_of(view.model_step)
    bound = train.auc_bound if train else history.train.tail().get("auc_bound")
    valid_bound = valid.auc_bound if valid else history.valid.tail().get("auc_bound")
    figures = {
        "elapsed_s": wall_s_of(view) or (train.elapsed_s if train else view.elapsed_before_s),
        "epoch": train.epoch if train else None,
        "rows_total": train.rows_total if train else view.rows_before,
        "total_rows": view.total_rows,
        "auc_bound": bound,
        "valid_auc_bound": valid_bound,
        "stall_mean_pct": train.stall_mean_pct if train else None,
        "stall_max_pct": train.stall_max_pct if train else None,
        "checkpoints_failed": view.checkpoints.failed,
    }
    found: dict[str, Any] = finite({**job.document.model_dump(), **figures})
    return found


def job_document(job: Watched, *, all_ranks: bool = False) -> dict[str, Any]:
    """Return a job's summary with its ranks, time line, spec and further facts, for its page.

    Without `all_ranks`, the document has the ranks of `shown_ranks`.
    """
    view = job.view
    return {
        **job_summary(job),
        "spec": job.job.spec.model_dump(mode="json"),
        "ranks": finite(_ranks(job, all_ranks=all_ranks)),
        "timeline": [asdict(moment) for moment in timeline(job)],
        "slowest": job.history.slowest(),
        "setbacks": [dict(vars(restart)) for restart in view.restarts[-_KEPT_RESTARTS:]],
        "last_checkpoint": {"step": view.checkpoints.step, "path": view.checkpoints.path},
        "places": [dict(place) for place in view.rank_places],
        "model_path": view.model_path,
        "reader": view.reader,
        "page": job.history.page,
        "parameters": view.parameters,
    }


def metrics_document(history: JobHistory, since: str | None = None) -> dict[str, Any]:
    """Return a job's curves, or only the points added since an earlier answer.

    `train` and `valid` have lists of values by column.
    `since` is the `cursor` of that answer. If `restart` is true, the answer has all points, because
    no cursor was given, or because earlier points have been replaced. Raises `ValueError` if
    `since` is not a cursor.
    """
    generation, number = _parse_cursor(since) if since is not None else (-1, 0)
    restart = generation != history.generation or number > history.num_points + 1
    first = 0 if restart else number
    return {
        "cursor": f"{history.generation}.{history.num_points + 1}",
        "restart": restart,
        "train": history.train.since(first),
        "valid": history.valid.since(first),
    }


def timeline(job: Watched) -> list[Moment]:
    """Return the moments of a job's history and its last restarts, the oldest first."""
    submitted_s = job.history.submitted_s
    moments = job.history.moments
    for r in job.view.restarts[-_KEPT_RESTARTS:]:
        text = f"attempt {r.attempt} ended: {r.reason}: {r.message}"
        moments.append(Moment(submitted_s + r.after_s, "restart", r.attempt, r.step, text))
    return sorted(moments, key=lambda moment: moment.at_s)


def _parse_cursor(cursor: str) -> tuple[int, int]:
    generation, _, number = cursor.partition(".")
    if not (generation.isdecimal() and number.isdecimal()):
        raise ValueError(f"{cursor!r} is not a cursor")
    return int(generation), int(number)


def _ranks(job: Watched, *, all_ranks: bool) -> list[dict[str, Any]]:
    places = job.places
    known: dict[int, float | None] = dict.fromkeys(places)
    known |= {rank: now.step_time_s for rank, now in job.history.now.items()}
    ranks = []
    for rank in sorted(known) if all_ranks else shown_ranks(known):
        place = places.get(rank)
        now = job.history.now.get(rank, RankState()).to_json()
        gpu = job.gpus.get(place.worker) if place else None
        now["host"] = now["host"] or (place.host if place else None)
        worker = place.worker if place else None
        ranks.append({"rank": rank, "worker": worker, **now, "gpu": asdict(gpu) if gpu else None})
    return ranks


def time_left_s(job: Watched) -> float | None:
    """Return the seconds until all rows are trained, at the mean speed of this attempt.

    `None` if the job does not run, has not reported steps yet, or its number of rows is unknown.
    """
    view, last = job.view, job.history.last_train
    if view.state is not JobState.RUNNING or last is None or view.total_rows is None:
        return None
    done, took_s = last.rows_total - view.rows_before, last.elapsed_s - view.elapsed_before_s
    left = max(0, view.total_rows - last.rows_total)
    return left * took_s / done if done > 0 and took_s > 0 else None
