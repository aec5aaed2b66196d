"""The run directories of all jobs of a service, written beside its reconcilers."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from distrain.errors import DistrainError, OutputError
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.view import JobView
from distrain.runs.places import LeasedFolder, NotOurs
from distrain.runs.run_file import ServiceMark
from distrain.runs.served import ServedRun
from distrain.runs.stored.copy import StoredCopy
from distrain.service.recorder.pictures import Pictures
from distrain.service.recorder.places import Copies, check_place_of, make_folder
from distrain.service.recorder.pool import Pool
from distrain.service.recorder.run_state import RunState, pause_s
from distrain.service.settings import Settings
from distrain.service.values import Job
from distrain.storage.urls import is_remote

log = logging.getLogger(__name__)

ANSWER_S = 10.0  # how long a filesystem is waited for
CLOSE_S = 5.0  # how long `close` waits for what is being written

_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Recorder:
    """Writes run directories from the views that reconcilers see; any thread may call it.

    `take` and `finish` never wait for a filesystem: each cluster has threads of its own. What could
    not be written is tried again, and what the files have is not written twice. Nothing is written
    of a cluster of whose lease this process has no `generation`.
    """

    def __init__(self, settings: Settings, generation: Callable[[str], int | None], service: str):
        self._settings = settings
        self._generation = generation
        self._service = service
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}
        self._runs: dict[str, RunState] = {}
        self._pictures = Pictures()
        self._copies = Copies(settings.data_dir)
        self._closed = False

    @property
    def collects_s(self) -> float:
        """How long views of a job are collected, in seconds: more reports would be of no use."""
        return pause_s(len(self._runs), remote=False)

    def begin(
        self, job: Job, spec: Mapping[str, Any], generation: int, within_s: float = ANSWER_S
    ) -> None:
        """Make a submission's run directory, or go on with the job's earlier one.

        It comes before each hand-over and may be repeated, after a crash at any moment.
        OutputError: it cannot be written, or is not this job's. Unavailable: its filesystem does
        not answer.
        """
        parsed = parse_spec(spec)
        run = self._run_of(job)
        mark = ServiceMark(self._service, generation)

        def make() -> None:
            if not is_remote(run.place):
                make_folder(Path(run.place), self._settings.run_root(job.cluster))
            if not run.writing.acquire(timeout=within_s):
                return  # nobody waits for this any more
            try:
                if run.served is not None and run.served.first_attempt != job.first_attempt:
                    self._write_waiting(run, mark)
                run.serve(job.first_attempt, self._served).begin(parsed, mark)
            finally:
                run.writing.release()

        check_place_of(run.place)
        self._pool(job.cluster).call(make, within_s, run.place)

    def take(self, job: Job, view: JobView) -> None:
        self._put(self._run_of(job), view, job.first_attempt)

    def finish(self, job: Job, view: JobView) -> bool:
        """Record a job's last view; whether its summary is written yet. Repeatable."""
        assert view.state.is_final
        run = self._run_of(job)
        if run.finished != job.first_attempt:
            self._put(run, view, job.first_attempt)
        return run.finished == job.first_attempt

    def finish_late(self, ended: Sequence[tuple[Job, JobView]]) -> None:
        """Finish directories of ended jobs that a killed process has not; never waits."""
        for cluster in sorted({job.cluster for job, _ in ended}):
            of_cluster = [(job, view) for job, view in ended if job.cluster == cluster]
            look = partial(self._look_at_ended, of_cluster, self._generation(cluster))
            self._pool(cluster).put(look)

    def attempts(self, job: Job, within_s: float = ANSWER_S) -> int:
        """The highest attempt that left anything in a run directory; 0: none. Raises as `begin`."""

        def look() -> int:
            try:
                return self._served(job.run_dir, job.id, job.first_attempt).last_attempt()
            except OSError as error:
                raise OutputError(
                    f"cannot be read: {error.strerror}",
                    where={"path": job.run_dir},
                    hint="Let the service's user read what the workers' user writes.",
                ) from None

        highest = int(self._pool(job.cluster).call(look, within_s, job.run_dir))
        with self._lock:
            run = self._runs.get(job.id)
            waits = run.waiting.last if run is not None else None
        return max(highest, waits.attempt if waits is not None else 0)

    def problem(self, job_id: str) -> str | None:
        """Why a job's run directory lags behind, for people; `None` if it does not."""
        with self._lock:
            run = self._runs.get(job_id)
        return None if run is None else run.problem

    def waits(self, job_id: str) -> bool:
        with self._lock:
            run = self._runs.get(job_id)
        return run is not None and (run.scheduled or bool(run.waiting))

    def release(self, job_id: str) -> None:
        with self._lock:
            run = self._runs.get(job_id)
            if run is not None:
                run.released = True
                if not run.scheduled:
                    del self._runs[job_id]

    def leave(self, cluster: str) -> None:
        """Forget a cluster's jobs: its lease went to another process, which hears all of them."""
        with self._lock:
            for run in [run for run in self._runs.values() if run.cluster == cluster]:
                run.schedule()  # what was due before does nothing
                del self._runs[run.job_id]

    def close(self, within_s: float = CLOSE_S) -> None:
        """Write what waits, as far as there is time, and end all threads that do not hang."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
        for pool in pools:
            if not pool.close(within_s):
                log.warning("a filesystem hangs: some records are not written")
        self._pictures.close()
        self._copies.close()

    # Inside.

    def _run_of(self, job: Job) -> RunState:
        with self._lock:
            run = self._runs.get(job.id)
            if run is None:
                run = self._new_run(job)
            run.released = False
            return run

    def _new_run(self, job: Job) -> RunState:
        """With the lock held."""
        run = self._runs[job.id] = RunState(job.id, job.run_dir, job.cluster, job.first_attempt)
        return run

    def _served(self, place: str, job_id: str, first_attempt: int) -> ServedRun:
        if is_remote(place):
            return ServedRun(StoredCopy(place, self._copies.new(), job_id), first_attempt)
        return ServedRun(LeasedFolder(Path(place), job_id), first_attempt)

    def _pool(self, cluster: str) -> Pool:
        with self._lock:
            if cluster not in self._pools:
                self._pools[cluster] = Pool(f"recorder-{cluster}")
            return self._pools[cluster]

    def _look_at_ended(
        self, ended: Sequence[tuple[Job, JobView]], generation: int | None, *, again: bool = False
    ) -> None:
        """Finish and draw what is not; look later at what cannot be read now."""
        unknown = []
        for job, view in ended:
            if self._closed or self._generation(job.cluster) != generation:
                return  # who has the lease now looks
            try:
                self._finish_if_unfinished(job, view)
            except (OSError, DistrainError) as error:
                unknown.append((job, view))
                if not again:
                    log.warning("job %s: its run may be unfinished: %s", job.id, error)
        if unknown:
            look = partial(self._look_at_ended, unknown, generation, again=True)
            self._pool(unknown[0][0].cluster).put(look, _RETRY_S[-1])

    def _finish_if_unfinished(self, job: Job, view: JobView) -> None:
        # The number that a submission took which never began is above the job's last attempt.
        first_attempt = min(job.first_attempt, job.attempt + 1)
        served = self._served(job.run_dir, job.id, first_attempt)
        try:
            if not served.has_begun():
                return
            if served.is_finished():
                if not served.is_drawn():
                    self._pictures.draw(job.run_dir)
                return
        finally:
            served.forget()
        # What was lost with the process stands in the reports that the ranks kept.
        if self._put_alone(job, replace(view, missed=1), first_attempt):
            log.info("job %s ended without a summary: it is written now", job.id)
            self.release(job.id)

    def _put_alone(self, job: Job, view: JobView, first_attempt: int) -> bool:
        """Record a view of a job that has no other to record; whether it has none."""
        with self._lock:
            if self._closed or job.id in self._runs:  # it is being finished, or has been resumed
                return False
            run = self._new_run(job)
            run.waiting.add(view)
            run.first_attempt = first_attempt
            turn = run.schedule()
        self._pool(run.cluster).put(partial(self._write, run, turn))
        return True

    def _put(self, run: RunState, view: JobView, first_attempt: int) -> None:
        pool = self._pool(run.cluster)
        with self._lock:
            if self._closed:
                return
            run.waiting.add(view)
            run.first_attempt = first_attempt
            is_last = view.state.is_final
            if run.scheduled and not (is_last and run.pauses):
                return
            waits_s = 0.0 if is_last else self._pause_s(run)
            turn = run.schedule(pauses=waits_s > 0)
        pool.put(partial(self._write, run, turn), waits_s)

    def _pause_s(self, run: RunState) -> float:
        """How long views of a run are still to be collected; with the lock held."""
        pause = pause_s(len(self._runs), is_remote(run.place))
        return max(0.0, run.written_s + pause - time.monotonic()) if pause else 0.0

    def _write(self, run: RunState, turn: int) -> None:
        """Write what waits of a run, unless a later turn was scheduled; in a pool's thread."""
        with self._lock:
            if turn != run.turn:
                return
            run.pauses = False
            run.written_s = time.monotonic()
            view = run.waiting.take()
        error: DistrainError | None = None
        written = view is None
        if view is not None:
            try:
                written = self._write_view(run, view)
            except NotOurs as caught:
                error, written = caught, True  # for good
            except DistrainError as caught:
                error = caught
            except Exception as caught:
                log.exception("cannot record %s", run.job_id)
                error = OutputError(f"{type(caught).__name__}: {caught}")
        self._after(run, view if not written else None, error)

    def _write_view(self, run: RunState, view: JobView) -> bool:
        generation = self._generation(run.cluster)
        if generation is None:
            return False
        mark = ServiceMark(self._service, generation)
        with run.writing:
            self._record(run, run.serve(run.first_attempt, self._served), view, mark)
        return True

    def _write_waiting(self, run: RunState, mark: ServiceMark) -> None:
        with self._lock:
            view = run.waiting.take()
        if view is not None and run.served is not None:
            try:
                self._record(run, run.served, view, mark)
            except BaseException:
                with self._lock:
                    run.waiting.put_back(view)
                raise

    def _record(self, run: RunState, served: ServedRun, view: JobView, mark: ServiceMark) -> None:
        if not view.state.is_final:
            # One that waited while another process had the lease, and finished the run, is late.
            if served.is_at_work(mark) or not served.is_finished():
                served.add(view, mark)
            return
        if not served.has_begun():  # it ended before it began, or somebody removed it
            log.warning("job %s ended without a run directory: %s", view.job_id, run.place)
            run.finished = served.first_attempt
            return
        if not served.is_finished():
            served.finish(view, mark)
        run.finished = served.first_attempt
        if not served.is_drawn():
            self._pictures.draw(run.place)

    def _after(self, run: RunState, unwritten: JobView | None, error: DistrainError | None) -> None:
        """Note the outcome, and schedule what still waits: now, or after a pause."""
        delay_s = 0.0
        if error is not None and str(error) != run.problem:
            log.warning("job %s: %s", run.job_id, error)
        with self._lock:
            if self._runs.get(run.job_id) is not run:  # its cluster was left meanwhile
                return
            run.problem = None if error is None else str(error)
            if unwritten is not None:
                delay_s = _RETRY_S[min(run.failures, len(_RETRY_S) - 1)]
                run.failures += 1
                run.waiting.put_back(unwritten)
            else:
                run.failures = 0
            is_more = run.scheduled = bool(run.waiting)
            turn = run.schedule() if is_more else run.turn
            if run.released and not is_more:
                self._runs.pop(run.job_id, None)
        if is_more:
            self._pool(run.cluster).put(partial(self._write, run, turn), delay_s)
