"""What workers are sent of a job's records, and who is asked for its summary."""

from collections.abc import Mapping
from typing import Any

from distrain.jobs.events import CheckpointSaved, RankStarted, StepsDone
from distrain.jobs.job_view import AttemptStarted, JobView, Notice, Record
from distrain.jobs.states import JobState
from distrain.runs.records.entries import EntryLog
from distrain.scheduler.recording import ASK_AGAIN_S, CLOSED_WITHIN_S, NO_WORKER, Recordings
from distrain.workers.supervisor import SUMMARY_OP

STEPS = StepsDone(0, 0, 7, 1.0, {}, {}, 0.1)
STARTED = RankStarted(0, 1, "host", "cpu")


class Workers:
    """Workers that are connected, and what they were sent."""

    def __init__(self, *names: str):
        self.names = set(names)
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self.recordings = Recordings(self.send)
        self.log = EntryLog()
        self.state = JobState.RUNNING

    def send(self, worker: str, message: Mapping[str, Any]) -> bool:
        if worker in self.names:
            self.sent.append((worker, message))
        return worker in self.names

    def view(self) -> JobView:
        return JobView("job", "clicks", self.state, 1, 2)

    def begin(self, attempt: int, worker: str) -> None:
        self.recordings.begin_attempt("job", attempt, worker, self.log)
        self.recordings.add("job", STARTED, self.log, self.view)

    def report(self, *entries: Any, event: Any = STEPS) -> None:
        for entry in entries:
            self.log.append(entry)
        self.recordings.add("job", event, self.log, self.view)

    def end(self, now_s: float = 0.0) -> None:
        self.recordings.end_attempt("job", self.log, self.view())
        self.state = JobState.SUCCEEDED
        self.recordings.end_job("job", "/runs/job", self.view(), 1, now_s)

    def lines(self, worker: str) -> list[Mapping[str, Any]]:
        """The entries that a worker was sent, without status lines."""
        commands = [m["words"]["lines"] for to, m in self.sent if to == worker and "words" in m]
        return [line for lines in commands for line in lines if line["entry"] != "status"]

    def asked(self, now_s: float) -> list[str]:
        """The workers that are asked for the summary then."""
        before = len(self.sent)
        self.recordings.advance(self.names, now_s)
        return [worker for worker, message in self.sent[before:] if message["op"] == SUMMARY_OP]


def record(step: int) -> Record:
    return Record("train", 0, step, 1, step, 1.0, 1.0, 0.5, 0.9, 0.7, 1e-4, attempt=1)


def test_each_entry_goes_to_the_worker_of_rank_0_once() -> None:
    workers = Workers("a", "b")
    workers.recordings.begin_attempt("job", 1, "a", workers.log)
    workers.report(Notice("early"), event=CheckpointSaved(1, 1, "here", 1, 0.0, 0.0))
    assert not workers.sent, "there is no file yet"
    workers.recordings.add("job", STARTED, workers.log, workers.view)
    workers.report(AttemptStarted(1, 0, 2), record(7))
    workers.report(record(14))
    kinds = [(line["entry"], line.get("step")) for line in workers.lines("a")]
    assert kinds == [("notice", None), ("resumed", 0), ("record", 7), ("record", 14)]
    assert not workers.lines("b")


def test_records_that_a_worker_took_along_go_with_the_next_attempt() -> None:
    workers = Workers("a", "b")
    workers.begin(1, "a")
    workers.report(AttemptStarted(1, 0, 2), record(7), record(14))
    workers.begin(2, "b")
    workers.report(AttemptStarted(2, 7, 2))
    kinds = [(line["entry"], line.get("step")) for line in workers.lines("b")]
    assert kinds == [("record", 7), ("record", 14), ("resumed", 7)]


def test_the_summary_is_asked_for_once_the_records_are_closed() -> None:
    workers = Workers("a", "b")
    workers.begin(1, "b")
    workers.end()
    assert workers.asked(1.0) == []
    workers.recordings.heard("job", 1, "")
    assert workers.asked(1.1) == ["b"]
    assert workers.asked(1.2) == [], "it is asked once"
    assert workers.recordings.outcome("job") == (False, "")
    workers.recordings.heard("job", None, "")
    assert workers.recordings.outcome("job") == (True, "")
    assert workers.asked(2 * ASK_AGAIN_S) == []


def test_workers_that_are_lost_or_hang_are_replaced() -> None:
    workers = Workers("a", "b", "c")
    workers.begin(1, "a")
    workers.end()
    assert workers.asked(CLOSED_WITHIN_S) == ["a"], "its last lines are waited for no longer"
    workers.names.discard("a")
    (second,) = workers.asked(CLOSED_WITHIN_S + 1)
    (third,) = workers.asked(CLOSED_WITHIN_S + 2 + ASK_AGAIN_S)
    assert {second, third} == {"b", "c"}
    workers.names.clear()
    assert workers.asked(500.0) == []
    assert workers.recordings.outcome("job") == (False, NO_WORKER)
    workers.names.add("d")
    assert workers.asked(501.0) == ["d"], "the next that comes writes it"
    workers.recordings.heard("job", None, "the disk is full")
    assert workers.recordings.outcome("job") == (False, "the disk is full")


def test_a_job_that_never_started_has_a_summary_too() -> None:
    workers = Workers("a")
    workers.state = JobState.CANCELLED
    workers.recordings.end_job("job", "/runs/job", workers.view(), 1, 0.0)
    assert workers.asked(0.1) == ["a"]
