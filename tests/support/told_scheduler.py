"""A real scheduler with the preload, in a thread, for services that talk to it over HTTP.

Its jobs do not train: in place of starting processes it reports at once that all ranks train, and a
test says when they end.
"""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Scheduler
from waiting import until

from distrain.errors import DistrainError
from distrain.jobs.assignment import Slot
from distrain.jobs.events import (
    Event,
    Heartbeat,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    TrainingStarted,
    to_json,
)
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import Reason
from distrain.runs.finish_run import finish_run
from distrain.runs.run_file import paths_of
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.lifecycle.messages import LaunchGang, Submit, WorkersChanged
from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin
from distrain.scheduler.recording import Recordings
from distrain.workers.supervisor import SUMMARY_OP

_BEAT_S = 5.0


class ToldScheduler:
    """A scheduler whose workers and ranks are told; use it in a `with` block.

    Args:
        num_workers: How many there are at first; `set_workers` changes that.
        job_s: How long a job runs; `None`: until `end`.

    Attributes:
        started: How often each attempt of each job was started, over all starts of the scheduler.
    """

    def __init__(self, num_workers: int = 8, job_s: float | None = None):
        self.num_workers, self.job_s = num_workers, job_s
        self.started: Counter[tuple[str, int]] = Counter()
        self.port = 0
        self.writes_summaries = True  # whether a worker answers that was asked for one
        self.scheduler: Scheduler | None = None
        self.coordinator: CoordinatorPlugin
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._answers = threading.Event()

    def __enter__(self) -> "ToldScheduler":
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.answer()
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> CoordinatorApi:
        assert self.scheduler is not None
        api: CoordinatorApi = self.scheduler.extensions[EXTENSION]
        return api

    def open(self) -> None:
        """Start it, on the port of before if there was one."""
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(120)

    def shut(self) -> None:
        """End it: connections are refused, and its jobs are lost."""
        if self.scheduler is not None:
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(120)

    def reboot(self) -> None:
        """Lose all jobs, as a restarted scheduler does."""
        self.shut()
        self.open()

    def hang(self) -> None:
        """Answer nothing until `answer`, as with SIGSTOP."""
        self._answers.clear()
        self._loop.call_soon_threadsafe(self._answers.wait)

    def answer(self) -> None:
        self._answers.set()

    def set_workers(self, number: int) -> None:
        self.num_workers = number
        self.call(self._tell_workers)

    def state(self, job_id: str) -> str | None:
        """A job's state; `None` if it is not here."""
        job = self.coordinator.lifecycle.jobs.get(job_id)
        return None if job is None else str(job.state)

    def is_running(self, job_id: str) -> bool:
        return self.state(job_id) == "running"

    def end(self, job_id: str, message: str = "") -> None:
        """Have all ranks of a job end, with an error of its data if there is a message."""
        until(lambda: self.is_running(job_id), job_id)
        self.call(lambda: self._end(job_id, message))

    def fail_rank(self, job_id: str) -> None:
        """Have a rank die, so that the scheduler restarts the job."""
        self.call(lambda: self._report(job_id, lambda rank: RankExited(rank, -9, stopped=False)))

    def call(self, act: Callable[[], Any]) -> Any:
        """What a function gives that runs in the scheduler's thread."""

        async def run() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(120)

    async def _open(self) -> None:
        self.scheduler = await Scheduler(
            host="127.0.0.1",
            port=0,
            dashboard=False,
            dashboard_address=f"127.0.0.1:{self.port}",
            preload=["distrain.preload"],
        )
        self.port = self.scheduler.http_server.port
        self.coordinator = self.scheduler.plugins[PLUGIN_NAME]
        self.coordinator.gangs = _ToldGangs(self)  # type: ignore[assignment]
        self.coordinator.recordings = told_recordings(lambda: self.writes_summaries)
        self._tell_workers()
        self._beat(self.coordinator)

    async def _shut(self) -> None:
        scheduler, self.scheduler = self.scheduler, None
        assert scheduler is not None
        scheduler.http_server.stop()
        await scheduler.http_server.close_all_connections()  # a client keeps its own
        await scheduler.close()

    def _tell_workers(self) -> None:
        slots = {Slot("host", f"tcp://w{n}:1", f"w{n}") for n in range(self.num_workers)}
        self.coordinator.handle_stimulus(WorkersChanged(frozenset(slots)))

    def _beat(self, coordinator: CoordinatorPlugin) -> None:
        if self.scheduler is None or coordinator is not self.coordinator:
            return
        for job_id, job in list(coordinator.lifecycle.jobs.items()):
            if not job.state.is_final:
                self._report(job_id, lambda rank: Heartbeat(rank, 1, 1, "forward_backward"))
        self._loop.call_later(_BEAT_S, self._beat, coordinator)

    def _report(self, job_id: str, event: Callable[[int], Event]) -> None:
        """Let each rank of a job's attempt report an event."""
        job = self.coordinator.lifecycle.jobs[job_id]
        for rank in list(job.ranks):
            self.coordinator.rank_reported(job_id, job.attempt, to_json(event(rank)))

    def _end(self, job_id: str, message: str) -> None:
        if message:
            self._report(job_id, lambda rank: RankFailed(rank, Reason.DATA_ERROR, message))
        else:
            self._report(job_id, lambda rank: RankFinished(rank, 10, 50, 1.0, {}))
        self._report(job_id, lambda rank: RankExited(rank, int(bool(message)), stopped=False))


