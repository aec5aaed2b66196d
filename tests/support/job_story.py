"""The lifecycle of jobs's world in a test: workers, ranks that report, and a clock."""

from lifecycle_invariants import validate

from distrain.jobs.assignment import Slot
from distrain.jobs.events import (
    Heartbeat,
    RankExited,
    RankFinished,
    RankStarted,
    RankStopped,
    TrainingStarted,
)
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.lifecycle.messages import Move, Reported, Submit, Tick, WorkersChanged

REPORTED_BY_RANKS = frozenset(
    {
        Reason.DATA_ERROR,
        Reason.INVALID_SPEC,
        Reason.NON_FINITE_LOSS,
        Reason.OUT_OF_MEMORY,
        Reason.OUTPUT_ERROR,
        Reason.PEER_LOST,
        Reason.RANK_FAILED,
        Reason.STORAGE_UNAVAILABLE,
    }
)
"""Reasons that a rank itself gives; the lifecycle of jobs finds the others."""


SPEC = parse_spec({"data": {"train": "t"}, "model": {"kind": "mlp"}})


def submission(
    job_id, num_ranks=2, *, min_ranks=None, lanes=840, budgets=(0, 0, None), backoff_s=1.0,
    every_s=None, priority=0, first_attempt=1, **deadlines,
):  # fmt: skip
    """A submission; `budgets`: the restarts after failures, lost workers and preemptions."""
    limits = zip(("rank_failures", "worker_losses", "preemptions"), budgets, strict=True)
    sections = {
        "train": {"lanes": lanes},
        "resources": {"num_ranks": num_ranks, "min_ranks": min_ranks},
        "checkpoint": {"every_s": every_s},
        "restart": {"backoff_s": backoff_s} | {f"max_{name}": most for name, most in limits},
        "deadlines": {"start_s": 60.0, "progress_s": None, **deadlines},
    }
    spec = SPEC.model_copy(
        update={name: getattr(SPEC, name).model_copy(update=one) for name, one in sections.items()}
    )
    return Submit(job_id, spec, "", priority, first_attempt)


class Story:
    """A coordinator with workers w0, w1, ... on one host, and a clock that only it moves."""

    def __init__(self, num_workers):
        self.lifecycle = Lifecycle()
        self.now_s = 100.0
        self.told, self.moves = [], []
        self.cluster(num_workers)

    def cluster(self, num_workers, without=()):
        names = [f"w{n}" for n in range(num_workers) if f"w{n}" not in without]
        return self.workers(*(Slot("host", name, name) for name in names))

    def workers(self, *slots):
        return self.happens(WorkersChanged(frozenset(slots)))

    def happens(self, stimulus):
        ended = {i for i, job in self.lifecycle.jobs.items() if job.state.is_final}
        answer = self.lifecycle.handle(stimulus, self.now_s)
        validate(self.lifecycle)
        now = [i for i, job in self.lifecycle.jobs.items() if job.state.is_final]
        moves = [one for one in answer if isinstance(one, Move)]
        self.moves += moves
        ends = [move.job_id for move in moves if move.new.is_final]
        assert sorted(ends) == sorted(set(now) - ended), "each end has its summary written once"
        answer = [one for one in answer if not isinstance(one, Move)]
        self.told += answer
        return answer

    def submit(self, job_id, num_ranks=2, **more):
        return self.happens(submission(job_id, num_ranks, **more))

    def rank(self, job_id, event, attempt=1):
        return self.happens(Reported(job_id, attempt, event))

    def wait(self, seconds):
        self.now_s += seconds
        return self.happens(Tick())

    def train(self, job_id="a", num_ranks=None, attempt=None):
        """Let all ranks of a launched job begin to train."""
        job = self.lifecycle.jobs[job_id]
        attempt = job.attempt if attempt is None else attempt
        for rank in range(num_ranks or len(job.ranks)):
            self.rank(job_id, RankStarted(rank, 1000 + rank, "host", "cpu"), attempt)
        for rank in range(num_ranks or len(job.ranks)):
            self.rank(job_id, TrainingStarted(rank, 10, 100, 100, 5), attempt)

    def running(self, job_id="a", num_ranks=2, **more):
        self.submit(job_id, num_ranks, **more)
        self.train(job_id)
        assert self.state(job_id) is JobState.RUNNING

    def all_exit(self, job_id="a", saved_step=None):
        """Let all ranks of the current attempt end, in order if they saved a checkpoint."""
        answers = []
        attempt = self.lifecycle.jobs[job_id].attempt
        for rank in list(self.lifecycle.jobs[job_id].ranks):
            if saved_step is not None:
                self.rank(job_id, RankStopped(rank, saved_step, True), attempt)
            answers += self.rank(job_id, RankExited(rank, 0, saved_step is not None), attempt)
        return answers

    def beat(self, job_id, rank, progress, waiting_for=""):
        attempt = self.lifecycle.jobs[job_id].attempt
        event = Heartbeat(rank, progress, progress, "exchange", waiting_for)
        return self.rank(job_id, event, attempt)

    def job(self, job_id="a"):
        return self.lifecycle.jobs[job_id]

    def finish(self, job_id, rank, exit_code=0, attempt=1):
        self.rank(job_id, RankFinished(rank, 10, 50, 1.0, {}), attempt)
        return self.exit(job_id, rank, exit_code, attempt=attempt)

    def exit(self, job_id, rank, exit_code=0, stopped=False, log_tail="", attempt=1):
        return self.rank(job_id, RankExited(rank, exit_code, stopped, log_tail), attempt)

    def state(self, job_id="a"):
        return self.lifecycle.jobs[job_id].state

    def culprit(self, job_id="a"):
        return self.lifecycle.jobs[job_id].culprit

    def count(self, kind, job_id="a"):
        return sum(isinstance(i, kind) and i.job_id == job_id for i in self.told)


def kinds(instructions):
    return [type(instruction) for instruction in instructions]
