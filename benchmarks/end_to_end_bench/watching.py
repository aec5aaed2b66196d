"""Receives a rank's events as a supervisor would, times them, and counts waits or profiles."""

import time
from pathlib import Path
from typing import Any

from benchmarks.end_to_end_bench.syncs import SyncCounter

COUNTED, PROFILED = 5, 7
"""The report windows of the first epoch in which waits are counted and steps are profiled.

The first epoch is not timed. By these windows, graphs have been recorded.
"""


class Watcher:
    """Collects the events of one rank.

    Args:
        windows: Number of reports of an epoch.
        cuda: Whether it trains on a GPU; waits are counted only there.
        trace: Path of a profile of some steps; `None` for no profile.

    Attributes:
        epochs: Figures of each epoch.
        started_s: When training began, by `time.perf_counter`.
        ended_s: When everything was done, including saving the model.
        finished: The rank's last event; `None` if it did not finish.
        failed: The event of a rank that failed; `None` if it did not fail.
        reader: Name of the library that reads row groups.
        hardware: The device's name.
        counter: Waits for the GPU in `counted_steps` steps.
    """

    def __init__(self, windows: int, cuda: bool, trace: Path | None):
        self._counted = COUNTED if cuda and windows >= COUNTED else 0
        self._profiled = min(PROFILED, windows) if trace else 0
        self.epochs: list[dict[str, Any]] = []
        self.started_s = self.ended_s = 0.0
        self.finished: Any = None
        self.failed: Any = None
        self.reader = self.hardware = ""
        self.counter = SyncCounter()
        self.counted_steps = 0
        self.profile = Profile(trace) if trace else None
        self._windows = self._rows_per_epoch = 0
        self._step = 0
        self._since_s = 0.0
        self._open = new_epoch()

    def take(self, event: Any) -> None:
        """Receive an event, in the training thread."""
        now_s = time.perf_counter()
        match event.kind:
            case "rank_started":
                self.hardware = event.hardware
            case "training_started":
                self.started_s = self._since_s = now_s
                self.reader = event.reader
                self._rows_per_epoch = event.rows_per_epoch
                self._look_closely(0)
            case "steps_done":
                self._steps_done(event, now_s)
            case "evaluation_done":
                self._evaluated(event, now_s)
            case "rank_finished":
                self.finished, self.ended_s = event, now_s
            case "rank_failed":
                self.failed = event

    def _steps_done(self, event: Any, now_s: float) -> None:
        taken, self._step = event.step - self._step, event.step
        epoch = self._open
        epoch["train_s"] = now_s - self._since_s
        for clock, told in (("host", event.seconds), ("device", event.device_seconds)):
            spent = epoch["phases_s"][clock]
            for phase, seconds in told.items():
                spent[phase] = spent.get(phase, 0.0) + seconds
        if not self.epochs:
            self._windows += 1
            self._look_closely(taken)

    def _look_closely(self, taken: int) -> None:
        """Begin or end counting and profiling at a window's boundary."""
        if self.counter.running:
            self.counter.end()
            self.counted_steps = taken
        if self._windows == self._counted - 1:
            self.counter.begin()
        if self.profile is not None:
            if self.profile.running:
                self.profile.end(taken)
            if self._windows == self._profiled - 1:
                self.profile.begin()

    def _evaluated(self, event: Any, now_s: float) -> None:
        from distrain.metrics import BinaryMetrics

        report = BinaryMetrics.from_json(event.metrics).compute()
        self._open |= {
            "rows": self._rows_per_epoch,
            "valid_rows": report.rows,
            "whole_s": now_s - self._since_s,
            "valid_loss": report.log_loss,
            "auc": report.auc,
            "average_precision": report.average_precision,
        }
        self.epochs.append(self._open)
        # The computation above is not part of the rank's work.
        self._open, self._since_s = new_epoch(), time.perf_counter()


def new_epoch() -> dict[str, Any]:
    """Return the empty figures of an epoch."""
    return {"train_s": 0.0, "phases_s": {"host": {}, "device": {}}}


class Profile:
    """Profiles some steps with torch's profiler.

    Args:
        path: Path of the trace, `.json.gz`; a table of kernels is written next to it.
    """

    def __init__(self, path: Path):
        self.path = path
        self.running = False
        self._profiler: Any = None

    def begin(self) -> None:
        """Start profiling."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, acc_events=True)
        self._profiler.start()
        self.running = True

    def end(self, steps: int) -> None:
        """Stop profiling, and write the trace and the table of `steps` steps."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profiler.stop()
        self.running = False
        self._profiler.export_chrome_trace(str(self.path))
        table = kernel_table(self._profiler.key_averages(), steps, torch.cuda.is_available())
        self.path.with_name(self.path.name.removesuffix(".json.gz") + ".md").write_text(table)


MOST_KERNELS = 30


def kernel_table(averages: Any, steps: int, cuda: bool) -> str:
    """Return a Markdown table of what took longest: kernels on a GPU, operations on a CPU."""
    attribute = "self_device_time_total" if cuda else "self_cpu_time_total"
    spent = [(getattr(each, attribute), each.count, each.key) for each in averages]
    if cuda:  # an operation's time includes its kernels': count only the kernels
        kinds = [str(each.device_type) for each in averages]
        on_gpu = [s for s, kind in zip(spent, kinds, strict=True) if kind.endswith("CUDA")]
        spent = on_gpu or spent
    spent.sort(reverse=True)
    total = sum(us for us, _, _ in spent) or 1
    lines = [
        f"# What {steps} steps took longest for",
        "",
        f"{'Kernels of the GPU' if cuda else 'Operations of the CPU, without those inside them'}; "
        f"{total / 1e3 / max(1, steps):.3f} ms a step together.",
        "",
        "| what | calls a step | ms a step | share |",
        "|---|--:|--:|--:|",
    ]
    for us, calls, name in spent[:MOST_KERNELS]:
        short = name.replace("|", "\\|")[:120]
        lines.append(
            f"| `{short}` | {calls / max(1, steps):.1f} | {us / 1e3 / max(1, steps):.4f} "
            f"| {us / total:.1%} |"
        )
    return "\n".join(lines) + "\n"