def told_recordings(answers: Callable[[], bool] = lambda: True) -> Recordings:
    """Recordings whose workers write each summary at once, and no records."""
    of_rank_0 = re.compile(r"distrain-(.+)-a(\d+)-r0")

    def send(worker: str, message: Mapping[str, Any]) -> bool:
        if message.get("words", {}).get("op") == "end_records":
            found = of_rank_0.fullmatch(message["key"])
            assert found is not None
            recordings.heard(found[1], int(found[2]), "")
        if message["op"] == SUMMARY_OP and answers():
            error, view = "", JobView.from_json(message["view"])
            try:
                finish_run(paths_of(message["run_dir"]), view, message["first_attempt"])
            except DistrainError as caught:
                error = str(caught)
            recordings.heard(view.job_id, None, error)
        return True

    recordings = Recordings(send)
    return recordings


class _ToldGangs:
    """In place of `Gangs`: no process is started, and ranks do at once what they are told."""

    def __init__(self, told: ToldScheduler):
        self._told = told

    async def launch(
        self, gang: LaunchGang, _request: Submit, still_wanted: Callable[[], bool]
    ) -> bool:
        if not still_wanted():
            return False
        told = self._told
        told.started[gang.job_id, gang.attempt] += 1
        told._report(gang.job_id, lambda rank: RankStarted(rank, 1000 + rank, "host", "cpu"))
        told._report(gang.job_id, lambda rank: TrainingStarted(rank, 100, 1000, 1000, 7, "told"))
        if told.job_s is not None:
            asyncio.get_running_loop().call_later(told.job_s, self._end, gang)
        return True

    def _end(self, gang: LaunchGang) -> None:
        job = self._told.coordinator.lifecycle.jobs.get(gang.job_id)
        if job is not None and job.attempt == gang.attempt and not job.state.is_final:
            self._told._end(gang.job_id, "")

    def command(self, gang: Any, op: str, **words: object) -> None:
        if op == "stop":
            stopped = lambda rank: RankExited(rank, 0, stopped=True)  # noqa: E731
            asyncio.get_running_loop().call_soon(self._told._report, gang.job_id, stopped)

    def end(self, job_id: str, attempt: int) -> None:
        """There is nothing to release."""

    def forget_worker(self, worker: str) -> None:
        """There are none."""

    def whose(self, key: object) -> None:
        """No task is a rank's."""

    async def close(self) -> None:
        """There is nothing to close."""
