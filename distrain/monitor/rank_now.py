"""What a job's ranks told last. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.coordinator.merging import stall_pct
from distrain.events import (
    Event,
    Heartbeat,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    RankStopped,
    StepsDone,
)

_NOT_OF_STEPS = ("evaluate", "checkpoint", "save")


@dataclass(frozen=True)
class Window:
    """Some steps of a rank.

    Attributes:
        steps: How many.
        wall_s: How long they took, without validation and checkpoints.
        own_s: The same without `exchange`, in which a rank also waits for slower ones. All ranks
            of a gang take the same wall time; this tells them apart.
        rows: Rows in them, if the rank told.
    """

    steps: int
    wall_s: float
    own_s: float
    rows: float | None


@dataclass
class RankNow:
    """One rank of the current attempt.

    Attributes:
        seconds: Its wall time by phase in its last report.
        total_seconds: The same in this attempt.
        step_time_s: Its own work per step in its last report: see `Window.own_s`.
        memory: What its process holds: `host_bytes`, and `device_bytes` on a GPU.
        heard_s: When it told of itself last, in unix time.
        progress: A number that grows as it works.
        progressed_s: When it last grew, in unix time.
    """

    pid: int | None = None
    host: str | None = None
    device: str | None = None
    doing: str = "setup"
    waiting_for: str = ""
    step: int = 0
    rows_per_s: float | None = None
    step_time_s: float | None = None
    stall_pct: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    total_seconds: dict[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    heard_s: float = 0.0
    progress: int = -1
    progressed_s: float = 0.0

    def observe(self, event: Event, now_s: float) -> None:
        """Take in what it told, except `StepsDone`."""
        match event:
            case RankStarted():
                self.pid, self.host, self.device = event.pid, event.host, event.device
            case Heartbeat():
                self.doing, self.waiting_for = event.doing, event.waiting_for
                if event.progress != self.progress:
                    self.progress, self.progressed_s = event.progress, now_s
            case RankFinished():
                self.doing, self.waiting_for = "finished", ""
            case RankStopped():
                self.doing, self.waiting_for = "stopped", ""
            case RankFailed():
                self.doing, self.waiting_for = "failed", ""
            case RankExited():
                if self.doing not in ("finished", "stopped", "failed"):
                    self.doing, self.waiting_for = "exited", ""
                return  # its supervisor told
            case _:
                pass
        self.heard_s = now_s

    def take_window(self, event: StepsDone, now_s: float) -> Window | None:
        """Take in some steps; `None` if they were none."""
        steps = event.step - self.step
        self.heard_s = self.progressed_s = now_s
        self.step, self.seconds, self.memory = event.step, event.seconds, event.memory
        for phase, seconds in event.seconds.items():
            self.total_seconds[phase] = self.total_seconds.get(phase, 0.0) + seconds
        self.stall_pct = stall_pct(event.seconds)
        wall_s = sum(s for phase, s in event.seconds.items() if phase not in _NOT_OF_STEPS)
        if steps <= 0 or wall_s <= 0:
            return None
        rows = event.loader.get("rows")
        window = Window(steps, wall_s, wall_s - event.seconds.get("exchange", 0.0), rows)
        self.rows_per_s = None if rows is None else rows / wall_s
        self.step_time_s = window.own_s / steps
        return window

    def to_json(self) -> dict[str, Any]:
        """What of it people see."""
        return {
            "pid": self.pid,
            "host": self.host,
            "device": self.device,
            "doing": self.doing,
            "waiting_for": self.waiting_for,
            "step": self.step,
            "rows_per_s": self.rows_per_s,
            "step_time_s": self.step_time_s,
            "seconds": dict(self.seconds),
            "total_seconds": dict(self.total_seconds),
            "stall_pct": self.stall_pct,
            "memory": dict(self.memory),
        }
