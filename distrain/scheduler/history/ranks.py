"""The last reports of a job's ranks, their step times, and the choice of ranks to show; no I/O."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs.events import (
    STEP_BOUNDS_S,
    Event,
    Heartbeat,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    RankStopped,
    StepsDone,
)
from distrain.runs.records.merging import stall_pct

SHOWN_RANKS = 64  # maximum ranks shown one by one; more bars do not fit beside each other

SLOW = 1.2
"""A rank is significantly slow if its step takes more than this many times the median's."""


_NOT_OF_STEPS = ("evaluate", "checkpoint", "save")
_ENDS: dict[type, str] = {RankFinished: "finished", RankStopped: "stopped", RankFailed: "failed"}


@dataclass(frozen=True)
class Window:
    """The steps that a rank has taken since its previous report, and their times."""

    steps: int  # number of steps
    wall_s: float  # wall time of the steps, without validation and checkpoints


@dataclass
class RankState:
    """The state of one rank, from its last events in the current attempt."""

    pid: int | None = None
    host: str | None = None
    device: str | None = None
    doing: str = "setup"  # as in `Heartbeat`, or how the rank ended, such as `finished`
    waiting_for: str = ""  # as in `Heartbeat`
    step: int = 0  # steps taken since the start of the job
    rows_per_s: float | None = None  # in its last report
    # Wall time of a step in its last report, without the phase `exchange`, in which a rank also
    # waits for slower ranks. The wall times of all ranks are equal, so only this shows a slow rank.
    step_time_s: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)  # by phase in its last report
    total_seconds: dict[str, float] = field(default_factory=dict)  # by phase in this attempt
    stall_pct: float | None = None
    memory: Mapping[str, int] = field(default_factory=dict)  # `host_bytes`, `device_bytes`
    progress: int = -1  # the last heartbeat's counter of progress
    progressed_s: float = 0.0  # when the rank last made progress, in unix time

    def observe(self, event: Event, now_s: float) -> None:
        """Process an event of the rank, other than `StepsDone`, that arrived at `now_s`."""
        match event:
            case Heartbeat():
                self.doing, self.waiting_for = event.doing, event.waiting_for
                if event.progress != self.progress:
                    self.progress, self.progressed_s = event.progress, now_s
            case RankStarted():
                self.pid, self.host, self.device = event.pid, event.host, event.device
            case RankFinished() | RankStopped() | RankFailed():
                self.doing, self.waiting_for = _ENDS[type(event)], ""
            case RankExited() if self.doing not in _ENDS.values():
                self.doing, self.waiting_for = "exited", ""

    def take_window(self, event: StepsDone, now_s: float) -> Window | None:
        """Return the steps in a report since the rank's previous report, and their times.

        `event` is the report, which arrived at `now_s`. `None` if there are no such steps, or their
        wall time is not above 0.
        """
        steps = event.step - self.step
        self.progressed_s = now_s
        self.step, self.seconds, self.memory = event.step, event.seconds, event.memory
        for phase, seconds in event.seconds.items():
            self.total_seconds[phase] = self.total_seconds.get(phase, 0.0) + seconds
        self.stall_pct = stall_pct(event.seconds)
        wall_s = sum(s for phase, s in event.seconds.items() if phase not in _NOT_OF_STEPS)
        if steps <= 0 or wall_s <= 0:
            return None
        rows = event.loader.get("rows")
        self.rows_per_s = None if rows is None else rows / wall_s
        self.step_time_s = (wall_s - event.seconds.get("exchange", 0.0)) / steps
        return Window(steps, wall_s)

    def to_json(self) -> dict[str, Any]:
        inner = ("progress", "progressed_s")
        # Not `asdict`: its copies took most of the time of a document.
        return {name: value for name, value in vars(self).items() if name not in inner}


def is_straggler(slowest: Mapping[str, Any] | None) -> bool:
    """Return True if the slowest rank is significantly slower than the median rank.

    Its step time is then more than `SLOW` times the median. Among equally fast ranks, it is a
    matter of chance which one is the slowest. `slowest` is the result of `JobHistory.slowest`;
    False if that is `None`.

    >>> is_straggler({"step_time_s": 0.011, "median_step_time_s": 0.010}), is_straggler(None)
    (False, False)
    """
    return slowest is not None and slowest["step_time_s"] > SLOW * slowest["median_step_time_s"]


def shown_ranks(times_s: Mapping[int, float | None], limit: int = SHOWN_RANKS) -> list[int]:
    """Return the ranks to show, ascending: all ranks, or `limit` of them if there are more.

    The `limit` ranks are the slowest, the middle and the fastest, a third each. A rank whose time
    is `None` counts as the fastest.

    >>> shown_ranks({rank: float(rank) for rank in range(9)}, limit=3)
    [0, 4, 8]
    """
    if len(times_s) <= limit:
        return sorted(times_s)
    by_speed = sorted(times_s, key=lambda rank: (times_s[rank] or 0.0, rank))
    fastest, middle = limit // 3, limit // 3
    slowest = limit - fastest - middle
    begin = (len(by_speed) - middle) // 2
    return sorted(
        by_speed[:fastest] + by_speed[begin : begin + middle] + by_speed[len(by_speed) - slowest :]
    )


class StepTimes:
    """A histogram of the steps' wall times, with bounds `STEP_BOUNDS_S`, and the sum of the times.

    >>> times = StepTimes()
    >>> times.add_mean(0.004, 10)
    >>> times.add_mean(60.0, 1)
    >>> times.cumulative()[2], times.cumulative()[-1], round(times.sum_s, 2)
    ((0.005, 10), (inf, 11), 60.04)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(STEP_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, counts: Sequence[int], sum_s: float) -> None:
        """Add the numbers of steps in each bin, and the sum of their times."""
        self.counts = [mine + its for mine, its in zip(self.counts, counts, strict=True)]
        self.sum_s += sum_s

    def add_mean(self, step_s: float, steps: int) -> None:
        """Count steps as if each took `step_s`, for a rank that reports no counts."""
        self.counts[bisect_left(STEP_BOUNDS_S, step_s)] += steps
        self.sum_s += step_s * steps

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bin's upper bound in seconds, and the number of steps up to that bound."""
        total, pairs = 0, []
        for bound_s, count in zip((*STEP_BOUNDS_S, float("inf")), self.counts, strict=True):
            total += count
            pairs.append((bound_s, total))
        return pairs
